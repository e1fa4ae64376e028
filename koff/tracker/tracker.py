"""All groups of one cluster: a shard a partition of `__consumer_offsets`, and the sampled offsets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from koff.tracker.partitions import Offsets
from koff.tracker.shard import Blobs, Shard, Shared
from koff.tracker.snapshot import Snapshot


class Tracker:
    """What a cluster's groups are and have committed.

    Whoever applies batches holds `lock` while it does (over several batches, if they belong together);
    the other methods take it themselves.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._shared = Shared()
        self._shards: dict[int, Shard] = {}
        self._topic_names: dict[str, str] = {}

    @property
    def seen(self) -> Counter[str]:
        """How many records were applied, by record name."""
        return self._shared.seen

    def apply(self, partition: int, keys: Blobs, values: Blobs, *, live: bool = True) -> None:
        """Applies records of one partition of the offsets topic, in log order.

        Unless `live` they are history: the end offsets known now say nothing of the lag then.
        """
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = Shard(self._shared)
        shard.apply(keys, values, live=live)

    def reset(self, partition: int) -> None:
        """Forgets what that partition of the offsets topic said: it will be read again, or is no more."""
        with self.lock:
            self._shards.pop(partition, None)

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
        return sorted(assigned.union(committed))

    def unnamed_topics(self) -> set[str]:
        """Topic ids in assignments whose topics' names are not known."""
        snapshot = self.snapshot()
        return {
            topic_id
            for group in snapshot.groups()
            if group.assigned_by_id
            for member in group.members
            for topic_id in member.assigned
            if topic_id not in snapshot.topic_names
        }

    def sample(self, *, ends: Offsets | None = None, starts: Offsets | None = None) -> None:
        """Notes end and start offsets."""
        with self.lock:
            self._shared.partitions.sample(ends=ends, starts=starts)

    def forget(self, gone: Iterable[tuple[str, int]]) -> None:
        """Partitions that are no more: their offsets are not known from here on."""
        with self.lock:
            self._shared.partitions.forget(gone)

    def name_topics(self, names: Mapping[str, str]) -> None:
        """Learns topics' names by their ids."""
        with self.lock:
            self._topic_names.update(names)

    def snapshot(self) -> Snapshot:
        """The state of now; waits until a batch that is being applied is whole."""
        with self.lock:
            return Snapshot(
                {number: shard.snapshot() for number, shard in sorted(self._shards.items())},
                self._shared.partitions.snapshot(),
                dict(self._topic_names),
            )
