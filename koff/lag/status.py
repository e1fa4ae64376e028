"""Whether a group keeps up: Burrow's verdict on a row (group, topic, partition), and on a group.

The first rule that matches wins:

    -  no committed offset                                                            NOTFOUND
    -  the current lag is not known                                                   UNKNOWN
    1  the current lag is allowed                                                     OK
    2  silent for longer than the window spans, and no sampled end was reached        STOP
    3  a commit is below its predecessor, which no later commit reached again         REWIND
    4  the lag was allowed at some commit in the window                               OK (a)
    b  fewer than `min_commits` commits in the window                                 UNKNOWN
    5  all committed offsets are equal                                                STALL
    c  fewer than two lags in the window are known                                    UNKNOWN
    6  no known lag is below the known lag before it                                  WARN
    7  otherwise                                                                      OK (a)

    a  UNKNOWN in place of OK: silent, and ends have not been sampled for long enough to decide rule 2

A row is silent when no commit came for longer than its window spans. That time ends at the moment up to
which the commits are known: a pause of koff is no silence of the group. Rule 2 compares the commit with
`oldest_end`: end offsets do not decrease, so all later samples are above it too.

Differences from Burrow, with their reasons:

- A single commit spans no time, so Burrow's rule 2 applies at once, and rules 5 and 6 always apply. Here a
  window of fewer than `min_commits` counts as spanning `assumed_span_ms` for rule 2: a group that stopped
  long ago has one commit left after compaction, and must still be found. Rule b excludes it from 5 and 6.
- Burrow's ring of end offsets starts empty, so right after a start no end counts as reached: a group that
  was caught up and idle becomes STOP as soon as one record arrives. Here the end offset some time ago must
  be known. Without it the row may have stopped, so it is not OK (rule a). What is worse than OK stays: STOP
  would be no better.
- Burrow stores no commit without a known end offset. Here the lags of commits that are older than the monitor
  are unknown, and rule 6 would give WARN without any evidence (rule c).
- Where Burrow returns OK because it does not know, koff returns UNKNOWN. So a group is not OK either while it
  is behind in a row that is UNKNOWN (`group_status`): a group that is stuck in one partition of many would
  seem to have recovered whenever nothing is known of that partition for a moment.
- The lag at a commit counts only if it was computed from an end offset that was current when the commit was
  read. After a pause of koff, or of its connection to a leader, commits come in a burst and end offsets are
  old: lags would seem to shrink by what the group consumed meanwhile.
- A window whose timestamps run backwards spans 0 ms, not a negative time.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from koff.lag.window import WINDOW, Features, Integers, Mark

_AT_ONCE = 16_384  # rows: their temporary arrays fit the cache of a core

ENDS_SPAN_MS = 100_000
"""How long ago the `oldest_end` was sampled with Burrow's defaults: ten samples, ten seconds apart."""


class Status(IntEnum):
    """Verdicts, from good to bad. The names in JSON and metrics are Burrow's, and UNKNOWN."""

    NOTFOUND = 0
    UNKNOWN = 1
    OK = 2
    WARN = 3
    ERR = 4
    """Only for groups: the worst partition is STOP, STALL or REWIND."""
    STOP = 5
    STALL = 6
    REWIND = 7


# The facts that a verdict depends on: one bit each, above the bits of `Mark`. The verdicts of all 4096 cases
# are computed once, so that a row costs one table look-up.
_ENOUGH, _COMMITTED, _LAG_KNOWN, _LAG_ALLOWED = 1 << 5, 1 << 6, 1 << 7, 1 << 8
_SILENT, _NONE_REACHED, _ENDS_KNOWN = 1 << 9, 1 << 10, 1 << 11


def _decide_all_cases() -> NDArray[np.uint8]:
    """The verdict of every case, by the rules of this module."""
    case = np.arange(1 << 12)

    def has(bit: int) -> NDArray[np.bool_]:
        case_has: NDArray[np.bool_] = (case & bit) != 0
        return case_has

    ok = np.where(has(_SILENT) & ~has(_ENDS_KNOWN), Status.UNKNOWN, Status.OK)
    # The order matters: np.select takes the first rule that matches.
    rules = [
        (~has(_COMMITTED), Status.NOTFOUND),
        (~has(_LAG_KNOWN), Status.UNKNOWN),
        (has(_LAG_ALLOWED), Status.OK),
        (has(_SILENT) & has(_ENDS_KNOWN) & has(_NONE_REACHED), Status.STOP),
        (has(Mark.REWOUND), Status.REWIND),
        (has(Mark.LAG_WAS_ALLOWED), ok),
        (~has(_ENOUGH), Status.UNKNOWN),
        (has(Mark.STALLED), Status.STALL),
        (~has(Mark.LAGS_KNOWN), Status.UNKNOWN),
        (has(Mark.NEVER_DECREASED), Status.WARN),
    ]
    verdicts = np.select([rule for rule, _ in rules], [np.asarray(verdict) for _, verdict in rules], ok)
    return verdicts.astype(np.uint8)


_VERDICTS = _decide_all_cases()


def status(
    features: Features,
    *,
    current_lag: Integers,
    current_lag_known: NDArray[np.bool_],
    committed: Integers,
    oldest_end: Integers,
    now_ms: Integers | int,
    allowed_lag: int = 0,
    min_commits: int = 3,
    assumed_span_ms: int = 600_000,
) -> NDArray[np.uint8]:
    """The `Status` of each row; arrays (N,).

    `current_lag` may be signed: below 0 counts as 0. `committed` is below 0 where there is no commit.
    `oldest_end` is the end offset `ENDS_SPAN_MS` before `now_ms` (`EndHistory.ends_at`), below 0 where it is
    unknown; end offsets do not decrease, so it is a lower bound of all end offsets since. `now_ms` is up to
    when the commits are known (one time for all rows, or one for each), by the clock of their timestamps.
    """
    size = len(committed)
    known_until_ms = np.broadcast_to(np.asarray(now_ms, np.int64), (size,))
    statuses = np.empty(size, np.uint8)
    # Combine the marks of the window, which change only with a commit, with the facts that change with time.
    for first in range(0, size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        window = features.slice_rows(part)
        case = window.marks.astype(np.uint16)
        _set_bit(case, _ENOUGH, window.commits >= max(min_commits, 1))
        _set_bit(case, _COMMITTED, committed[part] >= 0)
        _set_bit(case, _LAG_KNOWN, current_lag_known[part])
        _set_bit(case, _LAG_ALLOWED, current_lag[part] <= allowed_lag)
        _set_bit(case, _SILENT, _is_silent(window, known_until_ms[part], min_commits, assumed_span_ms))
        _set_bit(case, _NONE_REACHED, oldest_end[part] > committed[part])
        _set_bit(case, _ENDS_KNOWN, oldest_end[part] >= 0)
        statuses[part] = _VERDICTS[case]
    return statuses


def _is_silent(
    window: Features, now_ms: Integers, min_commits: int, assumed_span_ms: int
) -> NDArray[np.bool_]:
    span_ms = np.maximum(window.last_ms - window.first_ms, 0)
    span_ms[window.commits < min_commits] = assumed_span_ms
    silent: NDArray[np.bool_] = (now_ms - window.last_ms > span_ms) & (window.commits > 0)
    return silent


def _set_bit(case: NDArray[np.uint16], bit: int, where: NDArray[np.bool_]) -> None:
    case |= where * np.uint16(bit)


def group_status(
    statuses: NDArray[np.uint8],
    groups: Integers,
    size: int,
    *,
    undecided: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """The `Status` (G,) of `size` groups: the worst of their rows. `groups` (N,) is the group of each row.

    STOP, STALL and REWIND become ERR, as in Burrow. A group is NOTFOUND if it has no row with a commit.

    `undecided` is a mask of the rows that are UNKNOWN and behind. A group with such a row is not OK, but
    UNKNOWN: nothing shows whether it keeps up in that row. It is WARN or ERR if another row is. Rows without
    a known lag do not count.
    """
    worst = np.zeros(size, np.uint8)  # NOTFOUND
    np.maximum.at(worst, groups, statuses)
    if undecided is not None:
        behind = groups[undecided]
        worst[behind[worst[behind] == Status.OK]] = Status.UNKNOWN
    return np.minimum(worst, np.uint8(Status.ERR))  # STOP, STALL and REWIND are above ERR


def group_completeness(features: Features, groups: Integers, size: int) -> NDArray[np.float64]:
    """The share of each group's rows that have a full window, 0 to 1 (G,), as in Burrow; NaN without rows.

    The lower it is, the fewer commits support the verdicts.
    """
    rows = np.bincount(groups, minlength=size)
    full = np.bincount(groups[features.commits >= WINDOW], minlength=size)
    complete: NDArray[np.float64] = np.divide(full, rows, out=np.full(size, np.nan), where=rows > 0)
    return complete
