"""Which points a full curve of end offsets loses, and between which points it is imprecise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRECISION = 1.2
"""Between two points whose ages differ by at most this factor, a time lag is within 20 %."""


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
