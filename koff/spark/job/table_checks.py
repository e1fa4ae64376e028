"""Whether the tables are right, for `koff pipeline check`. Changes nothing.

Each function returns one result for each table or cluster that it looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.errors import KoffError
from koff.spark.rows.group_changes import GROUP_DDL, describe_saved
from koff.spark.spark_session import persist_frame
from koff.spark.tables.coverage import CoverageRow, Interval, merge_intervals, subtract_intervals
from koff.spark.tables.leases import ALL
from koff.spark.tables.maintenance_notes import MaintenanceNotes

if TYPE_CHECKING:
    from koff.config.clusters import WatchedCluster
    from koff.spark.job.table_status import ClusterStatus
    from koff.spark.tables.schemas import Tables

_RECORD = ("cluster", "offsets_partition", "log_offset")
KEYS: Mapping[str, tuple[str, ...]] = {
    "commits": _RECORD,
    "groups": (*_RECORD, "group"),
    "assignments": (*_RECORD, "group", "member_id", "topic", "partition"),
    "quarantine": _RECORD,
    "end_offsets": ("cluster", "at", "topic", "partition"),
    "lag": ("cluster", "at", "group", "topic", "partition"),
    "samples": ("cluster", "at"),
    "lag_hourly": ("cluster", "hour", "group", "topic"),
    "current": ("cluster", "group", "topic", "partition"),
    "group_states": ("cluster", "offsets_partition", "group"),
    "end_curves": ("cluster", "topic", "partition", "topic_id"),
    "leases": ("cluster", "sequence"),
}
"""By table: the columns that tell its rows apart, as in docs/pipeline.md. Rows of `coverage` may be equal."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `of` is the table or the cluster."""

    name: str
    of: str
    ok: bool
    text: str


def check_keys(tables: Tables) -> list[CheckResult]:
    """Fails for a table that has two rows with the same key."""
    from pyspark.sql import functions as f

    results = []
    for name, key in KEYS.items():
        counts = tables.frame(name).groupBy(*(f"`{column}`" for column in key)).count()
        more = counts.where("count > 1").agg(f.count("*"), f.sum(f.col("count") - 1)).collect()[0]
        text = f"{more[1]:,} rows too many, of {more[0]:,} keys" if more[0] else "each key once"
        results.append(CheckResult("unique keys", name, not more[0], text))
    return results


def read_coverage(tables: Tables) -> dict[str, list[CoverageRow]]:
    """The rows of `coverage` by cluster."""
    found: dict[str, list[CoverageRow]] = {}
    for row in tables.frame("coverage").select("cluster", *CoverageRow._fields).collect():
        found.setdefault(row[0], []).append(CoverageRow(*row[1:]))
    return found


def check_offsets(cluster: str, rows: Sequence[CoverageRow], writer: str) -> CheckResult:
    """Fails if offsets between others were never read, or were begun and not completed.

    While a process writes the cluster, its newest batches are not complete yet.
    """
    missing = unfinished = 0
    for intervals, complete in _by_partition(rows):
        merged = merge_intervals(intervals)
        missing += sum(after[0] - before[1] for before, after in pairwise(merged))
        unfinished += sum(end - start for start, end in subtract_intervals(merged, complete))
    if missing:
        text = (
            f"{missing:,} offsets between others were never read: `koff pipeline backfill` reads what the "
            "log, or a copy of its segments (--segments), still has"
        )
    elif unfinished and not writer:
        text = (
            f"{unfinished:,} offsets were begun and are not complete: start the command that was interrupted "
            "again; if they stay, delete the cluster's folder in _checkpoints: the next run reads them again"
        )
    elif unfinished:
        text = f"without a gap; {writer} is writing {unfinished:,} offsets"
    else:
        text = "without a gap"
    return CheckResult("continuous offsets", cluster, not missing and (not unfinished or bool(writer)), text)


def check_groups(tables: Tables, cluster: str, writer: str, now: datetime) -> CheckResult:
    """Fails if the newest row of a group in `groups` is not what its state in `group_states` is.

    A group that only `groups` has fails unless a process writes the cluster: a batch writes the states last.
    A group that only `group_states` has fails unless it is deleted, or its rows may have expired.
    """
    from pyspark.sql import functions as f

    same = ["offsets_partition", "group"]
    fields = [field.split()[0] for field in GROUP_DDL.split(", ")]
    saved = f.from_json(f.udf(describe_saved)("group", "saved"), GROUP_DDL)
    expired = f.coalesce("timestamp", f.lit(_EPOCH)) < f.lit(_find_oldest_group(tables, cluster, now))
    states = tables.cluster_frame("group_states", cluster).select(
        *same, f.col("log_offset").alias("derived_to"), saved.alias("saved"), expired.alias("expired")
    )
    # The states are read first: the table `groups` has the rows that belong to them by then.
    with persist_frame(states):
        states.count()
        rows = tables.cluster_frame("groups", cluster).join(states.select(*same, "derived_to"), same, "left")
        rows = rows.where("derived_to IS NULL OR log_offset <= derived_to")
        newest = rows.groupBy(*same).agg(f.max_by(f.struct(*fields), "log_offset").alias("written"))
        compared = states.join(newest, same, "full_outer")
        differs = f.when(f.col("written").isNull(), f.expr("NOT saved.gone AND NOT expired"))
        differs = differs.when(f.col("saved").isNull(), f.expr("NOT written.gone") & f.lit(not writer))
        differs = differs.otherwise(~f.col("saved").eqNullSafe(f.col("written")))
        count, group = compared.where(differs).agg(f.count("*"), f.min("group")).collect()[0]
    text = "the newest changes of all groups lead to their states"
    if count:
        text = (
            f"the newest changes of {count:,} groups, such as {group}, do not lead to their states: rows of "
            "`groups` and `assignments` are missing; start an interrupted command again; if this stays, read "
            "the cluster into new tables"
        )
    return CheckResult("groups and states", cluster, not count, text)


_EPOCH = datetime.fromtimestamp(0, UTC)


def _find_oldest_group(tables: Tables, cluster: str, now: datetime) -> datetime:
    """The time before which maintenance may have deleted rows of `groups`; the epoch if it keeps all."""
    kept = [MaintenanceNotes(tables, scope).get("groups").keep_days for scope in (ALL, cluster)]
    days = [each for each in kept if each is not None]
    # Rows leave by whole days.
    return now - timedelta(days=min(days) - 1) if days else _EPOCH


def check_freshness(status: ClusterStatus, now_ms: int, max_age_s: float) -> CheckResult:
    """Fails if the newest sample of lag is older than `max_age_s` or far in the future, or there is none."""
    if status.newest_sample_ms is None:
        text = "lag was never sampled: `koff pipeline run` samples it"
        return CheckResult("freshness", status.cluster, ok=False, text=text)
    age_s = (now_ms - status.newest_sample_ms) / 1000
    if age_s < -max_age_s:
        text = (
            f"the newest sample is {-age_s:,.0f} s in the future: a clock is or was wrong, here or at the job"
        )
        return CheckResult("freshness", status.cluster, ok=False, text=text)
    age_s = max(0.0, age_s)
    text = f"the newest sample is {age_s:,.0f} s old"
    if age_s > max_age_s:
        writer = status.writer or "no process writes the cluster: start `koff pipeline run`"
        return CheckResult(
            "freshness", status.cluster, False, f"{text}, more than {max_age_s:,.0f} s; {writer}"
        )
    return CheckResult("freshness", status.cluster, ok=True, text=text)


def fetch_log_ends(watched: WatchedCluster) -> tuple[str, dict[int, int]]:
    """The cluster's name in the tables, and the end offset of each partition of its offsets topic.

    Raises `KoffError` without such a topic, and if a partition does not return its end offset.
    """
    topic = watched.offsets_topic
    with Cluster(watched.conf) as cluster:
        cluster.connect()
        name, info = watched.name or cluster.id, cluster.fetch_topic(topic)
        if info is None:
            raise KoffError(f"cluster {name}: there is no topic {topic}")
        partitions = [TopicPartition(topic, p) for p in range(info.partitions)]
        offsets = cluster.fetch_offsets(partitions, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        ends: dict[int, int] = {}
        for at, offset in offsets.items():
            if not isinstance(offset, int):
                raise KoffError(f"cluster {name}: no end offset of {topic}/{at.partition}: {offset}")
            ends[at.partition] = offset
        return name, ends


def check_against_log(
    cluster: str, rows: Sequence[CoverageRow], ends: Mapping[int, int], max_behind: int
) -> CheckResult:
    """Fails if the tables have offsets that the log has not, or are behind by more than `max_behind`."""
    read: dict[int, int] = {}
    for row in rows:
        read[row.offsets_partition] = max(row.to_offset, read.get(row.offsets_partition, 0))
    beyond = {p: (end, ends[p]) for p, end in read.items() if p in ends and end > ends[p]}
    behind = sum(max(0, end - read.get(p, 0)) for p, end in ends.items())
    ok = not beyond and behind <= max_behind
    if beyond:
        partition, (end, log_end) = next(iter(sorted(beyond.items())))
        text = (
            f"partition {partition} ends at {log_end:,}, and the tables have it up to {end:,}: the offsets "
            "topic was truncated or created again"
        )
    else:
        text = f"{behind:,} offsets behind the brokers" + ("" if ok else f", more than {max_behind:,}")
    return CheckResult("agreement with brokers", cluster, ok, text)


def _by_partition(rows: Iterable[CoverageRow]) -> Iterable[tuple[list[Interval], list[Interval]]]:
    """For each log (topic id and partition): all of its intervals, and the complete ones.

    Rows without a topic id (of segments) belong to every log of the partition.
    """
    rows = list(rows)
    topics: set[str | None] = {row.topic_id for row in rows if row.topic_id}
    for topic_id in topics or {None}:
        for partition in {row.offsets_partition for row in rows}:
            own = [
                row for row in rows if row.offsets_partition == partition and row.topic_id in (topic_id, None)
            ]
            yield [row.interval for row in own], [row.interval for row in own if row.complete]
