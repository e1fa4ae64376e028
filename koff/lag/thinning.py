"""Which points a full curve of end offsets loses, between which points it is imprecise, and the search in it.

The points of many curves are in grids (slots, N): a row of the history is a column there.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from koff.lag.curves import Rows

PRECISION = 1.2
"""Between two points whose ages differ by at most this factor, a time lag is within 20 %."""

_Column = TypeVar("_Column", np.int64, np.uint32)


def find_first_above(
    column: NDArray[_Column], rows: Rows, count: NDArray[np.uint8], values: NDArray[np.int64]
) -> Rows:
    """The slot of each row's first point above the value, of its `count` points. The newest must be above."""
    low = np.zeros(len(rows), np.intp)
    high = count.astype(np.intp) - 1
    # All rows at once, for as many steps as the longest search can take.
    for _ in range(int(high.max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        above = column[middle, rows] > values
        high = np.where(above, middle, high)
        low = np.where(above, low, middle + 1)
    return high


def thin_curves(
    offsets: NDArray[np.int64],
    ticks: NDArray[np.uint32],
    gaps: NDArray[np.bool_],
    rows: Rows,
    now: int,
    kept: int,
) -> NDArray[np.bool_]:
    """Leaves `kept` points of the rows, whose slots are all in use. Returns which of them have a gap then."""
    own_offsets, own_ticks, own_gaps = offsets[:, rows].T, ticks[:, rows].T, None
    if gaps[:, rows].any():
        own_gaps = find_wide_gaps(own_offsets, own_ticks, gaps[:, rows].T, now)
    keep = points_to_keep(own_offsets, own_ticks, own_gaps, now, len(offsets) - kept)
    # As many points are kept in each row, so `reshape` is possible.
    offsets[:kept, rows] = own_offsets[keep].reshape(-1, kept).T
    ticks[:kept, rows] = own_ticks[keep].reshape(-1, kept).T
    if own_gaps is None:
        return np.zeros(len(rows), np.bool_)
    # What was a gap beside a dropped point is a gap beside its neighbour.
    own_gaps[:, 1:] |= own_gaps[:, :-1] & ~keep[:, :-1]
    gaps[:kept, rows] = own_gaps[keep].reshape(-1, kept).T
    gaps[kept:, rows] = False
    return np.asarray(own_gaps.any(axis=1))


def find_wide_gaps(
    offsets: NDArray[np.int64], ticks: NDArray[np.uint32], gaps: NDArray[np.bool_], now: int
) -> NDArray[np.bool_]:
    """The `gaps` (N, points) that matter: with records in them, and not narrow in proportion to their age."""
    age = np.maximum(now - ticks.astype(np.float64), 0)
    wide = np.zeros(gaps.shape, np.bool_)
    wide[:, 1:] = gaps[:, 1:] & (offsets[:, 1:] > offsets[:, :-1]) & (age[:, :-1] > PRECISION * age[:, 1:])
    return wide


def points_to_keep(
    offsets: NDArray[np.int64],
    ticks: NDArray[np.uint32],
    gaps: NDArray[np.bool_] | None,
    now: int,
    surplus: int,
) -> NDArray[np.bool_]:
    """A mask (N, points) of the points to keep: all but `surplus` of each row. Points are oldest first.

    Only every second point may be dropped, so that two neighbours are never dropped together. The first and
    the last point of the curve are always kept, and points beside a gap as far as possible.
    """
    points = offsets.shape[1]
    middle = slice(1, points - 2, 2)
    left, right = slice(0, points - 3, 2), slice(2, points - 1, 2)
    # The error that a dropped point would cause: its distance in time from the line between its neighbours,
    # in proportion to its age. Ticks are unsigned: they become floats before any subtraction.
    grown = np.maximum(offsets[:, right] - offsets[:, left], 1)
    share = (offsets[:, middle] - offsets[:, left]) / grown
    tick, since = ticks[:, middle].astype(np.float64), ticks[:, left].astype(np.float64)
    error = np.abs(tick - since - share * (ticks[:, right] - since)) / np.maximum(now + 1 - tick, 1)
    if gaps is not None:
        error[gaps[:, middle] | gaps[:, right]] = np.inf
    # Column i of `error` is point 2 i + 1.
    drop = np.argpartition(error, surplus - 1, axis=1)[:, :surplus] * 2 + 1
    keep = np.ones(offsets.shape, np.bool_)
    np.put_along_axis(keep, drop, False, axis=1)
    return keep
