"""The sums of the groups of a shard, as columns: those of `GroupTotal`, without an object for each group."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.tracker import ShardSnapshot, Snapshot

Column = NDArray[np.float64]
"""A number of each group; NaN where it is unknown."""


def sum_lags(snapshot: Snapshot, shard: ShardSnapshot) -> Column:
    """The total lag of each group of the shard, as `GroupTotal.lag`.

    Exact below 2^53 offsets; a sum of integers could overflow.
    """
    lags, size = snapshot.lags(shard), len(shard.groups)
    sums = np.bincount(shard.group, weights=lags.published, minlength=size)
    known = np.bincount(shard.group[lags.known], minlength=size) > 0
    return np.where(known & ~snapshot.withheld_groups(shard), sums, np.nan)


def find_longest_time_lags(snapshot: Snapshot, shard: ShardSnapshot) -> Column:
    """The longest time lag of each group of the shard, as `GroupTotal.time_lag_s`."""
    return find_longest_by(shard.group, ~snapshot.withheld_groups(shard), snapshot, shard)


def find_longest_by(
    index: NDArray[np.integer[Any]], whole: NDArray[np.bool_], snapshot: Snapshot, shard: ShardSnapshot
) -> Column:
    """The longest time lag of the rows (N,) with each number of `index`; NaN where it is not `whole`."""
    times, size = snapshot.time_lags(shard), len(whole)
    if times is None:
        return np.full(size, np.nan)
    longest = np.full(size, -1.0)
    np.maximum.at(longest, index[times.known], np.round(times.seconds[times.known], 3))
    # A lag without a known age may be the oldest: a partial maximum looks like a recovery.
    undated = snapshot.lags(shard).known & ~times.known
    longest[index[undated]] = -1.0
    return np.where((longest >= 0) & whole, longest, np.nan)
