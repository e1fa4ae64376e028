"""The newest state of every slot: a batch of commits in, one MERGE into `current`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koff.lag.windows import WINDOW
from koff.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLOT = ("group", "topic", "partition")
TICK_MS = 1000
"""Commits of one second count as one, as in the tracker."""
STALE_S = 600.0
"""An end that was sampled longer ago says nothing of the lag that a commit left."""
_ITEM = "STRUCT<at_ms: BIGINT, committed: BIGINT, lag: BIGINT>"


def merge(tables: Tables, cluster: str, commits: DataFrame) -> None:
    """Brings `current` up to these rows of `commits`, all of one cluster; older ones change nothing."""
    from pyspark.sql import functions as f

    news = _newest(commits).join(_recent(tables, cluster, commits), list(SLOT), "left")
    news = news.withColumn("cluster", f.lit(cluster)).withColumnRenamed("recent", "more")
    before = tables.of("current", cluster).select(*SLOT, f.col("recent").alias("old"))
    news = news.join(before, list(SLOT), "left").withColumn("recent", f.expr(_RECENT))
    columns = tables.frame("current").columns
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in SLOT)
    name = cluster.replace("\\", "\\\\").replace("'", "\\'")
    newer = (
        "(t.offsets_partition = s.offsets_partition AND s.log_offset > t.log_offset)"
        " OR (t.offsets_partition <> s.offsets_partition AND s.timestamp > t.timestamp)"
    )
    into = tables.delta("current").alias("t")
    merging = into.merge(news.select(*columns).alias("s"), f"t.cluster = '{name}' AND {same}")
    merging.whenMatchedUpdateAll(newer).whenNotMatchedInsertAll().execute()


_NEW = f"filter(coalesce(more, CAST(array() AS ARRAY<{_ITEM}>)), c -> c.at_ms IS NOT NULL)"
_OLD = (
    f"IF(cleared IS NOT NULL OR old IS NULL, CAST(array() AS ARRAY<{_ITEM}>), "
    f"filter(old, c -> size({_NEW}) = 0 OR c.at_ms <> {_NEW}[0].at_ms))"
)
_RECENT = f"slice(concat({_OLD}, {_NEW}), -least({WINDOW}, size(concat({_OLD}, {_NEW}))), {WINDOW})"
_RECENT = f"IF(size(concat({_OLD}, {_NEW})) = 0, CAST(array() AS ARRAY<{_ITEM}>), {_RECENT})"


def _newest(commits: DataFrame) -> DataFrame:
    """The last commit of each slot, and the log offset of its last deletion (`cleared`)."""
    from pyspark.sql import functions as f

    told = (
        "committed",
        "commit_timestamp",
        "topic_id",
        "offsets_partition",
        "log_offset",
        "timestamp",
    )
    last = f.max_by(f.struct(*told, f.col("tombstone").alias("deleted")), _order()).alias("last")
    cleared = f.max(f.when(f.col("tombstone"), f.col("log_offset"))).alias("cleared")
    return commits.groupBy(*SLOT).agg(last, cleared).select(*SLOT, "last.*", "cleared")


def _order() -> Column:
    from pyspark.sql import functions as f

    return f.struct("timestamp", "log_offset")


def _recent(tables: Tables, cluster: str, commits: DataFrame) -> DataFrame:
    """The last commits of each slot after its last deletion, at most one a second: (slot, recent)."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    cleared = commits.where(f.col("tombstone")).groupBy(*SLOT).agg(f.max("log_offset").alias("cleared"))
    alive = commits.where(~f.col("tombstone") & (f.col("committed") >= 0)).join(
        f.broadcast(cleared), list(SLOT), "left"
    )
    alive = alive.where(f.col("cleared").isNull() | (f.col("log_offset") > f.col("cleared")))
    tick = (f.floor(f.unix_millis("commit_timestamp") / TICK_MS) * TICK_MS).cast("bigint")
    at = f.struct("log_offset", "committed", "timestamp")
    ticks = alive.withColumn("at_ms", tick).groupBy(*SLOT, "at_ms").agg(f.max(at).alias("last"))
    order = Window.partitionBy(*SLOT).orderBy(f.col("last.log_offset").desc())
    few = ticks.withColumn("age", f.row_number().over(order)).where(f.col("age") <= WINDOW)
    few = few.select(*SLOT, "at_ms", "age", "last.*").withColumn("seen_ms", f.unix_millis("timestamp"))
    return (
        _with_lags(tables, cluster, few)
        .groupBy(*SLOT)
        .agg(
            f.array_sort(
                f.collect_list(f.struct(-f.col("age"), f.struct("at_ms", "committed", "lag")))
            ).alias("r")
        )
        .select(*SLOT, f.expr(f"CAST(transform(r, c -> c.col2) AS ARRAY<{_ITEM}>)").alias("recent"))
    )


def _with_lags(tables: Tables, cluster: str, few: DataFrame) -> DataFrame:
    """And the lag that each left: by the end that was sampled last before it, if that was not long ago."""
    from pyspark.sql import functions as f

    bounds = few.agg(f.min("seen_ms"), f.max("seen_ms")).first()
    if bounds is None or bounds[0] is None:
        return few.withColumn("lag", f.lit(None).cast("bigint"))
    first, last = bounds[0] - int(STALE_S * 1000), bounds[1]
    at_ms = f.unix_millis("at")
    span = at_ms.between(first, last)
    days = f.col("day").between(*(f.timestamp_millis(f.lit(each)).cast("date") for each in (first, last)))
    ends = tables.of("end_offsets", cluster).where(days & span & f.col("end_offset").isNotNull())
    ends = ends.select("topic", "partition", at_ms.alias("sampled_ms"), "end_offset")
    near = (f.col("sampled_ms") <= f.col("seen_ms")) & (
        f.col("sampled_ms") >= f.col("seen_ms") - int(STALE_S * 1000)
    )
    keys = few.select("topic", "partition", "seen_ms").distinct()
    then = keys.join(ends, ["topic", "partition"]).where(near)
    then = then.groupBy("topic", "partition", "seen_ms").agg(
        f.max_by("end_offset", "sampled_ms").alias("end")
    )
    joined = few.join(then, ["topic", "partition", "seen_ms"], "left")
    left = f.greatest(f.col("end") - f.col("committed"), f.lit(0))
    return joined.withColumn("lag", f.when(f.col("end").isNotNull(), left))
