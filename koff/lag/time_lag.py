"""Lag in seconds: the age of the oldest record that the group has not committed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.curves import Rows
from koff.lag.end_history import EndHistory
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

    def select(self, rows: NDArray[np.intp]) -> "TimeLags":
        exact = None if self.exact is None else self.exact[rows]
        return TimeLags(self.seconds[rows], self.known[rows], self.at_least[rows], exact)


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
_FAR_PART, _FAR_S = 0.25, 10.0


class FirstRecords(NamedTuple):
    """The first record at or after each row's committed offset, where it was read; arrays (N,).

    `offset` is UNKNOWN where the record was not read. Where there was no record (`NO_RECORD`), `offset` is
    the end offset that the read reached. `later_ms` is the median of the timestamps of the next few records;
    NO_TIMESTAMP if there were none.
    """

    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    later_ms: NDArray[np.int64]

    def is_valid(self, *, oldest: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the result still holds: the record is the first at or after the `oldest` offset that the
        group has not committed, or there is still no record.
        """
        is_first = (self.offset >= oldest) & (self.offset < end)
        valid: NDArray[np.bool_] = np.where(self.timestamp_ms == NO_RECORD, end <= self.offset, is_first)
        return valid & (self.offset >= 0)

    def select(self, rows: NDArray[np.intp]) -> "FirstRecords":
        return FirstRecords(*(column[rows] for column in self))


def refine_with_records(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    records: FirstRecords,
    *,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reach_s: float | None = None,
    skew_ms: int = 0,
) -> TimeLags:
    """The time lags of `time_lag_s`, made better by the records that were read.

    - If only control records are left to read, the time lag is 0.
    - If compaction removed the record at the committed offset, the next one counts.
    - What arrived since the first sample is as old as the samples say: clocks of producers do not matter.
    - Of older records, the age by their timestamps counts (`exact`). By the clock of `now_ms`, these
      timestamps are `skew_ms` ahead. One that is missing, or more than a minute in the future, tells nothing:
      the lag is then `at_least` the age of the first sample. If the next records are older, the producer's
      clock is ahead: their median counts. If they are much younger, and so is the estimate, the record may be
      out of order: then the larger of the two counts.
    - If a group went on since its record was read, the estimate counts. Where the estimate is far from the
      age of that record, timestamps are not in order: the lag is `at_least` the age of the first sample,
      until the next record is read.
    """
    valid = records.is_valid(oldest=np.maximum(committed, start), end=end)
    offsets = np.where(valid & (records.timestamp_ms != NO_RECORD), records.offset, committed)
    found = time_lag_s(history, rows, offsets, now_ms, start=start, reach_s=reach_s)
    exact = np.zeros(len(rows), np.bool_)
    # Few rows have a record, as a rule.
    read = np.flatnonzero(records.offset >= 0)
    if len(read):
        by_ends = found.select(read)
        refined = _refine(
            history, rows[read], committed[read], now_ms, records.select(read), by_ends,
            valid=valid[read], start=start[read], end=end[read], reach_s=reach_s, skew_ms=skew_ms,
        )  # fmt: skip
        found.seconds[read], found.known[read], found.at_least[read], exact[read] = refined
    return found._replace(exact=exact)


def _refine(
    history: EndHistory,
    rows: Rows,
    committed: NDArray[np.int64],
    now_ms: int,
    records: FirstRecords,
    by_ends: TimeLags,
    *,
    valid: NDArray[np.bool_],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reach_s: float | None,
    skew_ms: int,
) -> tuple[NDArray[Any], ...]:
    """The columns of `TimeLags`, of rows with a record. `by_ends`: estimates; `valid`: records that hold."""
    oldest = np.maximum(committed, start)
    nothing_left = valid & (records.timestamp_ms == NO_RECORD)
    is_read = valid & ~nothing_left
    watched_end, watched_s = history.first_samples(rows, now_ms)
    is_watched = np.where(is_read, records.offset, oldest) >= watched_end
    is_older = ~is_watched | ~by_ends.known | by_ends.at_least
    own_s = _find_ages_s(records.timestamp_ms, now_ms - skew_ms)
    later_s = _find_ages_s(records.later_ms, now_ms - skew_ms)
    is_ahead = np.isnan(own_s) | (later_s > own_s + _SKEW_MS / 1000)
    age_s = np.where(is_ahead & ~np.isnan(later_s), later_s, own_s)
    by_record, bound = is_read & is_older & ~np.isnan(age_s), is_read & is_older & np.isnan(age_s)
    # Out of order: the next records and the estimate are younger.
    estimate_s = np.where(by_ends.known & ~by_ends.at_least, by_ends.seconds, np.inf)
    is_outlier = (
        by_record & ~is_ahead & ~np.isnan(later_s) & (estimate_s < age_s) & _is_far(estimate_s, age_s)
    )
    age_s = np.where(is_outlier, np.maximum(estimate_s, later_s), age_s)
    # Groups that went on since their record was read, which is still in the log.
    was_read = (records.offset >= np.maximum(start, 0)) & (records.offset < oldest)
    stale = np.flatnonzero(was_read & (oldest < end) & ~is_watched & ~np.isnan(age_s))
    then = time_lag_s(history, rows[stale], records.offset[stale], now_ms, reach_s=reach_s)
    is_bound = then.at_least & (then.seconds < age_s[stale])
    bound[stale] = then.known & ~is_bound & _is_far(then.seconds, age_s[stale])
    told = nothing_left | by_record
    return (
        np.select([nothing_left, by_record, bound], [0.0, age_s, watched_s], default=by_ends.seconds),
        by_ends.known | told | bound,
        (by_ends.at_least & ~told) | bound,
        nothing_left | (by_record & ~is_ahead & ~is_outlier),
    )


def _find_ages_s(timestamp_ms: NDArray[np.int64], now_ms: int) -> NDArray[np.float64]:
    """Ages by timestamps, NaN where there is none, or one in the future. Above 0: 0 is for `nothing_left`."""
    is_plausible = (timestamp_ms >= 0) & (timestamp_ms <= now_ms + _SKEW_MS)
    return np.where(is_plausible, np.maximum(now_ms - timestamp_ms, 1) / 1000, np.nan)


def _is_far(seconds: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether two ages differ more than an estimate may."""
    return np.abs(seconds - others) > _FAR_PART * others + _FAR_S
