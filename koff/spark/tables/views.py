"""Views on the tables, and queries that answer what people ask, for Spark SQL and for DuckDB.

In the texts, a name in brackets is quoted: `[group]` is a word of both languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
  SELECT cluster, [group], [at], max(group_verdict) AS verdict, max(group_cause) AS cause,
         sum(greatest(lag, 0)) AS lag, max(time_lag_s) AS time_lag_s, sum(lost) AS lost
  FROM lag GROUP BY cluster, [group], [at]),
runs AS (
  SELECT *, max([at]) OVER (PARTITION BY cluster) AS newest,
         row_number() OVER (PARTITION BY cluster, [group] ORDER BY [at])
         - row_number() OVER (PARTITION BY cluster, [group], verdict IN ('WARN', 'ERR') ORDER BY [at]) AS run
  FROM samples)
SELECT cluster, [group], min([at]) AS began, max([at]) AS ended, min(verdict) AS worst,
       min_by(cause, [at]) AS cause, max(lag) AS max_lag, max(time_lag_s) AS max_time_lag_s,
       max(lost) AS lost, max([at]) = max(newest) AS is_open
FROM runs WHERE verdict IN ('WARN', 'ERR') GROUP BY cluster, [group], run""",
    ),
    "slo": (
        "A row is a group on a day: for how much of the time it kept its allowance (`kept`, from 0 to 1).",
        """SELECT cluster, [group], day, 1 - sum(over_s) / sum(seconds) AS kept, sum(over_s) AS over_s,
       sum(warn_s) AS warn_s, sum(err_s) AS err_s, sum(seconds) AS seconds
FROM lag_hourly WHERE topic IS NULL GROUP BY cluster, [group], day""",
    ),
}
"""By name: what a view is, and its query."""

QUERIES: Mapping[str, str] = {
    "Who was behind yesterday, and for how long": """SELECT cluster, [group], max(max_lag) AS records,
       max(max_time_lag_s) AS seconds, sum(warn_s + err_s) AS late_s
FROM lag_hourly WHERE day = current_date - 1 AND topic IS NULL
GROUP BY cluster, [group] HAVING max(max_lag) > 0 ORDER BY late_s DESC, records DESC LIMIT 20""",
    "What is left of an error budget of one in a thousand, over 30 days": """SELECT cluster, [group],
       1 - sum(over_s) / sum(seconds) AS kept, 1 - sum(over_s) / (0.001 * sum(seconds)) AS budget_left
FROM slo WHERE day >= current_date - 30 GROUP BY cluster, [group] ORDER BY budget_left""",
    "Capacity: records a second a member at the busiest hour, and the growth from week to week": """
WITH weeks AS (
  SELECT cluster, [group], date_trunc('week', day) AS week, max(produced) / 3600.0 AS peak_per_s,
         max(consumed / greatest(members, 1)) / 3600.0 AS per_member_per_s, max(members) AS members
  FROM lag_hourly WHERE day >= current_date - 90 AND topic IS NULL
  GROUP BY cluster, [group], date_trunc('week', day))
SELECT *, peak_per_s / nullif(lag(peak_per_s) OVER (PARTITION BY cluster, [group] ORDER BY week), 0) AS growth
FROM weeks ORDER BY cluster, [group], week""",
    "Before and after yesterday's deployment at noon": """SELECT cluster, [group],
       max(CASE WHEN is_after THEN 0 ELSE max_time_lag_s END) AS before_s,
       max(CASE WHEN is_after THEN max_time_lag_s ELSE 0 END) AS after_s
FROM (SELECT *, hour >= current_date - INTERVAL '12' HOUR AS is_after FROM lag_hourly
      WHERE day >= current_date - 1 AND topic IS NULL) AS hours
GROUP BY cluster, [group] ORDER BY after_s DESC""",
    "Incidents of a week by cause": """SELECT cause, count(*) AS incidents,
       count(DISTINCT [group]) AS group_count,
       sum(CASE WHEN worst = 'ERR' THEN 1 ELSE 0 END) AS errors, max(max_time_lag_s) AS worst_s
FROM incidents WHERE began >= current_date - INTERVAL '7' DAY GROUP BY cause ORDER BY incidents DESC""",
    "Hot partitions: those that get three times the mean of their topic": """SELECT * FROM (
  SELECT DISTINCT cluster, topic, partition, produce_per_s,
         avg(produce_per_s) OVER (PARTITION BY cluster, topic) AS mean_per_s
  FROM lag_now WHERE produce_per_s IS NOT NULL) AS rates
WHERE produce_per_s > 3 * mean_per_s ORDER BY produce_per_s DESC""",
    "Groups to clean up: without members, and without a commit for 30 days": """SELECT cluster, [group],
       max(committed_at) AS newest, sum(greatest(lag, 0)) AS records
FROM lag_now GROUP BY cluster, [group]
HAVING max(members) = 0 AND max(committed_at) < current_date - INTERVAL '30' DAY ORDER BY newest""",
    "Records lost to retention, by day": """SELECT cluster, [group], day, sum(lost) AS lost
FROM lag_hourly WHERE topic IS NULL AND lost > 0 GROUP BY cluster, [group], day ORDER BY day, lost DESC""",
}
"""By what they answer."""


def quote_names(query: str, quote: str) -> str:
    """The query with its names in quotes of a language: a backtick for Spark, a double quote for DuckDB."""
    return query.strip().replace("[", quote).replace("]", quote)


def register_views(tables: Tables) -> None:
    """Makes all tables and views temporary views of the session, under their names."""
    for name in TABLES:
        tables.frame(name).createOrReplaceTempView(name)
    for name, (_, query) in VIEWS.items():
        tables.spark.sql(quote_names(query, "`")).createOrReplaceTempView(name)
