"""Lag in offsets: the arithmetic of committed, start and end.

All counts are offsets, not records: transaction markers, aborted records and compacted ones are in them.
An offset that is not known is `UNKNOWN` (-1); so is "no commit" (Kafka's own tool reads -1 so).
Functions of `Offsets` take numbers or arrays that broadcast, and give an array (0-d for numbers).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1

Offsets = int | NDArray[np.int64]


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


def readable(*, end: Offsets, committed: Offsets, start: Offsets) -> NDArray[np.int64]:
    """How many of the offsets in the lag are still in the log; UNKNOWN where one of the three is.

    Less than the lag when retention or DeleteRecords has passed the group (`lost` says by how much).
    """
    left = np.maximum(end - np.maximum(committed, start), 0)
    known = _known(end) & _known(committed) & _known(start)
    return np.where(known, left, UNKNOWN)


def lost(*, start: Offsets, committed: Offsets) -> NDArray[np.int64]:
    """How many offsets left the log before the group committed them; UNKNOWN where one of the two is."""
    gone = np.maximum(np.subtract(start, committed), 0)
    return np.where(_known(start) & _known(committed), gone, UNKNOWN)


def lag_to_stable(*, stable: Offsets, committed: Offsets) -> NDArray[np.int64]:
    """How many offsets a read_committed consumer can commit now; UNKNOWN where one of the two is.

    `stable` is the last stable offset. What the lag to the end has beyond this waits for open transactions.
    0 where the group reads uncommitted records and has passed the last stable offset.
    """
    left = np.maximum(np.subtract(stable, committed), 0)
    return np.where(_known(stable) & _known(committed), left, UNKNOWN)


def share_done(start_offset: int, delivery_complete_count: int) -> int:
    """What a share group has done, as if it had committed it: its lag is the end less this (KIP-1226).

    All below its start offset and some records above are done. UNKNOWN where one of the two is: before it
    has read there, and from state that brokers before 4.2 wrote.
    """
    if min(start_offset, delivery_complete_count) < 0:
        return UNKNOWN
    return start_offset + delivery_complete_count


def _known(offset: Offsets) -> NDArray[np.bool_]:
    return np.greater_equal(offset, 0)
