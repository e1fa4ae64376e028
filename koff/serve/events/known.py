"""What was last known of the groups of one shard. Where a later view knows nothing, this stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag import Status
from koff.serve.activity import UsualRate
from koff.tracker import Group, ShardSnapshot

Ints = NDArray[np.int64]
UNKNOWN = -1


class Places(NamedTuple):
    """The topic and the partition of each partition number."""

    topics: list[str]
    partitions: list[int]

    def match(self, others: Places) -> Ints | None:
        """The number that each of these has among the others, -1 for none. None: all have the same number."""
        size = len(self.topics)
        if self.topics == others.topics[:size] and self.partitions == others.partitions[:size]:
            return None
        numbers = {place: number for number, place in enumerate(zip(*others, strict=True))}
        return np.array([numbers.get(place, -1) for place in zip(*self, strict=True)], np.int64)


@dataclass(slots=True)
class KnownShard:
    """What was last known of a shard, with the groups and rows of one `layout`.

    `groups` and `status` (UNKNOWN: never known) are of each group. The other columns are of each row:
    `committed` is below 0, and `lost` (whether records left the log before they were committed) is -1, if it
    was never known. `places` has the partition numbers. `usual_rate` has the produce rate of each group.
    """

    layout: object
    places: Places
    groups: list[Group]
    status: NDArray[np.uint8]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]
    committed: Ints
    lost: NDArray[np.int8]
    usual_rate: UsualRate

    @classmethod
    def create(cls, shard: ShardSnapshot, places: Places) -> Self:
        """Nothing is known yet, but which groups and rows there are."""
        rows = len(shard.group)
        return cls(
            shard.layout,
            places,
            list(shard.groups),
            np.full(len(shard.groups), Status.UNKNOWN, np.uint8),
            shard.group,
            shard.partition,
            np.full(rows, UNKNOWN, np.int64),
            np.full(rows, UNKNOWN, np.int8),
            UsualRate(len(shard.groups)),
        )

    def carry_over(self, before: Self, moved: Ints | None) -> Difference:
        """Takes over what was known before, by group, topic and partition. Returns what is different.

        `moved` is what `before.places.match` returns for the places of this shard.
        """
        # Groups by name. A group that is not current has no more than its name: the one before stays.
        numbers = {group.name: number for number, group in enumerate(self.groups)}
        new_numbers = np.array([numbers.get(group.name, -1) for group in before.groups], np.int64)
        for old, new in zip(before.groups, new_numbers.tolist(), strict=True):
            if new >= 0:
                self.groups[new] = old
        kept = new_numbers >= 0
        self.status[new_numbers[kept]] = before.status[kept]
        self.usual_rate.carry_over(before.usual_rate, new_numbers[kept], kept)
        # Rows by group and partition, both by their new numbers.
        partition = before.partition.astype(np.int64)
        if moved is not None:
            partition = moved[partition]
        group, room = new_numbers[before.group], len(self.places.topics)
        keys = self.group.astype(np.int64) * room + self.partition
        order = np.argsort(keys)
        wanted = np.where((group >= 0) & (partition >= 0), group * room + partition, -1)
        found = np.searchsorted(keys, wanted, sorter=order)
        rows = order[np.minimum(found, len(order) - 1)] if len(order) else np.zeros(len(wanted), np.int64)
        same = keys[rows] == wanted if len(order) else np.zeros(len(wanted), np.bool_)
        self.committed[rows[same]] = before.committed[same]
        self.lost[rows[same]] = before.lost[same]
        names = {before.groups[n].name: int(before.status[n]) for n in np.flatnonzero(~kept).tolist()}
        added = np.ones(len(self.groups), np.bool_)
        added[new_numbers[kept]] = False
        left = set(before.list_topics(np.flatnonzero(~same & (group >= 0)).tolist()))
        return Difference(np.flatnonzero(added).tolist(), names, left)

    def list_topics(self, rows: Iterable[int]) -> Iterable[tuple[str, str]]:
        """Group and topic of each of these rows."""
        for row in rows:
            yield self.groups[self.group[row]].name, self.places.topics[self.partition[row]]


class Difference(NamedTuple):
    """What is different in the new layout of a shard."""

    added: list[int]
    """The numbers of new groups."""
    removed: dict[str, int]
    """Groups that are gone, with their last known status."""
    left_topics: set[tuple[str, str]]
    """Topics to which a group that is still there has no commits any more."""
