"""Brings the table `current` up to date with a batch of commits: by one MERGE.

A row of `current` is the newest commit of a slot, or its deletion. A slot is a (group, topic, partition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from koff.lag.window import WINDOW
from koff.spark.rows.newest import SLOT_UPDATES, STALE_MS, coalesce_batches, derive_slot_updates, keep_newest
from koff.spark.rows.packing import BUCKETED, COMMIT, COMMIT_ROWS, pack_buckets, unpack_batches
from koff.spark.tables.coverage import Intervals, select_offsets
from koff.spark.tables.merging import merge_rows
from koff.spark.tables.schemas import Tables, quote_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SLOT = ("group", "topic", "partition")
_ITEMS = "ARRAY<STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>>"
# SQL of the MERGE: `t` is the row in the table, `s` the row of `SLOT_UPDATES`.
_NONE = f"CAST(array() AS {_ITEMS})"
_MORE = f"coalesce(s.more, {_NONE})"
_OLD = f"filter(coalesce(t.recent, {_NONE}), c -> NOT c.at_ms <=> element_at(s.more, -1).at_ms)"
_RECENT = f"slice(concat({_MORE}, IF(s.cleared IS NULL, {_OLD}, {_NONE})), 1, {WINDOW})"
"""A slot's recent commits after the MERGE, the newest first: new ones, then old ones, but no old ones from
before a deletion. If the oldest new commit and an old commit are of one second, the old one is left out."""


def merge_commits(
    tables: Tables,
    cluster: str,
    packed: DataFrame,
    span_ms: tuple[int, int] | None,
    *,
    buckets: int,
    into_empty: bool = False,
    begun: Intervals | None = None,
) -> None:
    """Brings `current` up to date with the commits of a packed frame of one cluster.

    Commits that are older than the row of their slot change nothing. `span_ms` are the least and the largest
    timestamp of the commits; if None, no end offsets are looked up, and the lags of recent commits stay null.
    `into_empty`: `current` has no row of the cluster yet, so there is nothing to merge with.
    At most `buckets` tasks derive the rows. `begun` are offsets whose commits in `commits` count too.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    # Bring all commits and end offsets of a topic partition into one task, by bucket: a bucket for each task.
    def bucket_rows(frame: DataFrame, read_commits: _ReadCommits) -> DataFrame:
        pack = partial(_pack_into_buckets, read_commits, buckets)
        return frame.mapInArrow(pack, from_arrow_schema(BUCKETED))

    commits = packed.where(f.col("what") == COMMIT).select("packed")
    rows = bucket_rows(commits, _unpack_newest)
    if begun:
        names = [f.col(field.name) for field in COMMIT_ROWS if field.name != "tombstone"]
        written = tables.cluster_frame("commits", cluster).where(select_offsets(begun))
        written = written.select(*names, f.col("committed").isNull().alias("tombstone"))
        rows = rows.union(bucket_rows(written, _read_written))
    if span_ms is not None:
        rows = rows.union(bucket_rows(_read_ends(tables, cluster, *span_ms), _convert_ends))
    updates = (
        rows.repartition("bucket")
        .select("packed")
        .mapInArrow(_derive_updates, from_arrow_schema(SLOT_UPDATES))
    )
    updates = updates.withColumn("cluster", f.lit(cluster)).alias("s")
    if into_empty:
        tables.append_rows("current", updates.withColumn("recent", f.expr(_MORE)))
    else:
        _merge_updates(tables, cluster, updates)


def _merge_updates(tables: Tables, cluster: str, updates: DataFrame) -> None:
    target = tables.delta_table("current").alias("t")
    values = {name: f"s.`{name}`" for name in target.toDF().columns if name != "recent"}
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in _SLOT)
    # Within an offsets partition log offsets decide which commit is newer, between two of them timestamps: a
    # group changes its offsets partition when the offsets topic gets more partitions.
    newer = (
        "(t.offsets_partition = s.offsets_partition AND s.log_offset > t.log_offset)"
        " OR (t.offsets_partition <> s.offsets_partition AND s.timestamp > t.timestamp)"
    )
    merge = target.merge(updates, f"t.cluster = {quote_sql(cluster)} AND {same}")
    merge = merge.whenMatchedUpdate(newer, {**values, "recent": _RECENT})
    merge = merge.whenNotMatchedInsert(values={**values, "recent": _MORE})
    merge_rows(tables, "current", cluster, merge)


_ReadCommits = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _pack_into_buckets(
    read_commits: _ReadCommits, buckets: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for rows in read_commits(batches):
        yield pack_buckets(rows, buckets)


def _unpack_newest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The packed commits that may matter to `current`."""
    return map(keep_newest, coalesce_batches(unpack_batches(batches)))


def _read_written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the table `commits` that may matter to `current`."""
    for chunk in coalesce_batches(batches):
        arrays = [chunk.column(field.name).cast(field.type) for field in COMMIT_ROWS]
        yield keep_newest(pa.RecordBatch.from_arrays(arrays, schema=COMMIT_ROWS))


def _convert_ends(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sampled end offsets with the columns of a commit. A null log offset marks them."""
    for chunk in coalesce_batches(batches):
        columns = {name: chunk.column(name) for name in chunk.schema.names}
        nulls = pa.nulls(len(chunk))
        arrays = [columns.get(field.name, nulls).cast(field.type) for field in COMMIT_ROWS]
        yield pa.RecordBatch.from_arrays(arrays, schema=COMMIT_ROWS)


def _derive_updates(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`SLOT_UPDATES` rows from packed commits and end offsets.

    All rows of a topic partition are in the same call, because `merge_commits` repartitions by bucket.
    """
    if rows := list(unpack_batches(batches)):
        combined = pa.concat_batches(rows)
        is_end = combined.column("log_offset").is_null()
        if not pc.all(is_end).as_py():
            yield derive_slot_updates(combined.filter(pc.invert(is_end)), combined.filter(is_end))


def _read_ends(tables: Tables, cluster: str, first_ms: int, last_ms: int) -> DataFrame:
    """The end offsets that were sampled up to `STALE_MS` before those commits, each in the column
    `committed`."""
    from pyspark.sql import functions as f

    at_ms, from_ms = f.unix_millis("at"), first_ms - STALE_MS
    first, last = (f.timestamp_millis(f.lit(time_ms)).cast("date") for time_ms in (from_ms, last_ms))
    # The condition on `day` skips whole files.
    ends = tables.cluster_frame("end_offsets", cluster).where(f.col("day").between(first, last))
    ends = ends.where(at_ms.between(from_ms, last_ms) & f.col("end_offset").isNotNull())
    return ends.select(
        f.col("at").alias("timestamp"), "topic", "partition", f.expr("end_offset AS committed")
    )
