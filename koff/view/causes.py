"""Why the groups of a view are late: the causes of their rows, and how much of a lag each explains."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.late_causes import Cause
from koff.tracker import ShardSnapshot, Snapshot
from koff.view.activity import ClusterActivity
from koff.view.cluster_view import ClusterView

MOST_OFFSETS = 2**62
"""A sum of offsets that is larger is given as this."""


@dataclass(frozen=True)
class ShardCauses:
    """The causes of the groups of one shard. `lag` is that of the rows (N,), 0 where it is unknown.

    `whole` is a mask of the groups (G,) of which koff may say how much lags: no row of them is withheld.
    """

    snapshot: Snapshot
    shard: ShardSnapshot
    activity: ClusterActivity
    lag: NDArray[np.int64]
    verdicts: GroupVerdicts
    whole: NDArray[np.bool_]

    @cached_property
    def sums(self) -> dict[Cause, NDArray[np.int64]]:
        """By cause, how many offsets of the lag of each group (G,) it explains. 0: the group has it not.

        At most `MOST_OFFSETS`: offsets that a client made up may have a larger sum.
        """
        sums, size, causes = {}, len(self.whole), self.verdicts.row_cause
        for number in np.unique(causes[causes != Cause.NONE]).tolist():
            rows = causes == number
            of_rows, offsets = self.shard.group[rows], self.lag[rows]
            sums[Cause(number)] = of_groups = np.zeros(size, np.int64)
            np.add.at(of_groups, of_rows, offsets)
            rough = np.bincount(of_rows, weights=offsets, minlength=size)
            of_groups[rough > MOST_OFFSETS] = MOST_OFFSETS  # the exact sum may have overflowed
            of_groups[~self.whole] = 0
        return sums

    def list_causes(self, group: int) -> list[tuple[Cause, int]] | None:
        """The causes of a group, each with the offsets that it explains: the first cause, then the most.

        None if the lag of the group is withheld.
        """
        if not self.whole[group]:
            return None
        found = {cause: int(offsets[group]) for cause, offsets in self.sums.items() if offsets[group]}
        first = Cause(self.verdicts.cause[group])
        if first is not Cause.NONE:
            found.setdefault(first, 0)
        return sorted(found.items(), key=lambda each: (each[0] is not first, -each[1], each[0]))


def find_shard_causes(view: ClusterView, number: int) -> ShardCauses:
    """The causes of the groups of a shard. Computed once for each view."""
    known = view.causes.get(number)
    if not isinstance(known, ShardCauses):
        known = view.causes[number] = explain_shard(
            view.snapshot, view.snapshot.shards[number], view.activity.current
        )
    return known


def explain_shard(snapshot: Snapshot, shard: ShardSnapshot, activity: ClusterActivity) -> ShardCauses:
    whole = ~snapshot.withheld_groups(shard)
    lag = snapshot.record_lags(shard)
    return ShardCauses(snapshot, shard, activity, lag, snapshot.find_verdicts(shard), whole)
