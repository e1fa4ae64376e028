"""The topic partitions whose offsets are to be sampled, as a list that is kept up to date."""

from collections.abc import Collection

import numpy as np

from koff.tracker.numbered_partitions import FREE
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.shard import Shard

_NONE = np.zeros(0, np.int64)


class WatchedPartitions:
    """All partitions that have a number, but not those that only hidden groups, or topics, use.

    Numbers are given to partitions with a commit or a member, and to those that are kept. They stay for some
    time after these are gone.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry, self._numbers = registry, registry.partitions.numbers
        self._list: list[tuple[str, int]] = []
        self._known = np.zeros(0, np.bool_)  # by number: whether the list has it
        self._excluded = _NONE
        self._numbering = -1

    def list_partitions(self, shards: Collection[Shard], *, hiding: bool) -> list[tuple[str, int]]:
        """The watched partitions, sorted: the same list until there is a change.

        `hiding` is whether any shard hides groups. Their assignments must be up to date.
        """
        excluded = self._find_excluded(shards) if hiding else _NONE
        if self._numbering == self._numbers.numbering and np.array_equal(excluded, self._excluded):
            return self._list
        new = self._numbers.drain_new()
        if new is None or len(excluded) or len(self._excluded):
            room = self._numbers.room
            numbers, self._list = np.setdiff1d(np.arange(room), excluded), []
            self._known = np.zeros(room, np.bool_)
        else:
            self._known = np.pad(self._known, (0, self._numbers.room - len(self._known)))
            numbers = new[~self._known[new]]
        # A free number is not known: the partition that gets it next is new.
        self._known[numbers] = self._numbers.columns.partition[numbers] != FREE
        used = numbers[self._known[numbers]]
        # A list that is sorted but for its end is sorted in little time.
        self._list = sorted([*self._list, *zip(*self._numbers.find_names(used), strict=True)])
        self._excluded, self._numbering = excluded, self._numbers.numbering
        return self._list

    def _find_excluded(self, shards: Collection[Shard]) -> Ints:
        """The numbers of the partitions that hidden groups use, and no other group, and that are not kept."""
        shown, hidden = np.zeros((2, self._numbers.room), np.bool_)
        for shard in shards:
            split = shard.shown.split_partitions(shard.assignments.numbers)
            for mask, numbers in zip((shown, hidden), split, strict=True):
                mask[numbers] = True
        shown[self._registry.kept] = True
        return np.flatnonzero(hidden & ~shown)
