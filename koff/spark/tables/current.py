"""The newest state of every slot: a batch of commits in, one MERGE into `current`, or its first files."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from koff.lag.window import WINDOW
from koff.spark.rows.newest import STALE_MS, chunks, newest, news
from koff.spark.rows.packing import COMMIT, COMMIT_ROWS, PACKED, bucketed, unpack
from koff.spark.tables import files
from koff.spark.tables.schemas import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SLOT = ("group", "topic", "partition")
_ITEMS = "ARRAY<STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>>"
_NEWS = (
    "`group` STRING, topic STRING, partition INT, committed BIGINT, commit_timestamp TIMESTAMP, "
    "topic_id STRING, offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, deleted BOOLEAN, "
    f"cleared BIGINT, more {_ITEMS}"
)
_NONE = f"CAST(array() AS {_ITEMS})"
_MORE = f"coalesce(s.more, {_NONE})"
_OLD = f"filter(coalesce(t.recent, {_NONE}), c -> NOT c.at_ms <=> element_at(s.more, -1).at_ms)"
_RECENT = f"slice(concat({_MORE}, IF(s.cleared IS NULL, {_OLD}, {_NONE})), 1, {WINDOW})"
"""The new ones before the old ones; those of one second are one, and a deletion ends what was."""


def merge(
    tables: Tables,
    cluster: str,
    packed: DataFrame,
    what: Container[str],
    span_ms: tuple[int, int] | None,
    *,
    into_empty: bool = False,
) -> None:
    """Brings `current` up to the commits of a packed frame of one cluster; older ones change nothing.

    `what` it holds; `span_ms`: the timestamps of the first and the last of them, if they have any;
    `into_empty`: of that cluster nothing is there yet, so that files will do where workers can write them.
    """
    from pyspark.sql import functions as f

    rows = packed.where("bucket IS NOT NULL").select("bucket", "packed")
    if COMMIT in what:
        commits = packed.where(f.col("what") == COMMIT).select("packed")
        rows = rows.union(commits.mapInArrow(_of_note, _BUCKETS))
    if span_ms is not None:
        rows = rows.union(_ends(tables, cluster, *span_ms).mapInArrow(_packed_ends, _BUCKETS))
    rows = rows.repartition("bucket").select("packed")
    folder = tables.folder("current") if into_empty else None
    if folder:
        told = rows.mapInArrow(partial(_news_in_file, folder, cluster), "file BINARY").collect()
        files.commit(tables, "current", [row[0] for row in told], again=False)
        return
    changed = rows.mapInArrow(_news, _NEWS).withColumn("cluster", f.lit(cluster)).alias("s")
    into = tables.delta("current").alias("t")
    values = {name: f"s.`{name}`" for name in into.toDF().columns if name != "recent"}
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in _SLOT)
    newer = (
        "(t.offsets_partition = s.offsets_partition AND s.log_offset > t.log_offset)"
        " OR (t.offsets_partition <> s.offsets_partition AND s.timestamp > t.timestamp)"
    )
    merging = into.merge(changed, f"t.cluster = {quoted(cluster)} AND {same}")
    merging = merging.whenMatchedUpdate(newer, {**values, "recent": _RECENT})
    merging.whenNotMatchedInsert(values={**values, "recent": _MORE}).execute()


def quoted(text: str) -> str:
    """The text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_BUCKETS = "bucket INT, packed BINARY"


def _of_note(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of packed commits those that may matter to what is current, in buckets."""
    for chunk in chunks(unpack(batches)):
        yield _in_buckets(newest(chunk))


def _packed_ends(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sampled ends in buckets, in the columns of a commit; no log offset tells them from commits."""
    for chunk in chunks(batches):
        columns = {name: chunk.column(name) for name in chunk.schema.names}
        nothing = pa.nulls(len(chunk))
        every = [columns.get(field.name, nothing).cast(field.type) for field in COMMIT_ROWS]
        yield _in_buckets(pa.RecordBatch.from_arrays(every, schema=COMMIT_ROWS))


def _in_buckets(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(bucketed(rows)), schema=PACKED).select(["bucket", "packed"])


def _news(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`NEWS` of commits and ends: all of a topic's partition are here."""
    if rows := list(unpack(batches)):
        every = pa.concat_batches(rows)
        ends = every.column("log_offset").is_null()
        if not pc.all(ends).as_py():
            yield news(every.filter(pc.invert(ends)), every.filter(ends))


def _news_in_file(folder: str, cluster: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes what `_news` gives into a file of the table `current`, where it is all that is known."""
    for rows in _news(batches):
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        del columns["cleared"]
        more = columns.pop("more")
        columns["recent"] = pa.ListArray.from_arrays(more.offsets, more.values)  # an empty list where null
        told = files.one_file(folder, cluster, pa.RecordBatch.from_pydict(columns))
        yield pa.RecordBatch.from_pydict({"file": pa.array([told], pa.binary())})


def _ends(tables: Tables, cluster: str, first_ms: int, last_ms: int) -> DataFrame:
    """The ends that were sampled when commits of that time may have arrived, each in the place of a commit's
    offset."""
    from pyspark.sql import functions as f

    at_ms, from_ms = f.unix_millis("at"), first_ms - STALE_MS
    first, last = (f.timestamp_millis(f.lit(each)).cast("date") for each in (from_ms, last_ms))
    ends = tables.of("end_offsets", cluster).where(f.col("day").between(first, last))
    ends = ends.where(at_ms.between(from_ms, last_ms) & f.col("end_offset").isNotNull())
    return ends.select(
        f.col("at").alias("timestamp"), "topic", "partition", f.expr("end_offset AS committed")
    )
