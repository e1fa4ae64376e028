"""How fast records come and go, and when a group will have caught up."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.history import EndHistory, Rows
from koff.lag.windows import Integers

NEVER = math.inf
"""Of `CatchUps.seconds`: as things are, the group never catches up. (JSON: null, and a flag.)"""

_AT_ONCE = 8192


class Rates(NamedTuple):
    """Offsets a second of many rows; 0 where not `known`, never negative."""

    per_s: NDArray[np.float64]
    known: NDArray[np.bool_]


def produce_rates(history: EndHistory, rows: Rows, *, span_s: float = 300.0) -> Rates:
    """How fast the ends of the history's `rows` (N,) grew in the last `span_s` before the newest sample.

    Of a shorter time where the history is shorter; unknown with fewer than two samples.
    """
    grown, in_s = history.growth(rows, span_s)
    known = in_s > 0
    return Rates(np.divide(grown, in_s, out=np.zeros(len(rows)), where=known), known)


def consume_rates(offsets: Integers, timestamps_ms: Integers, count: Integers, now_ms: int) -> Rates:
    """How fast each window of commits (N, W; as in `window_features`) advanced.

    Only steps forward count, so that a reset to an older offset does not hide what was consumed since.
    A silence longer than the mean time between commits counts as time without progress: the rate of a
    group that stopped falls, where the window alone would show its last speed for ever.
    Unknown with fewer than two commits, or when they span no time.
    """
    per_s, known = np.zeros(len(count)), np.zeros(len(count), np.bool_)
    for first in range(0, len(count), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        per_s[part], known[part] = _consume_rates(
            offsets[part], timestamps_ms[part], np.asarray(count[part], np.intp), now_ms
        )
    return Rates(per_s, known)


def _consume_rates(offsets: Integers, timestamps_ms: Integers, count: Rows, now_ms: int) -> Rates:
    window = offsets.shape[1]
    steps = np.maximum(np.diff(offsets.astype(np.int64, copy=False), axis=1), 0)
    steps[np.arange(1, window) <= window - count[:, None]] = 0
    consumed = steps.sum(axis=1)
    oldest = np.clip(window - count, 0, window - 1)
    first_ms, last_ms = timestamps_ms[np.arange(len(count)), oldest], timestamps_ms[:, -1]
    span_ms = last_ms - first_ms
    known = (count >= 2) & (span_ms > 0)
    usual_ms = span_ms / np.maximum(count - 1, 1)
    idle_ms = np.maximum(now_ms - last_ms - usual_ms, 0)
    per_ms = np.divide(consumed, span_ms + idle_ms, out=np.zeros(len(count)), where=known)
    return Rates(per_ms * 1000, known)


class CatchUps(NamedTuple):
    """When groups will have caught up; `seconds` is 0 where not `known`, and `NEVER` where `never`."""

    seconds: NDArray[np.float64]
    known: NDArray[np.bool_]

    @property
    def never(self) -> NDArray[np.bool_]:
        """Where no more is consumed than produced."""
        return np.isinf(self.seconds)


def seconds_until_caught_up(
    lag: Integers,
    lag_known: NDArray[np.bool_],
    *,
    consume: Rates,
    produce: Rates,
    allowed_lag: int = 0,
) -> CatchUps:
    """How long until the lag is no more than allowed, if rates stay as they are; arrays (N,).

    `lag` may be signed. 0 where it is allowed already, whatever the rates. Unknown where the lag is, or where
    there is one and a rate is unknown. A group that keeps up holds a small lag and gains nothing, which is
    "never" by the letter: allow what is usual.
    """
    behind = lag > allowed_lag
    known = lag_known & (~behind | (consume.known & produce.known))
    gain = consume.per_s - produce.per_s
    seconds = np.divide(lag - allowed_lag, gain, out=np.full(len(lag), NEVER), where=gain > 0)
    return CatchUps(np.where(known & behind, seconds, 0.0), known)
