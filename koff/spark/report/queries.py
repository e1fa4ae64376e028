"""The numbers of a report about lag, as small tables. Spark reads and sums; the driver gets only the results.

In a sum, a negative lag (a commit beyond the sampled end offset) counts as 0, and an unknown lag is left out.
Each step of time shows the largest of its samples, so that no peak is averaged away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from koff.spark.report.history import History, Row, Rows, collect_rows, select_top

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RETENTION_DAYS = 30
"""A group that retention overtakes later than this is not shown."""
_RECENT_MS = 86_400_000
"""The time at the end of the period in which the speed of retention is measured."""

# The inner query sums the partitions of a group in one sample; the outer one takes the largest of a step.
# `no_seconds`: a partition has lag, and its time lag is unknown. A time lag of 0 in other partitions, or at
# other times, is then not the longest.
_GROUP_STEPS = """
SELECT cluster, `group`, step_ms, max(lag) lag, max(time_lag_s) time_lag_s, max(unknown) unknown,
       max(partitions) partitions, sum(lag) sum_lag, count(lag) samples,
       max_by(lag, at_ms) last_lag, max_by(time_lag_s, at_ms) last_s, max(no_seconds) no_seconds
FROM (SELECT cluster, `group`, step_ms, at_ms, sum(CASE WHEN lag > 0 THEN lag WHEN lag <= 0 THEN 0 END) lag,
             CASE WHEN max(time_lag_s) > 0 OR NOT max(lag > 0 AND time_lag_s IS NULL) THEN max(time_lag_s)
             END time_lag_s, coalesce(max(lag > 0 AND time_lag_s IS NULL), false) no_seconds,
             count_if(lag IS NULL) unknown, count(*) partitions
      FROM {lag} GROUP BY cluster, `group`, step_ms, at_ms)
GROUP BY cluster, `group`, step_ms"""

# The same from hours.
_STEPS_OF_HOURS = """
SELECT cluster, `group`, step_ms, max(max_lag) lag, max(max_time_lag_s) time_lag_s, max(max_unknown) unknown,
       max(partitions) partitions, sum(avg_lag * known_samples) sum_lag, sum(known_samples) samples,
       max_by(last_lag, hour) last_lag, max_by(last_time_lag_s, hour) last_s, max(untimed) no_seconds
FROM {hours} GROUP BY cluster, `group`, step_ms"""

# One row for each group, over the whole period.
_GROUPS = """
SELECT cluster, `group`, max(lag) largest_lag, cast(round(sum(sum_lag) / sum(samples)) AS BIGINT) mean_lag,
       max_by(last_lag, step_ms) last_lag, max_by(last_s, step_ms) last_s,
       CASE WHEN max(time_lag_s) > 0 OR NOT max(no_seconds) THEN max(time_lag_s) END longest_s,
       max_by(partitions, step_ms) partitions, max_by(unknown, step_ms) unknown, max(no_seconds) no_seconds
FROM {steps} GROUP BY cluster, `group`"""

# A group that is not among the worst joins as null, so that all others form one row for each step.
_OVER_TIME = """
SELECT w.cluster, w.`group`, s.step_ms, {values}
FROM {{steps}} s LEFT JOIN {{worst}} w ON s.cluster = w.cluster AND s.`group` = w.`group`
GROUP BY w.cluster, w.`group`, s.step_ms {having} ORDER BY s.step_ms, w.cluster, w.`group`"""

# How far offsets moved since the end of the step before; in the first step, since its first sample.
_FLOW = """
WITH ends AS (
  SELECT cluster, `group`, topic, partition, step_ms,
         min_by(committed, at_ms) c0, max_by(committed, at_ms) c1,
         min_by(end_offset, at_ms) e0, max_by(end_offset, at_ms) e1
  FROM {lag} WHERE committed >= 0 AND end_offset >= 0 GROUP BY cluster, `group`, topic, partition, step_ms),
steps AS (
  SELECT cluster, `group`, step_ms,
         greatest(0, c1 - coalesce(lag(c1) OVER slot, c0)) consumed,
         greatest(0, e1 - coalesce(lag(e1) OVER slot, e0)) produced
  FROM ends WINDOW slot AS (PARTITION BY cluster, `group`, topic, partition ORDER BY step_ms))
SELECT cluster, `group`, step_ms, sum(consumed) consumed, sum(produced) produced
FROM steps GROUP BY cluster, `group`, step_ms"""

_FLOW_OF_HOURS = """
SELECT cluster, `group`, step_ms, sum(consumed) consumed, sum(produced) produced
FROM {hours} GROUP BY cluster, `group`, step_ms"""

# While a commit stays below the log start offset, only the records that the start offset newly passed are
# newly lost. `prior` is the start offset of the sample before, if the commit was below it there as well.
_LOST = """
WITH begun AS (SELECT cluster, min(at_ms) first_ms FROM {lag} GROUP BY cluster),
below AS (
  SELECT cluster, `group`, topic, partition, at_ms, step_ms, committed, start_offset, lost,
         lag(start_offset) OVER (PARTITION BY cluster, `group`, topic, partition ORDER BY at_ms) prior
  FROM {lag} WHERE lost > 0)
SELECT cluster, `group`, topic, partition, step_ms, at_ms, lost,
       CASE WHEN at_ms = first_ms THEN 0
            ELSE greatest(0, start_offset - greatest(committed, coalesce(prior, committed))) END newly
FROM below JOIN begun USING (cluster)"""

_LOST_BY_GROUP = """
SELECT cluster, `group`, sum(newly) lost, min(CASE WHEN newly > 0 THEN at_ms END) first_ms,
       max(CASE WHEN newly > 0 THEN at_ms END) last_ms, count(DISTINCT topic, partition) partitions
FROM {lost} GROUP BY cluster, `group` HAVING sum(newly) > 0"""

_LOST_OF_HOURS = """
SELECT cluster, `group`, step_ms, hour_ms at_ms, lost newly, lost_partitions FROM {hours} WHERE lost > 0"""

_LOST_BY_GROUP_OF_HOURS = """
SELECT cluster, `group`, sum(newly) lost, min(at_ms) first_ms, max(at_ms) last_ms,
       max(lost_partitions) partitions
FROM {lost} GROUP BY cluster, `group`"""

# An end offset that fell is that of a topic that was created again.
_TOPICS = """
WITH ends AS (SELECT DISTINCT cluster, topic, partition, at_ms, end_offset FROM {lag} WHERE end_offset >= 0),
moves AS (
  SELECT cluster, topic, partition, greatest(0, end_offset - lag(end_offset) OVER place) moved FROM ends
  WINDOW place AS (PARTITION BY cluster, topic, partition ORDER BY at_ms)),
all AS (SELECT cluster, topic, partition, coalesce(sum(moved), 0) produced FROM moves
        GROUP BY cluster, topic, partition)
SELECT cluster, topic, max_by(partition, produced) partition, max(produced) produced, count(*) partitions,
       sum(produced) topic_produced, try_divide(max(produced), avg(produced)) times_mean
FROM all GROUP BY cluster, topic HAVING count(*) > 1 AND sum(produced) > 0
ORDER BY times_mean DESC, cluster, topic"""

_SKEW = """
WITH newest AS (
  SELECT cluster, `group`, topic, partition, max_by(lag, at_ms) lag FROM {lag}
  GROUP BY cluster, `group`, topic, partition),
summed AS (
  SELECT cluster, `group`, topic, max_by(partition, lag) partition, max(lag) lag,
         sum(greatest(lag, 0)) topic_lag, count(*) partitions
  FROM newest WHERE lag IS NOT NULL GROUP BY cluster, `group`, topic)
SELECT *, try_divide(lag, topic_lag) share FROM summed
WHERE partitions > 1 AND lag * partitions > 1.5 * topic_lag
ORDER BY lag - topic_lag / partitions DESC, cluster, `group`, topic"""

# Hours left = distance from the start offset to the commit / the speed at which that distance shrinks.
_RETENTION = """
WITH moves AS (
  SELECT cluster, `group`, topic, partition, max_by(committed, at_ms) committed,
         max_by(start_offset, at_ms) start, max_by(end_offset, at_ms) end, max(at_ms) - min(at_ms) span_ms,
         max_by(start_offset, at_ms) - min_by(start_offset, at_ms) start_moved,
         max_by(committed, at_ms) - min_by(committed, at_ms) commit_moved
  FROM {lag} WHERE committed >= 0 AND start_offset >= 0 GROUP BY cluster, `group`, topic, partition),
left AS (
  SELECT *, CASE WHEN committed < start THEN 0.0D
                 ELSE (committed - start) / (start_moved - greatest(commit_moved, 0)) * span_ms / 3600000
            END hours
  FROM moves WHERE committed < end AND (committed < start OR start_moved > greatest(commit_moved, 0)))
SELECT cluster, `group`, min(hours) hours, min_by(topic, hours) topic, min_by(partition, hours) partition,
       greatest(0, min_by(committed - start, hours)) records_left, count(*) partitions
FROM left WHERE hours <= :most GROUP BY cluster, `group` ORDER BY hours, cluster, `group`"""


class LagNumbers:
    """The tables of a report that come from `lag` and `lag_hourly`.

    The caller closes it: until then Spark keeps computed frames. Each table has the `worst` groups one by
    one. The tables over time also have the sum of the other groups, as rows without a group.
    """

    def __init__(self, history: History, *, worst: int) -> None:
        self._history, self._worst = history, worst
        # Persisted: several tables are computed from each of these frames.
        self._lag = history.read_lag()
        if history.period.hourly:
            self._kept = [hours := history.read_hours().persist()]
            frames = {"hours": hours}
            steps, flow, lost, losing = (
                _STEPS_OF_HOURS,
                _FLOW_OF_HOURS,
                _LOST_OF_HOURS,
                _LOST_BY_GROUP_OF_HOURS,
            )
        else:
            self._kept = []
            frames = {"lag": self._lag}
            steps, flow, lost, losing = _GROUP_STEPS, _FLOW, _LOST, _LOST_BY_GROUP
        self._steps, self._flow, self._lost = (
            history.run_sql(query, **frames).persist() for query in (steps, flow, lost)
        )
        self._groups = history.run_sql(_GROUPS, steps=self._steps).persist()
        self._losing_groups = history.run_sql(losing, lost=self._lost)

    def close(self) -> None:
        """Lets Spark drop the frames that it keeps."""
        for frame in (*self._kept, self._steps, self._groups, self._flow, self._lost):
            frame.unpersist()

    def summary(self) -> Row:
        """The number of groups, clusters and partitions, the largest lags, and the total flow and loss."""
        query = """SELECT count(*) groups, count(DISTINCT cluster) clusters, sum(partitions) partitions,
                          max(largest_lag) largest_lag,
                          array_join(slice(sort_array(collect_set(cluster)), 1, 3), ', ') cluster_names,
                          CASE WHEN max(longest_s) > 0 OR NOT max(no_seconds)
                          THEN cast(max(longest_s) AS BIGINT) END longest_s
                   FROM {groups}"""
        flow = "SELECT sum(consumed) consumed, sum(produced) produced FROM {flow}"
        lost = "SELECT count(*) losing_groups, coalesce(sum(lost), 0) lost FROM {losers}"
        row = collect_rows(self._history.run_sql(query, groups=self._groups))[0]
        row |= collect_rows(self._history.run_sql(flow, flow=self._flow))[0]
        return row | collect_rows(self._history.run_sql(lost, losers=self._losing_groups))[0]

    def worst_by_lag(self) -> Rows:
        """The groups with the largest lags."""
        return collect_rows(select_top(self._groups, "largest_lag", self._worst).drop("no_seconds"))

    def worst_by_seconds(self) -> Rows:
        """The groups with the longest time lags."""
        return collect_rows(select_top(self._groups, "longest_s", self._worst).drop("no_seconds"))

    def lag_over_time(self) -> Rows:
        """Lag and time lag in each step, of the worst groups by lag, and the sum of the others."""
        return self._collect_over_time(self._steps, "sum(lag) lag, max(time_lag_s) time_lag_s")

    def flow_over_time(self) -> Rows:
        """Offsets consumed and produced in each step, of the worst groups by lag, and the sum of the others.

        A rewind counts as 0 consumed. Records that are read again after it count again.
        """
        return self._collect_over_time(self._flow, "sum(consumed) consumed, sum(produced) produced")

    def lost_by_group(self) -> Rows:
        """Records that left the log in the period before their group committed them."""
        return collect_rows(select_top(self._losing_groups, "lost", self._worst))

    def lost_over_time(self) -> Rows:
        """Records that left the log before their group committed them, in each step that has some."""
        worst = select_top(self._losing_groups, "lost", self._worst)
        return self._collect_over_time(self._lost, "sum(newly) lost", worst, having="HAVING sum(newly) > 0")

    def hot_partitions(self) -> Rows:
        """The busiest partition of each topic, as a multiple of its mean; the most uneven topics first."""
        return collect_rows(self._history.run_sql(_TOPICS, lag=self._lag).limit(self._worst))

    def skewed_groups(self) -> Rows:
        """The (group, topic) that have more than 1.5 times their mean lag in one partition at the end."""
        return collect_rows(self._history.run_sql(_SKEW, lag=self._lag).limit(self._worst))

    def retention(self) -> Rows:
        """Hours until the log start offset overtakes a group, at the last day's speed; 0: it already has."""
        since_ms = self._history.period.until_ms - _RECENT_MS
        recent = self._lag.where(self._lag["at_ms"] >= since_ms)
        args = {"most": RETENTION_DAYS * 24}
        return collect_rows(self._history.run_sql(_RETENTION, args, lag=recent).limit(self._worst))

    def _collect_over_time(
        self, steps: DataFrame, values: str, worst: DataFrame | None = None, *, having: str = ""
    ) -> Rows:
        """The values of each step of the `worst` groups (None: by lag), and of the others together."""
        worst = worst if worst is not None else select_top(self._groups, "largest_lag", self._worst)
        query = _OVER_TIME.format(values=values, having=having)
        return collect_rows(self._history.run_sql(query, steps=steps, worst=worst.select("cluster", "group")))


def compute_lag_numbers(history: History, *, worst: int) -> Iterator[tuple[str, Rows]]:
    """The tables that come from `lag` and `lag_hourly`, with the `summary`: pairs of a name and rows."""
    numbers = LagNumbers(history, worst=worst)
    try:
        yield "summary", [numbers.summary()]
        yield "worst_by_lag", numbers.worst_by_lag()
        yield "worst_by_seconds", numbers.worst_by_seconds()
        yield "lag_over_time", numbers.lag_over_time()
        yield "flow_over_time", numbers.flow_over_time()
        yield "lost_by_group", numbers.lost_by_group()
        yield "lost_over_time", numbers.lost_over_time()
        yield "hot_partitions", numbers.hot_partitions()
        yield "skewed_groups", numbers.skewed_groups()
        yield "retention", numbers.retention()
    finally:
        numbers.close()
