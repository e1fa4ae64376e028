"""Where each partition's end stood in the past: the memory behind time lag and the produce rate.

A partition has a curve, end offset over time, kept as at most `points` points (straight lines between). When
they run out, an eighth of them goes: those whose absence would change a time lag least, in proportion to that
time lag. So nothing is forgotten but precision: the curve reaches back to the partition's first sample,
whatever the number of points; a steady flow needs two of them, and what marks a burst's beginning stays.
Tried on a day and a half of samples every ten seconds, with steady, random, daily and bursty flows, for lags
of seconds to a day: with 60 points a time lag is within 6 % in 95 cases of 100 of the worst flow (at most
12 % off), with 32 points within 10 % (21 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from koff.lag.offsets import UNKNOWN

TICK_MS = 100
"""Times are kept in tenths of a second, in 32 bits: 13 years."""

_THIN_AT_ONCE = 2048  # columns of 60 points in a few temporaries: stays in the cache

Rows = NDArray[np.integer[Any]]
"""Row numbers of a history."""
_Column = TypeVar("_Column", np.int64, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Some rows of an `EndHistory`, taken out of it.

    `count` (N,) is how many points each has; `offsets` and `ticks` are the points, the first of every row in
    front, then the second of all that have one, and so on.
    """

    epoch_ms: int
    tick: int
    count: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ticks: NDArray[np.uint32]


class EndHistory:
    """End offsets over time for many partitions, which the caller numbers from 0 ("rows").

    Twelve bytes a point, and only the points in use count: arrays are slot by slot, so that the operating
    system never backs the slots that no partition has reached. An idle partition needs two points for ever.
    Times are whatever clock the caller has; one that goes back is taken to stand still.
    """

    def __init__(self, partitions: int = 0, *, points: int = 60) -> None:
        if not 8 <= points <= 255:
            raise ValueError(f"points must be 8 to 255, not {points}")
        self._points = points
        self._epoch_ms: int | None = None
        self._tick = 0
        self._allocate(partitions)

    def __len__(self) -> int:
        """How many rows there is room for; `add` makes more."""
        return len(self._count)

    def add(self, rows: Rows, offsets: NDArray[np.int64], now_ms: int) -> None:
        """Takes one sample round: `offsets` (N,) of the distinct `rows` (N,), sampled at `now_ms`.

        UNKNOWN offsets are left out. An end that went back (truncation, a re-created topic) starts the
        partition's history anew: the old times say nothing about the new records.
        """
        given = np.flatnonzero(offsets >= 0)
        if not len(given):
            return
        row, offset = np.asarray(rows, np.intp)[given], offsets[given]
        self.grow(int(row.max()) + 1)
        tick = self._advance(now_ms)
        self._count[row[offset < self._newest[row]]] = 0
        flat = self._is_flat(row, offset)
        self._thin(row[(self._count[row] == self._points) & ~flat], tick)
        slot = self._count[row].astype(np.intp) - flat
        self._offsets[slot, row] = offset
        self._ticks[slot, row] = tick
        self._count[row] = slot + 1
        self._newest[row] = offset

    def forget(self, rows: Rows) -> None:
        """Empties `rows`, which may then stand for other partitions."""
        self._count[rows] = 0
        self._newest[rows] = UNKNOWN

    def grow(self, partitions: int) -> None:
        """Makes room for at least so many rows."""
        if partitions <= len(self):
            return
        count, newest, offsets, ticks = self._count, self._newest, self._offsets, self._ticks
        used = int(count.max(initial=0))
        self._allocate(max(partitions, 2 * len(count)))
        self._count[: len(count)] = count
        self._newest[: len(count)] = newest
        self._offsets[:used, : len(count)] = offsets[:used]
        self._ticks[:used, : len(count)] = ticks[:used]

    def save(self, rows: Rows) -> Curves | None:
        """The history of those rows for `restore`; None before the first sample of any."""
        if self._epoch_ms is None:
            return None
        count = self._count[rows]
        most = int(count.max(initial=0))
        filled = np.arange(most)[:, None] < count
        offsets, ticks = self._offsets[:most, rows][filled], self._ticks[:most, rows][filled]
        return Curves(self._epoch_ms, self._tick, count, offsets, ticks)

    def restore(self, rows: Rows, curves: Curves) -> None:
        """Puts the history of as many rows back. Raises ValueError if there was a sample before."""
        if self._epoch_ms is not None:
            raise ValueError("this history has begun already")
        self.grow(int(rows.max(initial=-1)) + 1)
        self._epoch_ms, self._tick = curves.epoch_ms, curves.tick
        count = curves.count.astype(np.intp)
        slot, place = np.nonzero(np.arange(int(count.max(initial=0)))[:, None] < count)
        self._offsets[slot, rows[place]] = curves.offsets
        self._ticks[slot, rows[place]] = curves.ticks
        self._count[rows] = curves.count
        some = np.flatnonzero(count)
        self._newest[rows[some]] = self._offsets[count[some] - 1, rows[some]]

    def newest(self, rows: Rows) -> NDArray[np.int64]:
        """The end that was sampled last; UNKNOWN without a sample."""
        return self._newest[rows]

    def oldest(self, rows: Rows) -> NDArray[np.int64]:
        """The end that was sampled first; UNKNOWN without a sample."""
        return np.where(self._count[rows] > 0, self._offsets[0, rows], UNKNOWN)

    def oldest_ages_s(self, rows: Rows, now_ms: int) -> NDArray[np.float64]:
        """How long ago the first sample was taken: the reach. Meaningless without a sample."""
        return self._ages_s(self._ticks[0, rows].astype(np.float64), now_ms)

    def record_ages_s(self, rows: Rows, offsets: NDArray[np.int64], now_ms: int) -> NDArray[np.float64]:
        """How long ago the records at `offsets` were produced. They must lie from `oldest` to below `newest`.

        A record came after the last sample whose end did not exceed its offset, and before the next one. The
        n records between two samples count as arriving at random moments: the i-th is expected at
        i / (n + 1) of the time. (So a single record is put in the middle and many form a straight line.)
        """
        right = self._first_above(self._offsets, rows, offsets)
        before, after = self._offsets[right - 1, rows], self._offsets[right, rows]
        since = self._ticks[right - 1, rows].astype(np.float64)
        until = self._ticks[right, rows]
        share = (offsets - before + 1) / (after - before + 1)
        return self._ages_s(since + share * (until - since), now_ms)

    def ends_at(self, rows: Rows, at_ms: int) -> NDArray[np.int64]:
        """Where the ends stood at `at_ms` (rounded down); UNKNOWN if the history does not reach back so far.

        After the newest sample: as sampled last.
        """
        tick = -1 if self._epoch_ms is None else (at_ms - self._epoch_ms) // TICK_MS
        ends = self._newest[rows]
        last = self._ticks[np.maximum(self._count[rows].astype(np.intp) - 1, 0), rows]
        inside = np.flatnonzero((self._ticks[0, rows] <= tick) & (tick < last) & (ends >= 0))
        ends[(self._ticks[0, rows] > tick) | (tick < 0)] = UNKNOWN
        ends[inside] = self._ends_at_tick(rows[inside], np.full(len(inside), tick, np.int64))
        return ends

    def growth(self, rows: Rows, span_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By how many offsets the ends grew in the last `span_s` before the newest sample, and in how many
        seconds (fewer than `span_s` where the history is shorter; 0 where there is less than two samples).
        """
        last = self._ticks[np.maximum(self._count[rows].astype(np.intp) - 1, 0), rows].astype(np.int64)
        first = np.maximum(last - round(span_s * 1000 / TICK_MS), self._ticks[0, rows])
        grown = np.zeros(len(rows))
        some = np.flatnonzero((self._newest[rows] >= 0) & (first < last))
        grown[some] = self._newest[rows[some]] - self._ends_at_tick(rows[some], first[some])
        return grown, np.where(self._newest[rows] >= 0, last - first, 0) * (TICK_MS / 1000)

    def _allocate(self, partitions: int) -> None:
        self._offsets = np.zeros((self._points, partitions), np.int64)
        self._ticks = np.zeros((self._points, partitions), np.uint32)
        self._count = np.zeros(partitions, np.uint8)
        self._newest = np.full(partitions, UNKNOWN, np.int64)

    def _advance(self, now_ms: int) -> int:
        if self._epoch_ms is None:
            self._epoch_ms = now_ms
        self._tick = max(self._tick, (now_ms - self._epoch_ms) // TICK_MS)
        return self._tick

    def _ages_s(self, ticks: NDArray[np.float64], now_ms: int) -> NDArray[np.float64]:
        now_ticks = (now_ms - (self._epoch_ms or 0)) / TICK_MS
        return np.maximum(now_ticks - ticks, 0.0) * (TICK_MS / 1000)

    def _is_flat(self, rows: Rows, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the last two points and the new one are equal. The middle one then goes.

        The first says until when the offsets below were produced, the last since when those above were.
        """
        count = self._count[rows].astype(np.intp)
        before = self._offsets[np.maximum(count - 2, 0), rows]
        flat: NDArray[np.bool_] = (count >= 2) & (offsets == self._newest[rows]) & (offsets == before)
        return flat

    def _thin(self, rows: Rows, tick: int) -> None:
        """Takes an eighth of the points of `rows`, all full."""
        for first in range(0, len(rows), _THIN_AT_ONCE):
            some = rows[first : first + _THIN_AT_ONCE]
            offsets, ticks = self._offsets[:, some].T, self._ticks[:, some].T
            keep = _worth_keeping(offsets, ticks, tick, self._points // 8)
            left = self._points - self._points // 8
            self._offsets[:left, some] = offsets[keep].reshape(-1, left).T
            self._ticks[:left, some] = ticks[keep].reshape(-1, left).T
            self._count[some] = left

    def _first_above(self, column: NDArray[_Column], rows: Rows, values: NDArray[np.int64]) -> Rows:
        """The slot of each row's first point that exceeds the value. Its newest point must do so."""
        low = np.zeros(len(rows), np.intp)
        high = self._count[rows].astype(np.intp) - 1
        for _ in range(self._points.bit_length()):
            middle = (low + high) >> 1
            above = column[middle, rows] > values
            high = np.where(above, middle, high)
            low = np.where(above, low, middle + 1)
        return high

    def _ends_at_tick(self, rows: Rows, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the ends stood, from each row's first sample to before its newest."""
        right = self._first_above(self._ticks, rows, ticks)
        since, until = self._ticks[right - 1, rows].astype(np.int64), self._ticks[right, rows]
        before, after = self._offsets[right - 1, rows], self._offsets[right, rows]
        share = (ticks - since) / (until - since)
        grown: NDArray[np.int64] = before + ((after - before) * share).astype(np.int64)
        return grown


def _worth_keeping(
    offsets: NDArray[np.int64], ticks: NDArray[np.uint32], now: int, surplus: int
) -> NDArray[np.bool_]:
    """Which points to keep, all but `surplus` of each row; arrays (N, points), oldest first.

    Only every second point may go, so that neighbours never go together, and neither end of the curve.
    """
    points = offsets.shape[1]
    middle = slice(1, points - 2, 2)
    left, right = slice(0, points - 3, 2), slice(2, points - 1, 2)
    grown = np.maximum(offsets[:, right] - offsets[:, left], 1)
    share = (offsets[:, middle] - offsets[:, left]) / grown
    at, since = ticks[:, middle].astype(np.float64), ticks[:, left].astype(np.float64)
    error = np.abs(at - since - share * (ticks[:, right] - since)) / (now + 1 - at)
    drop = np.argpartition(error, surplus - 1, axis=1)[:, :surplus] * 2 + 1
    keep = np.ones(offsets.shape, np.bool_)
    np.put_along_axis(keep, drop, False, axis=1)
    return keep
