"""The newest state of every slot: a batch of commits in, one MERGE into `current`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from koff.lag.windows import WINDOW
from koff.spark.newest import TICK_MS, chunks, newest
from koff.spark.packing import COMMIT, mapped, unpack
from koff.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOT = ("group", "topic", "partition")
STALE_S = 600.0
"""An end that was sampled longer ago says nothing of the lag that a commit left."""
_ITEMS = "ARRAY<STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>>"
_NONE = f"CAST(array() AS {_ITEMS})"
_MORE = f"coalesce(s.more, {_NONE})"
_OLD = f"filter(coalesce(t.recent, {_NONE}), c -> NOT c.at_ms <=> element_at(s.more, -1).at_ms)"
_RECENT = f"slice(concat({_MORE}, IF(s.cleared IS NULL, {_OLD}, {_NONE})), 1, {WINDOW})"
"""The new ones before the old ones; those of one second are one, and a deletion ends what was."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed records of one cluster; the times in ms of the first and the last commit, and whether any is a
    deletion."""

    packed: DataFrame
    first_ms: int
    last_ms: int
    deletions: bool


def merge(tables: Tables, cluster: str, batch: Batch) -> None:
    """Brings `current` up to these commits; older ones change nothing."""
    from pyspark.sql import functions as f

    spread = of_note(batch.packed).repartition(*SLOT).persist()  # it is looked at twice
    news = _newest(spread).join(_recent(tables, cluster, batch, spread), list(SLOT), "left")
    news = news.withColumn("cluster", f.lit(cluster)).persist()  # as MERGE does
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in SLOT)
    newer = (
        "(t.offsets_partition = s.offsets_partition AND s.log_offset > t.log_offset)"
        " OR (t.offsets_partition <> s.offsets_partition AND s.timestamp > t.timestamp)"
    )
    into = tables.delta("current")
    values = {name: f"s.`{name}`" for name in into.toDF().columns if name != "recent"}
    try:
        merging = into.alias("t").merge(news.alias("s"), f"t.cluster = {quoted(cluster)} AND {same}")
        merging = merging.whenMatchedUpdate(newer, {**values, "recent": _RECENT})
        merging.whenNotMatchedInsert(values={**values, "recent": _MORE}).execute()
    finally:
        news.unpersist()
        spread.unpersist()


def quoted(text: str) -> str:
    """The text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def of_note(packed: DataFrame) -> DataFrame:
    """The commits that may matter to what is current."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks(unpack(batches)):
            yield newest(chunk)

    return mapped(packed, COMMIT, work)


def _newest(commits: DataFrame) -> DataFrame:
    """The last commit of each slot, and the log offset of its last deletion (`cleared`)."""
    from pyspark.sql import functions as f

    told = ("committed", "commit_timestamp", "topic_id", "offsets_partition", "log_offset", "timestamp")
    last = f.max_by(f.struct(*told, f.col("tombstone").alias("deleted")), "log_offset").alias("last")
    cleared = f.max(f.when(f.col("tombstone"), f.col("log_offset"))).alias("cleared")
    homes = commits.groupBy(*SLOT, "offsets_partition").agg(last, cleared)
    # One home, unless the offsets topic was given more partitions.
    newest = homes.groupBy(*SLOT).agg(f.max_by(f.struct("last", "cleared"), "last.timestamp").alias("n"))
    return newest.select(*SLOT, "n.last.*", "n.cleared")


def _recent(tables: Tables, cluster: str, batch: Batch, commits: DataFrame) -> DataFrame:
    """The last commits of each slot after its last deletion, one a second, newest first: (slot, more)."""
    from pyspark.sql import functions as f

    alive = commits.where(~f.col("tombstone") & (f.col("committed") >= 0))
    if batch.deletions:
        deleted = commits.where(f.col("tombstone")).groupBy(*SLOT).agg(f.max("log_offset").alias("cleared"))
        alive = alive.join(f.broadcast(deleted), list(SLOT), "left")
        alive = alive.where(f.col("cleared").isNull() | (f.col("log_offset") > f.col("cleared")))
    tick = (f.floor(f.unix_millis("commit_timestamp") / TICK_MS) * TICK_MS).cast("bigint").alias("at_ms")
    last = f.max(f.struct("log_offset", "committed", f.unix_millis("timestamp").alias("seen_ms")))
    ticks = alive.groupBy(*SLOT, tick).agg(last.alias("last"))
    item = f.struct("last.log_offset", "at_ms", "last.committed", "last.seen_ms")
    few = ticks.groupBy(*SLOT).agg(
        f.slice(f.sort_array(f.collect_list(item), asc=False), 1, WINDOW).alias("r")
    )
    each = few.select(*SLOT, f.explode("r").alias("c")).select(*SLOT, "c.*")
    items = f.struct("log_offset", "at_ms", "committed", "lag")
    timed = _with_lags(tables, cluster, batch, each).groupBy(*SLOT)
    sorted_ = timed.agg(f.sort_array(f.collect_list(items), asc=False).alias("r"))
    fields = "named_struct('at_ms', c.at_ms, 'committed', c.committed, 'lag', c.lag)"
    return sorted_.select(*SLOT, f.expr(f"transform(r, c -> {fields})").alias("more"))


def _with_lags(tables: Tables, cluster: str, batch: Batch, few: DataFrame) -> DataFrame:
    """And the lag that each left: by the end that was sampled last before it, if that was not long ago."""
    from pyspark.sql import functions as f

    first, last = batch.first_ms - int(STALE_S * 1000), batch.last_ms
    at_ms = f.unix_millis("at")
    days = f.col("day").between(*(f.timestamp_millis(f.lit(each)).cast("date") for each in (first, last)))
    ends = tables.of("end_offsets", cluster).where(days & at_ms.between(first, last))
    ends = ends.where(f.col("end_offset").isNotNull())
    ends = ends.select("topic", "partition", at_ms.alias("sampled_ms"), "end_offset")
    if ends.isEmpty():
        return few.withColumn("lag", f.lit(None).cast("bigint"))
    near = f.col("sampled_ms").between(f.col("seen_ms") - int(STALE_S * 1000), f.col("seen_ms"))
    keys = few.select("topic", "partition", "seen_ms").distinct()
    then = keys.join(ends, ["topic", "partition"]).where(near)
    then = then.groupBy("topic", "partition", "seen_ms").agg(
        f.max_by("end_offset", "sampled_ms").alias("end")
    )
    joined = few.join(then, ["topic", "partition", "seen_ms"], "left")
    left = f.greatest(f.col("end") - f.col("committed"), f.lit(0))
    return joined.withColumn("lag", f.when(f.col("end").isNotNull(), left))
