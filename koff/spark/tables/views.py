"""Views on the tables, and queries that answer what people ask, for Spark SQL and for DuckDB.

In the texts, a name in brackets is quoted: `[group]` is a word of both languages. `{since}` is the first day,
`{moment}` a time, and `{step_s}` the length of the steps of `lag_hourly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from koff.spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from koff.spark.tables.delta_tables import Tables

VIEWS: Mapping[str, tuple[str, str]] = {
    "lag_now": (
        "The rows of the newest sample of each cluster, if it is of today or of yesterday.",
        """SELECT lag.* FROM lag JOIN (
  SELECT cluster, max(number) AS number FROM lag WHERE day >= current_date - 1 GROUP BY cluster) AS newest
ON lag.cluster = newest.cluster AND lag.number = newest.number WHERE day >= current_date - 1""",
    ),
    "incidents": (
        "A row is a time in which a group was WARN or ERR, from sample to sample. `is_open`: it still is.",
        """WITH samples AS (
  SELECT cluster, [at], row_number() OVER (PARTITION BY cluster ORDER BY [at]) AS place,
         max([at]) OVER (PARTITION BY cluster) AS newest
  FROM (SELECT DISTINCT cluster, [at] FROM lag) AS times),
late AS (
  SELECT cluster, [group], [at], max(group_verdict) AS verdict, max(group_cause) AS cause,
         sum(greatest(lag, 0)) AS lag, max(time_lag_s) AS time_lag_s, sum(lost) AS lost
  FROM lag WHERE group_verdict IN ('WARN', 'ERR') GROUP BY cluster, [group], [at]),
runs AS (
  SELECT late.*, newest,
         place - row_number() OVER (PARTITION BY late.cluster, [group] ORDER BY late.[at]) AS run
  FROM late JOIN samples ON late.cluster = samples.cluster AND late.[at] = samples.[at])
SELECT cluster, [group], min([at]) AS began, max([at]) AS ended, min(verdict) AS worst,
       min_by(cause, [at]) AS cause, max(lag) AS max_lag, max(time_lag_s) AS max_time_lag_s,
       max(lost) AS lost, max([at]) = max(newest) AS is_open
FROM runs GROUP BY cluster, [group], run""",
    ),
    "slo": (
        "A row is a group on a day: for how much of the time it kept its allowance (`kept`, from 0 to 1).",
        """SELECT cluster, [group], day, 1 - sum(over_s) / sum(seconds) AS kept, sum(over_s) AS over_s,
       sum(warn_s) AS warn_s, sum(err_s) AS err_s, sum(seconds) AS seconds
FROM lag_hourly WHERE topic IS NULL GROUP BY cluster, [group], day""",
    ),
}
"""By name: what a view is, and its query."""


class Question(NamedTuple):
    """What people ask, and the query that answers it. Its text in the docs is for so many `days`."""

    title: str
    query: str
    days: int = 30

    def render(self, quote: str = "`") -> str:
        """The query as the docs have it."""
        since, moment = f"current_date - {self.days}", "current_date - INTERVAL '12' HOUR"
        return render_query(self.query, quote, since=since, moment=moment, step_s=3600)


QUESTIONS: Mapping[str, Question] = {
    "behind": Question(
        "Who was behind, and for how long",
        """SELECT cluster, [group], max(max_lag) AS records, max(max_time_lag_s) AS seconds,
       sum(warn_s + err_s) AS late_s
FROM lag_hourly WHERE day >= {since} AND topic IS NULL
GROUP BY cluster, [group] HAVING max(max_lag) > 0 ORDER BY late_s DESC, records DESC LIMIT 20""",
        1,
    ),
    "budget": Question(
        "What is left of an error budget of one in a thousand",
        """SELECT cluster, [group], 1 - sum(over_s) / (0.001 * sum(seconds)) AS budget_left,
       1 - sum(over_s) / sum(seconds) AS kept, sum(over_s) AS over_s
FROM slo WHERE day >= {since} GROUP BY cluster, [group] HAVING sum(seconds) > 0
ORDER BY budget_left, cluster, [group]""",
    ),
    "capacity": Question(
        "Capacity by week: what a member consumed at best, the head-room at the peak, the next peak",
        """WITH weeks AS (
  SELECT cluster, [group], date_trunc('week', day) AS week, max(produced) / {step_s}e0 AS peak_per_s,
         max(consumed / greatest(members, 1)) / {step_s}e0 AS per_member_per_s, max(members) AS members
  FROM lag_hourly WHERE day >= {since} AND topic IS NULL
  GROUP BY cluster, [group], date_trunc('week', day)),
grown AS (
  SELECT *, lag(peak_per_s) OVER (PARTITION BY cluster, [group] ORDER BY week) AS before_per_s FROM weeks)
SELECT *, per_member_per_s * members / nullif(peak_per_s, 0) - 1 AS headroom,
       peak_per_s * peak_per_s / nullif(before_per_s, 0) AS next_per_s
FROM grown ORDER BY cluster, [group], week""",
        90,
    ),
    "deployment": Question(
        "Before and after a deployment (yesterday at noon)",
        """SELECT cluster, [group],
       max(CASE WHEN is_after THEN 0 ELSE max_time_lag_s END) AS before_s,
       max(CASE WHEN is_after THEN max_time_lag_s ELSE 0 END) AS after_s,
       sum(CASE WHEN is_after THEN 0 ELSE warn_s + err_s END) AS before_late_s,
       sum(CASE WHEN is_after THEN warn_s + err_s ELSE 0 END) AS after_late_s
FROM (SELECT *, hour >= {moment} AS is_after FROM lag_hourly WHERE day >= {since} AND topic IS NULL) AS hours
GROUP BY cluster, [group] ORDER BY after_s DESC, cluster, [group]""",
        1,
    ),
    "causes": Question(
        "Incidents by cause",
        """SELECT cause, count(*) AS incidents, count(DISTINCT [group]) AS group_count,
       sum(CASE WHEN worst = 'ERR' THEN 1 ELSE 0 END) AS errors, max(max_time_lag_s) AS worst_s
FROM incidents WHERE began >= {since} GROUP BY cause ORDER BY incidents DESC, cause""",
        7,
    ),
    "hot_partitions": Question(
        "Hot partitions: the busiest one of each topic, as a multiple of the mean",
        """WITH ends AS (
  SELECT cluster, topic, partition, max(end_offset) - min(end_offset) AS produced
  FROM lag WHERE day >= {since} AND end_offset >= 0 GROUP BY cluster, topic, partition)
SELECT cluster, topic, max_by(partition, produced) AS partition, max(produced) AS produced,
       count(*) AS partitions, sum(produced) AS topic_produced,
       max(produced) / nullif(avg(produced), 0) AS times_mean
FROM ends GROUP BY cluster, topic HAVING count(*) > 1 AND sum(produced) > 0
ORDER BY times_mean DESC, cluster, topic""",
        1,
    ),
    "unused": Question(
        "Groups to clean up: without members, and without a commit since then",
        """SELECT cluster, [group], max(committed_at) AS newest, sum(greatest(lag, 0)) AS records
FROM lag_now GROUP BY cluster, [group]
HAVING max(members) = 0 AND max(committed_at) < {since} ORDER BY newest""",
    ),
    "lost": Question(
        "Records lost to retention, by day",
        """SELECT cluster, [group], day, sum(lost) AS lost
FROM lag_hourly WHERE topic IS NULL AND lost > 0 AND day >= {since}
GROUP BY cluster, [group], day ORDER BY day, lost DESC""",
    ),
}
"""By name. The report has those of the same names."""

FIRST_QUERIES = (
    "SELECT r.group, count(*) AS commits, max(r.timestamp) AS newest FROM records r "
    "WHERE r.kind = 'OffsetCommit' GROUP BY r.group ORDER BY commits DESC LIMIT 10",
    "SELECT r.group, r.topic, r.partition, max_by(r.committed, r.log_offset) AS committed FROM records r "
    "WHERE r.kind = 'OffsetCommit' GROUP BY r.group, r.topic, r.partition ORDER BY 1, 2, 3 LIMIT 10",
    "SELECT g.day, g.group, count(*) AS changes, max(g.epoch) AS epoch FROM groups g "
    "GROUP BY g.day, g.group ORDER BY changes DESC LIMIT 10",
)
"""What to try after a backfill. They run as they are, in Spark SQL and in DuckDB."""


def render_query(query: str, quote: str, **values: object) -> str:
    """The query with its values, and its names in quotes: a backtick for Spark, a double quote for DuckDB."""
    return query.strip().format(**values).replace("[", quote).replace("]", quote)


def register_views(tables: Tables) -> None:
    """Makes all tables and views temporary views of the session, under their names."""
    for name in TABLES:
        tables.frame(name).createOrReplaceTempView(name)
    for name, (_, query) in VIEWS.items():
        tables.spark.sql(render_query(query, "`")).createOrReplaceTempView(name)
