"""What `--listen` serves of one cluster: the daemon's tracker, with the newest state of the tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from koff.lag import Reason
from koff.serve.events.changes import ClusterChanges, look_at
from koff.spark.job.cluster_stream import Progress
from koff.spark.job.saved_rows import Slot, StateChange
from koff.spark.tables.coverage import select_offsets
from koff.spark.tables.schemas import Tables
from koff.tracker import ShareLag, Snapshot, Tracker
from koff.tracker.commit_rows import DESCRIBED
from koff.view.cluster_view import ClusterView, MonitorStats, PipelineStats, Readiness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPLAYED_S = 3600.0
"""The history of end offsets that is loaded when serving begins."""
_NO_END = 2**63 - 1


class TableView:
    """The view of one cluster: a tracker, filled from `current`, `group_states` and `end_offsets`.

    Lag is not served if the newest sample is older than `limit_s`. One thread may call `apply_batch` while
    others take views.
    """

    def __init__(self, cluster: str, limit_s: float) -> None:
        self._cluster, self._limit_s = cluster, limit_s
        self._lock = threading.Lock()  # guards all below: a view must not show half a batch
        self._tracker, self._changes = Tracker(), ClusterChanges()
        self._records: dict[str, int] = {}
        self._behind: int | None = None
        self._sampled_at: float | None = None
        self._applied_until: Any = None
        """The time of the newest sample that the tracker has."""
        self._pipeline = PipelineStats(running=True)
        self._why_down = ""
        self._unknown_shares: set[Slot] = set()
        """The slots of share groups whose coordinators did not return the lag."""
        # By table and partition of the offsets topic: the log offset up to which the tracker has its rows.
        # Only the thread that applies batches uses this.
        self._read_to: dict[str, dict[int, int]] = {"current": {}, "group_states": {}}

    def take_view(self) -> ClusterView:
        """What may be served now. No lag is, if the newest sample of end offsets is stale."""
        with self._lock:
            snapshot = self._tracker.take_snapshot(time.time_ns() // 1_000_000)
            snapshot = _withhold_shares(snapshot, self._unknown_shares)
            age_s = None if self._sampled_at is None else time.monotonic() - self._sampled_at
            records, behind, pipeline = dict(self._records), self._behind, self._pipeline
            readiness = self._assess_readiness(age_s, behind)
        rows = sum(int(snapshot.lags(shard).known.sum()) for shard in snapshot.shards.values())
        if not readiness.ready:
            snapshot = _withhold_ends(snapshot)
        stats = MonitorStats(
            records=records,
            behind=behind,
            input_ages_s={} if age_s is None else {"end_offsets": age_s},
            rows=rows,
            withheld=snapshot.withheld_rows(),
            up=readiness.ready,
            pipeline=pipeline,
        )
        view = ClusterView(self._cluster, snapshot, readiness, stats)
        with self._lock:
            return look_at(view, self._changes, snapshot.now_ms or 0)[0]

    @property
    def is_starting(self) -> bool:
        """Whether the stream runs and has no sample yet."""
        with self._lock:
            return self._sampled_at is None and not self._why_down

    def note_stream(self, failures: int, why_down: str | None) -> None:
        """Notes how often the stream has failed, and why it does not run now (None: it runs)."""
        with self._lock:
            self._why_down = why_down or ""
            self._pipeline = replace(self._pipeline, running=why_down is None, failures=failures)

    def apply_batch(self, done: Progress, tables: Tables) -> None:
        """Brings the tracker up to the tables, after the batch `done` was written."""
        with self._lock:
            self._records["OffsetCommit"] = self._records.get("OffsetCommit", 0) + done.commits
            self._behind = done.behind
            self._pipeline = replace(
                self._pipeline,
                batches=self._pipeline.batches + 1,
                records=self._pipeline.records + done.records,
                last_batch_s=round(time.time(), 3),
                last_batch_took_s=round(done.seconds, 3),
            )
        if done.sampled is None:
            return  # new commits wait for the next sample: lag needs both from about the same time
        samples, newest = self._collect_samples(tables)
        changes = self._collect_changes(tables)  # last: it notes what was read, so nothing may fail after it

        # All was read: Spark is not waited for while the lock is held.
        with self._lock:
            for partition, change in changes.items():
                # The tracker restores whole partitions, because its state of a partition is one object.
                before = self._tracker.save_partition(partition)
                self._tracker.restore_partition(partition, change.apply(before))
            for at_ms, sample in sorted(samples.items()):
                self._apply_sample(at_ms, sample)
            self._apply_shares(done)
            self._applied_until = newest
            age_s = (datetime.now(UTC) - done.sampled_at).total_seconds() if done.sampled_at else 0.0
            self._sampled_at = time.monotonic() - max(0.0, age_s)

    def _collect_changes(self, tables: Tables) -> dict[int, StateChange]:
        """What has changed in the partitions of the offsets topic since the last call.

        Only rows come to the driver that are newer than those it has: each change of a row of `current` or
        `group_states` has a larger log offset. A partition without rows so far may have taken groups from
        others, because the offsets topic has more partitions now: then all rows are collected.
        """
        commits, groups = (self._collect_new(tables, name) for name in self._read_to)
        known = self._read_to["current"].keys() | self._read_to["group_states"].keys()
        if known and (commits.keys() | groups.keys()) - known:
            self._read_to = {name: {} for name in self._read_to}
            gone = {partition: StateChange.from_rows([], []) for partition in known}
            return gone | self._collect_changes(tables)
        for name, found in zip(self._read_to, (commits, groups), strict=True):
            for partition, rows in found.items():
                self._read_to[name][partition] = max(row.log_offset for row in rows)
        return {
            partition: StateChange.from_rows(
                commits.get(partition, ()), groups.get(partition, ()), is_whole=partition not in known
            )
            for partition in commits.keys() | groups.keys()
        }

    def _collect_new(self, tables: Tables, name: str) -> dict[int, list[Any]]:
        """The rows of the table that the tracker does not have, by partition of the offsets topic."""
        found: dict[int, list[Any]] = {}
        for row in self._select_new(tables.cluster_frame(name, self._cluster), name).collect():
            found.setdefault(row.offsets_partition, []).append(row)
        return found

    def _select_new(self, frame: DataFrame, name: str) -> DataFrame:
        from pyspark.sql import functions as f

        read_to = self._read_to[name]
        if not read_to:
            return frame.where("NOT deleted") if name == "current" else frame
        is_new = select_offsets({partition: [(at + 1, _NO_END)] for partition, at in read_to.items()})
        return frame.where(is_new | ~f.col("offsets_partition").isin([*read_to]))

    def _collect_samples(self, tables: Tables) -> tuple[dict[int, list[Any]], Any]:
        """All samples that the tracker does not have, by time in ms, and the time of the newest.

        At first, these are the samples of the last `REPLAYED_S`.
        """
        from pyspark.sql import functions as f

        # With the condition on `day`, Delta reads only the files of these days.
        ends = tables.cluster_frame("end_offsets", self._cluster)
        newest = ends.where(f.col("day") >= f.date_sub(f.current_date(), 1)).agg(f.max("at")).first()
        if newest is None or newest[0] is None:
            return {}, self._applied_until
        since = self._applied_until or newest[0] - timedelta(seconds=REPLAYED_S)
        rows = ends.where((f.col("at") > since) & (f.col("day") >= f.date_sub(f.current_date(), 1)))
        samples: dict[int, list[Any]] = {}
        for row in rows.withColumn("at_ms", f.unix_millis("at")).collect():
            samples.setdefault(row.at_ms, []).append(row)
        return samples, newest[0]

    def _apply_sample(self, at_ms: int, rows: list[Any]) -> None:
        row_of = {(row.topic, row.partition): row for row in rows}

        def select_known(name: str) -> dict[tuple[str, int], int]:
            return {key: row[name] for key, row in row_of.items() if row[name] is not None}

        # The ids come first: the tracker drops the history of a topic that was created again.
        self._tracker.identify_topics({row.topic: row.topic_id for row in rows if row.topic_id})
        ends, starts, stables = (
            select_known(name) for name in ("end_offset", "start_offset", "stable_offset")
        )
        for gone in (True, False):
            absent = [key for key, row in row_of.items() if row.end_offset is None and bool(row.gone) is gone]
            self._tracker.partitions.forget_offsets(absent, gone=gone)
        self._tracker.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)

    def _apply_shares(self, done: Progress) -> None:
        """Replaces the lags of all share groups."""
        if not (done.shares or self._tracker.shares.described_ms):
            return
        lags = {
            group: [ShareLag(row.topic, row.topic_id or "", row.partition, row.lag) for row in rows]
            for group, rows in done.shares.items()
        }
        self._tracker.set_offsets_partitions(done.offsets_partitions)
        self._tracker.shares.describe(lags, requested_ms=time.time_ns() // 1_000_000)
        self._unknown_shares = {row[:3] for rows in done.shares.values() for row in rows if row.not_current}

    def _assess_readiness(self, age_s: float | None, behind: int | None) -> Readiness:
        """Ready when the stream has caught up and the newest sample of end offsets is not stale."""
        down = f"; the stream is down: {self._why_down}" if self._why_down else ""
        if age_s is None:
            left = "" if behind is None else f", {behind} offsets behind"
            return Readiness(False, f"not ready: reading the log{left}{down}")
        if age_s > self._limit_s:
            return Readiness(False, f"not ready: the end offsets are {age_s:.0f} s old{down}")
        return Readiness(True, f"ready{down}")


def _withhold_shares(snapshot: Snapshot, slots: Collection[Slot]) -> Snapshot:
    """The snapshot without the lags of share groups in these slots."""
    if not slots:
        return snapshot
    topics, numbers = snapshot.partitions.topic, snapshot.partitions.partition
    bits = {}
    for number, shard in snapshot.shards.items():
        if shard.share_lag is None:
            continue
        bits[number] = np.zeros(len(shard.committed), np.uint8)
        for row in np.flatnonzero(shard.share_partition == DESCRIBED).tolist():
            at = shard.partition[row]
            if (shard.groups[shard.group[row]].name, topics[at], int(numbers[at])) in slots:
                bits[number][row] = Reason.COMMITS_NOT_CURRENT
    return snapshot.withhold(bits, {})


def _withhold_ends(snapshot: Snapshot) -> Snapshot:
    """The snapshot without all that depends on end offsets: none of them is fresh."""
    bits = {}
    for number, shard in snapshot.shards.items():
        old = np.where(snapshot.lags(shard).known, Reason.END_NOT_CURRENT, 0).astype(np.uint8)
        bits[number] = old if shard.withheld is None else old | shard.withheld
    return snapshot.withhold(bits, {}, np.ones(len(snapshot.partitions.partition), np.bool_))
