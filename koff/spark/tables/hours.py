"""The rows of `lag_hourly`: what the lag of each group and topic was in each hour, from its samples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from koff.lag.verdict import Verdict
from koff.spark.tables.held_rows import hold_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR = timedelta(hours=1)
_MOVED = ("consumed", "produced", "lost", "lost_partitions")
_WORST = "array({})".format(", ".join(f"'{verdict.name}'" for verdict in Verdict))

# One row for each group (topic null) and for each of its topics, in each sample. In a sum, a negative lag
# counts as 0, and an unknown lag is left out, as in reports.
_SAMPLES = """
SELECT cluster, `group`, topic, hour, at, sum(CASE WHEN lag > 0 THEN lag WHEN lag <= 0 THEN 0 END) lag,
       CASE WHEN max(time_lag_s) > 0 OR NOT max(lag > 0 AND time_lag_s IS NULL) THEN max(time_lag_s)
       END seconds, coalesce(max(lag > 0 AND time_lag_s IS NULL), false) untimed,
       count_if(lag IS NULL) unknown, count(*) partitions, max(array_position({worst}, status)) severity
FROM {{held}} WHERE at >= :begin
GROUP BY GROUPING SETS ((cluster, `group`, topic, hour, at), (cluster, `group`, hour, at))"""

_HOURS = """
SELECT cluster, hour, `group`, topic, max(lag) max_lag, min(lag) min_lag, avg(lag) avg_lag,
       max_by(lag, at) last_lag,
       max(seconds) max_time_lag_s,
       max_by(seconds, at) last_time_lag_s, max(untimed) untimed,
       element_at({worst}, cast(max(severity) AS INT)) worst_status,
       cast(max(partitions) AS INT) partitions, cast(max_by(unknown, at) AS INT) last_unknown,
       cast(max(unknown) AS INT) max_unknown, cast(count(*) AS INT) samples,
       cast(count(lag) AS INT) known_samples
FROM {{samples}} GROUP BY cluster, hour, `group`, topic"""

# How far offsets moved since the hour before, and how many records left the log before they were committed.
_MOVES = """
WITH ends AS (
  SELECT cluster, `group`, topic, partition, hour, min_by(committed, at) c0, max_by(committed, at) c1,
         min_by(end_offset, at) e0, max_by(end_offset, at) e1
  FROM {held} WHERE committed >= 0 AND end_offset >= 0 GROUP BY cluster, `group`, topic, partition, hour),
flows AS (
  SELECT cluster, `group`, topic, hour, greatest(0, c1 - coalesce(lag(c1) OVER slot, c0)) consumed,
         greatest(0, e1 - coalesce(lag(e1) OVER slot, e0)) produced, 0L lost,
         NULL place
  FROM ends WINDOW slot AS (PARTITION BY cluster, `group`, topic, partition ORDER BY hour)),
below AS (
  SELECT cluster, `group`, topic, partition, hour, at, committed, start_offset,
         lag(start_offset) OVER (PARTITION BY cluster, `group`, topic, partition ORDER BY at) prior
  FROM {held} WHERE lost > 0),
begun AS (SELECT cluster, min(at) first FROM {samples} GROUP BY cluster),
losses AS (
  SELECT cluster, `group`, topic, hour, 0L consumed, 0L produced,
         CASE WHEN at = first THEN 0L
              ELSE greatest(0, start_offset - greatest(committed, coalesce(prior, committed))) END lost,
         struct(topic, partition) place
  FROM below LEFT JOIN begun USING (cluster))
SELECT cluster, `group`, topic, hour, sum(consumed) consumed, sum(produced) produced, sum(lost) lost,
       cast(count(DISTINCT IF(lost > 0, place, NULL)) AS INT) lost_partitions
FROM (SELECT * FROM flows UNION ALL SELECT * FROM losses) WHERE hour >= :begin
GROUP BY GROUPING SETS ((cluster, `group`, topic, hour), (cluster, `group`, hour))"""


def compute_hours(
    lag: DataFrame,
    samples: DataFrame,
    since: datetime,
    begin: datetime,
    end: datetime,
) -> DataFrame:
    """The rows of `lag_hourly` from `begin` to before `end`, without `day`, of one or more clusters.

    Moves of offsets count from `since`, the begin of the last hour before with samples. In the first of all
    samples nothing is lost: when it was lost is not known.
    """
    from pyspark.sql import functions as f

    days = f.col("day").between(f.lit((since - 24 * HOUR).date()), f.lit(end.date()))
    within = (f.col("at") >= f.lit(since)) & (f.col("at") < f.lit(end))
    held = hold_rows(lag.where(days), samples.where(days & within)).where(within)
    held = held.withColumn("hour", f.date_trunc("HOUR", "at"))
    spark, args = lag.sparkSession, {"begin": begin}
    of_samples = spark.sql(_SAMPLES.format(worst=_WORST), args, held=held)
    hours = spark.sql(_HOURS.format(worst=_WORST), samples=of_samples)
    moves = spark.sql(_MOVES, args, held=held, samples=samples)
    same = ["cluster", "hour", "group"]
    on = [hours[name] == moves[name] for name in same] + [hours["topic"].eqNullSafe(moves["topic"])]
    joined = hours.join(moves, on, "left").select(hours["*"], *_MOVED)
    return joined.fillna(0, [*_MOVED])


def begin_hour(at: datetime) -> datetime:
    """The begin of the hour of `at`."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
