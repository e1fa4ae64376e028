"""The numbers of events: rebalances, members that joined or left, rewinds and resets, idle groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from koff.spark.report.history import History, Rows, collect_rows, select_top

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SILENT_H = 24
"""A group with lag counts as silent if its last commit is more hours ago than this."""

# Compares each row of a group with the row before it. `rebalances` counts new epochs.
_CHANGES = """
WITH changes AS (
  SELECT *, lag(epoch) OVER life was_epoch, lag(members) OVER life was_members
  FROM {groups} WINDOW life AS (PARTITION BY cluster, `group` ORDER BY log_offset))
SELECT cluster, `group`, step_ms, count_if(epoch <> was_epoch AND NOT gone) rebalances,
       coalesce(sum(greatest(members - was_members, 0)), 0) joined,
       coalesce(sum(greatest(was_members - members, 0)), 0) `left`
FROM changes WHERE at_ms >= :since AND was_epoch IS NOT NULL GROUP BY cluster, `group`, step_ms"""

_CHANGES_BY_GROUP = """
SELECT cluster, `group`, sum(rebalances) rebalances, sum(joined) joined, sum(`left`) `left`,
       sum(rebalances + joined + `left`) changes
FROM {changes} GROUP BY cluster, `group`"""

# The events of the worst groups only.
_OF_WORST = """
SELECT e.* FROM {events} e LEFT SEMI JOIN {worst} w ON e.cluster = w.cluster AND e.`group` = w.`group`
ORDER BY step_ms, cluster, `group`"""

# All records of a group are in one partition of the offsets topic. So log offsets order the commits and the
# states of a group together. `empty` are the stretches of the log in which a group had no members (only
# groups with a protocol type: a group that never had members has none). A commit of a higher offset in such a
# stretch is a skip.
_RESETS = """
WITH stretches AS (
  SELECT cluster, `group`, offsets_partition, log_offset, members, protocol_type, gone,
         lead(log_offset) OVER life until_offset
  FROM {groups} WINDOW life AS (PARTITION BY cluster, `group`, offsets_partition ORDER BY log_offset)),
empty AS (SELECT * FROM stretches WHERE members = 0 AND protocol_type <> '' AND NOT gone),
steps AS (
  SELECT cluster, `group`, offsets_partition, log_offset, at_ms, step_ms, committed, topic_id,
         lag(committed) OVER slot was, lag(topic_id) OVER slot was_id
  FROM {commits}
  WINDOW slot AS (PARTITION BY cluster, `group`, topic, partition ORDER BY offsets_partition, log_offset)),
moves AS (
  SELECT s.*, abs(s.committed - s.was) records,
         CASE WHEN s.committed < s.was AND s.topic_id <> s.was_id THEN 'topic re-created'
              WHEN s.committed < s.was THEN 'rewind'
              WHEN e.`group` IS NOT NULL THEN 'skip' END kind
  FROM steps s LEFT JOIN empty e
    ON s.cluster = e.cluster AND s.`group` = e.`group` AND s.offsets_partition = e.offsets_partition
    AND s.log_offset > e.log_offset AND s.log_offset < coalesce(e.until_offset, 9223372036854775807)
  WHERE s.committed <> s.was)
SELECT cluster, `group`, kind, step_ms, count(*) partitions, sum(records) records, min(at_ms) at_ms
FROM moves WHERE kind IS NOT NULL GROUP BY cluster, `group`, kind, step_ms"""

_RESETS_BY_GROUP = """
SELECT cluster, `group`, count(*) events,
       coalesce(sum(records) FILTER (WHERE kind = 'rewind'), 0) rewound,
       coalesce(sum(records) FILTER (WHERE kind = 'skip'), 0) skipped,
       count_if(kind = 'topic re-created') recreated, max(at_ms) last_ms
FROM {resets} GROUP BY cluster, `group`"""

# The newest state, the newest commit and the newest lag of each group, and then its kind (null: not idle).
_IDLE = """
WITH states AS (
  SELECT cluster, `group`, max_by(struct(type, state, members, gone, at_ms), log_offset) newest
  FROM {groups} GROUP BY cluster, `group`),
newest AS (SELECT *, max(at_ms) OVER (PARTITION BY cluster) newest_ms FROM {lag}),
slots AS (
  SELECT cluster, `group`, sum(CASE WHEN lag IS NOT NULL THEN greatest(lag, 0) END) lag, any_value(type) type,
         unix_millis(max(committed_at)) commit_ms, count(committed) kept
  FROM newest WHERE at_ms = newest_ms GROUP BY cluster, `group`),
known AS (
  SELECT cluster, `group`, coalesce(newest.type, slots.type) type, newest.state, newest.members, lag,
         coalesce(newest.gone, false) gone, newest.at_ms changed_ms, commit_ms, coalesce(kept, 0) kept
  FROM states FULL JOIN slots USING (cluster, `group`)),
judged AS (
  SELECT *, CASE WHEN gone THEN CASE WHEN changed_ms >= :since THEN 'deleted' END
                 WHEN kept = 0 AND type <> 'share' THEN 'never committed'
                 WHEN members = 0 AND lag > 0 THEN 'no members'
                 WHEN lag > 0 AND commit_ms < :silent THEN 'silent' END kind
  FROM known)
SELECT cluster, `group`, kind, type, state, members, lag, commit_ms, changed_ms,
       CASE WHEN commit_ms < :until THEN (:until - commit_ms) / 3600000 END silent_h
FROM judged WHERE kind IS NOT NULL ORDER BY lag DESC, commit_ms, cluster, `group`"""


def compute_event_numbers(history: History, *, worst: int) -> Iterator[tuple[str, Rows]]:
    """The tables of events: pairs of a name and rows.

    A table has the `worst` groups with the most events; a table named `_total` counts all groups.
    """
    from pyspark.sql import functions as f

    # Rows from before the period are needed too: a change is a difference from the row before.
    groups = history.read_until_end("groups")
    groups = groups.withColumn("members", f.coalesce(f.size("members"), f.lit(0)))
    args = {"since": history.period.since_ms}
    changes = history.run_sql(_CHANGES, args, groups=groups)
    yield from _collect_worst(history, "changes", changes, _CHANGES_BY_GROUP, "changes", worst)
    commits = history.read_period("records", time="timestamp").where("committed IS NOT NULL")
    resets = history.run_sql(_RESETS, groups=groups, commits=commits)
    yield from _collect_worst(history, "resets", resets, _RESETS_BY_GROUP, "events", worst)
    yield from _collect_idle(history, groups, worst)


def _collect_worst(
    history: History, name: str, events: DataFrame, by_group: str, column: str, worst: int
) -> Iterator[tuple[str, Rows]]:
    """Three tables of events: by group and over time for the worst groups, and the total of all groups."""
    events = events.persist()  # three queries read it
    try:
        groups = history.run_sql(by_group, **{name: events})
        top = select_top(groups, column, worst)
        yield f"{name}_by_group", collect_rows(top)
        yield (
            f"{name}_over_time",
            collect_rows(history.run_sql(_OF_WORST, events=events, worst=top.select("cluster", "group"))),
        )
        total = (
            f"SELECT count(*) groups, coalesce(sum({column}), 0) events FROM {{groups}} WHERE {column} > 0"  # noqa: S608 - `column` is a name of ours
        )
        yield f"{name}_total", collect_rows(history.run_sql(total, groups=groups))
    finally:
        events.unpersist()


def _collect_idle(history: History, groups: DataFrame, worst: int) -> Iterator[tuple[str, Rows]]:
    """The idle groups with the most lag (up to three times `worst`), and how many there are of each kind."""
    until = history.period.until_ms
    args = {"since": history.period.since_ms, "until": until, "silent": until - SILENT_H * 3_600_000}
    idle = history.run_sql(_IDLE, args, groups=groups, lag=history.read_lag()).persist()
    try:
        yield "idle", collect_rows(idle.limit(3 * worst))
        total = "SELECT kind, count(*) groups FROM {idle} GROUP BY kind ORDER BY kind"
        yield "idle_total", collect_rows(history.run_sql(total, idle=idle))
    finally:
        idle.unpersist()
