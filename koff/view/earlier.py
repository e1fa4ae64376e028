"""What is known of a group from before the last hour: the same hour of other days, and its error budget."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

TARGET = 0.99
"""An objective is to be kept for so much of the time, over the longest window."""
WINDOWS_S = (3_600, 6 * 3_600, 3 * 86_400, 30 * 86_400)
DAYS_BEFORE = (1, 7)

Floats = NDArray[np.float64]


class Earlier(NamedTuple):
    """An hour of an earlier day, in the steps of `Course`. NaN: unknown."""

    lag: Floats
    time_lag_s: Floats


class LateShare(NamedTuple):
    """The share of a window's `known` part in which a group missed its objective. None: nothing is known."""

    window_s: int
    late: float | None
    known: float

    @property
    def burn_rate(self) -> float | None:
        """How many times as fast as allowed the budget is used up."""
        return None if self.late is None else self.late / (1 - TARGET)


def find_left(shares: Sequence[LateShare]) -> float | None:
    """The share of the budget that is left, by the last and longest window; below 0: it is overspent."""
    burn_rate = shares[-1].burn_rate
    return None if burn_rate is None else 1 - burn_rate * shares[-1].known


class Archive(Protocol):
    """Where older lags are kept. Any thread may call any method; none of them raises."""

    def find_earlier(self, group: str, end_ms: int, before_s: int) -> Earlier | None:
        """The hour that ended so many seconds before `end_ms`; None if nothing is kept of it."""

    def find_late(self, group: str, now_ms: int) -> list[LateShare]:
        """The shares of `WINDOWS_S`; empty if the group has no objective, or nothing is known yet."""
