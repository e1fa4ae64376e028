"""A part of a snapshot: some of its groups, with the same numbers as in the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from koff.tracker.snapshot import Snapshot
from koff.tracker.snapshot_columns import ShardSnapshot

_OF_ROWS = (
    *("partition", "committed", "committed_at", "moved_at", "topic_id", "seen_at"),
    *("share_partition", "share_lag", "withheld"),
)
"""The columns of a `ShardSnapshot` that have one value for each row. The last three may be None."""


def select_groups(
    snapshot: Snapshot,
    groups: Mapping[int, Sequence[int]],
    partitions: NDArray[np.bool_] | None = None,
) -> Snapshot:
    """A snapshot of some groups: for each shard, their places in its `groups`. The shard's rows are copied.

    Rows and totals of a few groups cost little this way, however many groups there are. `partitions` is a
    mask of partition numbers: other rows with a commit are left out, so there are no totals then.
    """
    shards = {
        number: _select_shard(snapshot.shards[number], np.array(places, np.int64), partitions)
        for number, places in groups.items()
    }
    return replace(snapshot, shards=shards, ends_withheld_elsewhere=snapshot.withheld_ends())


def _select_shard(
    shard: ShardSnapshot, places: NDArray[np.int64], partitions: NDArray[np.bool_] | None
) -> ShardSnapshot:
    new_places = np.full(len(shard.groups), -1, np.int32)
    new_places[places] = np.arange(len(places), dtype=np.int32)
    chosen = new_places[shard.group] >= 0
    if partitions is not None:
        chosen &= partitions[shard.partition]
    rows = np.flatnonzero(chosen)
    times, known_until = shard.time_lag, shard.commits_at_ms
    whole = np.broadcast_to(np.asarray(shard.groups_whole, np.bool_), (len(shard.groups),))
    return replace(
        shard,
        layout=object(),
        groups=[shard.groups[place] for place in places.tolist()],
        commit_counts=shard.commit_counts[places],
        group=new_places[shard.group[rows]],
        features=shard.features.slice_rows(rows),
        time_lag=None if times is None else times.select(rows),
        groups_current=shard.current_groups()[places],
        groups_whole=whole[places],
        verdicts=None if shard.verdicts is None else shard.verdicts.select(places, rows),
        commits_at_ms=known_until[rows] if isinstance(known_until, np.ndarray) else known_until,
        **{name: column[rows] for name in _OF_ROWS if (column := getattr(shard, name)) is not None},
    )
