"""What a verdict follows from: one sample of the rows and groups of a cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSample:
    """What is known of rows (N,) and groups (G,) at the time `at_s`, in seconds by any steady clock.

    - `group` is the group of each row. `counts` says that the row counts.
    - Offsets are -1 where unknown. `late_s` is the time lag, NaN where it is unknown or withheld; with
      `at_least` it is a lower bound.
    - `moved_at_s` is when the committed offset last changed, by the same clock; NaN if unknown.
    - `stable` is the last stable offset; the transaction that is open there is so for `held_s` at least.
    - `member` is a number of the row's member, which no other group has; -1 if that is unknown. `subscribed`
      says that a live member subscribes to the topic, `assigned` that some member has the row.
    - `produce_per_s` and `consume_per_s` are how many records a second came, and were committed, in the last
      minutes; NaN if unknown.
    - `objective_s` is the lag that the owner accepts, NaN without one. `retention_s` is that of the topic,
      NaN or infinite without one.
    - `members` counts the members of each group (G,), -1 if it needs none or that is unknown. `epoch` is
      another after members came or left. `rebalances` counts those of the last five minutes.
      `commits_held_back`: an open transaction may hold back commits.
    """

    at_s: float
    group: NDArray[np.integer[Any]]
    counts: Mask
    committed: Ints
    start: Ints
    end: Ints
    stable: Ints
    held_s: Floats
    member: Ints
    subscribed: Mask
    assigned: Mask
    produce_per_s: Floats
    consume_per_s: Floats
    late_s: Floats
    at_least: Mask
    moved_at_s: Floats
    objective_s: Floats
    retention_s: Floats
    members: Ints
    epoch: Ints
    rebalances: Ints
    commits_held_back: Mask


def has_rows(rows: Mask, group: NDArray[np.integer[Any]], groups: int) -> Mask:
    """Which groups (G,) have a row in the mask."""
    mask = np.zeros(groups, np.bool_)
    mask[group[rows]] = True
    return mask


def find_most(values: Floats, group: NDArray[np.integer[Any]], groups: int) -> Floats:
    """The largest value of each group; 0 without rows."""
    most = np.zeros(groups)
    np.maximum.at(most, group, values)
    return most


def sum_rows(values: NDArray[Any], group: NDArray[np.integer[Any]], groups: int) -> Floats:
    """The sum of the values of each group."""
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)
