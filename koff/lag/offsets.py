"""Lag in offsets: the arithmetic of committed offset, log start offset and end offset.

All counts are offsets, not records: they include transaction markers, aborted records and compacted records.
An unknown offset is `UNKNOWN` (-1), and so is "no commit" (Kafka's own tool also reads -1 as no commit).
Functions of `Offsets` take numbers, or arrays that broadcast, and return an array (0-d for numbers).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1
_MOST = (1 << 63) - 1
"""The largest offset: anyone who may write to the log may write it there."""

Offsets = int | NDArray[np.int64]


def lag(*, end: int, committed: int) -> int | None:
    """How many offsets the group has yet to commit; None without a commit or without a known end offset.

    Negative when the commit is newer than the sampled end offset. A caller that publishes the lag clamps it
    (`published_lag`).
    """
    return None if end < 0 or committed < 0 else end - committed


def published_lag(signed: int | None) -> int | None:
    """The lag to publish: 0 if the commit is ahead of the sampled end offset."""
    return None if signed is None else max(0, signed)


class Lags(NamedTuple):
    """The lags of many rows: signed, and meaningful only where `known`."""

    signed: NDArray[np.int64]
    known: NDArray[np.bool_]

    @property
    def published(self) -> NDArray[np.int64]:
        """The `published_lag` of each row; 0 where the lag is unknown."""
        return np.where(self.known, np.maximum(self.signed, 0), 0)


def lags(
    *,
    end: NDArray[np.int64],
    committed: NDArray[np.int64],
    hidden: NDArray[np.bool_] | bool = False,
    returned: NDArray[np.int64] | None = None,
    gone: NDArray[np.bool_] | bool = False,
) -> Lags:
    """The `lag` of each row; the arguments are arrays (N,).

    It is unknown where `hidden`: for example, the offsets of an earlier topic of that name cannot be compared
    with those of the present log. `returned` are the lags of share groups that coordinators returned, UNKNOWN
    elsewhere: such a lag depends on no offset, only on the topic partition, which must not be `gone`.
    """
    known = (end >= 0) & (committed >= 0) & ~np.asarray(hidden)
    signed = np.where(known, end - committed, 0)
    if returned is None:
        return Lags(signed, known)
    given = (returned >= 0) & ~np.logical_or(hidden, gone)
    return Lags(np.where(given, returned, signed), known | given)


def readable(*, end: Offsets, committed: Offsets, start: Offsets) -> NDArray[np.int64]:
    """How many offsets of the lag are still in the log; UNKNOWN where an argument is UNKNOWN.

    Less than the lag when retention or DeleteRecords has removed records that the group has not committed
    (`lost` of them).
    """
    remaining = np.maximum(end - np.maximum(committed, start), 0)
    known = _is_known(end) & _is_known(committed) & _is_known(start)
    return np.where(known, remaining, UNKNOWN)


def lost(*, start: Offsets, committed: Offsets) -> NDArray[np.int64]:
    """How many offsets left the log before the group committed them; UNKNOWN where an argument is UNKNOWN."""
    gone = np.maximum(np.subtract(start, committed), 0)
    return np.where(_is_known(start) & _is_known(committed), gone, UNKNOWN)


def lag_to_stable(*, stable: Offsets, committed: Offsets) -> NDArray[np.int64]:
    """How many offsets a read_committed consumer can commit now; UNKNOWN where an argument is UNKNOWN.

    `stable` is the last stable offset. The rest of the lag waits for open transactions. The result is 0 where
    the group reads uncommitted records and has passed the last stable offset.
    """
    remaining = np.maximum(np.subtract(stable, committed), 0)
    return np.where(_is_known(stable) & _is_known(committed), remaining, UNKNOWN)


def share_committed_offset(start_offset: int, delivery_complete_count: int) -> int:
    """The offset that stands for a share group's commit: its lag is the end offset less this (KIP-1226).

    All records below the start offset are done, and `delivery_complete_count` records at or above it. UNKNOWN
    if an argument is UNKNOWN: before the group has read the partition, and in state from brokers before 4.2.
    """
    if min(start_offset, delivery_complete_count) < 0:
        return UNKNOWN
    return min(start_offset + delivery_complete_count, _MOST)


def _is_known(offset: Offsets) -> NDArray[np.bool_]:
    return np.greater_equal(offset, 0)
