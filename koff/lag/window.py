"""Features of a row's last commits: the part of the status that changes only with a commit.

A window is the last W commits of one (group, topic, partition), in the order of `__consumer_offsets`. Arrays
are (N, W), newest last. Unfilled slots are in front and hold arbitrary values; `count` (N,) is the number of
filled slots. The rules are those of Burrow's evaluator (`caching.go`), without its known faults.
"""

from enum import IntFlag
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.offsets import UNKNOWN

WINDOW = 10
"""Commits in a window, as in Burrow."""

_AT_ONCE = 8192  # rows: three transposed windows of ten and the temporary arrays fit the cache of a core

Integers = NDArray[np.integer[Any]]


class Mark(IntFlag):
    """Facts about the course of a window; eight bits."""

    REWOUND = 1
    """Some commit is below its predecessor, and no later commit reached that predecessor again."""
    LAG_WAS_ALLOWED = 2
    """At some commit the lag was at most the allowed lag: the group was caught up."""
    STALLED = 4
    """All committed offsets are equal. Always set with one commit or none: check `commits` too."""
    NEVER_DECREASED = 8
    """No known lag is below the known lag before it."""
    LAGS_KNOWN = 16
    """At least two lags are known: with fewer, NEVER_DECREASED means nothing."""


class Features(NamedTuple):
    """Windows reduced to what `status` and `consume_rates` need: 22 bytes per row. Arrays (N,)."""

    first_ms: NDArray[np.int64]
    """Timestamp of the oldest commit in the window; 0 if the window is empty."""
    last_ms: NDArray[np.int64]
    """Timestamp of the newest commit in the window; 0 if the window is empty."""
    commits: NDArray[np.uint8]
    """The number of filled slots of the window."""
    marks: NDArray[np.uint8]
    """The bits of `Mark`."""
    consumed: NDArray[np.float32]
    """The sum of the forward steps between commits: a step back (an offset reset) does not reduce it."""

    def slice_rows(self, rows: slice | NDArray[np.int64]) -> "Features":
        return Features(
            self.first_ms[rows], self.last_ms[rows], self.commits[rows], self.marks[rows], self.consumed[rows]
        )

    def empty_rows(self, where: NDArray[np.bool_]) -> "Features":
        """The features, but those of an empty window in the rows of the mask."""
        if not where.any():
            return self
        return Features(*(np.where(where, column.dtype.type(0), column) for column in self))

    def completeness(self, window: int = WINDOW) -> NDArray[np.float64]:
        """The filled share of each window, 0 to 1."""
        return self.commits / window


def lacks_commit_time(*, committed: Integers, committed_at_ms: Integers) -> NDArray[np.bool_]:
    """A mask of the rows with a commit whose time is UNKNOWN.

    Coordinators return committed offsets without their times. Such a commit has no place in the window. The
    window of the row ends at some earlier commit, and says nothing about the present: no rate, no status and
    no completeness may follow from it.
    """
    mask: NDArray[np.bool_] = np.greater_equal(committed, 0) & np.equal(committed_at_ms, UNKNOWN)
    return mask


def window_features(
    offsets: Integers,
    timestamps_ms: Integers,
    lags: Integers,
    count: Integers,
    *,
    allowed_lag: int = 0,
) -> Features:
    """The `Features` of windows (N, W): committed offsets, commit timestamps, lags (below 0: unknown)."""
    size = len(count)
    features = Features(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.minimum(count, offsets.shape[1]).astype(np.uint8),
        np.zeros(size, np.uint8),
        np.zeros(size, np.float32),
    )
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        filled = features.commits[part]
        features.first_ms[part], features.last_ms[part] = _first_and_last_ms(timestamps_ms[part], filled)
        features.marks[part], features.consumed[part] = _mark_offsets(offsets[part], filled)
        features.marks[part] |= _mark_lags(lags[part], filled, allowed_lag)
    return features


def _first_and_last_ms(timestamps_ms: Integers, filled: NDArray[np.uint8]) -> tuple[Integers, Integers]:
    window = timestamps_ms.shape[1]
    rows = np.arange(len(filled))
    # The oldest commit is in the first filled slot. An empty window must not index past the end.
    first = timestamps_ms[rows, np.minimum(window - filled.astype(np.intp), window - 1)]
    return np.where(filled > 0, first, 0), np.where(filled > 0, timestamps_ms[:, -1], 0)


def _mark_offsets(
    offsets: Integers, filled: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """The marks that depend on the offsets, and the sum of the forward steps.

    A window is REWOUND if its last offset is below its highest: the predecessor of some backward step was
    then not reached again.
    """
    by_slot = np.ascontiguousarray(offsets.T)  # a slot of all rows is then one run of memory
    last = by_slot[-1]
    high, low = last.copy(), last.copy()
    # From the newest commit back; an unfilled slot repeats the oldest commit, so it changes nothing.
    # Floats: a client may commit any offset, and a sum of integers could overflow.
    after, consumed = last, np.zeros(len(last), np.float64)
    for age in range(1, len(by_slot)):
        offset = np.where(filled > age, by_slot[-1 - age], after)
        np.maximum(high, offset, out=high)
        np.minimum(low, offset, out=low)
        consumed += np.maximum(after - offset, 0)
        after = offset
    return _mark_where(last < high, Mark.REWOUND) | _mark_where(low == high, Mark.STALLED), consumed


def _mark_lags(lags: Integers, filled: NDArray[np.uint8], allowed_lag: int) -> NDArray[np.uint8]:
    """The marks that depend on the lags at commit."""
    by_slot = np.ascontiguousarray(lags.T)
    allowed = np.zeros(len(filled), np.bool_)
    decreased = np.zeros(len(filled), np.bool_)
    known_count = np.zeros(len(filled), np.uint8)
    # From the oldest commit to the newest: the known lag before each commit.
    before = np.full(len(filled), -1, by_slot.dtype)
    for age in range(len(by_slot) - 1, -1, -1):
        lag = by_slot[-1 - age]
        known = (lag >= 0) & (filled > age)
        allowed |= known & (lag <= allowed_lag)
        decreased |= known & (lag < before)  # never at the first known lag: `before` is -1
        known_count += known
        before = np.where(known, lag, before)
    return (
        _mark_where(allowed, Mark.LAG_WAS_ALLOWED)
        | _mark_where(~decreased, Mark.NEVER_DECREASED)
        | _mark_where(known_count >= 2, Mark.LAGS_KNOWN)
    )


def _mark_where(where: NDArray[np.bool_], mark: Mark) -> NDArray[np.uint8]:
    return where.view(np.uint8) * np.uint8(mark)
