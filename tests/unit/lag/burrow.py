"""Burrow's rules once more, row by row in plain Python, straight from the specification: to compare with."""

from itertools import pairwise
from typing import NamedTuple


class Commit(NamedTuple):
    offset: int
    at_ms: int
    lag: int  # below 0: unknown


def rewound(commits):
    """Some commit is below its predecessor, and no later one reaches that predecessor again."""
    return any(
        commits[i].offset < commits[i - 1].offset
        and not any(later.offset >= commits[i - 1].offset for later in commits[i:])
        for i in range(1, len(commits))
    )


def known_lags(commits):
    return [commit.lag for commit in commits if commit.lag >= 0]


def never_decreased(commits):
    lags = known_lags(commits)
    return not any(lag < before for before, lag in pairwise(lags))


def silent(commits, now_ms, min_commits, assumed_span_ms):
    if not commits:
        return False
    span_ms = max(0, commits[-1].at_ms - commits[0].at_ms)
    if len(commits) < min_commits:
        span_ms = assumed_span_ms
    return now_ms - commits[-1].at_ms > span_ms


def status(
    commits,
    *,
    lag,
    committed,
    oldest_end,
    now_ms,
    allowed_lag=0,
    min_commits=3,
    assumed_span_ms=600_000,
):
    """The name of the verdict; `lag` is None where unknown."""
    quiet = silent(commits, now_ms, min_commits, assumed_span_ms)
    lags = known_lags(commits)
    if committed < 0:
        return "NOTFOUND"
    if lag is None:
        return "UNKNOWN"
    if max(0, lag) <= allowed_lag:
        return "OK"
    if quiet and oldest_end >= 0 and not oldest_end <= committed:
        return "STOP"
    if rewound(commits):
        return "REWIND"
    ok = "UNKNOWN" if quiet and oldest_end < 0 else "OK"
    if any(known <= allowed_lag for known in lags):
        return ok
    if len(commits) < min_commits:
        return "UNKNOWN"
    if all(commit.offset == commits[0].offset for commit in commits):
        return "STALL"
    if len(lags) < 2:
        return "UNKNOWN"
    return "WARN" if never_decreased(commits) else ok
