"""The rows of share groups, from the state in `__share_group_state`, or as coordinators described them.

Where that topic may not be read, coordinators return lags of share groups (`describe`). A group that they
have described has the rows that they returned, and none from the topic.

A row of (group, topic name, partition) belongs to the topic that has the name now. State of earlier topics of
that name, which have other topic ids, makes no row and removes none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, share_committed_offset
from koff.records import ShareSnapshot, ShareUpdate, Undecodable, Unknown, decode_share_state
from koff.records.placement import group_partition
from koff.records.record_types import record_type_name
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.commit_rows import CommitRows
from koff.tracker.given_commits import remove_commits, remove_share_commits, set_commits, set_share_lags
from koff.tracker.log_batch import BytesColumn
from koff.tracker.registry import Registry
from koff.tracker.shard import Shards
from koff.tracker.share_progress import SharePartition, ShareProgress
from koff.tracker.topic_id_names import TopicNames
from koff.tracker.topic_ids import fold_topic_id

ShareKey = tuple[str, str, int]
"""Group, topic id, partition."""
Row = tuple[str, str, int]
"""Group, topic name, partition."""


class ShareLag(NamedTuple):
    """The lag of a share group in a partition, as its coordinator returned it; None if that is unknown."""

    topic: str
    topic_id: str
    partition: int
    lag: int | None


class ShareCommits:
    """The progress by partition of `__share_group_state`, and the rows of share groups that follow."""

    def __init__(self, registry: Registry, shards: Shards, names: TopicNames) -> None:
        self._registry, self._shards, self._names = registry, shards, names
        self._partition_count = 0  # of the offsets topic
        # The shards of share groups that are not in the partition that their name's hash says.
        self._places: Mapping[str, int] = {}
        self._states: dict[int, ShareProgress] = {}
        # All groups, by the partition of the offsets topic that they belong to; None: to be found again.
        self._groups_at: dict[int, set[str]] | None = None
        # State that changed. It waits while the shard of its group is unknown.
        self._pending: set[ShareKey] = set()
        # State that changed and waits for a list of topics that has its topic, by topic id.
        self._unlisted: dict[str, set[ShareKey]] = {}
        # Rows that belong to another topic than before.
        self._again: set[Row] = set()
        # The lags that coordinators returned, by group, with the time of the request. The rows that changed.
        self._described: dict[str, dict[Row, tuple[ShareLag, int]]] = {}
        self._changed: set[Row] = set()
        self.described_ms: dict[str, int | None] = {}
        """The groups whose rows are what coordinators returned: when all rows of each were requested.

        None: no response had all rows of the group.
        """

    # --- Inputs ------------------------------------------------------------------------------------------

    def apply(
        self, partition: int, keys: BytesColumn, values: BytesColumn, *, seen_at_ms: int = UNKNOWN
    ) -> None:
        """Applies records of one partition of `__share_group_state`, in log order.

        In the rows of a share group, `share_committed_offset` takes the place of a committed offset.
        """
        for key, value in zip(keys, values, strict=True):
            message = decode_share_state(key, value)
            record = message.record
            self._registry.record_counts[
                type(record).__name__
                if isinstance(record, Undecodable | Unknown)
                else record_type_name(record)
            ] += 1
            if not isinstance(record, ShareSnapshot | ShareUpdate):
                continue
            if self._registry.is_possible_key(record.group_id, partition=record.partition):
                self._states.setdefault(partition, ShareProgress()).apply(message)
                self._pending.add((record.group_id, record.topic_id, record.partition))
                self._note_group(record.group_id)
        self.update(seen_at_ms)

    def reset_partition(self, partition: int) -> None:
        """Drops the state from that partition of `__share_group_state`."""
        state = self._states.pop(partition, None)
        if state is not None:
            self._pending.update((row.group, row.topic_id, row.partition) for row in state.rows())
            for group in state.group_names():
                self._note_group(group)
        self.update()

    def describe(
        self, lags: Mapping[str, Sequence[ShareLag]], partial: Collection[str] = (), *, requested_ms: int
    ) -> None:
        """Sets the lags that coordinators returned for these share groups, in place of their share state.

        The response lacks partitions of the groups in `partial`: their rows stay as they are. The lags were
        requested at `requested_ms`, by the clock of `Tracker.apply`. Groups that are share groups no more are
        forgotten.
        """
        kept = set(lags).union(*(shard.shown.find_share_groups() for shard in self._shards.values()))
        self._forget(self.described_ms.keys() - kept)
        for group, described in lags.items():
            before = self._described.get(group, {})
            rows = {(group, lag.topic, lag.partition): (lag, requested_ms) for lag in described}
            self._changed.update(before, rows, () if before else self._rows_from_state(group))
            self._described[group] = {**before, **rows} if group in partial else rows
            self.described_ms[group] = self.described_ms.get(group) if group in partial else requested_ms
            self._note_group(group)
        self.update()

    def forget_descriptions(self) -> None:
        """Sets the rows from the state again: it may be read."""
        self._forget(set(self.described_ms))
        self.update()

    def _forget(self, groups: Collection[str]) -> None:
        for group in groups:
            before = self._described.pop(group)
            del self.described_ms[group]
            self._changed.update(before, self._rows_from_state(group))
            self._note_group(group)

    # --- Rows that are to be set again -------------------------------------------------------------------

    def set_partition_count(self, count: int) -> None:
        """Sets the partition count of the offsets topic (0: unknown). Rows are set once it is known."""
        before, self._partition_count = self._partition_count, count
        if before != count:
            self._groups_at = None
            # Share groups that belong to another shard now leave their old one.
            names = self.group_names() if before and count else ()
            self._move(
                name for name in names if group_partition(name, before) != group_partition(name, count)
            )
        self.update()

    def set_places(self, elsewhere: Mapping[str, int]) -> None:
        """Moves the rows of share groups that are `elsewhere` than in the partition of their name's hash."""
        if elsewhere or self._places:
            before, names = self._places, self.group_names()
            self._places = {name: place for name, place in elsewhere.items() if name in names}
            if moved := before.items() ^ self._places.items():
                self._move(name for name, _ in moved)
                self.update()

    def set_shard_again(self, partition: int) -> None:
        """Notes that the rows in that shard are to be set again: it is a new one."""
        groups = [name for name, place in self._places.items() if place == partition]
        if self._partition_count:
            if self._groups_at is None:
                self._groups_at = {}
                for name in self.group_names():
                    self._groups_at.setdefault(self._find_home(name), set()).add(name)
            groups += self._groups_at.get(partition, ())
        self._set_again(groups)

    def set_topics_again(self, topics: Collection[str]) -> None:
        """Sets the rows of these topic names, which belong to another topic id than before; and others whose
        topic is listed now.
        """
        for state in self._states.values() if topics else ():
            for row in state.rows():
                topic = self._names.names.get(row.topic_id)
                if topic is not None and topic in topics:
                    self._again.add((row.group, topic, row.partition))
        self.update()

    def _move(self, groups: Iterable[str]) -> None:
        """Removes the rows of these groups from all shards, and notes that they are to be set again."""
        if moved := set(groups):
            for shard in self._shards.values():
                remove_share_commits(shard.rows, moved)
            self._set_again(moved)

    def _set_again(self, groups: Iterable[str]) -> None:
        for group in groups:
            for state in self._states.values():
                self._pending.update(
                    (group, row.topic_id, row.partition) for row in state.partitions_of(group)
                )
            self._changed.update(self._described.get(group, ()))

    # --- What is known -----------------------------------------------------------------------------------

    def has_share_groups(self) -> bool:
        """Whether a group is known to be a share group."""
        return any(shard.shown.find_share_groups() for shard in self._shards.values())

    def group_names(self) -> set[str]:
        """The groups with state, and those that coordinators have described."""
        return set(self._described).union(*(state.group_names() for state in self._states.values()))

    def topic_ids(self) -> set[str]:
        """The topic ids in the state, and in tombstones that are not applied yet."""
        pending = {key[1] for key in self._pending}
        return pending.union(self._unlisted, *(state.topic_ids for state in self._states.values()))

    @property
    def unlisted_topics(self) -> Collection[str]:
        """The ids of topics with state that no list of topics had: they make no rows."""
        return self._unlisted.keys()

    def find_groups_of(self, topic_ids: Iterable[str]) -> set[str]:
        """The groups that lack rows of these topics, because no list of topics has had them."""
        return {key[0] for topic_id in topic_ids for key in self._unlisted.get(topic_id, ())}

    def _find_home(self, group: str) -> int:
        return group_partition(group, self._partition_count)

    def _note_group(self, group: str) -> None:
        """Notes that a group may have come, or gone."""
        if self._groups_at is not None:
            in_state = any(group in state.group_names() for state in self._states.values())
            here = self._groups_at.setdefault(self._find_home(group), set())
            if in_state or group in self._described:
                here.add(group)
            else:
                here.discard(group)

    def _rows_from_state(self, group: str) -> Iterator[Row]:
        for state in self._states.values():
            for each in state.partitions_of(group):
                if (topic := self._names.names.get(each.topic_id)) is not None:
                    yield group, topic, each.partition

    # --- Rows are set ------------------------------------------------------------------------------------

    def update(self, seen_at_ms: int = UNKNOWN) -> None:
        """Sets and removes the rows that changed, as far as their topics are listed.

        While the partition count of the offsets topic is 0, there are none.
        """
        if not self._partition_count:
            return
        for topic_id in filter(self._names.is_listed, list(self._unlisted)):
            self._pending |= self._unlisted.pop(topic_id)
        if not (self._pending or self._again or self._changed):
            return
        again, rows = self._again, self._again | self._changed
        for key in self._pending:
            group, topic_id, partition = key
            if not self._names.is_listed(topic_id):
                self._wait_for_list(key)
            elif self._names.is_present(topic_id):
                rows.add((group, self._names.names[topic_id], partition))
        self._pending, self._again, self._changed = set(), set(), set()
        by_shard: dict[int, set[Row]] = {}
        for row in rows:
            place = self._places.get(row[0])
            by_shard.setdefault(self._find_home(row[0]) if place is None else place, set()).add(row)
        for number, each in by_shard.items():
            self._set_rows(self._shards[number].rows, each, again, seen_at_ms)

    def _wait_for_list(self, key: ShareKey) -> None:
        """Keeps state until its topic is listed, or until it is deleted."""
        waiting = self._unlisted.setdefault(key[1], set())
        if self._find(key) is not None:
            waiting.add(key)
        else:
            waiting.discard(key)
        if not waiting:
            del self._unlisted[key[1]]

    def _set_rows(self, table: CommitRows, rows: set[Row], again: set[Row], seen_at_ms: int) -> None:
        """Sets these rows of a shard. Those in `again` lose their windows, which are of another topic."""
        offsets: dict[Row, int] = {}
        columns: list[tuple[int, int, int]] = []
        lags: dict[Row, int] = {}
        described: list[tuple[int, int]] = []
        gone = rows & again
        for row in rows:
            group, topic, partition = row
            topic_id = self._names.present.get(topic, "")
            if group in self._described:
                if (returned := self._described[group].get(row)) is None:
                    gone.add(row)
                    continue
                lag, requested_ms = returned
                lags[row] = UNKNOWN if lag.lag is None else lag.lag
                described.append((fold_topic_id(lag.topic_id), requested_ms))
            elif (found := self._find((group, topic_id, partition))) is None:
                gone.add(row)
            else:
                place, state = found
                offsets[row] = share_committed_offset(state.start_offset, state.delivery_complete_count)
                # Update records have no timestamp: a live update takes the time at which it was read.
                at_ms = seen_at_ms if seen_at_ms != UNKNOWN else state.write_timestamp_ms
                columns.append((at_ms, fold_topic_id(topic_id), place))
        remove_commits(table, gone, shared=True)
        at, ids, places = np.array(columns, np.int64).reshape(-1, 3).T
        set_commits(
            table,
            CommitColumns.from_offsets(offsets),
            at_ms=at,
            topic_id=ids,
            seen_at_ms=seen_at_ms,
            share_partition=places,
        )
        ids, times_ms = np.array(described, np.int64).reshape(-1, 2).T
        set_share_lags(table, CommitColumns.from_offsets(lags), topic_id=ids, requested_ms=times_ms)

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
