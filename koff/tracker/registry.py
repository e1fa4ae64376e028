"""State that all shards of a tracker share: names, partitions, counts."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import gt
from typing import Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from koff.records.key_codes import KeyCodes
from koff.tracker.impossible import NAME, PARTITION, is_possible_name
from koff.tracker.shown import ShownNames
from koff.tracker.topic_partitions import PartitionTable

IMPOSSIBLE = -(1 << 21)
"""The size of an impossible name (`Registry.name_sizes`)."""
_SPARE = 8192
"""This many unused names may always stay, so that `forget_unused` seldom does any work."""
_PREFIXES_PER_GROUP = 4
"""The key prefixes per group that count as in use. A forgotten prefix is decoded again when it is needed."""


class RegisteredShard(Protocol):
    """What the registry needs of a shard: the names and partitions that it uses."""

    def used_partitions(self) -> NDArray[np.int64]:
        """The numbers of the topic partitions with a commit or a member. A number may repeat."""

    def used_groups(self) -> list[int]:
        """The codes of the groups with a commit in this shard."""


@dataclass(slots=True)
class Registry:
    """State that all shards of a tracker share: names, topic partitions, record counts by record name.

    Names and partitions that no shard uses are forgotten once there are many of them (`forget_unused`).
    Only one thread at a time may use a tracker and its shards, even a shard that is not in it yet.
    """

    shards: WeakSet[RegisteredShard] = field(default_factory=WeakSet)
    """All shards, also a shard that is not in the tracker yet. Weak: a replaced shard no longer counts."""
    kept: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """The numbers of the topic partitions that stay, also if no shard uses them."""
    names: KeyCodes = field(default_factory=KeyCodes)
    partitions: PartitionTable = field(init=False)
    record_counts: Counter[str] = field(default_factory=Counter)
    impossible_counts: Counter[str] = field(default_factory=Counter)
    """How much was left out of records, by `koff.tracker.impossible`'s names."""

    shown: ShownNames = field(default_factory=ShownNames)
    """Which groups and topics snapshots show."""

    versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """A shard takes the next version with each change, so no two states have the same version."""

    _name_sizes: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    _limits: list[int] = field(default_factory=lambda: [_SPARE] * 4)  # for the numbers of `_counts`

    def __post_init__(self) -> None:
        self.partitions = PartitionTable(self.names.topics)

    def used_partitions(self) -> NDArray[np.bool_]:
        """A mask by partition number: whether it is kept, or any shard has a commit or a member there."""
        used = np.zeros(self.partitions.numbers.room, np.bool_)
        used[self.kept] = True
        for shard in self.shards:
            used[shard.used_partitions()] = True
        return used

    def forget_unused(self) -> None:
        """Forgets unused names and partitions, once there may be more unused than used ones."""
        if not any(map(gt, self._counts(), self._limits)):
            return
        # Partitions first: a topic stays in use as long as one of its partitions has a number.
        self.partitions.release_unused(self.used_partitions())
        groups: set[int] = set()
        groups = groups.union(*(shard.used_groups() for shard in self.shards))
        topics = self.partitions.numbers.list_topic_codes()
        self.partitions.topic_ids.keep_only(set(topics))
        self.names.keep_only(groups, topics)
        self._name_sizes.clear()
        # Run again when any count has doubled: so the work is in proportion to the growth.
        prefixes = _PREFIXES_PER_GROUP * len(groups)
        kept = (len(groups), len(topics), len(self.partitions.numbers), prefixes)
        self._limits = [2 * count + _SPARE for count in kept]

    def _counts(self) -> tuple[int, int, int, int]:
        names = self.names
        return names.groups.count, names.topics.count, len(self.partitions.numbers), names.prefix_count

    def is_possible_key(self, *names: str, partition: int = 0) -> bool:
        """Whether these names and this partition are possible. If not, counts the first that is not."""
        if partition < 0:
            self.impossible_counts[PARTITION] += 1
        elif not all(map(is_possible_name, names)):
            self.impossible_counts[NAME] += 1
        else:
            return True
        return False

    def name_sizes(self, kind: str) -> NDArray[np.int64]:
        """The number of bytes of each name in a key, by its code plus one. `kind` is "groups" or "topics".

        For a name with U+FFFD it is negative, so that no key has the size: the key bytes may have been
        invalid UTF-8, and then the name does not determine them. For an impossible name it is IMPOSSIBLE.
        """
        names: list[str] = getattr(self.names, kind).names
        sizes = self._name_sizes.get(kind, np.zeros(1, np.int64))  # index 0 is code -1: no name
        if len(sizes) <= len(names):
            new = [_name_size(name) for name in names[len(sizes) - 1 :]]
            sizes = self._name_sizes[kind] = np.concatenate([sizes, np.array(new, np.int64)])
        return sizes


def _name_size(name: str) -> int:
    """The number of UTF-8 bytes; very negative if the name contains U+FFFD, which may replace other bytes."""
    if not is_possible_name(name):
        return IMPOSSIBLE
    return -(1 << 20) if "\ufffd" in name else len(name.encode(errors="replace"))
