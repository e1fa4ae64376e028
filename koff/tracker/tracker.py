"""All groups of one cluster: a shard for each partition of `__consumer_offsets`, and the sampled offsets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from koff.lag import UNKNOWN, FirstRecords, share_committed_offset
from koff.records import (
    Message,
    OffsetCommit,
    OffsetCommitValue,
    ShareSnapshot,
    ShareUpdate,
    Undecodable,
    Unknown,
    decode_share_state,
    encode,
)
from koff.records.placement import group_partition, share_state_partition
from koff.records.record_types import record_type_name
from koff.tracker.first_records import LaggingRow
from koff.tracker.groups import Described, Group
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.saved_state import State
from koff.tracker.seeds import Commits, Seed, split_by_offsets_partition
from koff.tracker.shard import Blobs, Shard
from koff.tracker.share_progress import ShareState
from koff.tracker.snapshot import Snapshot
from koff.tracker.topic_partitions import Offsets

_SPARE_NAMES = 1000
"""This many unused topic names may stay before the tracker searches for them."""
_ShareKey = tuple[str, str, int]
"""Group, topic id, partition."""


class Tracker:
    """The groups of a cluster and their committed offsets.

    In these methods, `partition` is a partition of the offsets topic.

    A caller of `apply` must hold `lock`, over several batches if they belong together. A caller of
    `create_shard` must hold it too, also while it fills the shard. `record_counts`, `version` and
    `partition_count` take no lock. All other methods take the lock themselves; it is re-entrant.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._registry = Registry()
        self._shards: dict[int, Shard] = {}
        self._topic_names: dict[str, str] = {}
        self._max_topic_names = _SPARE_NAMES
        self._assigned: set[tuple[str, int]] = set()
        self._share_state = ShareState()
        self._pending_share_keys: set[_ShareKey] = set()
        self._offsets_partitions = 0

    @property
    def record_counts(self) -> Counter[str]:
        """The number of records applied, by record name."""
        return self._registry.record_counts

    def apply(self, partition: int, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN) -> None:
        """Applies records of one partition of the offsets topic, in log order.

        `seen_at_ms` is when the records were read. It is UNKNOWN for history: the present end offsets do not
        show the lag at those commits.
        """
        self._shard(partition).apply(keys, values, seen_at_ms=seen_at_ms)

    def reset_partition(self, partition: int) -> None:
        """Drops the state of a partition that is read again from its start, or that no longer exists."""
        with self.lock:
            self._shards.pop(partition, None)
            # Commits of share groups do not come from the offsets topic: set them again in the new shard.
            self._pending_share_keys.update(
                (row.group, row.topic_id, row.partition) for row in self._share_state.rows()
            )

    def seed_partitions(
        self, commits: Commits, groups: Mapping[str, Described], partitions: int, only: Collection[int]
    ) -> None:
        """Sets the state of the partitions `only` to the responses of coordinators: `commits` and `groups`.

        `partitions` is the partition count of the offsets topic.
        """
        described: dict[int, dict[str, Described]] = {}
        for name, group in groups.items():
            described.setdefault(group_partition(name, partitions), {})[name] = group
        with self.lock:
            committed = dict(split_by_offsets_partition(commits, partitions))
            # A partition in `only` without commits gets an empty shard, or one with groups alone.
            for offsets_partition in only:
                seed = committed.get(offsets_partition) or Seed.select_rows(commits, np.zeros(0, np.intp))
                self.replace_shard(
                    offsets_partition,
                    Shard.from_descriptions(self._registry, seed, described.get(offsets_partition, {})),
                )

    def apply_external_commits(
        self,
        offsets_partition: int,
        changed: Mapping[tuple[str, str, int], tuple[int, int]],
        gone: Iterable[tuple[str, str, int]],
        groups: Mapping[str, Group],
        *,
        seen_at_ms: int | None = None,
    ) -> None:
        """Applies commits that come from no offsets topic (ZooKeeper) to a shard of their own.

        `offsets_partition` is the number of that shard, which no partition of the offsets topic has.
        `changed` has the offset and the commit time in ms by group, topic and partition; `gone` are the
        deleted commits. `groups` are all groups of ZooKeeper, and replace the earlier groups. `seen_at_ms` is
        as in `apply`.
        """
        # Encoded as records, so that one function of the shard applies all commits.
        records = [_encode_commit(*key, _commit_value(*commit)) for key, commit in changed.items()]
        records += [_encode_commit(*key, None) for key in gone]
        with self.lock:
            shard = self._shard(offsets_partition)
            at_ms = UNKNOWN if seen_at_ms is None else seen_at_ms
            keys, values = [key for key, _ in records], [value for _, value in records]
            shard.apply(keys, values, seen_at_ms=at_ms, counted=False)
            shard.groups.replace_all(groups)

    def group_names_outside(self, offsets_partition: int) -> set[str]:
        """The groups of all shards but that of `offsets_partition` (see `apply_external_commits`)."""
        with self.lock:
            others = [shard for number, shard in self._shards.items() if number != offsets_partition]
            return set().union(*(shard.group_names() for shard in others))

    def create_shard(self) -> Shard:
        """An empty shard for `replace_shard`. The caller holds `lock` while it fills the shard."""
        return Shard(self._registry)

    def replace_shard(self, partition: int, shard: Shard) -> None:
        """Makes `shard` the shard of that partition. First records that are still valid are carried over."""
        with self.lock:
            before = self._shards.get(partition)
            self.reset_partition(partition)
            self._shards[partition] = shard
            # Records that were read stay valid as long as the committed offset is the same.
            if before is not None:
                shard.note_first_records(*before.first_records())
            self.update_share_commits()

    def group_names(self, partition: int) -> set[str]:
        """The groups of that partition."""
        with self.lock:
            shard = self._shards.get(partition)
            return shard.group_names() if shard else set()

    def version(self, partition: int) -> int:
        """A number that changes whenever the state of that partition changes; 0 without a shard.

        It takes no lock: the caller holds it, if version and state must match.
        """
        shard = self._shards.get(partition)
        return shard.version if shard else 0

    def save_partition(self, partition: int) -> State | None:
        """A copy of the state of that partition, for `restore_partition`; None without a shard.

        Commits of share groups are left out: they come from `__share_group_state`, which is read again.
        """
        with self.lock:
            shard = self._shards.get(partition)
            if shard is None:
                return None
            share_groups = {row.group for row in self._share_state.rows()}
            return shard.to_state(
                without=[name for name in share_groups if _has_share_rows(shard.groups.get(name))]
            )

    def restore_partition(self, partition: int, state: State) -> None:
        """Replaces the shard of that partition with the state from `save_partition`."""
        with self.lock:
            self.replace_shard(partition, Shard.from_state(self._registry, state))

    def save_ends(self) -> State:
        """A copy of the end offset history of all topic partitions, for `restore_ends`."""
        with self.lock:
            return self._registry.partitions.save_ends()

    def restore_ends(self, state: State) -> None:
        """Restores the history from `save_ends`. Raises ValueError if an end offset was sampled before."""
        with self.lock:
            self._registry.partitions.restore_ends(state)

    def apply_share_state(self, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN) -> None:
        """Applies records of `__share_group_state`, in log order within each partition.

        In the rows of a share group, `share_committed_offset` takes the place of a committed offset.
        """
        with self.lock:
            for key, value in zip(keys, values, strict=True):
                message = decode_share_state(key, value)
                self.record_counts[_count_name(message)] += 1
                self._share_state.apply(message)
                record = message.record
                if isinstance(record, ShareSnapshot | ShareUpdate):
                    self._pending_share_keys.add((record.group_id, record.topic_id, record.partition))
            self.update_share_commits(seen_at_ms=seen_at_ms)

    def reset_share_state(self, lost: Collection[int], partitions: int) -> None:
        """Drops the state from the partitions `lost` of `__share_group_state`.

        `partitions` is the partition count of that topic. With 0, all share state is dropped.
        """
        with self.lock:
            for row in list(self._share_state.rows()):
                key = (row.group, row.topic_id, row.partition)
                if not partitions or share_state_partition(*key, partitions) in lost:
                    # Drop it as a tombstone in the log would, and let its group follow.
                    tombstone = ShareSnapshot(group_id=key[0], topic_id=key[1], partition=key[2], value=None)
                    self._share_state.apply(Message(row.group, tombstone))
                    self._pending_share_keys.add(key)
            self.update_share_commits()

    def update_share_commits(self, *, partitions: int | None = None, seen_at_ms: int = UNKNOWN) -> None:
        """Updates the rows of share groups from their share state, where the name of the topic is known.

        `partitions` is the partition count of the offsets topic. Until it is given once, nothing is updated.
        """
        with self.lock:
            self._offsets_partitions = partitions or self._offsets_partitions
            # A row needs the name of its topic, and the partition count that places its group.
            for key in list(self._pending_share_keys):
                if key[1] in self._topic_names and self._offsets_partitions:
                    self._pending_share_keys.discard(key)
                    self._set_share_commit(key, seen_at_ms)
                elif key[1] not in self._topic_names and self._share_state.get(*key) is None:
                    self._pending_share_keys.discard(key)  # deleted before its name was known

    def _set_share_commit(self, key: _ShareKey, seen_at_ms: int) -> None:
        """Applies the state of a share partition as an offset commit, or as a tombstone if there is none."""
        group, topic_id, partition = key
        row = self._share_state.get(*key)
        value = None
        if row is not None:
            committed = share_committed_offset(row.start_offset, row.delivery_complete_count)
            # Update records have no timestamp: a live update takes the time at which it was read.
            at_ms = seen_at_ms if seen_at_ms != UNKNOWN else row.write_timestamp_ms
            value = OffsetCommitValue(
                version=4, offset=committed, metadata="", commit_timestamp=at_ms, topic_id=topic_id
            )
        topic = self._topic_names[topic_id]
        commit = encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value))
        offsets_partition = group_partition(group, self._offsets_partitions)
        self._shard(offsets_partition).apply([commit[0]], [commit[1]], seen_at_ms=seen_at_ms, counted=False)

    def _shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = Shard(self._registry)
        return shard

    @property
    def partition_count(self) -> int:
        """The number of topic partitions that have a number."""
        return len(self._registry.partitions)

    def watched_partitions(self) -> list[tuple[str, int]]:
        """The (topic, partition) that groups committed to or are assigned, where the name is known."""
        # The snapshot is a copy: the slow part below runs without the lock.
        with self.lock:
            committed = self._registry.partitions.named_partitions()
        snapshot = self.take_snapshot()
        assigned = {
            (topic, partition)
            for group in snapshot.groups()
            for topic, partition, _ in snapshot.assignments(group)
            if topic is not None
        }
        self._assigned = assigned
        return sorted(assigned.union(committed))

    def unnamed_topic_ids(self) -> set[str]:
        """The topic ids in assignments and in share state whose topic names are not known."""
        with self.lock:
            snapshot, share_ids = self.take_snapshot(), self._share_topic_ids()
        return (_assigned_topic_ids(snapshot) | share_ids) - snapshot.topic_names.keys()

    def _share_topic_ids(self) -> set[str]:
        """The topic ids in share state, and in share keys whose rows are not updated yet."""
        return {row.topic_id for row in self._share_state.rows()} | {
            key[1] for key in self._pending_share_keys
        }

    def add_samples(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Sets end, log start and last stable offsets; `at_ms` is when they were requested."""
        with self.lock:
            partitions = self._registry.partitions
            partitions.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)
            if at_ms != UNKNOWN:
                # Free the partitions that are neither committed to nor assigned.
                assigned = partitions.assign_numbers_by_name(self._assigned)
                used = self._registry.used_partitions()
                used[assigned] = True
                partitions.release_unused(used, at_ms)

    def forget_offsets(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Sets the sampled offsets of the partitions to unknown. `gone`: the partitions no longer exist."""
        with self.lock:
            self._registry.partitions.forget_offsets(partitions, gone=gone)

    def identify_topics(self, ids: Mapping[str, str]) -> None:
        """Sets the present ids of topics, by name."""
        with self.lock:
            self._registry.partitions.identify_topics(ids)
            # Earlier ids keep their names: assignments and share state may still have them.
            present = {topic_id: name for name, topic_id in ids.items()}
            self._topic_names.update(present)
            if len(self._topic_names) > self._max_topic_names:
                # Keep the names of present topics, and of ids that assignments or share state refer to.
                referenced = _assigned_topic_ids(self.take_snapshot()) | self._share_topic_ids()
                self._topic_names = {
                    topic_id: name
                    for topic_id, name in self._topic_names.items()
                    if topic_id in present or topic_id in referenced
                }
                self._max_topic_names = 2 * len(self._topic_names) + _SPARE_NAMES
            self.update_share_commits()

    def find_unread_rows(
        self, is_chosen: Callable[[str], bool], pick: Callable[[Ints], Ints]
    ) -> list[LaggingRow]:
        """Rows of chosen groups that have a lag and no known first record.

        `is_chosen` returns whether to include a group of that name. `pick` gets the keys (N,) of all these
        rows, and returns the indexes of the rows to return.
        """
        with self.lock:
            # The rows of all shards as columns, then as many objects as are picked.
            unread = [shard.find_unread_rows(is_chosen) for shard in self._shards.values()]
            if not unread:
                return []
            keys, partitions, committed = (np.concatenate(column) for column in zip(*unread, strict=True))
            picked = pick(keys)
            topics, numbers = self._registry.partitions.codes_and_partitions(partitions[picked])
            names = [self._registry.names.topics.names[code] for code in topics.tolist()]
            columns = (keys[picked].tolist(), names, numbers.tolist(), committed[picked].tolist())
            return [LaggingRow(*row) for row in zip(*columns, strict=True)]

    def note_first_records(self, first_records: Collection[tuple[LaggingRow, int, int]]) -> None:
        """Sets the first record (offset, timestamp) at or after each row's commit; see `FirstRecords`."""
        columns = [(row.key, row.committed, offset, at_ms) for row, offset, at_ms in first_records]
        keys, committed, offset, at_ms = np.array(columns, np.int64).reshape(-1, 4).T
        with self.lock:
            # Each shard ignores the keys of the other shards.
            for shard in self._shards.values():
                shard.note_first_records(keys, committed, FirstRecords(offset, at_ms))

    def take_snapshot(self, now_ms: int | None = None) -> Snapshot:
        """A copy of the present state, never in the middle of a batch.

        Without `now_ms` it has no time lag and no rates, and every status is UNKNOWN.
        """
        with self.lock:
            return Snapshot(
                {number: shard.take_snapshot(now_ms) for number, shard in sorted(self._shards.items())},
                self._registry.partitions.take_snapshot(now_ms),
                dict(self._topic_names),
                now_ms,
            )


def _encode_commit(
    group: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> tuple[bytes | None, bytes | None]:
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value))


def _commit_value(offset: int, at_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(version=3, offset=offset, metadata="", commit_timestamp=at_ms)


def _count_name(message: Message) -> str:
    """The name under which `record_counts` counts the message."""
    record = message.record
    return type(record).__name__ if isinstance(record, Undecodable | Unknown) else record_type_name(record)


def _assigned_topic_ids(snapshot: Snapshot) -> set[str]:
    """The topic ids in the assignments of members."""
    return {
        topic_id
        for group in snapshot.groups()
        if group.assigned_by_id
        for member in group.members
        for topic_id in member.assigned
    }


def _has_share_rows(group: Group | None) -> bool:
    """Whether the rows of a group with share state come from there.

    They do not if a group of another type has taken its name.
    """
    return group is None or group.type == "share"
