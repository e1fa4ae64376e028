"""The rows of `lag_hourly`: what the lag of each group and topic was in an hour, from the rows of `lag`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR = timedelta(hours=1)
MOST_S = 300
"""A sample stands for the time until the next one, but at most for so many seconds."""
CLASSES = 12
_MOVED = ("consumed", "produced", "lost", "lost_partitions")
_STEP = "timestamp_micros(unix_micros(at) - pmod(unix_micros(at), :step))"
"""The begin of the step (an hour) of a sample."""

# For how long each sample of a cluster stands. The last one of the hour stands until its end at most.
_SECONDS = f"""
SELECT cluster, at, least({MOST_S}, (least(unix_micros({_STEP}) + :step, unix_micros(
       coalesce(lead(at) OVER (PARTITION BY cluster ORDER BY at), :next))) - unix_micros(at)) / 1e6) seconds
FROM (SELECT DISTINCT cluster, at FROM {{lag}})"""  # noqa: S608  # texts of ours

# One row for each group (topic null) and for each of its topics, in each sample. In a sum, a negative lag
# counts as 0, and an unknown lag is left out. (The largest of texts would make Spark sort all rows.)
_SAMPLES = """
SELECT cluster, `group`, topic, at, sum(CASE WHEN lag > 0 THEN lag WHEN lag <= 0 THEN 0 END) lag,
       CASE WHEN max(time_lag_s) > 0 OR NOT max(lag > 0 AND time_lag_s IS NULL) THEN max(time_lag_s)
       END late_s, coalesce(max(lag > 0 AND time_lag_s IS NULL), false) untimed,
       count_if(lag IS NULL) unknown, count(*) partitions, max(members) members,
       max(group_verdict = 'WARN') is_warn, max(group_verdict = 'ERR') is_err,
       coalesce(max(time_lag_s > allowance_s), false) is_over
FROM {lag} GROUP BY GROUPING SETS ((cluster, `group`, topic, at), (cluster, `group`, at))"""

_EDGES_S = [0, *(30 * 2**n for n in range(CLASSES - 1)), "double('inf')"]
_CLASS_COUNTS = ", ".join(
    f"count_if(late_s >= {low} AND late_s < {high})" for low, high in pairwise(_EDGES_S)
)
_HOURS = f"""
SELECT cluster, {_STEP} hour, `group`, topic, max(lag) max_lag, avg(lag) avg_lag,
       max_by(lag, at) last_lag, max(late_s) max_time_lag_s, max_by(late_s, at) last_time_lag_s,
       max(untimed) untimed, array({_CLASS_COUNTS}) time_lags,
       sum(IF(is_warn, seconds, 0)) warn_s, sum(IF(is_err, seconds, 0)) err_s,
       sum(IF(is_over, seconds, 0)) over_s, sum(seconds) seconds,
       cast(max(partitions) AS INT) partitions, cast(max(members) AS INT) members,
       cast(max_by(unknown, at) AS INT) last_unknown, cast(max(unknown) AS INT) max_unknown,
       cast(count(*) AS INT) samples, cast(count(lag) AS INT) known_samples
FROM {{samples}} JOIN {{seconds}} USING (cluster, at)
GROUP BY cluster, {_STEP}, `group`, topic"""  # noqa: S608  # texts of ours

# How far offsets moved since the sample before the hour, and how many records left the log before they were
# committed. In the first of all samples nothing is lost: when it was lost is not known.
_MOVES = f"""
WITH ends AS (
  SELECT cluster, `group`, topic, partition, {_STEP} hour,
         min_by(committed, at) c0, max_by(committed, at) c1,
         min_by(end_offset, at) e0, max_by(end_offset, at) e1
  FROM {{lag}} WHERE committed >= 0 AND end_offset >= 0 GROUP BY cluster, `group`, topic, partition, {_STEP}),
flows AS (
  SELECT cluster, `group`, topic, hour, greatest(0, c1 - coalesce(lag(c1) OVER slot, c0)) consumed,
         greatest(0, e1 - coalesce(lag(e1) OVER slot, e0)) produced, 0L lost, NULL place
  FROM ends WINDOW slot AS (PARTITION BY cluster, `group`, topic, partition ORDER BY hour)),
begun AS (SELECT cluster, min(at) first FROM {{lag}} GROUP BY cluster),
below AS (
  SELECT cluster, `group`, topic, partition, {_STEP} hour, at, committed, start_offset,
         lag(start_offset) OVER (PARTITION BY cluster, `group`, topic, partition ORDER BY at) prior
  FROM {{lag}} WHERE lost > 0),
losses AS (
  SELECT cluster, `group`, topic, hour, 0L consumed, 0L produced,
         CASE WHEN at = first AND first >= :begin THEN 0L
              ELSE greatest(0, start_offset - greatest(committed, coalesce(prior, committed))) END lost,
         struct(topic, partition) place
  FROM below LEFT JOIN begun USING (cluster))
SELECT cluster, `group`, topic, hour, sum(consumed) consumed, sum(produced) produced, sum(lost) lost,
       cast(count(DISTINCT IF(lost > 0, place, NULL)) AS INT) lost_partitions
FROM (SELECT * FROM flows UNION ALL SELECT * FROM losses) WHERE hour >= :begin
GROUP BY GROUPING SETS ((cluster, `group`, topic, hour), (cluster, `group`, hour))"""  # noqa: S608  # texts of ours


def compute_hours(
    lag: DataFrame, begin: datetime, end: datetime, after: datetime | None = None, step: timedelta = HOUR
) -> DataFrame:
    """The rows of `lag_hourly` of the hours from `begin` to before `end`, without number and day.

    `lag` has the rows of one or more clusters, and `after` is the time of the next sample after them; None:
    as late as it may be. Moves of offsets count from the last sample before the hour. With another `step`, a
    row stands for that time instead of an hour.
    """
    from pyspark.sql import functions as f

    since = begin - max(step, HOUR)
    days = f.col("day").between(f.lit(since.date()), f.lit(end.date()))
    rows = lag.where(days & (f.col("at") >= f.lit(since)) & (f.col("at") < f.lit(end)))
    own, spark = rows.where(f.col("at") >= f.lit(begin)), lag.sparkSession
    args = {"step": step // timedelta(microseconds=1), "begin": begin, "next": after or end + HOUR}
    seconds = spark.sql(_SECONDS, args, lag=own)
    hours = spark.sql(_HOURS, args, samples=spark.sql(_SAMPLES, lag=own), seconds=seconds)
    moves = spark.sql(_MOVES, args, lag=rows)
    on = [hours[name] == moves[name] for name in ("cluster", "hour", "group")]
    on.append(hours["topic"].eqNullSafe(moves["topic"]))
    return hours.join(moves, on, "left").select(hours["*"], *_MOVED).fillna(0, [*_MOVED])


def begin_step(at: datetime, step: timedelta = HOUR) -> datetime:
    """The begin of the hour of `at`, or of another step."""
    return at.astimezone(UTC) - (at - datetime.fromtimestamp(0, UTC)) % step
