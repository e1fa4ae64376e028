"""What a window of a row's last commits says: the part of the status that changes only with a commit.

A window is the last W commits of one (group, topic, partition), in the order of `__consumer_offsets`. Arrays
are (N, W), newest last; unfilled slots are in front and hold anything; `count` (N,) says how many are filled.
The rules are Burrow's (its evaluator's `caching.go`), in our words and with its traps repaired.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW = 10
"""Commits in a window, as in Burrow."""

_AT_ONCE = 8192  # rows: three turned windows of ten and the temporaries fit a core's cache

Integers = NDArray[np.integer[Any]]


class Mark(IntFlag):
    """What a window shows; eight bits."""

    REWOUND = 1
    """Some commit is below its predecessor, and no later one reached that predecessor again."""
    LAG_WAS_ALLOWED = 2
    """At some commit the lag was no more than allowed: the group was caught up."""
    STALLED = 4
    """All committed offsets are equal (always so with one commit: ask for a count)."""
    NEVER_DECREASED = 8
    """No known lag is below the known lag before it."""
    LAGS_KNOWN = 16
    """At least two lags are known: without them nothing can be said about their course."""


class Features(NamedTuple):
    """Windows reduced to what `status` and `consume_rates` need: 22 bytes a row. Arrays (N,)."""

    first_ms: NDArray[np.int64]
    """Time of the oldest commit in the window; 0 if it is empty."""
    last_ms: NDArray[np.int64]
    commits: NDArray[np.uint8]
    """Filled slots of the window."""
    marks: NDArray[np.uint8]
    """`Mark`."""
    consumed: NDArray[np.float32]
    """By how many offsets the commits advanced: steps forward only, so that a reset hides nothing."""

    def shows(self, mark: Mark) -> NDArray[np.bool_]:
        """Whether each row's window shows the mark."""
        found: NDArray[np.bool_] = (self.marks & np.uint8(mark)) != 0
        return found

    def part(self, rows: slice) -> Features:
        """The features of some rows."""
        return Features(
            self.first_ms[rows], self.last_ms[rows], self.commits[rows], self.marks[rows], self.consumed[rows]
        )

    def completeness(self, window: int = WINDOW) -> NDArray[np.float64]:
        """How much of each window is filled, 0 to 1."""
        return self.commits / window


def window_features(
    offsets: Integers,
    timestamps_ms: Integers,
    lags: Integers,
    count: Integers,
    *,
    allowed_lag: int = 0,
) -> Features:
    """`Features` of windows (N, W): committed offsets, commit times, lags at commit (below 0: unknown)."""
    size = len(count)
    found = Features(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.minimum(count, offsets.shape[1]).astype(np.uint8),
        np.zeros(size, np.uint8),
        np.zeros(size, np.float32),
    )
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        filled = found.commits[part]
        found.first_ms[part], found.last_ms[part] = _ends(timestamps_ms[part], filled)
        found.marks[part], found.consumed[part] = _course_of_offsets(offsets[part], filled)
        found.marks[part] |= _course_of_lags(lags[part], filled, allowed_lag)
    return found


def _ends(timestamps_ms: Integers, filled: NDArray[np.uint8]) -> tuple[Integers, Integers]:
    window = timestamps_ms.shape[1]
    rows = np.arange(len(filled))
    first = timestamps_ms[rows, np.minimum(window - filled.astype(np.intp), window - 1)]
    return np.where(filled > 0, first, 0), np.where(filled > 0, timestamps_ms[:, -1], 0)


def _course_of_offsets(
    offsets: Integers, filled: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The marks of the offsets, and what was consumed.

    Rewound is the last below the highest: that one, or what follows it, was not reached again.
    """
    turned = np.ascontiguousarray(offsets.T)
    last = turned[-1]
    high, low = last.copy(), last.copy()
    after, consumed = last, np.zeros(len(last), np.int64)
    for age in range(1, len(turned)):
        offset = np.where(filled > age, turned[-1 - age], after)
        np.maximum(high, offset, out=high)
        np.minimum(low, offset, out=low)
        consumed += np.maximum(after - offset, 0)
        after = offset
    return _marked(last < high, Mark.REWOUND) | _marked(low == high, Mark.STALLED), consumed


def _course_of_lags(lags: Integers, filled: NDArray[np.uint8], allowed_lag: int) -> NDArray[np.uint8]:
    turned = np.ascontiguousarray(lags.T)
    allowed = np.zeros(len(filled), np.bool_)
    decreased = np.zeros(len(filled), np.bool_)
    known = np.zeros(len(filled), np.uint8)
    before = np.full(len(filled), -1, turned.dtype)
    for age in range(len(turned) - 1, -1, -1):
        lag = turned[-1 - age]
        given = (lag >= 0) & (filled > age)
        allowed |= given & (lag <= allowed_lag)
        decreased |= given & (lag < before)
        known += given
        before = np.where(given, lag, before)
    return (
        _marked(allowed, Mark.LAG_WAS_ALLOWED)
        | _marked(~decreased, Mark.NEVER_DECREASED)
        | _marked(known >= 2, Mark.LAGS_KNOWN)
    )


def _marked(where: NDArray[np.bool_], mark: Mark) -> NDArray[np.uint8]:
    return where.view(np.uint8) * np.uint8(mark)


class Placement(IntEnum):
    """What becomes of a commit in its row's window."""

    APPEND = 0
    """The newest slot is a new one; the oldest goes if the window is full."""
    OVERWRITE = 1
    """The newest slot takes the offset and the lag, and keeps its timestamp."""
    DROP = 2
    """It was seen before."""


def placements(
    *,
    count: Integers,
    newest_ms: Integers,
    newest_position: Integers,
    timestamp_ms: Integers,
    position: Integers,
    min_distance_ms: int = 0,
) -> NDArray[np.uint8]:
    """`Placement` of a new commit for each row, arrays (N,); `position`: its offset in `__consumer_offsets`.

    A commit that follows the newest slot by less than `min_distance_ms` overwrites it and leaves it its time
    (`newest_ms`): so a group that commits many times a second has a window of W times that distance all the
    same, and times never decrease. Burrow drops commits a week old or of unknown end, where koff takes them
    (with an unknown lag), and inserts those out of order, which koff, reading in order, has seen.
    """
    has_one = np.greater(count, 0)
    seen = has_one & np.less_equal(position, newest_position)
    close = has_one & np.less(np.subtract(timestamp_ms, newest_ms), min_distance_ms)
    placed = np.where(close, np.uint8(Placement.OVERWRITE), np.uint8(Placement.APPEND))
    return np.where(seen, np.uint8(Placement.DROP), placed)
