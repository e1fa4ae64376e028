"""A hash table from 64-bit numbers to row numbers, in two numpy arrays: many are found at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NO_ROW = -1
_FREE, _DELETED = -1, -2


class RowIndex:
    """Open addressing, at most two thirds full; 12 to 36 bytes an entry. Numbers should be spread well."""

    def __init__(self) -> None:
        self._keys = np.zeros(16, np.int64)
        self._rows = np.full(16, _FREE, np.int32)
        self._used = 0  # deleted ones too, until it grows
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def find(self, keys: Ints) -> Ints:
        """The row of each key, `NO_ROW` where there is none."""
        mask = len(self._rows) - 1
        at = keys & mask
        rows: Ints = self._rows[at].astype(np.int64)
        open_ = np.flatnonzero((rows != _FREE) & (self._keys[at] != keys))
        while open_.size:
            at[open_] = (at[open_] + 1) & mask
            rows[open_] = self._rows[at[open_]]
            open_ = open_[(rows[open_] != _FREE) & (self._keys[at[open_]] != keys[open_])]
        rows[rows < 0] = NO_ROW
        return rows

    def get(self, key: int) -> int:
        """The row of one key, `NO_ROW` where there is none."""
        mask = len(self._rows) - 1
        at = key & mask
        while (row := self._rows.item(at)) != _FREE:
            if row != _DELETED and self._keys.item(at) == key:
                return row
            at = (at + 1) & mask
        return NO_ROW

    def add(self, keys: Ints, rows: Ints) -> None:
        """Enters keys that are not there yet, each once."""
        if 3 * (self._used + len(keys)) > 2 * len(self._rows):
            self._grow(len(keys))
        self._used += len(keys)
        self._live += len(keys)
        self._insert(keys, rows)

    def remove(self, keys: Ints) -> None:
        """Removes keys that are there."""
        mask = len(self._rows) - 1
        at = keys & mask
        open_ = np.flatnonzero((self._rows[at] == _DELETED) | (self._keys[at] != keys))
        while open_.size:
            at[open_] = (at[open_] + 1) & mask
            open_ = open_[(self._rows[at[open_]] == _DELETED) | (self._keys[at[open_]] != keys[open_])]
        self._rows[at] = _DELETED
        self._live -= len(keys)

    def _insert(self, keys: Ints, rows: Ints) -> None:
        mask = len(self._rows) - 1
        at = keys & mask
        while len(keys):
            taken = self._rows[at] >= 0
            free = ~taken
            self._rows[at[free]] = rows[free]  # of several for one place the last stays
            placed = free & (self._rows[at] == rows)
            self._keys[at[placed]] = keys[placed]
            left = ~placed
            keys, rows, at = keys[left], rows[left], (at[left] + 1) & mask

    def _grow(self, more: int) -> None:
        live = self._rows >= 0
        keys, rows = self._keys[live], self._rows[live].astype(np.int64)
        size = 1 << max(4, (3 * (len(keys) + more)).bit_length() - 1 + 1)
        self._keys = np.zeros(size, np.int64)
        self._rows = np.full(size, _FREE, np.int32)
        self._used = len(keys)
        self._insert(keys, rows)


def spread(numbers: Ints) -> Ints:
    """Numbers whose low bits differ, one to one, out of numbers that run in steps or differ high up."""
    mixed = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(32))).view(np.int64)


def first_of_each(numbers: Ints) -> NDArray[np.intp]:
    """Where each number comes first, in the order in which they come."""
    return np.sort(np.unique(numbers, return_index=True)[1])
