"""All groups of one cluster: a shard a partition of `__consumer_offsets`, and the sampled offsets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from koff.lag import UNKNOWN, FirstRecords, share_done
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
from koff.records.placement import group_partition, share_partition
from koff.records.record_types import title
from koff.tracker.first_records import Behind
from koff.tracker.groups import Described, Group
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.saved_state import State
from koff.tracker.seeds import Commits, Seed, by_home
from koff.tracker.shard import Blobs, Shard
from koff.tracker.share_progress import ShareState
from koff.tracker.snapshot import Snapshot
from koff.tracker.topic_partitions import Offsets

_SPARE_NAMES = 1000
_ShareKey = tuple[str, str, int]
"""Group, topic id, partition."""


class Tracker:
    """What a cluster's groups are and have committed.

    Whoever applies batches holds `lock` while it does (over several batches, if they belong together);
    the other methods take it themselves.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._shared = Registry()
        self._shards: dict[int, Shard] = {}
        self._topic_names: dict[str, str] = {}
        self._most_topic_names = _SPARE_NAMES
        self._assigned: set[tuple[str, int]] = set()
        self._share = ShareState()
        self._unsettled: set[_ShareKey] = set()
        self._offsets_partitions = 0

    @property
    def seen(self) -> Counter[str]:
        """How many records were applied, by record name."""
        return self._shared.seen

    def apply(self, partition: int, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN) -> None:
        """Applies records of one partition of the offsets topic, in log order.

        `seen_at_ms` is when they came in; UNKNOWN for history, of whose lag the present ends say nothing.
        """
        self._shard(partition).apply(keys, values, seen_at_ms=seen_at_ms)

    def reset(self, partition: int) -> None:
        """Forgets what that partition of the offsets topic said: it will be read again, or is no more."""
        with self.lock:
            self._shards.pop(partition, None)
            self._unsettled.update((row.group, row.topic_id, row.partition) for row in self._share.rows())

    def seed(
        self, commits: Commits, groups: Mapping[str, Described], partitions: int, only: Collection[int]
    ) -> None:
        """Knows of those partitions of the offsets topic, which has so many, what coordinators said."""
        described: dict[int, dict[str, Described]] = {}
        for name, group in groups.items():
            described.setdefault(group_partition(name, partitions), {})[name] = group
        with self.lock:
            committed = dict(by_home(commits, partitions))
            for home in only:
                seed = committed.get(home) or Seed.of(commits, np.zeros(0, np.intp))
                self.replace(home, Shard.from_answers(self._shared, seed, described.get(home, {})))

    def take(
        self,
        home: int,
        changed: Mapping[tuple[str, str, int], tuple[int, int]],
        gone: Iterable[tuple[str, str, int]],
        groups: Mapping[str, Group],
        *,
        seen_at_ms: int | None = None,
    ) -> None:
        """Takes commits that stand in no log as the shard `home`, a number that no partition has.

        `changed` and `gone` by group, topic and partition: the offset and when it was committed, in ms.
        `groups` are all that are known there now. `seen_at_ms` as in `apply`.
        """
        records = [_commit(*key, _value(*told)) for key, told in changed.items()]
        records += [_commit(*key, None) for key in gone]
        with self.lock:
            shard = self._shard(home)
            at_ms = UNKNOWN if seen_at_ms is None else seen_at_ms
            keys, values = [key for key, _ in records], [value for _, value in records]
            shard.apply(keys, values, seen_at_ms=at_ms, counted=False)
            shard.groups.be(groups)

    def group_names_beside(self, home: int) -> set[str]:
        """The groups of all shards but that one."""
        with self.lock:
            others = [shard for number, shard in self._shards.items() if number != home]
            return set().union(*(shard.group_names() for shard in others))

    def fresh_shard(self) -> Shard:
        """One to fill aside, for `replace`; who fills it holds the lock."""
        return Shard(self._shared)

    def replace(self, partition: int, shard: Shard) -> None:
        """Knows of that partition of the offsets topic what the shard knows, and nothing else."""
        with self.lock:
            before = self._shards.get(partition)
            self.reset(partition)
            self._shards[partition] = shard
            if before is not None:
                shard.note_firsts(*before.firsts())
            self.settle_share_state()

    def group_names(self, partition: int) -> set[str]:
        """The groups that live in that partition of the offsets topic."""
        with self.lock:
            shard = self._shards.get(partition)
            return shard.group_names() if shard else set()

    def version(self, partition: int) -> int:
        """Another number whenever what is known of that partition of the offsets topic has changed."""
        shard = self._shards.get(partition)
        return shard.version if shard else 0

    def save(self, partition: int) -> State | None:
        """All that is known of that partition of the offsets topic, for `restore`; None where nothing is.

        Without what `__share_group_state` says: that is read anew.
        """
        with self.lock:
            shard = self._shards.get(partition)
            if shard is None:
                return None
            sharing = {row.group for row in self._share.rows()}
            return shard.to_state(without=[name for name in sharing if _is_share(shard.groups.get(name))])

    def restore(self, partition: int, state: State) -> None:
        """Knows of that partition of the offsets topic what `save` gave, and nothing else."""
        with self.lock:
            self.replace(partition, Shard.from_state(self._shared, state))

    def save_ends(self) -> State:
        """Where the ends of all partitions stood in the past, for `restore_ends`."""
        with self.lock:
            return self._shared.partitions.save_ends()

    def restore_ends(self, state: State) -> None:
        """Takes back what `save_ends` gave. Raises ValueError once an end has been sampled."""
        with self.lock:
            self._shared.partitions.restore_ends(state)

    def apply_share_state(self, keys: Blobs, values: Blobs, *, seen_at_ms: int = UNKNOWN) -> None:
        """Applies records of `__share_group_state`, those of a partition in log order.

        What a share group has done (`share_done`) stands in the rows for what others have committed.
        """
        with self.lock:
            for key, value in zip(keys, values, strict=True):
                message = decode_share_state(key, value)
                self.seen[_name(message)] += 1
                self._share.apply(message)
                record = message.record
                if isinstance(record, ShareSnapshot | ShareUpdate):
                    self._unsettled.add((record.group_id, record.topic_id, record.partition))
            self.settle_share_state(seen_at_ms=seen_at_ms)

    def reset_share_state(self, lost: Collection[int], partitions: int) -> None:
        """Forgets what those partitions of `__share_group_state` said, of so many; of 0, all of it."""
        with self.lock:
            for row in list(self._share.rows()):
                key = (row.group, row.topic_id, row.partition)
                if not partitions or share_partition(*key, partitions) in lost:
                    gone = ShareSnapshot(group_id=key[0], topic_id=key[1], partition=key[2], value=None)
                    self._share.apply(Message(row.group, gone))
                    self._unsettled.add(key)
            self.settle_share_state()

    def settle_share_state(self, *, partitions: int | None = None, seen_at_ms: int = UNKNOWN) -> None:
        """Hands on what is known of share groups to their shards, once topics' names are known.

        `partitions` is how many the offsets topic has.
        """
        with self.lock:
            self._offsets_partitions = partitions or self._offsets_partitions
            for key in list(self._unsettled):
                if key[1] in self._topic_names and self._offsets_partitions:
                    self._unsettled.discard(key)
                    self._put_share(key, seen_at_ms)
                elif key[1] not in self._topic_names and self._share.get(*key) is None:
                    self._unsettled.discard(key)  # came and went without a name

    def _put_share(self, key: _ShareKey, seen_at_ms: int) -> None:
        group, topic_id, partition = key
        row = self._share.get(*key)
        value = None
        if row is not None:
            done = share_done(row.start_offset, row.delivery_complete_count)
            at_ms = seen_at_ms if seen_at_ms != UNKNOWN else row.write_timestamp_ms
            value = OffsetCommitValue(
                version=4, offset=done, metadata="", commit_timestamp=at_ms, topic_id=topic_id
            )
        topic = self._topic_names[topic_id]
        commit = encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value))
        home = group_partition(group, self._offsets_partitions)
        self._shard(home).apply([commit[0]], [commit[1]], seen_at_ms=seen_at_ms, counted=False)

    def _shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = Shard(self._shared)
        return shard

    @property
    def partition_count(self) -> int:
        """How many (topic, partition) are known."""
        return len(self._shared.partitions)

    def watched(self) -> list[tuple[str, int]]:
        """The (topic, partition) that groups committed to or are assigned, where their names are known."""
        with self.lock:
            committed = self._shared.partitions.names()
        snapshot = self.snapshot()
        assigned = {
            (topic, partition)
            for group in snapshot.groups()
            for topic, partition, _ in snapshot.assignments(group)
            if topic is not None
        }
        self._assigned = assigned
        return sorted(assigned.union(committed))

    def unnamed_topics(self) -> set[str]:
        """Topic ids in assignments whose topics' names are not known."""
        with self.lock:
            snapshot, shared = self.snapshot(), self._shared_topic_ids()
        return (_assigned_topic_ids(snapshot) | shared) - snapshot.topic_names.keys()

    def _shared_topic_ids(self) -> set[str]:
        """The topic ids that `__share_group_state` speaks of, or spoke of when last it was settled."""
        return {row.topic_id for row in self._share.rows()} | {key[1] for key in self._unsettled}

    def sample(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Notes end, start and last stable offsets; `at_ms` is when they were asked for."""
        with self.lock:
            partitions = self._shared.partitions
            partitions.sample(ends=ends, starts=starts, stables=stables, at_ms=at_ms)
            if at_ms != UNKNOWN:
                assigned = partitions.numbers(self._assigned)
                used = self._shared.used()
                used[assigned] = True
                partitions.retire(used, at_ms)

    def forget(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Offsets of those partitions are not known from here on; `gone` says that they do not exist."""
        with self.lock:
            self._shared.partitions.forget(partitions, gone=gone)

    def identify_topics(self, ids: Mapping[str, str]) -> None:
        """Learns the present ids of topics, by name."""
        with self.lock:
            self._shared.partitions.identify(ids)
            present = {topic_id: name for name, topic_id in ids.items()}
            self._topic_names.update(present)
            if len(self._topic_names) > self._most_topic_names:
                spoken_of = _assigned_topic_ids(self.snapshot()) | self._shared_topic_ids()
                self._topic_names = {
                    topic_id: name
                    for topic_id, name in self._topic_names.items()
                    if topic_id in present or topic_id in spoken_of
                }
                self._most_topic_names = 2 * len(self._topic_names) + _SPARE_NAMES
            self.settle_share_state()

    def unread(self, chosen: Callable[[str], bool], pick: Callable[[Ints], Ints]) -> list[Behind]:
        """Rows with a lag, of chosen groups, whose first record is not known: those that `pick` picks.

        It is given the keys of all, and returns indexes.
        """
        with self.lock:
            found = [shard.unread(chosen) for shard in self._shards.values()]
            if not found:
                return []
            keys, partitions, committed = (np.concatenate(column) for column in zip(*found, strict=True))
            picked = pick(keys)
            topics, numbers = self._shared.partitions.places(partitions[picked])
            names = [self._shared.names.topics.names[code] for code in topics.tolist()]
            columns = (keys[picked].tolist(), names, numbers.tolist(), committed[picked].tolist())
            return [Behind(*row) for row in zip(*columns, strict=True)]

    def note_firsts(self, found: Collection[tuple[Behind, int, int]]) -> None:
        """Notes the offset and the timestamp of the first record after a commit (see `FirstRecords`)."""
        columns = [(row.key, row.committed, offset, at_ms) for row, offset, at_ms in found]
        keys, committed, offset, at_ms = np.array(columns, np.int64).reshape(-1, 4).T
        with self.lock:
            for shard in self._shards.values():
                shard.note_firsts(keys, committed, FirstRecords(offset, at_ms))

    def snapshot(self, now_ms: int | None = None) -> Snapshot:
        """The state of now; waits until a batch that is being applied is whole.

        Without `now_ms` there is no time lag and no status in it.
        """
        with self.lock:
            return Snapshot(
                {number: shard.snapshot(now_ms) for number, shard in sorted(self._shards.items())},
                self._shared.partitions.snapshot(now_ms),
                dict(self._topic_names),
                now_ms,
            )


def _commit(
    group: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> tuple[bytes | None, bytes | None]:
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value))


def _value(offset: int, at_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(version=3, offset=offset, metadata="", commit_timestamp=at_ms)


def _name(message: Message) -> str:
    record = message.record
    return type(record).__name__ if isinstance(record, Undecodable | Unknown) else title(record)


def _assigned_topic_ids(snapshot: Snapshot) -> set[str]:
    """The topic ids that members' assignments speak of."""
    return {
        topic_id
        for group in snapshot.groups()
        if group.assigned_by_id
        for member in group.members
        for topic_id in member.assigned
    }


def _is_share(group: Group | None) -> bool:
    """Whether one with share state has its rows from there. Its name may have gone to one that commits."""
    return group is None or group.type == "share"
