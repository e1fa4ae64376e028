"""Counters of the growth of offsets, summed by topic."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UNKNOWN = -1
MOST = 1 << 53
"""Prometheus counts in floats, which are exact up to here."""


class Growth:
    """Sums of the growth of offsets. An offset that goes back, and one that becomes known, adds nothing.

    A client may commit any offset: a step of more than `MOST` adds nothing, too, and a sum that becomes
    larger starts again at 0. Prometheus takes that for a restart.

    `keys` name the offsets, `sum_keys` the sums, and `sum_of` has the sum of each offset.
    """

    def __init__(self, keys: Sequence[object], sum_keys: Sequence[object], sum_of: Ints) -> None:
        self._keys, self._sum_keys, self._sum_of = keys, sum_keys, sum_of
        self._last = np.full(len(keys), UNKNOWN, np.int64)
        self.sums = np.zeros(len(sum_keys), np.int64)

    def add(self, offsets: Ints) -> None:
        """Adds the growth since the last call. Below 0: unknown."""
        is_grown = (offsets > self._last) & (self._last != UNKNOWN)
        step = offsets - self._last
        grown = np.where(is_grown & (step <= MOST), step, 0)
        rough = self.sums + np.bincount(self._sum_of, weights=grown, minlength=len(self.sums))
        np.add.at(self.sums, self._sum_of, grown)
        self.sums[rough > MOST] = 0  # the exact sum may have overflowed
        self._last = np.where(offsets >= 0, offsets, self._last)

    def carry_over(self, before: Self) -> None:
        """Continues the sums of other offsets: those with the same keys."""
        last = dict(zip(before._keys, before._last.tolist(), strict=True))
        self._last = np.array([last.get(key, UNKNOWN) for key in self._keys], np.int64)
        sums = dict(zip(before._sum_keys, before.sums.tolist(), strict=True))
        self.sums = np.array([sums.get(key, 0) for key in self._sum_keys], np.int64)
