"""The keys of offset commits as numbers: a dictionary of what stands before the partition in them.

Keys repeat: a group commits a topic's partitions again and again. So the bytes before the partition
(type, group, topic) are looked up as a whole, all rows of a block at once, in a hash table that is a
numpy array; only bytes never seen before are taken apart, once each.

A hash says where to look, never that two keys are the same: bytes are compared.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.proto.primitives import JAVA_TEXT
from koff.proto.slices import Bytes, Ints, cut

Codes = NDArray[np.int32]
Words = NDArray[np.uint64]

PARTITION = 4
"""The bytes behind the prefix."""
WIDTHS = (64, 128, 256, 640)
"""Prefixes are handled at these widths, and longer ones not at all (`cuts.PAD` must reach)."""
_SHORTEST = 2 + 2 + 2
_TYPES = (0, 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Names:
    """Strings by number, each once, in the order in which they were first seen, while none is forgotten."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By their numbers; "" at a number that is free."""
        self._codes: dict[str, int] = {}
        self._free: list[int] = []

    @property
    def known(self) -> int:
        """How many there are."""
        return len(self._codes)

    def code(self, name: str) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = self._new(name)
        return found

    def keep(self, codes: Iterable[int]) -> None:
        """Forgets all but those: their numbers go to other names."""
        self._codes = {self.names[code]: code for code in codes}
        kept = set(self._codes.values())
        self._free = [code for code in range(len(self.names)) if code not in kept]
        for code in self._free:
            self.names[code] = ""

    def _new(self, name: str) -> int:
        if self._free:
            code = self._free.pop()
            self.names[code] = name
            return code
        self.names.append(name)
        return len(self.names) - 1


class Keys:
    """Types, groups and topics of the keys seen so far. A name that is kept keeps its code."""

    def __init__(self) -> None:
        self.groups = Names()
        self.topics = Names()
        self._forget_prefixes()

    def keep(self, groups: Iterable[int], topics: Iterable[int]) -> None:
        """Forgets all names but those with these codes."""
        self.groups.keep(groups)
        self.topics.keep(topics)
        self._forget_prefixes()

    @property
    def prefixes(self) -> int:
        """How many different beginnings of keys are known."""
        return sum(table.count for table in self._tables)

    def _forget_prefixes(self) -> None:
        self._tables = [_Prefixes(width, self.groups, self.topics) for width in WIDTHS]

    def look_up(self, data: Bytes, starts: Ints, lengths: Ints) -> tuple[Codes, Codes, Codes]:
        """Type, group and topic of each key; type -1 where it is not that of an offset commit to the byte."""
        sizes = lengths - PARTITION
        found = np.full((3, len(starts)), -1, np.int32)
        shorter = _SHORTEST - 1
        for table in self._tables:
            rows = np.flatnonzero((sizes > shorter) & (sizes <= table.width))
            shorter = table.width
            if len(rows) == len(starts):
                return table.look_up(data, starts, sizes)
            if len(rows):
                found[:, rows] = table.look_up(data, starts[rows], sizes[rows])
        return found[0], found[1], found[2]


class _Prefixes:
    """The prefixes up to a width, by their hash. Open addressing, a quarter full at most."""

    def __init__(self, width: int, groups: Names, topics: Names) -> None:
        self.width = width
        self._names = groups, topics
        words = width // 8
        self._multipliers = np.random.default_rng(width).integers(0, 2**63, words + 1, np.uint64) * 2 + 1
        ends = np.clip(np.arange(width + 1)[:, None] - 8 * np.arange(words), 0, 8).astype(np.uint64)
        part = (np.uint64(1) << (8 * ends) % np.uint64(64)) - np.uint64(1)
        self._masks: Words = np.where(ends == 8, np.uint64(2**64 - 1), part)
        self._table = np.full(1 << 12, -1, np.int32)
        self.count = 0
        self._hashes = np.zeros(1 << 8, np.uint64)
        self._words = np.zeros((1 << 8, words), np.uint64)
        self._meaning = np.full((3, 1 << 8), -1, np.int32)

    def look_up(self, data: Bytes, starts: Ints, sizes: Ints) -> tuple[Codes, Codes, Codes]:
        words = np.bitwise_and(cut(data, starts, self.width).view("<u8"), self._masks.take(sizes, axis=0))
        hashes = words @ self._multipliers[:-1] + sizes.view(np.uint64) * self._multipliers[-1]
        hashes = (hashes ^ (hashes >> np.uint64(32))) * _MIX
        codes = self._find(hashes)
        missing = np.flatnonzero(codes < 0)
        if len(missing):
            self._add(hashes[missing], words[missing], sizes[missing])
            codes[missing] = self._find(hashes[missing])
        type_, group, topic = self._meaning.take(codes, axis=1)
        known = self._words.take(codes, axis=0)
        if not np.array_equal(known, words):  # another prefix with the same hash
            type_[(known != words).any(axis=1)] = -1
        return type_, group, topic

    def _find(self, hashes: Words) -> Codes:
        """The code of each hash, -1 of those not there."""
        mask = len(self._table) - 1
        slots = self._slots(hashes)
        codes = self._table.take(slots)
        if (self._hashes.take(codes) == hashes).all() and (codes >= 0).all():
            return codes
        open_ = np.flatnonzero((codes >= 0) & (self._hashes[codes] != hashes))
        while len(open_):
            slots[open_] = (slots[open_] + 1) & mask
            codes[open_] = self._table[slots[open_]]
            open_ = open_[(codes[open_] >= 0) & (self._hashes[codes[open_]] != hashes[open_])]
        return codes

    def _slots(self, hashes: Words) -> Ints:
        bits = np.uint64(64 - (len(self._table).bit_length() - 1))
        return (hashes >> bits).astype(np.int64)

    def _add(self, hashes: Words, words: Words, sizes: Ints) -> None:
        first = np.sort(np.unique(hashes, return_index=True)[1])
        hashes = hashes[first]
        old, self.count = self.count, self.count + len(hashes)
        self._hashes = _grown(self._hashes, self.count, axis=0)
        self._words = _grown(self._words, self.count, axis=0)
        self._meaning = _grown(self._meaning, self.count, axis=1)
        self._hashes[old : self.count] = hashes
        self._words[old : self.count] = words[first]
        self._meaning[:, old : self.count] = self._understand(words[first], sizes[first])
        new = np.arange(old, self.count, dtype=np.int32)
        if 4 * self.count > len(self._table):
            self._table = np.full(1 << (8 * self.count).bit_length(), -1, np.int32)
            new = np.arange(self.count, dtype=np.int32)
        self._insert(new)

    def _insert(self, codes: Codes) -> None:
        mask = len(self._table) - 1
        slots = self._slots(self._hashes[codes])
        while len(codes):
            free = self._table[slots] < 0
            self._table[slots[free]] = codes[free]  # of several for one slot the last stays
            out = self._table[slots] != codes
            codes, slots = codes[out], (slots[out] + 1) & mask

    def _understand(self, words: Words, sizes: Ints) -> Codes:
        """Type, group and topic of prefixes; only those that are of commits are taken apart one by one."""
        raw = words.view(np.uint8).astype(np.int64)
        meaning = np.full((3, len(words)), -1, np.int32)
        group_size = raw[:, 2] << 8 | raw[:, 3]
        fits = np.isin(raw[:, 0] << 8 | raw[:, 1], _TYPES) & (group_size <= sizes - _SHORTEST)
        rows = np.flatnonzero(fits)
        at = 4 + group_size[rows]
        topic_size = raw[rows, at] << 8 | raw[rows, at + 1]
        rows = rows[at + 2 + topic_size == sizes[rows]]
        groups, topics = self._names
        for row in rows.tolist():
            prefix, behind = words[row].tobytes(), 4 + int(group_size[row])
            meaning[0, row] = prefix[1]
            meaning[1, row] = groups.code(prefix[4:behind].decode("utf-8", JAVA_TEXT))
            meaning[2, row] = topics.code(prefix[behind + 2 : sizes[row]].decode("utf-8", JAVA_TEXT))
        return meaning


def _grown(array: NDArray[Any], size: int, axis: int) -> NDArray[Any]:
    """The array with room for `size` along the axis."""
    room = array.shape[axis]
    if size <= room:
        return array
    more = list(array.shape)
    more[axis] = max(size - room, room)
    return np.concatenate((array, np.zeros(more, array.dtype)), axis)
