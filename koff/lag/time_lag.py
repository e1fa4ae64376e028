"""Lag in seconds: how old the oldest record is that the group has not committed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.end_history import EndHistory, Rows
from koff.lag.offsets import UNKNOWN

_AT_ONCE = 32_768  # rows: the temporaries of the search stay in the cache


class TimeLags(NamedTuple):
    """Time lags of many rows; `seconds` is 0 where not `known`, and never negative, NaN or infinite."""

    seconds: NDArray[np.float64]
    known: NDArray[np.bool_]
    at_least: NDArray[np.bool_]
    """The record was there before the first sample: `seconds` is the time since then, a lower bound."""
    exact: NDArray[np.bool_] | None = None
    """The record itself was read (`with_records`); None where none ever was."""


def time_lag_s(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    *,
    start: NDArray[np.int64] | None = None,
) -> TimeLags:
    """How old the oldest record not yet committed is, by the history of sampled ends.

    `rows` (N,) are the history's (below 0: none), `committed` (N,) the group's offsets, `start` (N,) the log
    starts, where known: records that have left the log age no more. All times by the history's clock.

    The record at offset c came when the end first exceeded c, after the last sample with an end of at most c:
    an idle time before that never counts. Committed at the newest end, or beyond it: 0.
    Below the first sample nothing is extrapolated. The record is at least as old as that sample, so this
    bound is given, and marked: it is right and grows second by second, where null would hide the groups that
    are furthest behind from every alert. Unknown: no commit, or no sample.
    """
    size = len(rows)
    seconds, at_least = np.zeros(size), np.zeros(size, np.bool_)
    known = np.zeros(size, np.bool_)
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        oldest = None if start is None else start[part]
        seconds[part], known[part], at_least[part] = _time_lag_s(
            history, rows[part], committed[part], now_ms, oldest
        )
    return TimeLags(seconds, known, at_least)


def _time_lag_s(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    start: NDArray[np.int64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    seconds, at_least = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
    has_row = (rows >= 0) & (rows < len(history))
    newest = np.full(len(rows), UNKNOWN, np.int64)
    newest[has_row] = history.newest(rows[has_row])
    known = (newest >= 0) & (committed >= 0)
    wanted = committed if start is None else np.maximum(committed, start)
    behind = np.flatnonzero(known & (wanted < newest))
    row, offset = rows[behind], wanted[behind]
    beyond = offset < history.oldest(row)
    at_least[behind] = beyond
    seconds[behind[beyond]] = history.oldest_ages_s(row[beyond], now_ms)
    within = behind[~beyond]
    seconds[within] = history.record_ages_s(row[~beyond], offset[~beyond], now_ms)
    return seconds, known, at_least


NO_TIMESTAMP, NO_RECORD = -1, -2
"""Of `FirstRecords.timestamp_ms`: the record bears no time; there is no record up to the end."""

_SKEW_MS = 60_000


class FirstRecords(NamedTuple):
    """The first record at or after each row's commit, where it was read; arrays (N,).

    `offset` is UNKNOWN where it was not. Where there was no record, it is the end that reading came to.
    """

    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]

    def hold(self, *, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether what was read is still so: the record is in the log, or nothing came where none was."""
        there = (self.offset >= start) & (self.offset < end)
        still: NDArray[np.bool_] = np.where(self.timestamp_ms == NO_RECORD, end <= self.offset, there)
        return still & (self.offset >= 0)


def with_records(
    by_ends: TimeLags,
    records: FirstRecords,
    *,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    now_ms: int,
) -> TimeLags:
    """Time lags with the age of the record itself where it was read, and still holds; `exact` says where.

    Where no record is left, only control records, the lag in seconds is 0. A record from the future (by more
    than clocks differ) or without a time tells nothing: there the ends have it. `now_ms` is by the clock of
    the producers or brokers, as good as it gets.
    """
    told = (records.timestamp_ms == NO_RECORD) | (
        (records.timestamp_ms >= 0) & (records.timestamp_ms <= now_ms + _SKEW_MS)
    )
    exact = told & records.hold(start=start, end=end)
    age_s = np.where(records.timestamp_ms < 0, 0, np.maximum(now_ms - records.timestamp_ms, 0)) / 1000
    return TimeLags(
        np.where(exact, age_s, by_ends.seconds),
        by_ends.known | exact,
        by_ends.at_least & ~exact,
        exact,
    )
