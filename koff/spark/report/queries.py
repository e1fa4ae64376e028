"""The tables of a report, as queries on the views of `History`. Spark sums; the driver gets the results only.

In a sum, a negative lag (a commit beyond the sampled end offset) counts as 0, and an unknown lag is left out.
Each step of time shows the largest of its samples, so that no peak is averaged away. A table has the `worst`
groups one by one.
"""

from collections.abc import Iterator, Mapping

from koff.spark.report.history import DAY_MS, History, Rows
from koff.spark.tables.views import QUESTIONS

RETENTION_DAYS = 30
"""A group that retention overtakes later than this is not shown."""
SILENT_H = 24
"""A group with lag counts as silent if its last commit is more hours ago than this."""

_BY_GROUP = """
SELECT cluster, [group], {columns} FROM totals WHERE {by} > 0
ORDER BY {by} DESC, cluster, [group] LIMIT {{worst}}"""
_LAGS = "largest_lag, mean_lag, last_lag, last_s, longest_s, partitions, unknown"
_WORST_BY_LAG = _BY_GROUP.format(columns=_LAGS, by="largest_lag")
_WORST_BY_LOSS = _BY_GROUP.format(columns="lost, first_ms, last_ms, lost_partitions AS partitions", by="lost")

# A group that is not among the worst joins as null, so that all others form one row for each step.
_OVER_TIME = """
SELECT w.cluster, w.[group], s.step_ms, sum(s.lag) lag, max(s.time_lag_s) time_lag_s,
       sum(s.consumed) consumed, sum(s.produced) produced, sum(s.lost) lost
FROM steps s LEFT JOIN ({worst}) w ON s.cluster = w.cluster AND s.[group] = w.[group] {where}
GROUP BY w.cluster, w.[group], s.step_ms"""
_BY_STEP = "SELECT cluster, [group], step_ms, {values} FROM {rows} ORDER BY step_ms, cluster, [group]"

_EVENTS = (
    "SELECT * FROM {name}_groups WHERE {column} > 0 ORDER BY {column} DESC, cluster, [group] LIMIT {{worst}}"
)
_EVENTS_OVER_TIME = """
SELECT e.* FROM {name} e LEFT SEMI JOIN ({worst}) w ON e.cluster = w.cluster AND e.[group] = w.[group]
ORDER BY step_ms, cluster, [group]"""
_EVENTS_TOTAL = (
    "SELECT count(*) groups, coalesce(sum({column}), 0) events FROM {name}_groups WHERE {column} > 0"
)


def _select_from(question: str, condition: str = "") -> str:
    """The first rows of the answer to a question."""
    return f"SELECT * FROM ({QUESTIONS[question].query}) {condition} LIMIT {{worst}}"  # noqa: S608  # texts of ours


FRAMES: Mapping[str, str] = {
    "steps": """
SELECT cluster, [group], step_ms, max(max_lag) lag, max(max_time_lag_s) time_lag_s,
       max_by(partitions, hour) partitions, sum(avg_lag * known_samples) sum_lag, sum(known_samples) samples,
       max_by(last_lag, hour) last_lag, max_by(last_time_lag_s, hour) last_s, max(untimed) untimed,
       max_by(last_unknown, hour) unknown, sum(consumed) consumed, sum(produced) produced, sum(lost) lost,
       max(lost_partitions) lost_partitions
FROM lag_hourly GROUP BY cluster, [group], step_ms""",
    # If a partition has lag without a known time lag, then a time lag of 0 at other times is not the longest.
    "totals": """
SELECT cluster, [group], max(lag) largest_lag, cast(round(sum(sum_lag) / sum(samples)) AS BIGINT) mean_lag,
       max_by(last_lag, step_ms) last_lag, max_by(last_s, step_ms) last_s, max(untimed) untimed,
       CASE WHEN max(time_lag_s) > 0 OR NOT max(untimed) THEN max(time_lag_s) END longest_s,
       max_by(partitions, step_ms) partitions, max_by(unknown, step_ms) unknown,
       sum(consumed) consumed, sum(produced) produced, sum(lost) lost, max(lost_partitions) lost_partitions,
       min(CASE WHEN lost > 0 THEN step_ms END) first_ms, max(CASE WHEN lost > 0 THEN step_ms END) last_ms
FROM steps GROUP BY cluster, [group]""",
    "over_time": _OVER_TIME.format(worst=_WORST_BY_LAG, where=""),
    # Compares each row of a group with the row before it. `rebalances` counts new epochs.
    "changes": """
WITH sizes AS (SELECT *, coalesce(size(members), 0) present FROM groups),
changes AS (
  SELECT *, lag(epoch) OVER life was_epoch, lag(present) OVER life was
  FROM sizes WINDOW life AS (PARTITION BY cluster, [group] ORDER BY log_offset))
SELECT cluster, [group], step_ms, count_if(epoch <> was_epoch AND NOT gone) rebalances,
       coalesce(sum(greatest(present - was, 0)), 0) joined,
       coalesce(sum(greatest(was - present, 0)), 0) [left]
FROM changes WHERE at_ms >= {since_ms} AND was_epoch IS NOT NULL GROUP BY cluster, [group], step_ms""",
    "changes_groups": """
SELECT cluster, [group], sum(rebalances) rebalances, sum(joined) joined, sum([left]) [left],
       sum(rebalances + joined + [left]) changes
FROM changes GROUP BY cluster, [group]""",
    # All records of a group are in one partition of the offsets topic. So log offsets order the commits and
    # the states of a group together. `empty` are the stretches of the log in which a group had no members
    # (only groups with a protocol type: a group that never had members has none). A commit of a higher offset
    # in such a stretch is a skip.
    "resets": """
WITH stretches AS (
  SELECT cluster, [group], offsets_partition, log_offset, coalesce(size(members), 0) present,
         protocol_type, gone, lead(log_offset) OVER life until_offset
  FROM groups WINDOW life AS (PARTITION BY cluster, [group], offsets_partition ORDER BY log_offset)),
empty AS (SELECT * FROM stretches WHERE present = 0 AND protocol_type <> '' AND NOT gone),
steps AS (
  SELECT cluster, [group], offsets_partition, log_offset, at_ms, step_ms, committed, topic_id,
         lag(committed) OVER slot was, lag(topic_id) OVER slot was_id
  FROM commits
  WINDOW slot AS (PARTITION BY cluster, [group], topic, partition ORDER BY offsets_partition, log_offset)),
moves AS (
  SELECT s.*, abs(s.committed - s.was) records,
         CASE WHEN s.committed < s.was AND s.topic_id <> s.was_id THEN 'topic re-created'
              WHEN s.committed < s.was THEN 'rewind'
              WHEN e.[group] IS NOT NULL THEN 'skip' END kind
  FROM steps s LEFT JOIN empty e
    ON s.cluster = e.cluster AND s.[group] = e.[group] AND s.offsets_partition = e.offsets_partition
    AND s.log_offset > e.log_offset AND s.log_offset < coalesce(e.until_offset, 9223372036854775807)
  WHERE s.committed <> s.was)
SELECT cluster, [group], kind, step_ms, count(*) partitions, sum(records) records, min(at_ms) at_ms
FROM moves WHERE kind IS NOT NULL GROUP BY cluster, [group], kind, step_ms""",
    "resets_groups": """
SELECT cluster, [group], count(*) events, coalesce(sum(records) FILTER (WHERE kind = 'rewind'), 0) rewound,
       coalesce(sum(records) FILTER (WHERE kind = 'skip'), 0) skipped,
       count_if(kind = 'topic re-created') recreated, max(at_ms) last_ms
FROM resets GROUP BY cluster, [group]""",
    # The newest state, commit and lag of each group, and then its kind (null: not idle).
    "idle": """
WITH states AS (
  SELECT cluster, [group],
         max_by(struct(type, state, coalesce(size(members), 0) members, gone, at_ms), log_offset) newest
  FROM groups GROUP BY cluster, [group]),
newest AS (SELECT *, max(at_ms) OVER (PARTITION BY cluster) newest_ms FROM lag),
slots AS (
  SELECT cluster, [group], sum(CASE WHEN lag IS NOT NULL THEN greatest(lag, 0) END) lag, any_value(type) type,
         unix_millis(max(committed_at)) commit_ms, count(committed) kept
  FROM newest WHERE at_ms = newest_ms GROUP BY cluster, [group]),
known AS (
  SELECT cluster, [group], coalesce(newest.type, slots.type) type, newest.state, newest.members, lag,
         coalesce(newest.gone, false) gone, newest.at_ms changed_ms, commit_ms, coalesce(kept, 0) kept
  FROM states FULL JOIN slots USING (cluster, [group])),
judged AS (
  SELECT *, CASE WHEN gone THEN CASE WHEN changed_ms >= {since_ms} THEN 'deleted' END
                 WHEN kept = 0 AND type <> 'share' THEN 'never committed'
                 WHEN members = 0 AND lag > 0 THEN 'no members'
                 WHEN lag > 0 AND commit_ms < {silent_ms} THEN 'silent' END kind
  FROM known)
SELECT cluster, [group], kind, type, state, members, lag, commit_ms, changed_ms,
       CASE WHEN commit_ms < {until_ms} THEN ({until_ms} - commit_ms) / 3600000 END silent_h
FROM judged WHERE kind IS NOT NULL""",
}
"""Views on the way to the tables, in their order. Spark keeps their rows."""

TABLES: Mapping[str, tuple[str, str]] = {
    "summary": (
        "totals",
        """
SELECT count(*) groups, count(DISTINCT cluster) clusters, sum(partitions) partitions,
       max(largest_lag) largest_lag,
       array_join(slice(sort_array(collect_set(cluster)), 1, 3), ', ') cluster_names,
       CASE WHEN max(longest_s) > 0 OR NOT max(untimed) THEN cast(max(longest_s) AS BIGINT) END longest_s,
       sum(consumed) consumed, sum(produced) produced,
       count_if(lost > 0) losing_groups, coalesce(sum(lost), 0) lost
FROM totals""",
    ),
    "worst_by_lag": ("worst groups by lag", _WORST_BY_LAG),
    "worst_by_seconds": ("worst groups by time lag", _BY_GROUP.format(columns=_LAGS, by="longest_s")),
    "lag_over_time": ("lag over time", _BY_STEP.format(values="lag, time_lag_s", rows="over_time")),
    "flow_over_time": (
        "records consumed and produced",
        _BY_STEP.format(values="consumed, produced", rows="over_time"),
    ),
    "lost_by_group": ("records lost to retention", _WORST_BY_LOSS),
    "lost_over_time": (
        "records lost to retention, over time",
        _BY_STEP.format(
            values="lost", rows=f"({_OVER_TIME.format(worst=_WORST_BY_LOSS, where='WHERE s.lost > 0')})"
        ),
    ),
    "budget": (
        "error budgets",
        _select_from("budget", "WHERE over_s > 0"),
    ),
    "capacity": (
        "capacity by week",
        _select_from("capacity", "WHERE headroom IS NOT NULL ORDER BY headroom"),
    ),
    "deployment": (
        "before and after a deployment",
        _select_from("deployment", "WHERE {has_moment}"),
    ),
    "causes": ("incidents by cause", QUESTIONS["causes"].query),
    "hot_partitions": ("hot partitions", _select_from("hot_partitions")),
    "skewed_groups": (
        "skewed lag",
        """
WITH newest AS (
  SELECT cluster, [group], topic, partition, max_by(lag, at_ms) lag FROM lag
  GROUP BY cluster, [group], topic, partition),
summed AS (
  SELECT cluster, [group], topic, max_by(partition, lag) partition, max(lag) lag,
         sum(greatest(lag, 0)) topic_lag, count(*) partitions
  FROM newest WHERE lag IS NOT NULL GROUP BY cluster, [group], topic)
SELECT *, try_divide(lag, topic_lag) share FROM summed
WHERE partitions > 1 AND lag * partitions > 1.5 * topic_lag
ORDER BY lag - topic_lag / partitions DESC, cluster, [group], topic LIMIT {worst}""",
    ),
    # Hours left = distance from the start offset to the commit / the speed at which that distance shrinks.
    "retention": (
        "time until retention overtakes a group",
        """
WITH moves AS (
  SELECT cluster, [group], topic, partition, max_by(committed, at_ms) committed,
         max_by(start_offset, at_ms) start, max_by(end_offset, at_ms) end, max(at_ms) - min(at_ms) span_ms,
         max_by(start_offset, at_ms) - min_by(start_offset, at_ms) start_moved,
         max_by(committed, at_ms) - min_by(committed, at_ms) commit_moved
  FROM lag WHERE committed >= 0 AND start_offset >= 0 AND at_ms >= {recent_ms}
  GROUP BY cluster, [group], topic, partition),
left AS (
  SELECT *, CASE WHEN committed < start THEN 0.0D
                 ELSE (committed - start) / (start_moved - greatest(commit_moved, 0)) * span_ms / 3600000
            END hours
  FROM moves WHERE committed < end AND (committed < start OR start_moved > greatest(commit_moved, 0)))
SELECT cluster, [group], min(hours) hours, min_by(topic, hours) topic, min_by(partition, hours) partition,
       greatest(0, min_by(committed - start, hours)) records_left, count(*) partitions
FROM left WHERE hours <= {most_h} GROUP BY cluster, [group] ORDER BY hours, cluster, [group] LIMIT {worst}""",
    ),
    **{
        f"{name}_{part}": (f"{title}{suffix}", query.format(name=name, column=column, worst=worst))
        for name, column, title in (
            ("changes", "changes", "rebalances and members"),
            ("resets", "events", "rewinds and resets"),
        )
        for worst in [_EVENTS.format(name=name, column=column)]
        for part, suffix, query in (
            ("by_group", "", "{worst}"),
            ("over_time", ", over time", _EVENTS_OVER_TIME),
            ("total", ", in total", _EVENTS_TOTAL),
        )
    },
    "idle": (
        "dead and silent groups",
        "SELECT * FROM idle ORDER BY lag DESC, commit_ms, cluster, [group] LIMIT 3 * {worst}",
    ),
    "idle_total": (
        "dead and silent groups, in total",
        "SELECT kind, count(*) groups FROM idle GROUP BY kind ORDER BY kind",
    ),
}
"""The tables in the order in which they are computed: their names for people, and their queries."""


def compute_tables(
    history: History, *, worst: int, moment_ms: int | None = None
) -> Iterator[tuple[str, Rows]]:
    """The tables, each when it is computed. `moment_ms` is the time of a deployment."""
    period = history.period
    values = {
        "worst": worst,
        "since_ms": period.since_ms,
        "until_ms": period.until_ms,
        "silent_ms": period.until_ms - SILENT_H * 3_600_000,
        "recent_ms": period.until_ms - DAY_MS,
        "most_h": RETENTION_DAYS * 24,
        "since": f"DATE'{period.since_day}'",
        "moment": f"timestamp_millis({moment_ms or 0}L)",
        "has_moment": moment_ms is not None,
        "step_s": min(period.step_ms // 1000, 3600),
    }
    for name, query in FRAMES.items():
        history.add_view(name, query, keep=True, **values)
    for name, (_, query) in TABLES.items():
        yield name, history.collect(query, **values)
