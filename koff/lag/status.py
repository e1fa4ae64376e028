"""Is the group keeping up? Burrow's verdict on a row (group, topic, partition), and on a group.

The first rule that matches wins:

    -  no committed offset                                                            NOTFOUND
    -  the current lag is not known                                                   UNKNOWN
    1  the current lag is allowed                                                     OK
    2  silent for longer than the window spans, and no stored end was reached         STOP
    3  a commit is below its predecessor, which no later one reached again            REWIND
    a  silent, and ends have not been watched for long enough to decide rule 2        UNKNOWN
    4  the lag was allowed at some commit in the window                               OK
    b  fewer than `min_commits` commits in the window                                 UNKNOWN
    5  all committed offsets are equal                                                STALL
    c  fewer than two lags in the window are known                                    UNKNOWN
    6  no known lag is below the known lag before it                                  WARN
    7  otherwise                                                                      OK

Where this departs from Burrow, and why:

- One commit alone spans no time, so Burrow's rule 2 fires at once, and rules 5 and 6 always hold of it.
  Here a window of fewer than `min_commits` counts as spanning `assumed_span_ms` for rule 2 (a group that
  stopped long ago has one commit left after compaction, and must be found), and rule b keeps it from 5 and 6.
- Burrow's ring of ends starts empty, and right after a start any end is "never reached": a group that had
  caught up and idled is a STOP as soon as one record comes. Here the end some time ago must be known (a).
- Burrow has no commit without a known end. Here lags of commits that are older than the monitor are
  unknown, and "no known lag decreased" would be a WARN out of nothing (rule c).
- Where Burrow answers OK for what it does not know, this answers UNKNOWN.
- A window whose times run backwards spans nothing, rather than less than nothing.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from koff.lag.window import WINDOW, Features, Integers, Mark

_AT_ONCE = 16_384  # rows: the temporaries fit a core's cache

ENDS_SPAN_MS = 100_000
"""How long ago `oldest_end` was the end, with Burrow's settings: ten samples, ten seconds apart."""


class Status(IntEnum):
    """Verdicts, from good to bad; the names are Burrow's (and UNKNOWN), for JSON and metrics."""

    NOTFOUND = 0
    UNKNOWN = 1
    OK = 2
    WARN = 3
    ERR = 4
    """Of groups only: the worst partition is STOP, STALL or REWIND."""
    STOP = 5
    STALL = 6
    REWIND = 7


# What the verdict depends on, one bit each above those of `Mark`: 4096 cases, decided once, below.
_ENOUGH, _COMMITTED, _LAG_KNOWN, _LAG_ALLOWED = 1 << 5, 1 << 6, 1 << 7, 1 << 8
_SILENT, _NONE_REACHED, _ENDS_KNOWN = 1 << 9, 1 << 10, 1 << 11


def _verdicts() -> NDArray[np.uint8]:
    """The rules, for every case."""
    case = np.arange(1 << 12)

    def has(bit: int) -> NDArray[np.bool_]:
        case_has: NDArray[np.bool_] = (case & bit) != 0
        return case_has

    rules = [
        (~has(_COMMITTED), Status.NOTFOUND),
        (~has(_LAG_KNOWN), Status.UNKNOWN),
        (has(_LAG_ALLOWED), Status.OK),
        (has(_SILENT) & has(_ENDS_KNOWN) & has(_NONE_REACHED), Status.STOP),
        (has(Mark.REWOUND), Status.REWIND),
        (has(_SILENT) & ~has(_ENDS_KNOWN), Status.UNKNOWN),
        (has(Mark.LAG_WAS_ALLOWED), Status.OK),
        (~has(_ENOUGH), Status.UNKNOWN),
        (has(Mark.STALLED), Status.STALL),
        (~has(Mark.LAGS_KNOWN), Status.UNKNOWN),
        (has(Mark.NEVER_DECREASED), Status.WARN),
    ]
    verdicts = np.select([rule for rule, _ in rules], [status for _, status in rules], Status.OK)
    return verdicts.astype(np.uint8)


_VERDICTS = _verdicts()


def status(
    features: Features,
    *,
    current_lag: Integers,
    current_lag_known: NDArray[np.bool_],
    committed: Integers,
    oldest_end: Integers,
    now_ms: int,
    allowed_lag: int = 0,
    min_commits: int = 3,
    assumed_span_ms: int = 600_000,
) -> NDArray[np.uint8]:
    """`Status` of each row; arrays (N,).

    `current_lag` may be signed (below 0 counts as 0), and `committed` is below 0 where there is no commit.
    `oldest_end` is the end some time ago (`EndHistory.ends_at`, `ENDS_SPAN_MS` before `now_ms`; ends do not
    decrease, so it stands for all ends since), below 0 where that is not known. `now_ms` is by the clock of
    the commits' times.
    """
    size = len(committed)
    found = np.empty(size, np.uint8)
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        some = features.part(part)
        case = some.marks.astype(np.uint16)
        _add(case, _ENOUGH, some.commits >= max(min_commits, 1))
        _add(case, _COMMITTED, committed[part] >= 0)
        _add(case, _LAG_KNOWN, current_lag_known[part])
        _add(case, _LAG_ALLOWED, current_lag[part] <= allowed_lag)
        _add(case, _SILENT, _silent(some, now_ms, min_commits, assumed_span_ms))
        _add(case, _NONE_REACHED, oldest_end[part] > committed[part])
        _add(case, _ENDS_KNOWN, oldest_end[part] >= 0)
        found[part] = _VERDICTS[case]
    return found


def _silent(some: Features, now_ms: int, min_commits: int, assumed_span_ms: int) -> NDArray[np.bool_]:
    span_ms = np.maximum(some.last_ms - some.first_ms, 0)
    span_ms[some.commits < min_commits] = assumed_span_ms
    silent: NDArray[np.bool_] = (now_ms - some.last_ms > span_ms) & (some.commits > 0)
    return silent


def _add(case: NDArray[np.uint16], bit: int, where: NDArray[np.bool_]) -> None:
    case |= where * np.uint16(bit)


def group_status(statuses: NDArray[np.uint8], groups: Integers, size: int) -> NDArray[np.uint8]:
    """`Status` (G,) of `size` groups: the worst of its rows, where `groups` (N,) says whose each row is.

    STOP, STALL and REWIND are shown as ERR, as in Burrow. Rows of which nothing is known leave the
    verdict to the others (completeness says how much is known): UNKNOWN is for groups with nothing else,
    NOTFOUND for groups without rows or commits.
    """
    worst = np.zeros(size, np.uint8)
    np.maximum.at(worst, groups, statuses)
    return np.minimum(worst, np.uint8(Status.ERR))


def group_completeness(features: Features, groups: Integers, size: int) -> NDArray[np.float64]:
    """How many of each group's rows have a full window, 0 to 1 (G,), as in Burrow; NaN without rows.

    The lower, the less the verdicts are founded on.
    """
    rows = np.bincount(groups, minlength=size)
    full = np.bincount(groups[features.commits >= WINDOW], minlength=size)
    complete: NDArray[np.float64] = np.divide(full, rows, out=np.full(size, np.nan), where=rows > 0)
    return complete
