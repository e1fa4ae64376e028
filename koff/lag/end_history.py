"""The end offsets of each partition over time, from which time lag and the produce rate are computed.

A partition has a curve, end offset over time, of at most `points` points with straight lines between them.
When all points are in use, an eighth of the points is dropped: the points whose absence changes a time lag
least, in proportion to that time lag. So the curve loses precision but not reach: it always begins at the
first sample of the partition. A steady flow needs two points, and the point at which a burst begins is kept.

Precision was measured on a day and a half of samples every ten seconds, with steady, random, daily and bursty
flows, for lags of seconds to a day. With 60 points, a time lag of the worst flow is within 6 % in 95 of 100
cases (at most 12 % off); with 32 points within 10 % (at most 21 % off).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from koff.lag.offsets import UNKNOWN

TICK_MS = 100
"""Times are kept in tenths of a second, in 32 bits, which suffices for 13 years."""

_THIN_AT_ONCE = 2048  # rows: columns of 60 points and a few temporary arrays fit the cache

Rows = NDArray[np.integer[Any]]
"""Row numbers of an `EndHistory`."""
_Column = TypeVar("_Column", np.int64, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A copy of some rows of an `EndHistory`.

    `count` (N,) is the number of points of each row. `offsets` and `ticks` hold the points: the first point
    of every row, then the second point of every row that has two, and so on. A point has the end offset, and
    the time in ticks of `TICK_MS` since `epoch_ms`. `tick` is the newest time of the whole history.
    """

    epoch_ms: int
    tick: int
    count: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ticks: NDArray[np.uint32]


class EndHistory:
    """End offsets over time for many partitions, which the caller numbers from 0 ("rows").

    A point takes twelve bytes of memory, and only points in use take any: the arrays are laid out slot by
    slot, so the operating system does not allocate the pages of slots that no partition has reached. An idle
    partition never needs more than two points. All times are by one clock of the caller's choice; a clock
    that goes back is treated as standing still.
    """

    def __init__(self, partitions: int = 0, *, points: int = 60) -> None:
        if not 8 <= points <= 255:
            raise ValueError(f"points must be 8 to 255, not {points}")
        self._points = points
        self._epoch_ms: int | None = None
        self._tick = 0
        self._allocate(partitions)

    def __len__(self) -> int:
        """The number of rows that fit; `add_samples` makes room for more."""
        return len(self._count)

    def add_samples(self, rows: Rows, offsets: NDArray[np.int64], now_ms: int) -> None:
        """Adds one round of samples: the end `offsets` (N,) of the distinct `rows` (N,) at `now_ms`.

        UNKNOWN offsets are ignored. Where an end offset went back (truncation, a re-created topic), the
        history of the partition starts again: the old times do not apply to the new records.
        """
        sampled = np.flatnonzero(offsets >= 0)
        if not len(sampled):
            return
        row, offset = np.asarray(rows, np.intp)[sampled], offsets[sampled]
        self.grow(int(row.max()) + 1)
        tick = self._advance_clock(now_ms)
        # An end offset that went back: the old points are dropped.
        self._count[row[offset < self._newest[row]]] = 0
        # While an end offset stands still, the newest point moves along instead of a new point.
        flat = self._is_flat(row, offset)
        self._thin_curves(row[(self._count[row] == self._points) & ~flat], tick)
        slot = self._count[row].astype(np.intp) - flat  # widened first: uint8 would wrap
        self._offsets[slot, row] = offset
        self._ticks[slot, row] = tick
        self._count[row] = slot + 1
        self._newest[row] = offset

    def clear(self, rows: Rows) -> None:
        """Drops the history of `rows`, which may then stand for other partitions."""
        self._count[rows] = 0
        self._newest[rows] = UNKNOWN

    def grow(self, partitions: int) -> None:
        """Makes room for at least `partitions` rows."""
        if partitions <= len(self):
            return
        count, newest, offsets, ticks = self._count, self._newest, self._offsets, self._ticks
        # Copy only the slots in use, so that the operating system allocates no memory for the free slots.
        used = int(count.max(initial=0))
        self._allocate(max(partitions, 2 * len(count)))
        self._count[: len(count)] = count
        self._newest[: len(count)] = newest
        self._offsets[:used, : len(count)] = offsets[:used]
        self._ticks[:used, : len(count)] = ticks[:used]

    def save(self, rows: Rows) -> Curves | None:
        """A copy of the history of `rows` for `restore`; None if this history never had a sample."""
        if self._epoch_ms is None:
            return None
        count = self._count[rows]
        longest = int(count.max(initial=0))
        filled = np.arange(longest)[:, None] < count
        offsets, ticks = self._offsets[:longest, rows][filled], self._ticks[:longest, rows][filled]
        return Curves(self._epoch_ms, self._tick, count, offsets, ticks)

    def restore(self, rows: Rows, curves: Curves) -> None:
        """Sets the history of `rows` to `curves`. Raises ValueError if this history ever had a sample."""
        if self._epoch_ms is not None:
            raise ValueError("end offsets were sampled already: restore their saved history before that")
        self.grow(int(rows.max(initial=-1)) + 1)
        self._epoch_ms, self._tick = curves.epoch_ms, curves.tick
        count = curves.count.astype(np.intp)
        # np.nonzero lists the filled slots in the order in which `save` copied them.
        slot, index = np.nonzero(np.arange(int(count.max(initial=0)))[:, None] < count)
        self._offsets[slot, rows[index]] = curves.offsets
        self._ticks[slot, rows[index]] = curves.ticks
        self._count[rows] = curves.count
        nonempty = np.flatnonzero(count)
        self._newest[rows[nonempty]] = self._offsets[count[nonempty] - 1, rows[nonempty]]

    def newest_ends(self, rows: Rows) -> NDArray[np.int64]:
        """The end offset of the last sample of each row; UNKNOWN without a sample."""
        return self._newest[rows]

    def oldest_ends(self, rows: Rows) -> NDArray[np.int64]:
        """The end offset of the first sample of each row; UNKNOWN without a sample."""
        return np.where(self._count[rows] > 0, self._offsets[0, rows], UNKNOWN)

    def oldest_ages_s(self, rows: Rows, now_ms: int) -> NDArray[np.float64]:
        """The age of the first sample of each row. Undefined where a row has no sample."""
        return self._ages_s(self._ticks[0, rows].astype(np.float64), now_ms)

    def record_ages_s(self, rows: Rows, offsets: NDArray[np.int64], now_ms: int) -> NDArray[np.float64]:
        """How long ago the records at `offsets` were produced.

        Each offset must be at least the row's `oldest_ends` and below its `newest_ends`. A record arrived
        after the last sample whose end did not exceed its offset, and before the next sample. The n records
        between two samples are taken to arrive at random moments: the i-th is expected at i / (n + 1) of the
        time between. So a single record is put in the middle, and many records form a straight line.
        """
        right = self._find_first_above(self._offsets, rows, offsets)
        before, after = self._offsets[right - 1, rows], self._offsets[right, rows]
        since = self._ticks[right - 1, rows].astype(np.float64)  # unsigned: float before any subtraction
        until = self._ticks[right, rows]
        share = (offsets - before + 1) / (after - before + 1)
        return self._ages_s(since + share * (until - since), now_ms)

    def ends_at(self, rows: Rows, at_ms: int) -> NDArray[np.int64]:
        """The end offsets at `at_ms`, rounded down; UNKNOWN where the history does not reach back to `at_ms`.

        At and after the newest sample, it is the end offset of that sample.
        """
        # Every row gets the end of its newest sample. Then correct the rows for which `at_ms` is before the
        # first sample, and the rows for which it is between two samples.
        tick = -1 if self._epoch_ms is None else (at_ms - self._epoch_ms) // TICK_MS
        ends = self._newest[rows]
        last = self._ticks[np.maximum(self._count[rows].astype(np.intp) - 1, 0), rows]
        inside = np.flatnonzero((self._ticks[0, rows] <= tick) & (tick < last) & (ends >= 0))
        ends[(self._ticks[0, rows] > tick) | (tick < 0)] = UNKNOWN
        ends[inside] = self._ends_at_tick(rows[inside], np.full(len(inside), tick, np.int64))
        return ends

    def growth(self, rows: Rows, span_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How many offsets each end grew in the `span_s` before its newest sample, and in how many seconds.

        The seconds are fewer than `span_s` where the history is shorter, and 0 with fewer than two samples.
        """
        last = self._ticks[np.maximum(self._count[rows].astype(np.intp) - 1, 0), rows].astype(np.int64)
        first = np.maximum(last - round(span_s * 1000 / TICK_MS), self._ticks[0, rows])
        # One sample, or none, spans no time.
        grown = np.zeros(len(rows))
        sampled = np.flatnonzero((self._newest[rows] >= 0) & (first < last))
        grown[sampled] = self._newest[rows[sampled]] - self._ends_at_tick(rows[sampled], first[sampled])
        return grown, np.where(self._newest[rows] >= 0, last - first, 0) * (TICK_MS / 1000)

    def _allocate(self, partitions: int) -> None:
        # np.zeros does not write: the operating system backs a page only when a point is written to it.
        self._offsets = np.zeros((self._points, partitions), np.int64)
        self._ticks = np.zeros((self._points, partitions), np.uint32)
        self._count = np.zeros(partitions, np.uint8)
        self._newest = np.full(partitions, UNKNOWN, np.int64)

    def _advance_clock(self, now_ms: int) -> int:
        if self._epoch_ms is None:
            self._epoch_ms = now_ms
        # Never back, and relative to the first sample: so ticks fit in 32 bits.
        self._tick = max(self._tick, (now_ms - self._epoch_ms) // TICK_MS)
        return self._tick

    def _ages_s(self, ticks: NDArray[np.float64], now_ms: int) -> NDArray[np.float64]:
        now_ticks = (now_ms - (self._epoch_ms or 0)) / TICK_MS
        return np.maximum(now_ticks - ticks, 0.0) * (TICK_MS / 1000)

    def _is_flat(self, rows: Rows, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the end is the same at the last two points and now. The middle point is then dropped.

        Two points of a flat stretch must stay: the first shows until when the offsets below it were produced,
        the last shows since when the offsets above it were produced.
        """
        count = self._count[rows].astype(np.intp)
        before = self._offsets[np.maximum(count - 2, 0), rows]
        flat: NDArray[np.bool_] = (count >= 2) & (offsets == self._newest[rows]) & (offsets == before)
        return flat

    def _thin_curves(self, rows: Rows, tick: int) -> None:
        """Drops an eighth of the points of `rows`, whose slots are all in use."""
        for first in range(0, len(rows), _THIN_AT_ONCE):
            chunk = rows[first : first + _THIN_AT_ONCE]
            offsets, ticks = self._offsets[:, chunk].T, self._ticks[:, chunk].T
            keep = _points_to_keep(offsets, ticks, tick, self._points // 8)
            kept = self._points - self._points // 8  # the same in every row, so `reshape` is possible
            self._offsets[:kept, chunk] = offsets[keep].reshape(-1, kept).T
            self._ticks[:kept, chunk] = ticks[keep].reshape(-1, kept).T
            self._count[chunk] = kept

    def _find_first_above(self, column: NDArray[_Column], rows: Rows, values: NDArray[np.int64]) -> Rows:
        """The slot of each row's first point above the value. The newest point must be above it."""
        low = np.zeros(len(rows), np.intp)
        high = self._count[rows].astype(np.intp) - 1
        # All rows at once, for as many steps as the longest search can take.
        for _ in range(self._points.bit_length()):
            middle = (low + high) >> 1
            above = column[middle, rows] > values
            high = np.where(above, middle, high)
            low = np.where(above, low, middle + 1)
        return high

    def _ends_at_tick(self, rows: Rows, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The end offsets at `ticks`, each from the row's first sample on and before its newest sample."""
        right = self._find_first_above(self._ticks, rows, ticks)
        since, until = self._ticks[right - 1, rows].astype(np.int64), self._ticks[right, rows]
        before, after = self._offsets[right - 1, rows], self._offsets[right, rows]
        share = (ticks - since) / (until - since)
        grown: NDArray[np.int64] = before + ((after - before) * share).astype(np.int64)
        return grown


def _points_to_keep(
    offsets: NDArray[np.int64], ticks: NDArray[np.uint32], now: int, surplus: int
) -> NDArray[np.bool_]:
    """A mask (N, points) of the points to keep: all but `surplus` of each row. Points are oldest first.

    Only every second point may be dropped, so that two neighbours are never dropped together. The first and
    the last point of the curve are always kept.
    """
    points = offsets.shape[1]
    middle = slice(1, points - 2, 2)
    left, right = slice(0, points - 3, 2), slice(2, points - 1, 2)
    # The error that a dropped point would cause: its distance in time from the line between its neighbours,
    # in proportion to its age. Ticks are unsigned: they become floats before any subtraction.
    grown = np.maximum(offsets[:, right] - offsets[:, left], 1)
    share = (offsets[:, middle] - offsets[:, left]) / grown
    tick, since = ticks[:, middle].astype(np.float64), ticks[:, left].astype(np.float64)
    error = np.abs(tick - since - share * (ticks[:, right] - since)) / (now + 1 - tick)
    # Column i of `error` is point 2 i + 1.
    drop = np.argpartition(error, surplus - 1, axis=1)[:, :surplus] * 2 + 1
    keep = np.ones(offsets.shape, np.bool_)
    np.put_along_axis(keep, drop, False, axis=1)
    return keep
