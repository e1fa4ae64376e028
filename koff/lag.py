"""The rules of lag, as functions of numbers and of arrays. Nobody else writes a rule down.

An offset that is not known is `UNKNOWN` (-1); so is "no commit" (Kafka's own tool reads -1 so).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1


def lag(*, end: int, committed: int) -> int | None:
    """How many offsets the group has yet to commit; None when there is no commit or no known end.

    Negative when the commit is newer than the sampled end; whoever publishes it clamps (`published`).
    """
    return None if end < 0 or committed < 0 else end - committed


def published(signed: int | None) -> int | None:
    """The lag to show: a commit ahead of the sampled end is no lag."""
    return None if signed is None else max(0, signed)


class Lags(NamedTuple):
    """`lag` of many rows: signed, and meaningful only where `known`."""

    signed: NDArray[np.int64]
    known: NDArray[np.bool_]

    @property
    def published(self) -> NDArray[np.int64]:
        """As `published`, row by row (0 where unknown)."""
        return np.where(self.known, np.maximum(self.signed, 0), 0)


def lags(*, end: NDArray[np.int64], committed: NDArray[np.int64]) -> Lags:
    """`lag` for arrays of equal length."""
    known = (end >= 0) & (committed >= 0)
    return Lags(np.where(known, end - committed, 0), known)
