"""How fast records are produced and consumed, and when a group will have caught up."""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag.curves import Rows
from koff.lag.end_history import EndHistory
from koff.lag.window import Features, Integers

NEVER = math.inf
"""The `CatchUps.seconds` of a group that never catches up at these rates (JSON: null, and a flag)."""


_MOST_USUAL = 2.0**60
"""Offsets and times that a client made up may give a larger usual lag, which int64 does not hold."""


class Rates(NamedTuple):
    """Offsets per second of many rows; 0 where not `known`, never negative."""

    per_s: NDArray[np.float64]
    known: NDArray[np.bool_]

    @classmethod
    def build_unknown(cls, rows: int) -> Self:
        return cls(np.zeros(rows), np.zeros(rows, np.bool_))

    def hide(self, rows: NDArray[np.bool_]) -> "Rates":
        """These rates, unknown in the `rows` of the mask."""
        known = self.known & ~rows
        return Rates(np.where(known, self.per_s, 0.0), known)

    def sum(self, sums: NDArray[np.integer[Any]], size: int, *, incomplete: NDArray[np.bool_]) -> "Rates":
        """The rates of `size` sums, such as groups. `sums` (N,) is the number of the sum of each row.

        A sum is over the rows with a known rate. It is unknown if there are none, and if a row in it is
        `incomplete` (a mask): a partial sum looks as if the group became slower.
        """
        per_s = np.bincount(sums, weights=self.per_s, minlength=size)
        known = np.bincount(sums[self.known], minlength=size) > 0
        known[sums[incomplete]] = False
        return Rates(np.where(known, per_s, 0.0), known)


def produce_rates(history: EndHistory, rows: Rows, *, span_s: float = 300.0) -> Rates:
    """How fast the end offsets of the history's `rows` (N,) grew in the `span_s` before the newest sample.

    Where the history is shorter, the rate is over its whole length. Unknown with fewer than two samples.
    """
    grown, in_s = history.growth(rows, span_s)
    known = in_s > 0
    return Rates(np.divide(grown, in_s, out=np.zeros(len(rows)), where=known), known)


def consume_rates(features: Features, now_ms: Integers | int) -> Rates:
    """How fast the commits of each window advanced.

    `now_ms` is up to when the commits are known (one time for all rows, or one for each), by the clock of
    their timestamps.

    A pause longer than the mean time between commits counts as time without progress. So the rate of a group
    that stopped falls, where the window alone would show its last rate for ever. Unknown with fewer than two
    commits, or when the commits span no time.
    """
    span_ms = features.last_ms - features.first_ms
    known = (features.commits >= 2) & (span_ms > 0)
    # The part of the pause since the last commit that is longer than usual for the group.
    idle_ms = np.maximum(np.subtract(now_ms, features.last_ms) - _mean_pause_ms(features), 0)
    per_ms = np.divide(features.consumed, span_ms + idle_ms, out=np.zeros(len(known)), where=known)
    return Rates(per_ms * 1000, known)


def usual_lags(features: Features, produce: Rates) -> NDArray[np.int64]:
    """The lag of a group that keeps up: the number of offsets produced between two of its commits.

    0 where the produce rate or the time between commits is unknown.
    """
    pause_s = np.maximum(_mean_pause_ms(features), 0) / 1000
    usual = np.where(produce.known & (features.commits >= 2), np.ceil(produce.per_s * pause_s), 0)
    return np.minimum(usual, _MOST_USUAL).astype(np.int64)


def _mean_pause_ms(features: Features) -> NDArray[np.float64]:
    pauses = np.maximum(features.commits.astype(np.int64) - 1, 1)
    mean_ms: NDArray[np.float64] = (features.last_ms - features.first_ms) / pauses
    return mean_ms


class CatchUps(NamedTuple):
    """When rows will have caught up: `seconds` is 0 where not `known`, and `NEVER` where `never`."""

    seconds: NDArray[np.float64]
    known: NDArray[np.bool_]

    @property
    def never(self) -> NDArray[np.bool_]:
        """Where the group does not consume faster than records are produced."""
        return np.isinf(self.seconds)

    def find_slowest(
        self, groups: NDArray[np.integer[Any]], size: int, *, lag_known: NDArray[np.bool_]
    ) -> "CatchUps":
        """When each of `size` groups will have caught up: when its slowest row has.

        `groups` (N,) is the number of the group of each row. Rows with an unknown lag are left out. Unknown
        if the result of any other row is unknown, and if no row has a known lag.
        """
        seconds = np.zeros(size)
        np.maximum.at(seconds, groups[self.known], self.seconds[self.known])
        # The result of a group is known if each row with a known lag has a known result.
        with_result, with_lag = (
            np.bincount(groups[where], minlength=size) for where in (self.known, lag_known)
        )
        known = (with_result > 0) & (with_result == with_lag)
        return CatchUps(np.where(known, seconds, 0.0), known)


def seconds_until_caught_up(
    lag: Integers,
    lag_known: NDArray[np.bool_],
    *,
    consume: Rates,
    produce: Rates,
    allowed_lag: int | Integers = 0,
    stopped: bool | NDArray[np.bool_] = False,
) -> CatchUps:
    """How long until the lag is at most `allowed_lag`, if the rates stay as they are; arrays (N,).

    `lag` may be signed. The result is 0 where the lag is already allowed, whatever the rates. Where a row is
    behind, the result is `NEVER` if the group has `stopped`, and else unknown if a rate is unknown. It is
    unknown where the lag is unknown.

    A group that keeps up has a small lag that does not shrink, which would be `NEVER`: pass its usual lag
    (`usual_lags`) as `allowed_lag`.
    """
    behind = lag > allowed_lag
    known = lag_known & (~behind | stopped | (consume.known & produce.known))
    # Where the group does not gain on the producers, `out` leaves NEVER in place.
    gain = np.where(stopped, 0.0, consume.per_s - produce.per_s)
    seconds = np.divide(lag - allowed_lag, gain, out=np.full(len(lag), NEVER), where=gain > 0)
    return CatchUps(np.where(known & behind, seconds, 0.0), known)
