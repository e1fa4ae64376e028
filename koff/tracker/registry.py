"""What the shards of a tracker have in common, and the forgetting of what none of them speaks of any more."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import gt
from typing import Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from koff.records.key_codes import Keys
from koff.tracker.topic_partitions import PartitionTable

_SPARE = 8192
"""So many names of the past are no reason to tidy up."""
_TOPICS_A_GROUP = 4
"""Of the beginnings of keys, so many a group are counted as in use: all can be learnt again, at a price."""


class RegisteredShard(Protocol):
    """A shard, as the registry sees it: it names what it still uses."""

    def used(self) -> NDArray[np.int64]:
        """The numbers of the topic partitions that have a commit in this shard; a number may repeat."""

    def used_groups(self) -> list[int]:
        """The codes of the groups that have a commit in this shard."""


@dataclass(slots=True)
class Registry:
    """What the shards of a tracker have in common: names, partitions, counts of records by name.

    Names and partitions of which no shard speaks any more are forgotten when there are many (`tidy`).
    Whoever changes a shard, be it in the tracker yet or not, holds the tracker's lock.
    """

    shards: WeakSet[RegisteredShard] = field(default_factory=WeakSet)
    """All there are, those that are still being filled too."""
    names: Keys = field(default_factory=Keys)
    partitions: PartitionTable = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)

    versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Each shard takes the next one with each change: no two states ever have the same."""

    _sizes: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    _limits: list[int] = field(default_factory=lambda: [_SPARE] * 4)

    def __post_init__(self) -> None:
        self.partitions = PartitionTable(self.names.topics)

    def used(self) -> NDArray[np.bool_]:
        """By the number of a partition: whether any shard has a commit to it."""
        used = np.zeros(self.partitions.room, np.bool_)
        for shard in self.shards:
            used[shard.used()] = True
        return used

    def tidy(self) -> None:
        """Forgets what is not in use any more, once that may be more than what is."""
        if not any(map(gt, self._counts(), self._limits)):
            return
        self.partitions.retire(self.used())
        groups: set[int] = set()
        groups = groups.union(*(shard.used_groups() for shard in self.shards))
        topics = self.partitions.topics()
        self.names.keep(groups, topics)
        self.partitions.keep_ids(topics)
        self._sizes.clear()
        beginnings = _TOPICS_A_GROUP * len(groups)
        kept = (len(groups), len(topics), len(self.partitions), beginnings)
        self._limits = [2 * count + _SPARE for count in kept]

    def _counts(self) -> tuple[int, int, int, int]:
        names = self.names
        return names.groups.known, names.topics.known, len(self.partitions), names.prefixes

    def sizes(self, kind: str) -> NDArray[np.int64]:
        """How many bytes each name has in a key, by its code plus one; `kind` is groups or topics.

        Less than any key has, of a name that was not whole UTF-8: it has more than one spelling.
        """
        names: list[str] = getattr(self.names, kind).names
        known = self._sizes.get(kind, np.zeros(1, np.int64))  # the first is of the code -1, no name
        if len(known) <= len(names):
            new = [_size(name) for name in names[len(known) - 1 :]]
            known = self._sizes[kind] = np.concatenate([known, np.array(new, np.int64)])
        return known


def _size(name: str) -> int:
    """Bytes of UTF-8; a great deal less than none, where other bytes may have stood for U+FFFD."""
    return -(1 << 20) if "\ufffd" in name else len(name.encode(errors="replace"))
