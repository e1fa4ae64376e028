"""The verdicts on the groups of a snapshot: those of the last look, by the groups and rows of the snapshot.

Verdicts follow from one look to the next, a few seconds apart (`koff.serve.events.changes`). A snapshot that
is taken in between may have other groups and rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.judge import AGAIN, UNKNOWN_S
from koff.lag.verdict import Verdict
from koff.tracker import Group, ShardSnapshot, Snapshot
from koff.view.activity import ShardVerdicts

WORST_FIRST = (Verdict.ERR, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK)
"""An unknown group may be worse than one that is well."""
CALM = AGAIN
"""Up to this share of its allowance, a group counts as not late at all: its incident would end there."""


def attach_verdicts(snapshot: Snapshot, looked: Mapping[int, ShardVerdicts]) -> Snapshot:
    """The snapshot, with the verdicts on its groups. `looked` are those of the last look, by shard."""
    now_s = (snapshot.now_ms or 0) / 1000
    shards = {
        number: replace(shard, verdicts=_find_verdicts(shard, looked[number], now_s))
        for number, shard in snapshot.shards.items()
        if number in looked
    }
    return replace(snapshot, shards={**snapshot.shards, **shards})


def _find_verdicts(shard: ShardSnapshot, looked: ShardVerdicts, now_s: float) -> GroupVerdicts:
    found = looked.verdicts
    if looked.layout is not shard.layout:
        found = found.select(*match_rows(looked, shard, looked.partition))
    if now_s - looked.at_s < UNKNOWN_S:
        return found
    # What was looked at long ago says no more that a group is well.
    is_old = found.verdict == Verdict.OK
    return replace(found, verdict=np.where(is_old, np.uint8(Verdict.UNKNOWN), found.verdict))


class Rows(Protocol):
    """The groups of a shard, and the group and the partition number of each of its rows."""

    @property
    def groups(self) -> Sequence[Group]: ...
    @property
    def group(self) -> NDArray[np.integer[Any]]: ...
    @property
    def partition(self) -> NDArray[np.integer[Any]]: ...


def match_rows(
    looked: Rows, shard: Rows, partition: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number that each group and each row of the shard had when it was looked at, -1 for none.

    `partition` has the present partition numbers of the rows that were looked at, -1 for none.
    """
    names = {group.name: number for number, group in enumerate(looked.groups)}
    groups = np.array([names.get(group.name, -1) for group in shard.groups], np.int64)
    if not len(partition):
        return groups, np.full(len(shard.group), -1)
    room = int(max(partition.max(), shard.partition.max(initial=-1))) + 2
    before = looked.group.astype(np.int64) * room + np.where(partition >= 0, partition, room - 1)
    order = np.argsort(before)
    wanted = groups[shard.group] * room + shard.partition
    at = order[np.minimum(np.searchsorted(before, wanted, sorter=order), len(order) - 1)]
    return groups, np.where((before[at] == wanted) & (groups[shard.group] >= 0), at, -1)
