"""All groups of one cluster: a shard for each partition of `__consumer_offsets`, and the sampled offsets."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat

import numpy as np

from koff.lag import UNKNOWN, FirstRecords, TimeLags
from koff.records.placement import group_partition
from koff.tracker.assignments import list_topic_ids
from koff.tracker.clock_skew import find_median
from koff.tracker.commit_columns import CommitColumns, Commits, split_by_offsets_partition
from koff.tracker.given_commits import remove_commits, set_commits
from koff.tracker.group_places import GroupPlaces
from koff.tracker.groups import Described, Group
from koff.tracker.lagging_rows import LaggingRow, join_records
from koff.tracker.log_batch import BytesColumn
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.saved_shard import restore_shard, save_shard
from koff.tracker.saved_state import State
from koff.tracker.shard import Shard, Shards, build_shard
from koff.tracker.share_commits import ShareCommits
from koff.tracker.shown import ShownNames
from koff.tracker.snapshot import Snapshot
from koff.tracker.topic_id_names import TopicNames
from koff.tracker.topic_partitions import Offsets
from koff.tracker.watched import WatchedPartitions

RELEASE_INTERVAL_MS = 5_000
"""The shortest time between two searches for partitions that no group uses, by the times of samples."""


class Tracker:
    """The groups of a cluster and their committed offsets.

    In the methods, `partition` is a partition of the offsets topic.

    `shards` has the state by partition, `partitions` the sampled offsets of topic partitions, `shares` the
    rows of share groups, and `places` which shard shows a group. `record_counts` is the number of records
    applied, by record name, and `impossible_counts` what was left out of records: the number of impossible
    "partition"s and "name"s.

    Only one thread at a time may use a tracker and its parts: nothing here takes a lock. Snapshots and saved
    states are copies, which any thread may read.
    """

    def __init__(self) -> None:
        self._registry = Registry()
        self.shards = Shards(self._registry)
        self._topic_names = TopicNames()
        self._watched = WatchedPartitions(self._registry)
        self._released_ms = UNKNOWN
        self.partitions = self._registry.partitions
        self.places = GroupPlaces()
        self.shares = ShareCommits(self._registry, self.shards, self._topic_names)
        self.record_counts = self._registry.record_counts
        self.impossible_counts = self._registry.impossible_counts

    def set_offsets_partitions(self, count: int, *, last_written: int = -1) -> None:
        """Sets the partition count of the offsets topic (0: unknown), and its last partition with records.

        If a group is in several partitions, the one that its name's hash belongs to shows it, else the one
        with the newest commit. A group elsewhere is hidden too, unless brokers may use an earlier count: then
        later partitions have no records. Rows of share groups are set once the count is known.
        """
        self.places.set_topic(count, last_written)
        self.shares.set_partition_count(count)

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
        self.shards[partition].apply(keys, values, seen_at_ms=seen_at_ms, is_live=is_live)

    def reset_partition(self, partition: int) -> None:
        """Drops the state of a partition that is read again from its start, or that no longer exists."""
        self.shards.pop(partition, None)
        self.places.remove_shard(partition)
        # Commits of share groups do not come from the offsets topic: set them again in the new shard.
        self.shares.set_shard_again(partition)

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
            shard = build_shard(self._registry, own, own_groups, seen_at_ms=seen_at_ms)
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
        shard = self.shards[offsets_partition]
        remove_commits(shard.rows, gone)
        commits = CommitColumns.from_offsets({key: offset for key, (offset, _) in changed.items()})
        at_ms = np.array([at_ms for _, at_ms in changed.values()], np.int64)
        set_commits(shard.rows, commits, at_ms=at_ms, seen_at_ms=seen_at_ms, is_live=is_live)
        shard.replace_groups(groups, keep=kept)

    def create_shard(self) -> Shard:
        """An empty shard, to be filled and passed to `replace_shard`."""
        return Shard(self._registry)

    def replace_shard(self, partition: int, shard: Shard) -> None:
        """Makes `shard` the shard of that partition.

        First records that are still valid are carried over, when commits were read, and how many.
        """
        before = self.shards.get(partition)
        self.reset_partition(partition)
        self.shards[partition] = shard
        if before is not None:
            shard.inherit(before)
        self.shares.update()

    def group_names(self, partition: int) -> set[str]:
        shard = self.shards.get(partition)
        return set(shard.shown.group_names()) if shard else set()

    def find_groups_elsewhere(self) -> Mapping[str, int]:
        """The groups that are shown outside the partition that their name's hash says, with their partitions.

        After the offsets topic has grown, they stay there until brokers are restarted. The mapping is brought
        up to date by the next call: do not modify it.
        """
        self.places.update(self.shards)
        return self.places.find_elsewhere()

    def version(self, partition: int) -> int:
        """A number that changes whenever the state of that partition changes; 0 without a shard."""
        shard = self.shards.get(partition)
        return shard.rows.version if shard else 0

    def save_partition(self, partition: int) -> State | None:
        """A copy of the state of that partition, for `restore_partition`; None without a shard.

        Commits of share groups are left out: they come from `__share_group_state`, which is read again.
        """
        shard = self.shards.get(partition)
        return save_shard(self._registry, shard) if shard else None

    def restore_partition(self, partition: int, state: State, *, seen_at_ms: int | None = None) -> None:
        """Replaces the shard of that partition with the state from `save_partition`.

        `seen_at_ms` is when all its commits had been read; None: as saved.
        """
        self.replace_shard(partition, restore_shard(self._registry, state, seen_at_ms=seen_at_ms))

    @property
    def row_count(self) -> int:
        """How many rows there are, shown or hidden."""
        return sum(len(shard.rows) for shard in self.shards.values())

    def watched_partitions(self) -> list[tuple[str, int]]:
        """The (topic, partition) that groups committed to or are assigned, where the name is known; sorted.

        The same list until there is a change: do not modify it.
        """
        self._refresh()
        hiding = self.places.is_hiding or not self._registry.shown.are_all
        return self._watched.list_partitions(self.shards.values(), hiding=hiding)

    def keep_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Watches these partitions, also if no group uses them. Replaces those of the last call."""
        self._registry.kept = self.partitions.numbers.assign_by_name(partitions)

    def unnamed_topic_ids(self) -> set[str]:
        """The topic ids in assignments without a known name, and those in share state that no list had."""
        self._refresh()
        names = self._topic_names
        assigned = set[str]().union(*(shard.assignments.unnamed_ids for shard in self.shards.values()))
        unlisted = {each for each in self.shares.topic_ids() if not names.is_listed(each)}
        return unlisted | (assigned - names.names.keys())

    def _refresh(self) -> None:
        """Brings up to date what follows from groups that came, went or changed."""
        self.places.update(self.shards)
        self.shares.set_places(self.places.find_elsewhere())
        for shard in self.shards.values():
            shard.update_assignments(self._topic_names.names)

    def add_samples(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Sets end, log start and last stable offsets; `at_ms` is when they were requested."""
        self.partitions.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)
        # Free the partitions that are neither committed to nor assigned. That takes a look at all rows, so it
        # is not done for each part of a response.
        if at_ms != UNKNOWN and not 0 <= at_ms - self._released_ms < RELEASE_INTERVAL_MS:
            self._released_ms = at_ms
            self._refresh()
            self.partitions.release_unused(self._registry.used_partitions(), at_ms)

    def find_undated(self, now_ms: int) -> dict[tuple[str, int], list[int]]:
        """By partition, the offsets of the oldest uncommitted records whose age is unknown."""
        self._refresh()
        if not self.shards:
            return {}
        rows, offsets = self.partitions.find_undated(
            *_join_commits(self.shards.values(), now_ms), skew_ms=self.skew_ms
        )
        keys = zip(*self.partitions.numbers.find_names(rows), strict=True)
        found: dict[tuple[str, int], list[int]] = {}
        for key, offset in zip(keys, offsets.tolist(), strict=True):
            found.setdefault(key, []).append(offset)
        return found

    def find_doubtful_topics(self, listed_ms: int) -> set[str]:
        """The topics of commits that were read after `listed_ms`, and do not fit the topics listed then.

        The topic did not exist, or had another id: it may have been created since.
        """
        newer = [shard.rows.list_seen_after(listed_ms) for shard in self.shards.values()]
        if not newer:
            return set()
        numbers, topic_ids = (np.concatenate(column) for column in zip(*newer, strict=True))
        doubtful = np.unique(numbers[~self.partitions.fits_topic(numbers, topic_ids)])
        return set(self.partitions.numbers.find_names(doubtful)[0])

    def identify_topics(self, ids: Mapping[str, str]) -> None:
        """Sets the present ids of topics, by name, as the newest believed list of topics has them."""
        replaced = self._topic_names.identify(ids, self._list_topic_ids)
        self.partitions.identify_topics(self._topic_names.present)
        self.shares.set_topics_again(replaced)

    def name_topics(self, ids: Mapping[str, str]) -> None:
        """Notes the names of topic ids, by name: from a response that may be older than the list of topics.

        A coordinator may still have the id of a deleted topic. So no topic gets another present id.
        """
        self._topic_names.name(ids, self._list_topic_ids)

    def _list_topic_ids(self) -> set[str]:
        """The topic ids in assignments and in share state."""
        groups = (group for shard in self.shards.values() for group in shard.list_groups())
        return self.shares.topic_ids().union(*map(list_topic_ids, groups))

    def find_unread_rows(
        self,
        pick: Callable[[Ints], Ints],
        now_ms: int,
        *,
        without: Collection[str] = (),
    ) -> list[LaggingRow]:
        """Rows whose first record is not known and is worth reading (`PartitionTable.is_worth_reading`).

        `pick` gets the keys (N,) of all these rows, and returns the indexes of the rows to return. None is of
        a topic in `without`. `now_ms` is by the clock of the end offsets.
        """
        # The rows of all shards as columns, then as many objects as are picked.
        self._refresh()
        unread = [shard.find_unread_rows() for shard in self.shards.values()]
        if not unread:
            return []
        columns = (np.concatenate(column) for column in zip(*unread, strict=True))
        keys, partitions, committed, moved_ms = columns
        worth = self.partitions.is_worth_reading(partitions, committed, moved_ms, now_ms)
        keys, partitions, committed = keys[worth], partitions[worth], committed[worth]
        if without:
            codes = [self._registry.names.topics.assign_code(topic) for topic in without]
            kept = ~np.isin(self.partitions.numbers.columns.topic[partitions], codes)
            keys, partitions, committed = keys[kept], partitions[kept], committed[kept]
        picked = pick(keys)
        names = self.partitions.numbers.find_names(partitions[picked])
        found = (keys[picked].tolist(), *names, committed[picked].tolist())
        return [LaggingRow(*row) for row in zip(*found, strict=True)]

    def forget_first_records(self, partitions: Collection[tuple[str, int]]) -> None:
        """Drops the first records that were read from these partitions: their logs are others now."""
        numbers = self.partitions.numbers.assign_by_name(partitions)
        for shard in self.shards.values():
            shard.rows.forget_first_records(numbers)

    def note_first_records(self, first_records: Collection[tuple[LaggingRow, tuple[int, int, int]]]) -> None:
        """Sets the first record at or after each row's commit: the columns of `FirstRecords`."""
        columns = [(row.key, row.committed, *record) for row, record in first_records]
        keys, committed, *records = np.array(columns, np.int64).reshape(-1, 5).T
        # Each shard ignores the keys of the other shards.
        for shard in self.shards.values():
            shard.rows.note_first_records(keys, committed, FirstRecords(*records))

    @property
    def skew_ms(self) -> int:
        """How far koff's clock is ahead of that of most brokers, below 0 if it is behind; 0 if unknown.

        koff's clock is that of `seen_at_ms`. It is compared with the timestamps of commits.
        """
        skews = (shard.skew.measure_ms() for shard in self.shards.values())
        return find_median([skew_ms for skew_ms in skews if skew_ms is not None])

    @property
    def is_skew_known(self) -> bool:
        """Whether commits with timestamps have shown `skew_ms`."""
        return any(shard.skew.measure_ms() is not None for shard in self.shards.values())

    def take_snapshot(self, now_ms: int | None = None) -> Snapshot:
        """A copy of the present state, never in the middle of a batch.

        Without `now_ms` it has no time lag and no rates, and every status is UNKNOWN.
        """
        self._refresh()
        skew_ms, numbers = self.skew_ms, sorted(self.shards)
        shards = [self.shards[number] for number in numbers]
        time_lags: Iterable[TimeLags | None] = repeat(None)
        if now_ms is not None:
            time_lags = self._find_time_lags(shards, now_ms, skew_ms)
        return Snapshot(
            {
                number: shard.take_snapshot(time_lag, skew_ms)
                for number, shard, time_lag in zip(numbers, shards, time_lags, strict=False)
            },
            self.partitions.take_snapshot(now_ms),
            self._topic_names.names,
            now_ms,
            shown=self._registry.shown,
        )

    def _find_time_lags(self, shards: Sequence[Shard], now_ms: int, skew_ms: int) -> list[TimeLags]:
        """The time lags of the rows of each shard: exact where a record was read, else estimated."""
        if not shards:
            return []
        found = self.partitions.time_lags(*_join_commits(shards, now_ms), skew_ms=skew_ms)
        ends = np.cumsum([len(shard.shown.arrange_shown().rows) for shard in shards])[:-1]
        columns = ([None] * len(shards) if each is None else np.split(each, ends) for each in found)
        return [TimeLags(*own) for own in zip(*columns, strict=True)]


def _join_commits(shards: Iterable[Shard], now_ms: int) -> tuple[Ints, Ints, int, FirstRecords | None]:
    """The arguments of `PartitionTable.time_lags` for the rows of all shards at once.

    Most shards are small, and then the calls cost more than the rows.
    """
    rows, committed, records = zip(*(shard.list_commits() for shard in shards), strict=True)
    return np.concatenate(rows), np.concatenate(committed), now_ms, join_records(records, committed)
