"""The commits of share groups: the state from each partition of `__share_group_state`, and the rows from it.

Where that topic may not be read, coordinators return lags of share groups (`describe_groups`). A group that
they have described has the rows that they returned, and none from the topic.

A row of (group, topic name, partition) belongs to the topic that has the name now. State of earlier topics of
that name, which have other topic ids, makes no row and removes none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, share_committed_offset
from koff.records import DecodedMessage, ShareSnapshot, ShareUpdate
from koff.records.placement import group_partition
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.share_progress import SharePartition, ShareState
from koff.tracker.topic_names import TopicNames
from koff.tracker.topic_partitions import fold_topic_id

ShareKey = tuple[str, str, int]
"""Group, topic id, partition."""
Row = tuple[str, str, int]
"""Group, topic name, partition."""
_INT64_MAX = 2**63 - 1


class ShareLag(NamedTuple):
    """The lag of a share group in a partition, as its coordinator returned it; None if that is unknown."""

    topic: str
    topic_id: str
    partition: int
    lag: int | None


class DescribedRows(NamedTuple):
    """Lags that coordinators returned. `rows` has them in place of offsets; UNKNOWN if they are unknown."""

    rows: CommitColumns
    topic_id: Ints
    asked_ms: Ints


class ShareRows(NamedTuple):
    """What to do in one shard: first remove the rows `gone`, then set the commits (`Shard.set_commits`).

    `described` are rows without a commit, with a lag (`Shard.set_share_lags`).
    """

    commits: CommitColumns
    at_ms: Ints
    topic_id: Ints
    share_partition: Ints
    described: DescribedRows
    gone: list[Row]


class _GroupsByPartition:
    """Groups by the partition of the offsets topic that they belong to."""

    def __init__(self, partition_count: int = 0) -> None:
        self.partition_count = partition_count
        self.groups: dict[int, set[str]] = {}
        self._partitions: dict[str, int] = {}

    def add(self, names: Iterable[str]) -> None:
        """Adds the groups. There is nothing to do while the partition count is 0: unknown."""
        for name in names if self.partition_count else ():
            if name not in self._partitions:
                partition = self._partitions[name] = group_partition(name, self.partition_count)
                self.groups.setdefault(partition, set()).add(name)

    def discard(self, name: str) -> None:
        """Removes a group, if it is there."""
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self.groups[partition].remove(name)


class ShareCommits:
    """The share state by partition of `__share_group_state`, and which rows are to be set from it."""

    def __init__(self, registry: Registry, names: TopicNames) -> None:
        self._registry, self._names = registry, names
        self._states: dict[int, ShareState] = {}
        self._groups_by_partition = _GroupsByPartition()
        # State that changed. It waits while the shard of its group is unknown.
        self._pending: set[ShareKey] = set()
        # State that changed and waits for a list of topics that has its topic, by topic id.
        self._unlisted: dict[str, set[ShareKey]] = {}
        # Rows that belong to another topic than before.
        self._again: set[Row] = set()
        # The lags that coordinators returned, by group, with the time of the request. The rows that changed.
        self._described: dict[str, dict[Row, tuple[ShareLag, int]]] = {}
        self._described_ms: dict[str, int | None] = {}
        self._changed: set[Row] = set()

    def topic_ids(self) -> set[str]:
        """The topic ids in the state, and in tombstones that are not applied yet."""
        pending = {key[1] for key in self._pending}
        return pending.union(self._unlisted, *(state.topic_ids for state in self._states.values()))

    def apply(self, partition: int, message: DecodedMessage) -> None:
        """Applies the next record of that partition of `__share_group_state`."""
        record = message.record
        if not isinstance(record, ShareSnapshot | ShareUpdate):
            return
        if not self._registry.is_possible_key(record.group_id, partition=record.partition):
            return
        self._states.setdefault(partition, ShareState()).apply(message)
        self._pending.add((record.group_id, record.topic_id, record.partition))
        self._note_group(record.group_id)

    def reset_partition(self, partition: int) -> None:
        """Drops the state from that partition of `__share_group_state`."""
        state = self._states.pop(partition, None)
        if state is not None:
            self._pending.update((row.group, row.topic_id, row.partition) for row in state.rows())
            for group in state.group_names():
                self._note_group(group)

    def describe_groups(
        self, lags: Mapping[str, Sequence[ShareLag]], partial: Collection[str], *, asked_ms: int
    ) -> None:
        """Sets what coordinators returned for these groups.

        Of groups in `partial`, rows that the response lacks stay as they are. `asked_ms` is when it was
        requested.
        """
        for group, described in lags.items():
            before = self._described.get(group, {})
            rows = {(group, lag.topic, lag.partition): (lag, asked_ms) for lag in described}
            self._changed.update(before, rows, () if before else self._rows_from_state(group))
            self._described[group] = {**before, **rows} if group in partial else rows
            self._described_ms[group] = self._described_ms.get(group) if group in partial else asked_ms
            self._note_group(group)

    def forget_descriptions(self, groups: Iterable[str]) -> None:
        """Forgets what coordinators returned: the rows are set from the state again."""
        for group in groups:
            if (before := self._described.pop(group, None)) is not None:
                del self._described_ms[group]
                self._changed.update(before, self._rows_from_state(group))
                self._note_group(group)

    @property
    def described_ms(self) -> Mapping[str, int | None]:
        """The groups whose rows are what coordinators returned, with the time when all were requested.

        None: no response had all rows of the group.
        """
        return self._described_ms

    def _rows_from_state(self, group: str) -> Iterator[Row]:
        for state in self._states.values():
            for each in state.partitions_of(group):
                if (topic := self._names.names.get(each.topic_id)) is not None:
                    yield group, topic, each.partition

    @property
    def unlisted_topics(self) -> Collection[str]:
        """The ids of topics with state that no list of topics had."""
        return self._unlisted.keys()

    def find_groups_of(self, topic_ids: Iterable[str]) -> set[str]:
        """The groups with state of these topics, as far as no list of topics has had them."""
        return {key[0] for topic_id in topic_ids for key in self._unlisted.get(topic_id, ())}

    def groups_at(self, partition: int, partition_count: int) -> Collection[str]:
        """The groups with state that belong to that partition of the offsets topic."""
        if self._groups_by_partition.partition_count != partition_count:
            self._groups_by_partition = _GroupsByPartition(partition_count)
            self._groups_by_partition.add(self.group_names())
        return self._groups_by_partition.groups.get(partition, ())

    def set_groups_again(self, groups: Iterable[str]) -> None:
        """Notes that the rows of these groups are to be set again: their shard is new."""
        for group in groups:
            for state in self._states.values():
                self._pending.update(
                    (group, row.topic_id, row.partition) for row in state.partitions_of(group)
                )
            self._changed.update(self._described.get(group, ()))

    def set_topics_again(self, topics: Collection[str]) -> None:
        """Notes that the rows of these topic names belong to another topic id than before."""
        if not topics:
            return
        for group, topic_id, partition in self._keys():
            topic = self._names.names.get(topic_id)
            if topic is not None and topic in topics:
                self._again.add((group, topic, partition))

    def group_names(self) -> set[str]:
        """The groups with state, and those that coordinators have described."""
        return set(self._described).union(*(state.group_names() for state in self._states.values()))

    def drain(
        self, partition_count: int, places: Mapping[str, int], seen_at_ms: int = UNKNOWN
    ) -> Mapping[int, ShareRows]:
        """The rows to be set and removed, by shard, as far as the topics are listed.

        `partition_count` is that of the offsets topic. While it is 0, there are none. `places` are the shards
        of the groups that are not in the partition that their name's hash says.
        """
        if not partition_count:
            return {}
        for topic_id in filter(self._names.is_listed, list(self._unlisted)):
            self._pending |= self._unlisted.pop(topic_id)
        if not (self._pending or self._again or self._changed):
            return {}
        again, rows = self._again, self._again | self._changed
        for key in self._pending:
            group, topic_id, partition = key
            if not self._names.is_listed(topic_id):
                self._wait_for_list(key)
            elif self._names.is_present(topic_id):
                rows.add((group, self._names.names[topic_id], partition))
        self._pending, self._again, self._changed = set(), set(), set()
        shards: dict[int, set[Row]] = {}
        for row in rows:
            place = places.get(row[0])
            place = group_partition(row[0], partition_count) if place is None else place
            shards.setdefault(place, set()).add(row)
        return {shard: self._build_rows(each, again, seen_at_ms) for shard, each in shards.items()}

    def _wait_for_list(self, key: ShareKey) -> None:
        """Keeps state until its topic is listed, or until it is deleted."""
        waiting = self._unlisted.setdefault(key[1], set())
        if self._find(key) is not None:
            waiting.add(key)
        else:
            waiting.discard(key)
        if not waiting:
            del self._unlisted[key[1]]

    def _note_group(self, group: str) -> None:
        """Notes that a group may have come, or gone."""
        in_state = any(group in state.group_names() for state in self._states.values())
        if in_state or group in self._described:
            self._groups_by_partition.add([group])
        else:
            self._groups_by_partition.discard(group)

    def _build_rows(self, rows: set[Row], again: set[Row], seen_at_ms: int) -> ShareRows:
        described = self._build_described(row for row in rows if row[0] in self._described)
        offsets: dict[Row, int] = {}
        columns: list[tuple[int, int, int]] = []
        gone = [row for row in rows if row in again]  # its window is that of another topic
        for group, topic, partition in rows:
            if (present := self._described.get(group)) is not None:
                gone += [] if (group, topic, partition) in present else [(group, topic, partition)]
                continue
            topic_id = self._names.present_id(topic) or ""
            found = self._find((group, topic_id, partition))
            if found is None:
                gone.append((group, topic, partition))
                continue
            place, state = found
            committed = share_committed_offset(state.start_offset, state.delivery_complete_count)
            offsets[group, topic, partition] = min(committed, _INT64_MAX)
            # Update records have no timestamp: a live update takes the time at which it was read.
            at_ms = seen_at_ms if seen_at_ms != UNKNOWN else state.write_timestamp_ms
            columns.append((at_ms, fold_topic_id(topic_id), place))
        at, ids, places = np.array(columns, np.int64).reshape(-1, 3).T
        return ShareRows(CommitColumns.from_offsets(offsets), at, ids, places, described, gone)

    def _build_described(self, rows: Iterable[Row]) -> DescribedRows:
        lags: dict[Row, int] = {}
        columns: list[tuple[int, int]] = []
        for row in rows:
            if (found := self._described[row[0]].get(row)) is not None:
                lag, asked_ms = found
                lags[row] = UNKNOWN if lag.lag is None else lag.lag
                columns.append((fold_topic_id(lag.topic_id), asked_ms))
        ids, asked = np.array(columns, np.int64).reshape(-1, 2).T
        return DescribedRows(CommitColumns.from_offsets(lags), ids, asked)

    def _find(self, key: ShareKey) -> tuple[int, SharePartition] | None:
        """The state of that key, and the partition of `__share_group_state` that it is from.

        After that topic has grown, an earlier partition may still have older state: the newest write counts.
        """
        found = [
            (row.write_timestamp_ms, place, row)
            for place, state in self._states.items()
            if (row := state.get(*key)) is not None
        ]
        if not found:
            return None
        _, place, row = max(found, key=lambda each: each[:2])
        return place, row

    def _keys(self) -> Iterator[ShareKey]:
        for state in self._states.values():
            for row in state.rows():
                yield row.group, row.topic_id, row.partition
