"""Which shard shows a group, after the offsets topic has grown.

A group belongs to the one partition that its name's hash says (docs/records-format.md 4.1). Brokers take the
partition count at their start: after the topic has grown, groups stay in their old partitions until brokers
are restarted, and then begin without offsets in their new ones. What is left in the old ones is no group any
more. Whether brokers use the new count shows in the log: only then is anything written to a new partition.
"""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from koff.lag import UNKNOWN
from koff.records.placement import hash_groups
from koff.tracker.shard import Shard


class GroupPlaces:
    """The shards of each group, and the choice among them. Costs nothing while no group comes or goes."""

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}
        self._names: dict[int, set[str]] = {}
        self._first: dict[str, int] = {}
        # Only the groups that are in several shards.
        self._several: dict[str, set[int]] = {}
        # Groups outside the partition that their hash says, with these partitions.
        self._elsewhere: dict[str, set[int]] = {}
        # The partitions among these that no broker uses for the group any more.
        self._left: dict[str, set[int]] = {}
        # What `find_elsewhere` has found, and the groups of which it has to be found again.
        self._found: dict[str, int] = {}
        self._stale: set[str] = set()
        self._partition_count = 0
        self._earlier_counts: set[int] = set()
        self._last_written = -1
        # Whether the choice is to be made again: groups changed, or a commit may change it.
        self._unsettled = False
        self.is_hiding = False
        """Whether any shard hides a group."""

    def set_topic(self, partition_count: int, last_written: int) -> None:
        """Sets the partition count of the offsets topic (0: unknown), and its last partition with records.

        -1 if that is unknown: then groups outside the partition of their hash are shown.
        """
        if (partition_count, last_written) == (self._partition_count, self._last_written):
            return
        if partition_count != self._partition_count:
            # A topic with fewer partitions is another one.
            grown = 0 < self._partition_count < partition_count
            self._earlier_counts = {*self._earlier_counts, self._partition_count} if grown else set()
        self._partition_count, self._last_written = partition_count, last_written
        self._elsewhere, self._left = {}, {}
        for number, names in self._names.items():
            self._note_elsewhere(number, names)
        self._unsettled = True
        self._stale |= self._elsewhere.keys() | self._found.keys()

    def update(self, shards: Mapping[int, Shard]) -> None:
        """Finds the groups that came or went, and sets which groups each shard hides."""
        changed = False
        for number in self._shards.keys() | shards.keys():
            shard = shards.get(number)
            if shard is not self._shards.get(number):
                changed |= self._replace_shard(number, shard)
            elif shard is not None and shard.groups_changed:
                changed |= self._update_shard(number, shard)
        if (changed and (self._several or self._elsewhere or self.is_hiding)) or self._unsettled:
            self._choose()

    def remove_shard(self, number: int) -> None:
        """Forgets the shard of that number, if there is one."""
        self._unsettled |= number in self._shards
        self._replace_shard(number, None)

    def find_elsewhere(self) -> Mapping[str, int]:
        """The groups that are shown, but not by the partition that their hash says, with their partitions.

        The same mapping each time, brought up to date: do not modify it.
        """
        # A commit may change which shard shows a group that is in several shards.
        for name in self._stale | (self._elsewhere.keys() & self._several.keys()):
            self._found.pop(name, None)
            numbers = self._elsewhere.get(name)
            if numbers is not None:
                shown = self._choose_shard(name, self._several.get(name, numbers))
                if shown in numbers and shown not in self._left.get(name, ()):
                    self._found[name] = shown
        self._stale.clear()
        return self._found

    def find_hidden(self) -> set[str]:
        """The groups that no shard shows: they are only in partitions that no broker uses for them."""
        return {
            name for name, left in self._left.items() if self._several.get(name, {self._first[name]}) <= left
        }

    @property
    def has_grown(self) -> bool:
        """Whether the topic was seen to grow."""
        return bool(self._earlier_counts)

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether the topic was seen to grow, and brokers may still use the earlier partition count."""
        return bool(self._earlier_counts) and max(self._earlier_counts) > self._last_written

    def _replace_shard(self, number: int, shard: Shard | None) -> bool:
        self._remove(number, self._names.pop(number, set()))
        self._shards.pop(number, None)
        if shard is not None:
            shard.drain_group_changes()
            self._shards[number], self._names[number] = shard, set()
            self._add(number, shard.shown.group_names())
        return True

    def _update_shard(self, number: int, shard: Shard) -> bool:
        names = shard.drain_group_changes()
        if names is None:  # any group may have come or gone
            return self._replace_shard(number, shard)
        known = self._names[number]
        came = {name for name in names - known if shard.shown.has_group(name)}
        gone = {name for name in names & known if not shard.shown.has_group(name)}
        self._remove(number, gone)
        self._add(number, came)
        return bool(came or gone)

    def _note_elsewhere(self, number: int, names: Collection[str]) -> None:
        """Notes which of these groups of a shard are outside the partition of their hash.

        Brokers may use an earlier count, by which a group belongs to that shard. An earlier count is below
        the present one, and above every partition with records. If the topic was seen with another count, it
        is that one.
        """
        count = self._partition_count
        if not count or number < 0:  # shards below 0 are of no partition
            return
        ordered = list(names)
        hashes = hash_groups(ordered)
        outside = np.flatnonzero(hashes % count != number)
        is_left = np.full(len(outside), self._last_written >= 0)
        if is_left.any():
            for earlier in self._earlier_counts or range(self._last_written + 1, count):
                if earlier > self._last_written:
                    is_left &= hashes[outside] % earlier != number
        for index, left in zip(outside.tolist(), is_left.tolist(), strict=True):
            name = ordered[index]
            self._stale.add(name)
            self._elsewhere.setdefault(name, set()).add(number)
            if left:
                self._left.setdefault(name, set()).add(number)

    def _add(self, number: int, names: Iterable[str]) -> None:
        names = list(names)
        self._note_elsewhere(number, names)
        for name in names:
            self._names[number].add(name)
            first = self._first.setdefault(name, number)
            if first != number:
                self._several.setdefault(name, {first}).add(number)

    def _remove(self, number: int, names: Iterable[str]) -> None:
        for name in list(names):
            self._names.get(number, set()).discard(name)
            if name in self._elsewhere:
                self._stale.add(name)
                self._elsewhere[name].discard(number)
                self._left.get(name, set()).discard(number)
                if not self._elsewhere[name]:
                    self._left.pop(name, None)
                    del self._elsewhere[name]
                    if name not in self._found:
                        self._stale.discard(name)
            others = self._several.get(name, {number}) - {number}
            if not others:
                self._first.pop(name, None)
                continue
            self._first[name] = min(others)
            if len(others) > 1:
                self._several[name] = others
            else:
                del self._several[name]

    def _choose(self) -> None:
        hidden: dict[int, set[str]] = {}
        self._unsettled = False
        for name, numbers in self._several.items():
            shown = self._choose_shard(name, numbers)
            for number in numbers - {shown}:
                hidden.setdefault(number, set()).add(name)
        for name, numbers in self._left.items():
            for number in numbers:
                hidden.setdefault(number, set()).add(name)
        for number, shard in self._shards.items():
            shard.hide_groups(frozenset(hidden.get(number, ())))
        self.is_hiding = bool(hidden)

    def _choose_shard(self, name: str, numbers: set[int]) -> int:
        # Shards below 0 are of no partition: their groups come last.
        possible = numbers - self._left.get(name, set())
        candidates = {number for number in possible if number >= 0} or possible or numbers
        if len(candidates) == 1:
            return next(iter(candidates))
        by_hash = candidates - self._elsewhere.get(name, set())
        newest_ms = {number: self._shards[number].rows.newest_commit_ms(name) for number in candidates}
        if self._partition_count and by_hash:
            shown = min(by_hash)
            # A commit without a time is from a coordinator, which does not say in which partition it is.
            if newest_ms[shown] != UNKNOWN or all(at_ms == UNKNOWN for at_ms in newest_ms.values()):
                return shown
        # A later commit may change this choice, without any group coming or going.
        self._unsettled = True
        return max(candidates, key=lambda number: (newest_ms[number], -number))
