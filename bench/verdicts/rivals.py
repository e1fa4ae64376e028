"""Other rules, on the same samples: Burrow's window rule as koff has it for /v3, thresholds, and growth."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import ENDS_SPAN_MS, Status, group_status, status, window_features
from koff.lag.verdict import Verdict
from koff.lag.verdict_sample import Floats, Mask, VerdictSample, find_most, sum_rows
from koff.tracker.recent_commits import WindowTable

FOR_S = 300.0
"""An alert fires when its condition has held for so long."""
_MINUTE_S = 60.0


class Threshold:
    """ERR when the lag of a group (`by_time`: its time lag) is above `limit` for `FOR_S`."""

    def __init__(self, groups: int, limit: float, *, by_time: bool = False) -> None:
        self._limit, self._by_time = limit, by_time
        self._since_s = np.full(groups, np.nan)

    def judge(self, sample: VerdictSample, _commits: Mask) -> NDArray[np.uint8]:
        """The verdicts (G,)."""
        groups = len(sample.members)
        late_s = find_most(np.nan_to_num(sample.late_s), sample.group, groups)
        value = late_s if self._by_time else _sum_lags(sample)
        self._since_s = np.where(value > self._limit, np.fmin(self._since_s, sample.at_s), np.nan)
        return np.where(sample.at_s - self._since_s >= FOR_S, Verdict.ERR, Verdict.OK).astype(np.uint8)


class Growth:
    """ERR when the lag of a group has grown from each minute to the next for `FOR_S`."""

    def __init__(self, groups: int) -> None:
        self._minutes: deque[Floats] = deque([np.zeros(groups)], maxlen=round(FOR_S / _MINUTE_S) + 1)
        self._next_s = 0.0
        self._verdict = np.full(groups, Verdict.OK, np.uint8)

    def judge(self, sample: VerdictSample, _commits: Mask) -> NDArray[np.uint8]:
        """The verdicts (G,)."""
        if sample.at_s >= self._next_s:
            self._next_s = sample.at_s + _MINUTE_S
            self._minutes.append(_sum_lags(sample))
            grows = np.diff(np.array(self._minutes), axis=0).min(axis=0) > 0
            is_full = len(self._minutes) == self._minutes.maxlen
            self._verdict = np.where(grows & is_full, Verdict.ERR, Verdict.OK).astype(np.uint8)
        return self._verdict


class Burrow:
    """Burrow's rule on the last ten commits of each row."""

    def __init__(self, rows: int) -> None:
        self._windows = WindowTable()
        self._windows.reserve(rows)
        self._ends: deque[tuple[float, NDArray[np.int64]]] = deque()

    def judge(self, sample: VerdictSample, commits: Mask) -> NDArray[np.uint8]:
        """The verdicts (G,). `commits` are the rows with a commit at this sample."""
        now_ms, rows = round(sample.at_s * 1000), np.flatnonzero(commits)
        lag = np.maximum(sample.end - sample.committed, 0)
        if len(rows):
            self._windows.add(rows, sample.committed[rows], np.full(len(rows), now_ms), lag[rows])
        self._ends.append((sample.at_s, sample.end))
        while len(self._ends) > 1 and self._ends[1][0] <= sample.at_s - ENDS_SPAN_MS / 1000:
            self._ends.popleft()
        window = self._windows.get(np.arange(len(lag)))
        statuses = status(
            window_features(window.offset, window.time_ms, window.lag, window.count),
            current_lag=lag,
            current_lag_known=~np.isnan(sample.late_s),
            committed=sample.committed,
            oldest_end=self._ends[0][1],
            now_ms=now_ms,
        )
        found = group_status(statuses[sample.counts], sample.group[sample.counts], len(sample.members))
        names: dict[int, Any] = {Status.OK: Verdict.OK, Status.WARN: Verdict.WARN, Status.ERR: Verdict.ERR}
        verdicts = np.full(len(found), Verdict.UNKNOWN, np.uint8)
        for name, verdict in names.items():
            verdicts[found == name] = verdict
        return verdicts


def _sum_lags(sample: VerdictSample) -> Floats:
    lag = np.where(sample.counts, np.maximum(sample.end - sample.committed, 0), 0)
    return sum_rows(lag, sample.group, len(sample.members))
