"""Lag in seconds: the age of the oldest record that the group has not committed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.end_history import EndHistory, Rows
from koff.lag.offsets import UNKNOWN

_AT_ONCE = 32_768  # rows: the temporary arrays of the search fit the cache


class TimeLags(NamedTuple):
    """The time lags of many rows. `seconds` is 0 where not `known`, and never negative, NaN or infinite."""

    seconds: NDArray[np.float64]
    known: NDArray[np.bool_]
    at_least: NDArray[np.bool_]
    """The record is older than the first point of the history: `seconds` is its age, a lower bound."""
    exact: NDArray[np.bool_] | None = None
    """The record itself was read (`refine_with_records`). None if no record was ever read."""

    @property
    def nothing_left(self) -> NDArray[np.bool_]:
        """A mask of the rows where only control records are left to read: the end of a transaction."""
        return np.zeros(len(self.known), np.bool_) if self.exact is None else self.exact & (self.seconds == 0)


def time_lag_s(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    *,
    start: NDArray[np.int64] | None = None,
    reach_s: float | None = None,
) -> TimeLags:
    """The age of the oldest record not yet committed, estimated from the history of end offsets.

    `rows` (N,) are row numbers of the history (below 0: no row), `committed` (N,) the committed offsets, and
    `start` (N,) the log start offsets, UNKNOWN where not known: records that have left the log do not count.
    All times are by the history's clock.

    The record at offset c arrived when the end offset first exceeded c, after the last point with an end of
    at most c; an idle time before that point never counts. The time lag is 0 where the group has committed
    the newest end or beyond. It is unknown without a commit or without a sample.

    Nothing is extrapolated below the first point. A record below it is at least as old as that point, so the
    age of the point is returned and marked `at_least`. This bound is true and grows every second; null would
    hide the groups that are furthest behind from every alert.

    With `reach_s`, the history is filled back to that age by `EndHistory.add_past_points`. Until then, a
    bound may be far too low, and a record may be in a wide gap. So the time lag is also unknown where the
    record is below a first point that is younger than `reach_s`, and where its age is not precise
    (`EndHistory.record_ages`). Without `reach_s`, nobody fills the history, and gaps do not count.
    """
    size = len(rows)
    seconds, at_least = np.zeros(size), np.zeros(size, np.bool_)
    known = np.zeros(size, np.bool_)
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        log_start = None if start is None else start[part]
        seconds[part], known[part], at_least[part] = _time_lag_s(
            history, rows[part], committed[part], now_ms, log_start, reach_s
        )
    return TimeLags(seconds, known, at_least)


def _time_lag_s(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    start: NDArray[np.int64] | None,
    reach_s: float | None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """`TimeLags` of one chunk of rows, as (seconds, known, at_least)."""
    seconds, at_least = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
    # Which rows have a lag, and the offset of their oldest uncommitted record.
    has_row = (rows >= 0) & (rows < len(history))
    newest = np.full(len(rows), UNKNOWN, np.int64)
    newest[has_row] = history.newest_ends(rows[has_row])
    known = (newest >= 0) & (committed >= 0)
    oldest = committed if start is None else np.maximum(committed, start)
    behind = np.flatnonzero(known & (oldest < newest))
    row, offset = rows[behind], oldest[behind]
    # A record before the first point has a lower bound; any other lies between two points.
    too_old = offset < history.oldest_ends(row)
    old, within = behind[too_old], behind[~too_old]
    at_least[old] = True
    seconds[old] = history.oldest_ages_s(row[too_old], now_ms)
    ages = history.record_ages(row[~too_old], offset[~too_old], now_ms)
    seconds[within] = ages.seconds
    # What the history is still to be asked for is not known.
    if reach_s is not None:
        known[old], known[within] = seconds[old] >= reach_s, ages.precise
        unknown = behind[~known[behind]]
        seconds[unknown], at_least[unknown] = 0, False
    return seconds, known, at_least


NO_TIMESTAMP, NO_RECORD = -1, -2
"""In `FirstRecords.timestamp_ms`: the record has no timestamp; there is no record up to the end offset."""

_SKEW_MS = 60_000  # how far the clock of a producer or broker may be ahead of koff's


class FirstRecords(NamedTuple):
    """The first record at or after each row's committed offset, where it was read; arrays (N,).

    `offset` is UNKNOWN where the record was not read. Where there was no record (`NO_RECORD`), `offset` is
    the end offset that the read reached.
    """

    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]

    def is_valid(self, *, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the result still holds: the record is still in the log, or there is still no record."""
        in_log = (self.offset >= start) & (self.offset < end)
        valid: NDArray[np.bool_] = np.where(self.timestamp_ms == NO_RECORD, end <= self.offset, in_log)
        return valid & (self.offset >= 0)


def refine_with_records(
    by_ends: TimeLags,
    records: FirstRecords,
    *,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    now_ms: int,
) -> TimeLags:
    """The time lags `by_ends`, but the age of the record itself (`exact`) where it was read and is valid.

    Where only control records are left to read, the time lag is 0. The timestamp of a record is ignored if it
    is missing or more than a minute in the future; the estimate `by_ends` stays there. Record timestamps are
    by the clocks of producers or brokers, which `now_ms` can only approximate.
    """
    has_age = (records.timestamp_ms == NO_RECORD) | (
        (records.timestamp_ms >= 0) & (records.timestamp_ms <= now_ms + _SKEW_MS)
    )
    # A record age is used only if it is plausible and the log has not changed since.
    exact = has_age & records.is_valid(start=start, end=end)
    # NO_RECORD: only control records are left to read, so nothing is late. A record has an age above 0 even
    # if clocks differ: 0 stands for `nothing_left`.
    age_s = np.where(records.timestamp_ms < 0, 0, np.maximum(now_ms - records.timestamp_ms, 1)) / 1000
    return TimeLags(
        np.where(exact, age_s, by_ends.seconds),
        by_ends.known | exact,
        by_ends.at_least & ~exact,
        exact,
    )
