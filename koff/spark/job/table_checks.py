"""Whether the tables are right, for `koff pipeline check`. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.errors import KoffError
from koff.spark.job.batches import read_group_records
from koff.spark.job.cluster_state import ClusterState
from koff.spark.job.samples import Sample
from koff.spark.rows.decoding import COMMITS
from koff.spark.tables.progress import Plan
from koff.spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from koff.config.clusters import WatchedCluster
    from koff.spark.job.table_status import ClusterStatus
    from koff.spark.tables.delta_tables import Tables


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
    for name, table in TABLES.items():
        counts = tables.frame(name).groupBy(*(f"`{column}`" for column in table.key)).count()
        more = counts.where("count > 1").agg(f.count("*"), f.sum(f.col("count") - 1)).collect()[0]
        text = f"{more[1]:,} rows too many, of {more[0]:,} keys" if more[0] else "each key once"
        results.append(CheckResult("unique keys", name, not more[0], text))
    return results


def check_offsets(plans: Sequence[Plan]) -> CheckResult:
    """Fails if the batches of a cluster do not follow one another, or left offsets out."""
    missing = 0
    for before, plan in pairwise(plans):
        known = before.nexts
        missing += sum(max(0, part.start - known.get(part.partition, part.start)) for part in plan.parts)
        if plan.number != before.number + 1:
            text = f"batch {before.number + 1} is missing in `progress`: restore the tables from one moment"
            return CheckResult("continuous offsets", plan.cluster, False, text)
    text = "without a gap"
    if missing:
        text = f"{missing:,} offsets were left out: read the cluster under another name, or into new tables"
    return CheckResult("continuous offsets", plans[-1].cluster, not missing, text)


def check_groups(tables: Tables, plans: Sequence[Plan]) -> CheckResult:
    """Fails if the rows of `groups` are not those that follow from `records`.

    If records have expired, only the newest row of each group is compared, of groups that have records.
    """
    from pyspark.sql import functions as f

    cluster, number = plans[-1].cluster, plans[-1].number
    records = tables.cluster_frame("records", cluster).where(f"number < {number}")
    rows = tables.cluster_frame("groups", cluster).where(f"number < {number}")
    names = ("log_offset", "type", "state", "epoch", "assignment_epoch", "protocol", "gone")
    members = f.coalesce(f.size("members"), f.lit(0))
    written = {
        (row["group"], row.log_offset): tuple(row) for row in rows.select("group", *names, members).collect()
    }
    state, found = ClusterState(cluster, 30.0), {}
    for records_ in read_group_records(records):
        for row in state.apply_group_records(records_, -1):
            values = (row["group"], *(row[name] for name in names), len(row["members"] or ()))
            found[row["group"], row["log_offset"]] = values
    if not plans or plans[0].number > 1 or not records.where("number = 1").take(1):
        written, found = _keep_newest(written), _keep_newest(found)
        written = {key: row for key, row in written.items() if key in found}
    wrong = sorted({key[0] for key, _ in written.items() ^ found.items()})
    text = "the changes of all groups follow from their records"
    if wrong:
        text = (
            f"the rows of {len(wrong):,} groups in `groups`, such as {wrong[0]}, do not follow from their "
            "records: read the cluster into new tables"
        )
    return CheckResult("groups", cluster, not wrong, text)


def _keep_newest(
    rows: dict[tuple[str, int], tuple[object, ...]],
) -> dict[tuple[str, int], tuple[object, ...]]:
    newest = {key[0]: key for key in sorted(rows)}
    return {(group, 0): rows[key] for group, key in newest.items()}


def check_commits(tables: Tables, plans: Sequence[Plan]) -> CheckResult:
    """Fails if the newest sample has other offsets than `records`, or than were sampled."""
    cluster = plans[-1].cluster
    sampled = [plan for plan in plans[:-1] if plan.sampled_at is not None and plan.sample is not None]
    name, text = "lag", "the newest sample has the newest commits and the sampled offsets"
    if not sampled:
        return CheckResult(name, cluster, True, "there is no complete sample yet")
    plan = sampled[-1]
    assert plan.sample is not None
    offsets = tables.spark.createDataFrame(Sample.decode(plan.sample).rows).withColumnRenamed(
        "end_offset", "sampled"
    )
    rows = tables.cluster_frame("lag", cluster).where(f"number = {plan.number} AND type <> 'share'")
    commits = tables.cluster_frame("records", cluster).where(f"number <= {plan.number}")
    commits = commits.where(commits["kind"].isin(*COMMITS))
    slot = ["group", "topic", "partition"]
    newest = tables.spark.sql(
        "SELECT `group`, topic, partition, max_by(committed, log_offset) newest FROM {commits} "
        "GROUP BY `group`, topic, partition",
        commits=commits,
    )
    joined = rows.join(newest, slot, "left").join(
        offsets.select("topic", "partition", "sampled"), slot[1:], "left"
    )
    is_wrong = "(newest IS NOT NULL AND committed <> newest) OR NOT end_offset <=> sampled"
    wrong = joined.where(is_wrong).where("NOT array_contains(reasons, 'commits_not_current')").count()
    if wrong:
        text = f"{wrong:,} rows of the newest sample do not have the newest commit, or the sampled end offset"
    return CheckResult(name, cluster, not wrong, text)


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


def check_against_log(plans: Sequence[Plan], ends: dict[int, int], max_behind: int) -> CheckResult:
    """Fails if the tables have offsets that the log has not, or are behind by more than `max_behind`."""
    cluster, read = plans[-1].cluster, plans[-1].nexts
    beyond = {p: (end, ends[p]) for p, end in read.items() if p in ends and end > ends[p]}
    behind = plans[-1].count_behind(ends)
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
