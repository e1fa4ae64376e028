"""A hash table from 64-bit numbers to row numbers, in two numpy arrays: it looks up many keys at once."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NO_ROW = -1
_FREE, _DELETED = -1, -2


class RowIndex:
    """A map from 64-bit keys to row numbers, with open addressing and linear probing.

    It is at most two thirds full and takes 18 to 72 bytes per entry. The low bits of a key choose its slot,
    so they must be well distributed: the keys are hashes, or come from `spread_bits`.
    """

    def __init__(self) -> None:
        self._keys = np.zeros(16, np.int64)
        self._rows = np.full(16, _FREE, np.int32)
        self._used = 0  # entries, and deleted entries since the table last grew
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def find(self, keys: Ints) -> Ints:
        """The row of each key, `NO_ROW` where the key is not in the index."""
        mask = len(self._rows) - 1
        slots = keys & mask
        rows: Ints = self._rows[slots].astype(np.int64)
        # Where another key has the slot, look at the next slot. A search may end at a deleted entry of the
        # key itself: `add` uses the first slot that is free or deleted, so no later slot has the key.
        misses = np.flatnonzero((rows != _FREE) & (self._keys[slots] != keys))
        while misses.size:
            slots[misses] = (slots[misses] + 1) & mask
            rows[misses] = self._rows[slots[misses]]
            misses = misses[(rows[misses] != _FREE) & (self._keys[slots[misses]] != keys[misses])]
        rows[rows < 0] = NO_ROW  # free and deleted slots
        return rows

    def get(self, key: int) -> int:
        """The row of one key, `NO_ROW` if the key is not in the index."""
        mask = len(self._rows) - 1
        slot = key & mask
        while (row := self._rows.item(slot)) != _FREE:
            if row != _DELETED and self._keys.item(slot) == key:
                return row
            slot = (slot + 1) & mask
        return NO_ROW

    def add(self, keys: Ints, rows: Ints) -> None:
        """Adds keys, each once. None of them may be in the index."""
        if 3 * (self._used + len(keys)) > 2 * len(self._rows):
            self._grow(len(keys))
        self._used += len(keys)
        self._live += len(keys)
        self._insert(keys, rows)

    def remove(self, keys: Ints) -> None:
        """Removes keys, each once. All of them must be in the index."""
        mask = len(self._rows) - 1
        slots = keys & mask
        misses = np.flatnonzero((self._rows[slots] == _DELETED) | (self._keys[slots] != keys))
        while misses.size:
            slots[misses] = (slots[misses] + 1) & mask
            misses = misses[
                (self._rows[slots[misses]] == _DELETED) | (self._keys[slots[misses]] != keys[misses])
            ]
        self._rows[slots] = _DELETED
        self._live -= len(keys)

    def _insert(self, keys: Ints, rows: Ints) -> None:
        mask = len(self._rows) - 1
        slots = keys & mask
        while len(keys):
            taken = self._rows[slots] >= 0  # the slot of a deleted entry is used again
            free = ~taken
            self._rows[slots[free]] = rows[free]  # of several keys for one slot, numpy writes the last
            placed = free & (self._rows[slots] == rows)
            self._keys[slots[placed]] = keys[placed]
            waiting = ~placed
            keys, rows, slots = keys[waiting], rows[waiting], (slots[waiting] + 1) & mask

    def _grow(self, more: int) -> None:
        live = self._rows >= 0
        keys, rows = self._keys[live], self._rows[live].astype(np.int64)
        # The new table is at most one third full, so that it seldom grows.
        size = 1 << max(4, (3 * (len(keys) + more)).bit_length())
        self._keys = np.zeros(size, np.int64)
        self._rows = np.full(size, _FREE, np.int32)
        self._used = len(keys)
        self._insert(keys, rows)


def spread_bits(numbers: Ints) -> Ints:
    """Numbers with well distributed low bits, one to one from numbers that may differ only in high bits."""
    mixed = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(32))).view(np.int64)


def first_occurrences(numbers: Ints) -> NDArray[np.intp]:
    """The index at which each distinct number first occurs, in ascending order."""
    return np.sort(np.unique(numbers, return_index=True)[1])
