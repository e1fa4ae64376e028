"""The rows of `lag` that a view of a cluster has. Every rule is in `koff.lag`, as in the daemon."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.spark.job.samples import Sample, Slot
from koff.spark.rows.decoding import LAST_MS
from koff.spark.tables.schemas import TABLES
from koff.tracker import Group, PartitionLag, ShardSnapshot
from koff.tracker.rows import build_rows
from koff.tracker.snapshot_columns import SnapshotColumns
from koff.view.cluster_view import ClusterView

LAG_ROWS = pa.schema([field for field in TABLES["lag"].schema if field.name != "day"])
_OF_SAMPLE = 3


def build_lag_rows(view: ClusterView, number: int, sample: Sample) -> pa.Table:
    """The rows of `lag` at the sample of batch `number`, sorted by slot.

    A share group that the sample did not ask for has no rows: its batch has found it.
    """
    snapshot = view.snapshot
    offsets, ends = _list_offsets(snapshot), _list_share_ends(sample)
    rows = [row for shard in snapshot.shards.values() for row in _build_rows(snapshot, shard, offsets, ends)]
    rows.sort(key=lambda row: row[:4])
    columns = [[*column] for column in zip(*rows, strict=True)] or [[] for _ in LAG_ROWS.names[_OF_SAMPLE:]]
    of_sample: list[Any] = [[value] * len(rows) for value in (view.cluster, number, sample.at_ms * 1000)]
    arrays = [
        pa.array(column, field.type) for column, field in zip([*of_sample, *columns], LAG_ROWS, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=LAG_ROWS)


def _list_offsets(snapshot: SnapshotColumns) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """By topic partition, the log start and the last stable offset."""
    partitions = snapshot.partitions
    places = zip(partitions.topic, partitions.partition, strict=True)
    values = (_hide_unknown(column) for column in (partitions.start, partitions.stable))
    return dict(zip(places, zip(*values, strict=True), strict=True))


def _list_share_ends(sample: Sample) -> dict[Slot, int | None]:
    """By slot of a share group, the end offset just before its coordinator was asked."""
    return {(group, row[0], row[2]): row[4] for group, rows in sample.shares.items() for row in rows}


def _build_rows(
    snapshot: SnapshotColumns, shard: ShardSnapshot, offsets: Any, share_ends: Mapping[Slot, int | None]
) -> Iterator[tuple[Any, ...]]:
    """The columns of each row, from `group` on."""
    verdicts = snapshot.find_verdicts(shard)
    groups = {
        group.name: (group, *judged)
        for group, *judged in zip(
            shard.groups,
            verdicts.verdict.tolist(),
            verdicts.cause.tolist(),
            [None if math.isnan(s) else s for s in verdicts.allowance_s.tolist()],
            strict=True,
        )
    }
    # Assigned partitions without a commit come last.
    times = np.where(shard.committed_at > LAST_MS, -1, shard.committed_at)
    committed_at = chain(_hide_unknown(times), repeat(None))
    share_groups = {slot[0] for slot in share_ends}
    for found, at_ms in zip(build_rows(snapshot, shard), committed_at, strict=False):
        group, verdict, cause, allowance_s = groups[found.group]
        if group.type == "share" and group.name not in share_groups:
            continue
        places = offsets.get((found.topic, found.partition), (None, None))
        row = _place_share_row(found, places[0] or 0, share_ends)
        yield (
            *(row.group, group.type, row.state, row.topic, row.partition, row.committed),
            *(at_ms and at_ms * 1000, row.end, *places),
            *_list_lag(row),
            *(Verdict(verdict).name, _name_cause(Cause(cause)), allowance_s, row.reasons.names),
            *(row.pace.consume_per_s, row.pace.produce_per_s),
            *_list_members(row, group),
        )


def _place_share_row(row: PartitionLag, start: int, share_ends: Mapping[Slot, int | None]) -> PartitionLag:
    """The row; of a share group, with what follows if its coordinator used the end offset of the sample."""
    slot = row.group, row.topic, row.partition
    if slot not in share_ends or row.lag is None or row.end is None or row.end != share_ends[slot]:
        return row
    committed = row.end - row.lag
    missed = max(0, start - committed)
    return replace(row, committed=committed, readable=row.lag - missed, lost=missed)


def _list_lag(row: PartitionLag) -> tuple[Any, ...]:
    time_lag_s = None if row.at_least else row.time_lag_s
    return row.lag, row.readable, row.lost, time_lag_s, row.status.name, _name_cause(row.cause)


def _list_members(row: PartitionLag, group: Group) -> tuple[Any, ...]:
    member = row.member
    return member and member.client_id, member and member.client_host, group.member_count


def _name_cause(cause: Cause) -> str | None:
    return None if cause is Cause.NONE else cause.name.lower()


def _hide_unknown(column: Any) -> list[int | None]:
    return [None if value < 0 else value for value in column.tolist()]
