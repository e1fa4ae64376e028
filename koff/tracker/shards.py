"""The shards of a tracker, by partition of the offsets topic."""

from __future__ import annotations

from koff.tracker.registry import Registry
from koff.tracker.shard import Shard


class Shards(dict[int, Shard]):
    """The shards by partition. `shards[number]` makes an empty shard where there is none."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def __missing__(self, number: int) -> Shard:
        shard = self[number] = Shard(self._registry)
        return shard
