"""What happened to groups: rebalances, members, resets, ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from koff.spark.report.history import History, Rows, collected, top

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SILENT_H = 24
"""A group with lag that has not committed for so long counts as silent."""

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

_OF_WORST = """
SELECT e.* FROM {events} e LEFT SEMI JOIN {worst} w ON e.cluster = w.cluster AND e.`group` = w.`group`
ORDER BY step_ms, cluster, `group`"""

# All of a group lies in one partition of the offsets topic, so log offsets order its commits and its states.
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

_IDLE = """
WITH states AS (
  SELECT cluster, `group`, max_by(struct(type, state, members, gone, at_ms), log_offset) newest
  FROM {groups} GROUP BY cluster, `group`),
commits AS (
  SELECT cluster, `group`, max(unix_millis(coalesce(commit_timestamp, timestamp))) commit_ms,
         count_if(NOT deleted) kept
  FROM {current} GROUP BY cluster, `group`),
lags AS (
  SELECT cluster, `group`, sum(CASE WHEN lag IS NOT NULL THEN greatest(lag, 0) END) lag, any_value(type) type
  FROM (SELECT cluster, `group`, max_by(lag, at_ms) lag, max_by(type, at_ms) type
        FROM {lag} GROUP BY cluster, `group`, topic, partition) GROUP BY cluster, `group`),
known AS (
  SELECT cluster, `group`, coalesce(newest.type, lags.type) type, newest.state, newest.members, lag,
         coalesce(newest.gone, false) gone, newest.at_ms changed_ms, commit_ms, coalesce(kept, 0) kept
  FROM states FULL JOIN commits USING (cluster, `group`) LEFT JOIN lags USING (cluster, `group`)),
judged AS (
  SELECT *, CASE WHEN gone THEN CASE WHEN changed_ms >= :since THEN 'deleted' END
                 WHEN kept = 0 AND type <> 'share' THEN 'never committed'
                 WHEN members = 0 AND lag > 0 THEN 'no members'
                 WHEN lag > 0 AND commit_ms < :silent THEN 'silent' END kind
  FROM known)
SELECT cluster, `group`, kind, type, state, members, lag, commit_ms, changed_ms,
       CASE WHEN commit_ms < :until THEN (:until - commit_ms) / 3600000 END silent_h
FROM judged WHERE kind IS NOT NULL ORDER BY lag DESC, commit_ms, cluster, `group`"""


def _stepped(history: History, table: str) -> DataFrame:
    """Everything up to the period's end: what was before decides what is a change."""
    from pyspark.sql import functions as f

    step = history.period.step_ms
    return history.before_end(table).withColumn("step_ms", f.expr(f"at_ms - pmod(at_ms, {step}L)"))


def event_numbers(history: History, *, worst: int) -> Iterator[tuple[str, Rows]]:
    """What happened, as tables by name; those named `_total` say how much in all."""
    groups = _stepped(history, "groups")
    args = {"since": history.period.since_ms}
    changes = history.sql(_CHANGES, args, groups=groups)
    yield from _worst_of(history, "changes", changes, _CHANGES_BY_GROUP, "changes", worst)
    resets = history.sql(_RESETS, groups=groups, commits=history.within("commits", time="timestamp"))
    yield from _worst_of(history, "resets", resets, _RESETS_BY_GROUP, "events", worst)
    yield from _idle(history, groups, worst)


def _worst_of(
    history: History, name: str, events: DataFrame, by_group: str, column: str, worst: int
) -> Iterator[tuple[str, Rows]]:
    events = events.persist()
    try:
        groups = history.sql(by_group, **{name: events})
        most = top(groups, column, worst)
        yield f"{name}_by_group", collected(most)
        yield (
            f"{name}_over_time",
            collected(history.sql(_OF_WORST, events=events, worst=most.select("cluster", "group"))),
        )
        total = (
            f"SELECT count(*) groups, coalesce(sum({column}), 0) events FROM {{groups}} WHERE {column} > 0"  # noqa: S608 - a column of ours
        )
        yield f"{name}_total", collected(history.sql(total, groups=groups))
    finally:
        events.unpersist()


def _idle(history: History, groups: DataFrame, worst: int) -> Iterator[tuple[str, Rows]]:
    until = history.period.until_ms
    args = {"since": history.period.since_ms, "until": until, "silent": until - SILENT_H * 3_600_000}
    idle = history.sql(
        _IDLE, args, groups=groups, current=history.whole("current"), lag=history.within("lag")
    ).persist()
    try:
        yield "idle", collected(idle.limit(3 * worst))
        total = "SELECT kind, count(*) groups FROM {idle} GROUP BY kind ORDER BY kind"
        yield "idle_total", collected(history.sql(total, idle=idle))
    finally:
        idle.unpersist()
