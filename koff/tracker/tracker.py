"""All groups of one cluster: a shard for each partition of `__consumer_offsets`, and the sampled offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat

import numpy as np

from koff.lag import UNKNOWN, FirstRecords, TimeLags
from koff.records import DecodedMessage, Undecodable, Unknown, decode_share_state
from koff.records.placement import group_partition
from koff.records.record_types import record_type_name
from koff.tracker.assignments import list_topic_ids
from koff.tracker.clock_skew import find_median
from koff.tracker.commit_columns import CommitColumns, Commits, split_by_offsets_partition
from koff.tracker.first_records import LaggingRow, join_records
from koff.tracker.group_places import GroupPlaces
from koff.tracker.groups import Described, Group
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.saved_state import State
from koff.tracker.shard import BytesColumn, Shard
from koff.tracker.share_commits import ShareCommits, ShareLag
from koff.tracker.shown import ShownNames
from koff.tracker.snapshot import Snapshot
from koff.tracker.topic_names import TopicNames
from koff.tracker.topic_partitions import Offsets
from koff.tracker.watched import WatchedPartitions

RELEASE_INTERVAL_MS = 5_000
"""The shortest time between two searches for partitions that no group uses, by the times of samples."""


class Tracker:
    """The groups of a cluster and their committed offsets.

    In these methods, `partition` is a partition of the offsets topic.

    Only one thread at a time may use a tracker and its shards: nothing here takes a lock. Snapshots and saved
    states are copies, which any thread may read.
    """

    def __init__(self) -> None:
        self._registry = Registry()
        self._shards: dict[int, Shard] = {}
        self._places = GroupPlaces()
        self._watched = WatchedPartitions(self._registry)
        self._topic_names = TopicNames()
        self._share_commits = ShareCommits(self._registry, self._topic_names)
        # The shards of share groups that are not in the partition that their name's hash says.
        self._share_places: dict[str, int] = {}
        self._offsets_partitions = 0
        self._released_ms = UNKNOWN

    @property
    def record_counts(self) -> Counter[str]:
        """The number of records applied, by record name."""
        return self._registry.record_counts

    @property
    def impossible_counts(self) -> Counter[str]:
        """What was left out of records: the number of impossible "partition"s and "name"s."""
        return self._registry.impossible_counts

    def set_offsets_partitions(self, count: int, *, last_written: int = -1) -> None:
        """Sets the partition count of the offsets topic (0: unknown), and its last partition with records.

        If a group is in several partitions, the one that its name's hash belongs to shows it, else the one
        with the newest commit. A group elsewhere is hidden too, unless brokers may use an earlier count: then
        later partitions have no records. Rows of share groups are set once the count is known.
        """
        self._places.set_topic(count, last_written)
        if count == self._offsets_partitions:
            self._update_share_commits()
            return
        before, self._offsets_partitions = self._offsets_partitions, count
        # Share groups that belong to another shard now leave their old one.
        moved = {
            name
            for name in self._share_commits.group_names()
            if before and count and group_partition(name, before) != group_partition(name, count)
        }
        for shard in self._shards.values():
            shard.remove_share_commits(moved)
        self._share_commits.set_groups_again(moved)
        self._update_share_commits()

    def show(self, names: ShownNames) -> None:
        """Shows only these groups and topics from now on. The state of all others is kept."""
        self._registry.shown = names

    def apply(
        self,
        partition: int,
        keys: BytesColumn,
        values: BytesColumn,
        *,
        seen_at_ms: int = UNKNOWN,
        is_live: bool = True,
    ) -> None:
        """Applies records of one partition of the offsets topic, in log order.

        `seen_at_ms` is when the records were read, UNKNOWN if nobody knows. History is not `is_live`: the
        present end offsets do not show the lag at those commits, nor the present time the skew of clocks. End
        offsets that were requested after `seen_at_ms` do not show the lag at commit, either.
        """
        self._shard(partition).apply(keys, values, seen_at_ms=seen_at_ms, is_live=is_live)

    def reset_partition(self, partition: int) -> None:
        """Drops the state of a partition that is read again from its start, or that no longer exists."""
        self._shards.pop(partition, None)
        self._places.remove_shard(partition)
        # Commits of share groups do not come from the offsets topic: set them again in the new shard.
        count = self._offsets_partitions
        if count:
            self._share_commits.set_groups_again(self._share_commits.groups_at(partition, count))
        here = [name for name, place in self._share_places.items() if place == partition]
        self._share_commits.set_groups_again(here)

    def seed_partitions(
        self,
        commits: Commits,
        groups: Mapping[str, Described],
        partitions: int,
        only: Collection[int],
        *,
        seen_at_ms: int = UNKNOWN,
    ) -> None:
        """Sets the state of the partitions `only` to the responses of coordinators: `commits` and `groups`.

        `partitions` is the partition count of the offsets topic, `seen_at_ms` when the responses came.
        """
        described: dict[int, dict[str, Described]] = {}
        for name, group in groups.items():
            described.setdefault(group_partition(name, partitions), {})[name] = group
        committed = dict(split_by_offsets_partition(commits, partitions))
        # A partition in `only` without commits gets an empty shard, or one with groups alone.
        for offsets_partition in only:
            own = committed.get(offsets_partition) or CommitColumns.select_rows(commits, np.zeros(0, np.intp))
            own_groups = described.get(offsets_partition, {})
            shard = Shard.from_descriptions(self._registry, own, own_groups, seen_at_ms=seen_at_ms)
            self.replace_shard(offsets_partition, shard)

    def apply_external_commits(
        self,
        offsets_partition: int,
        changed: Mapping[tuple[str, str, int], tuple[int, int]],
        gone: Iterable[tuple[str, str, int]],
        groups: Mapping[str, Group],
        *,
        kept: Collection[str] = (),
        seen_at_ms: int = UNKNOWN,
        is_live: bool = True,
    ) -> None:
        """Applies commits that come from no offsets topic (ZooKeeper) to a shard of their own.

        `offsets_partition` is the number of that shard, which no partition of the offsets topic has.
        `changed` has the offset and the commit time in ms by group, topic and partition; `gone` are the
        deleted commits. `groups` are all groups of ZooKeeper, and replace the earlier groups, but those that
        are `kept`. `seen_at_ms` and `is_live` are as in `apply`.
        """
        shard = self._shard(offsets_partition)
        shard.remove_commits(gone)
        commits = CommitColumns.from_offsets({key: offset for key, (offset, _) in changed.items()})
        at_ms = np.array([at_ms for _, at_ms in changed.values()], np.int64)
        shard.set_commits(commits, at_ms=at_ms, seen_at_ms=seen_at_ms, is_live=is_live)
        shard.replace_groups(groups, keep=kept)

    def overwrite_commits(
        self,
        partition: int,
        commits: Commits,
        groups: Mapping[str, Described] | None,
        failed: Collection[str],
        *,
        seen_at_ms: int = UNKNOWN,
        kept_topics: Collection[str] = (),
    ) -> None:
        """Makes the state of a partition equal to the present response of the coordinators.

        Sets the committed offset of each row that differs, without a commit time, and not in the window of
        commits. Such a row has no rates, and no status while it is behind, until a commit with a time comes.
        Removes rows that the response does not have, and adds new ones. Groups in `failed` keep
        their rows and descriptions: the coordinators said nothing of them. `groups` replaces all other
        descriptions; None keeps them. Rows from share state stay as they are. So do rows of `kept_topics`
        that the response does not have: it leaves out topics that koff may not describe.
        """
        self._shard(partition).overwrite_commits(
            commits, groups, failed, seen_at_ms=seen_at_ms, kept_topics=kept_topics
        )

    def find_left_topics(
        self, partition: int, commits: Commits, failed: Collection[str]
    ) -> dict[str, set[str]]:
        """The topics of rows that `overwrite_commits` would remove, each with the groups of these rows."""
        return self._shard(partition).find_left_topics(commits, failed)

    def create_shard(self) -> Shard:
        """An empty shard, to be filled and passed to `replace_shard`."""
        return Shard(self._registry)

    def replace_shard(self, partition: int, shard: Shard) -> None:
        """Makes `shard` the shard of that partition.

        First records that are still valid are carried over, when commits were read, and how many.
        """
        before = self._shards.get(partition)
        self.reset_partition(partition)
        self._shards[partition] = shard
        # Records that were read stay valid as long as the committed offset is the same.
        if before is not None:
            shard.skew, shard.commit_counts = before.skew, before.commit_counts
            shard.note_first_records(*before.first_records())
            shard.note_seen(*before.list_seen())
        self._update_share_commits()

    def group_names(self, partition: int) -> set[str]:
        """The groups of that partition."""
        shard = self._shards.get(partition)
        return shard.group_names() if shard else set()

    def find_hidden_groups(self) -> set[str]:
        """The groups that are only in partitions of the offsets topic that no broker uses for them.

        As of the last snapshot.
        """
        return self._places.find_hidden()

    @property
    def has_offsets_topic_grown(self) -> bool:
        """Whether `set_offsets_partitions` was called with a larger count than before."""
        return self._places.has_grown

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether brokers may still use an earlier partition count of the offsets topic, which has grown."""
        return self._places.may_be_elsewhere

    def find_groups_elsewhere(self) -> Mapping[str, int]:
        """The groups that are shown outside the partition that their name's hash says, with their partitions.

        After the offsets topic has grown, they stay there until brokers are restarted. The mapping is brought
        up to date by the next call: do not modify it.
        """
        self._places.update(self._shards)
        return self._places.find_elsewhere()

    def version(self, partition: int) -> int:
        """A number that changes whenever the state of that partition changes; 0 without a shard."""
        shard = self._shards.get(partition)
        return shard.version if shard else 0

    def save_partition(self, partition: int) -> State | None:
        """A copy of the state of that partition, for `restore_partition`; None without a shard.

        Commits of share groups are left out: they come from `__share_group_state`, which is read again.
        """
        shard = self._shards.get(partition)
        return shard.to_state() if shard else None

    def restore_partition(self, partition: int, state: State, *, seen_at_ms: int | None = None) -> None:
        """Replaces the shard of that partition with the state from `save_partition`.

        `seen_at_ms` is when all its commits had been read; None: as saved.
        """
        self.replace_shard(partition, Shard.from_state(self._registry, state, seen_at_ms=seen_at_ms))

    def save_ends(self, now_ms: int | None = None) -> State:
        """A copy of the end offset history of all topic partitions; see `PartitionTable.save_ends`."""
        return self._registry.partitions.save_ends(now_ms)

    def restore_ends(
        self, state: State, *, now_ms: int | None = None, pause_ms: int | None = None
    ) -> str | None:
        """Restores the history from `save_ends`. Returns why not, or None; see `PartitionTable.restore_ends`.

        Raises ValueError if an end offset was sampled before.
        """
        with self._registry.numbers_change():
            return self._registry.partitions.restore_ends(state, now_ms=now_ms, pause_ms=pause_ms)

    def apply_share_state(
        self, partition: int, keys: BytesColumn, values: BytesColumn, *, seen_at_ms: int = UNKNOWN
    ) -> None:
        """Applies records of one partition of `__share_group_state`, in log order.

        In the rows of a share group, `share_committed_offset` takes the place of a committed offset.
        """
        for key, value in zip(keys, values, strict=True):
            message = decode_share_state(key, value)
            self.record_counts[_count_name(message)] += 1
            self._share_commits.apply(partition, message)
        self._update_share_commits(seen_at_ms)

    def reset_share_partition(self, partition: int) -> None:
        """Drops the state from that partition of `__share_group_state`."""
        self._share_commits.reset_partition(partition)
        self._update_share_commits()

    @property
    def has_share_groups(self) -> bool:
        """Whether a group is known to be a share group."""
        return any(shard.has_share_groups for shard in self._shards.values())

    def describe_share_groups(
        self, lags: Mapping[str, Sequence[ShareLag]], partial: Collection[str] = (), *, asked_ms: int
    ) -> None:
        """Sets the lags that coordinators returned for these share groups, in place of their share state.

        Of groups in `partial`, the response lacks partitions, whose rows stay as they are. `asked_ms` is when
        the lags were requested, by the clock of `apply`. Groups that are share groups no more are forgotten.
        """
        described = self._share_commits.described_ms.keys() - lags.keys()
        shards = self._shards.values()
        unknown = [name for name in described if not any(s.groups.is_share_group(name) for s in shards)]
        self._share_commits.forget_descriptions(unknown)
        self._share_commits.describe_groups(lags, partial, asked_ms=asked_ms)
        self._update_share_commits()

    @property
    def described_shares_ms(self) -> Mapping[str, int | None]:
        """The share groups whose rows are what coordinators returned: when all rows of each were requested.

        None: no response had all rows of the group. The mapping changes: do not keep it.
        """
        return self._share_commits.described_ms

    @property
    def unlisted_share_topics(self) -> Collection[str]:
        """The ids of topics with share state that no list of topics had: they make no rows."""
        return self._share_commits.unlisted_topics

    def find_share_groups_of(self, topic_ids: Iterable[str]) -> set[str]:
        """The share groups that lack rows of these topics, because no list of topics has had them."""
        return self._share_commits.find_groups_of(topic_ids)

    def forget_described_shares(self) -> None:
        """Sets the rows of share groups from their state again: it may be read."""
        self._share_commits.forget_descriptions(list(self._share_commits.described_ms))
        self._update_share_commits()

    def _update_share_commits(self, seen_at_ms: int = UNKNOWN) -> None:
        """Sets the rows of share groups whose state has changed."""
        drained = self._share_commits.drain(self._offsets_partitions, self._share_places, seen_at_ms)
        for number, rows in drained.items():
            shard = self._shard(number)
            shard.remove_commits(rows.gone, shared=True)
            shard.set_commits(
                rows.commits,
                at_ms=rows.at_ms,
                topic_id=rows.topic_id,
                seen_at_ms=seen_at_ms,
                share_partition=rows.share_partition,
            )
            described = rows.described
            shard.set_share_lags(described.rows, topic_id=described.topic_id, asked_ms=described.asked_ms)

    def _shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = Shard(self._registry)
        return shard

    @property
    def partition_count(self) -> int:
        """The number of topic partitions that have a number."""
        return len(self._registry.partitions)

    @property
    def row_count(self) -> int:
        """How many rows there are, shown or hidden."""
        return sum(shard.row_count for shard in self._shards.values())

    def watched_partitions(self) -> list[tuple[str, int]]:
        """The (topic, partition) that groups committed to or are assigned, where the name is known; sorted.

        The same list until there is a change: do not modify it.
        """
        self._refresh()
        hiding = self._places.is_hiding or not self._registry.shown.are_all
        return self._watched.list_partitions(self._shards.values(), hiding=hiding)

    def keep_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Watches these partitions, also if no group uses them. Replaces those of the last call."""
        self._registry.kept = self._registry.assign_numbers_by_name(partitions)

    def unnamed_topic_ids(self) -> set[str]:
        """The topic ids in assignments without a known name, and those in share state that no list had."""
        self._refresh()
        names = self._topic_names
        assigned = set[str]().union(*(shard.assignments.unnamed_ids for shard in self._shards.values()))
        unlisted = {each for each in self._share_commits.topic_ids() if not names.is_listed(each)}
        return unlisted | (assigned - names.names.keys())

    def _refresh(self) -> None:
        """Brings up to date what follows from groups that came, went or changed."""
        self._places.update(self._shards)
        self._move_share_commits()
        for shard in self._shards.values():
            shard.update_assignments(self._topic_names.names)

    def _move_share_commits(self) -> None:
        """Moves the rows of share groups to the shards that show these groups."""
        elsewhere = self._places.find_elsewhere()
        if not (elsewhere or self._share_places):
            return
        before, names = self._share_places, self._share_commits.group_names()
        self._share_places = {name: place for name, place in elsewhere.items() if name in names}
        moved = {name for name, _ in before.items() ^ self._share_places.items()}
        if moved:
            for shard in self._shards.values():
                shard.remove_share_commits(moved)
            self._share_commits.set_groups_again(moved)
            self._update_share_commits()

    def add_samples(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Sets end, log start and last stable offsets; `at_ms` is when they were requested."""
        with self._registry.numbers_change():
            self._registry.partitions.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)
        # Free the partitions that are neither committed to nor assigned. That takes a look at all rows, so it
        # is not done for each part of a response.
        if at_ms != UNKNOWN and not 0 <= at_ms - self._released_ms < RELEASE_INTERVAL_MS:
            self._released_ms = at_ms
            self._refresh()
            self._registry.release_unused(at_ms)

    def expect_samples(self, interval_s: float) -> None:
        """Promises samples of end offsets every `interval_s`; see `PartitionTable.expect_samples`."""
        self._registry.partitions.expect_samples(interval_s)

    def expect_past_ends(self, reach_s: float, *, gap_ms: int = 30_000) -> None:
        """Promises that `add_past_ends` will be called; see `PartitionTable.expect_past_ends`."""
        self._registry.partitions.expect_past_ends(reach_s, gap_ms=gap_ms)

    def add_past_ends(self, offsets: Offsets, at_ms: int) -> None:
        """Adds to the history: the first offsets with a record at `at_ms` or later."""
        self._registry.partitions.add_past_ends(offsets, at_ms)

    def forget_past_ends(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Drops the history of end offsets of these partitions, or of all. It begins again with the newest
        samples.
        """
        self._registry.partitions.clear_history(partitions)

    def find_undated(self, now_ms: int) -> dict[tuple[str, int], list[int]]:
        """By partition, the offsets of the oldest uncommitted records whose age is unknown."""
        self._refresh()
        shards = [shard.list_commits() for shard in self._shards.values()]
        if not shards:
            return {}
        # The rows of all shards at once: most calls find little, and cost much less so.
        own_rows, committed, records = zip(*shards, strict=True)
        table, first_records = self._registry.partitions, join_records(records, committed)
        rows, offsets = table.find_undated(
            np.concatenate(own_rows), np.concatenate(committed), now_ms, first_records, skew_ms=self.skew_ms
        )
        topics, partitions = table.codes_and_partitions(rows)
        names = map(self._registry.names.topics.names.__getitem__, topics.tolist())
        found: dict[tuple[str, int], list[int]] = {}
        for key, offset in zip(zip(names, partitions.tolist(), strict=True), offsets.tolist(), strict=True):
            found.setdefault(key, []).append(offset)
        return found

    def set_retention(self, retention_s: Mapping[str, float]) -> None:
        """Sets how long each topic keeps its records, in seconds. All other topics: unknown."""
        self._registry.partitions.retention_s = retention_s

    def forget_offsets(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Sets the sampled offsets of the partitions to unknown. `gone`: the partitions no longer exist."""
        with self._registry.numbers_change():
            self._registry.partitions.forget_offsets(partitions, gone=gone)

    def find_doubtful_topics(self, listed_ms: int) -> set[str]:
        """The topics of commits that were read after `listed_ms`, and do not fit the topics listed then.

        The topic did not exist, or had another id: it may have been created since.
        """
        table, names = self._registry.partitions, self._registry.names.topics.names
        newer = [shard.list_seen_after(listed_ms) for shard in self._shards.values()]
        if not newer:
            return set()
        numbers, topic_ids = (np.concatenate(column) for column in zip(*newer, strict=True))
        doubtful = np.unique(numbers[~table.fits_topic(numbers, topic_ids)])
        return {names[code] for code in table.codes_and_partitions(doubtful)[0].tolist()}

    def identify_topics(self, ids: Mapping[str, str]) -> None:
        """Sets the present ids of topics, by name, as the newest believed list of topics has them."""
        replaced = self._topic_names.identify(ids, self._list_topic_ids)
        self._registry.partitions.identify_topics(self._topic_names.present)
        self._share_commits.set_topics_again(replaced)
        self._update_share_commits()

    def name_topics(self, ids: Mapping[str, str]) -> None:
        """Notes the names of topic ids, by name: from a response that may be older than the list of topics.

        A coordinator may still have the id of a deleted topic. So no topic gets another present id.
        """
        self._topic_names.name(ids, self._list_topic_ids)

    def _list_topic_ids(self) -> set[str]:
        """The topic ids in assignments and in share state."""
        groups = (group for shard in self._shards.values() for group in shard.list_groups())
        return self._share_commits.topic_ids().union(*map(list_topic_ids, groups))

    def find_unread_rows(
        self,
        pick: Callable[[Ints], Ints],
        now_ms: int,
        *,
        without: Collection[str] = (),
    ) -> list[LaggingRow]:
        """Rows whose first record is not known and is worth reading (`TopicPartitions.is_worth_reading`).

        `pick` gets the keys (N,) of all these rows, and returns the indexes of the rows to return. None is of
        a topic in `without`. `now_ms` is by the clock of the end offsets.
        """
        # The rows of all shards as columns, then as many objects as are picked.
        self._refresh()
        unread = [shard.find_unread_rows() for shard in self._shards.values()]
        if not unread:
            return []
        columns = (np.concatenate(column) for column in zip(*unread, strict=True))
        keys, partitions, committed, moved_ms = columns
        worth = self._registry.partitions.is_worth_reading(partitions, committed, moved_ms, now_ms)
        keys, partitions, committed = keys[worth], partitions[worth], committed[worth]
        topics, numbers = self._registry.partitions.codes_and_partitions(partitions)
        known = self._registry.names.topics
        if without:
            kept = ~np.isin(topics, [known.assign_code(topic) for topic in without])
            keys, committed, topics, numbers = keys[kept], committed[kept], topics[kept], numbers[kept]
        picked = pick(keys)
        topics, numbers = topics[picked], numbers[picked]
        names = [known.names[code] for code in topics.tolist()]
        found = (keys[picked].tolist(), names, numbers.tolist(), committed[picked].tolist())
        return [LaggingRow(*row) for row in zip(*found, strict=True)]

    def forget_first_records(self, partitions: Collection[tuple[str, int]]) -> None:
        """Drops the first records that were read from these partitions: their logs are others now."""
        with self._registry.numbers_change():
            numbers = self._registry.partitions.assign_numbers_by_name(partitions)
        for shard in self._shards.values():
            shard.forget_first_records(numbers)

    def note_first_records(self, first_records: Collection[tuple[LaggingRow, tuple[int, int, int]]]) -> None:
        """Sets the first record at or after each row's commit: the columns of `FirstRecords`."""
        columns = [(row.key, row.committed, *record) for row, record in first_records]
        keys, committed, *records = np.array(columns, np.int64).reshape(-1, 5).T
        # Each shard ignores the keys of the other shards.
        for shard in self._shards.values():
            shard.note_first_records(keys, committed, FirstRecords(*records))

    @property
    def skew_ms(self) -> int:
        """How far koff's clock is ahead of that of most brokers, below 0 if it is behind; 0 if unknown.

        koff's clock is that of `seen_at_ms`. It is compared with the timestamps of commits.
        """
        skews = (shard.skew.measure_ms() for shard in self._shards.values())
        return find_median([skew_ms for skew_ms in skews if skew_ms is not None])

    @property
    def is_skew_known(self) -> bool:
        """Whether commits with timestamps have shown `skew_ms`."""
        return any(shard.skew.measure_ms() is not None for shard in self._shards.values())

    def take_snapshot(self, now_ms: int | None = None) -> Snapshot:
        """A copy of the present state, never in the middle of a batch.

        Without `now_ms` it has no time lag and no rates, and every status is UNKNOWN.
        """
        self._refresh()
        skew_ms, numbers = self.skew_ms, sorted(self._shards)
        shards = [self._shards[number] for number in numbers]
        time_lags: Iterable[TimeLags | None] = repeat(None)
        if now_ms is not None:
            time_lags = self._find_time_lags(shards, now_ms, skew_ms)
        return Snapshot(
            {
                number: shard.take_snapshot(time_lag, skew_ms)
                for number, shard, time_lag in zip(numbers, shards, time_lags, strict=False)
            },
            self._registry.partitions.take_snapshot(now_ms),
            self._topic_names.names,
            now_ms,
            shown=self._registry.shown,
        )

    def _find_time_lags(self, shards: Sequence[Shard], now_ms: int, skew_ms: int) -> list[TimeLags]:
        """The time lags of the rows of each shard: exact where a record was read, else estimated."""
        if not shards:
            return []
        # The rows of all shards at once: most shards are small, and then the calls cost more than the rows.
        rows, committed, records = zip(*(shard.list_commits() for shard in shards), strict=True)
        found = self._registry.partitions.time_lags(
            np.concatenate(rows),
            np.concatenate(committed),
            now_ms,
            join_records(records, committed),
            skew_ms=skew_ms,
        )
        ends = np.cumsum([len(own) for own in committed])[:-1]
        columns = ([None] * len(shards) if each is None else np.split(each, ends) for each in found)
        return [TimeLags(*own) for own in zip(*columns, strict=True)]


def _count_name(message: DecodedMessage) -> str:
    """The name under which `record_counts` counts the message."""
    record = message.record
    return type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)
