"""`--listen`: the daemon's server and tracker, with the newest state of the tables."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from koff.lag import UNKNOWN, Reason
from koff.serve import ClusterView, MonitorStats, Readiness, ServeConf, Server, Views
from koff.spark.job.cluster_stream import Progress
from koff.spark.tables.schemas import Tables
from koff.tracker import Snapshot, State, Tracker
from koff.tracker.groups import GroupTable
from koff.tracker.recent_commits import WindowTable
from koff.tracker.topic_partitions import fold_topic_id

if TYPE_CHECKING:
    from koff.spark.job.job import Job

log = structlog.get_logger(component="spark.job")
REPLAYED_S = 3600.0
"""The history of end offsets that is loaded when serving begins."""
STALE_INTERVALS = 5
"""Lag is not served if the newest sample is older than this many sampling intervals (of at least 5 s)."""


class TableView:
    """A `ViewSource` of one cluster: a tracker, filled from `current`, `group_states` and `end_offsets`.

    One thread may call `apply_batch` while others take views.
    """

    def __init__(self, cluster: str, interval_s: float) -> None:
        self._cluster = cluster
        self._limit_s = STALE_INTERVALS * max(interval_s, 5.0)
        self._lock = threading.Lock()  # guards all below: a view must not show half a batch
        self._tracker = Tracker()
        self._records: dict[str, int] = {}
        self._behind: int | None = None
        self._sampled_at: float | None = None
        self._applied_until: Any = None
        """The time of the newest sample that the tracker has."""

    def take_views(self) -> Views:
        """The view of the cluster."""
        return Views.from_one(self.take_view())

    def take_view(self) -> ClusterView:
        """What may be served now. No lag is, if the newest sample of end offsets is stale."""
        with self._lock:
            snapshot = self._tracker.take_snapshot(time.time_ns() // 1_000_000)
            age_s = None if self._sampled_at is None else time.monotonic() - self._sampled_at
            records, behind = dict(self._records), self._behind
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
        )
        return ClusterView(self._cluster, snapshot, readiness, stats)

    def find_stall(self) -> str | None:
        """None: a job that fails ends the process, and a batch may take as long as it needs."""
        return None

    def apply_batch(self, done: Progress, tables: Tables) -> None:
        """Brings the tracker up to the tables, after the batch `done` was written."""
        with self._lock:
            self._records["OffsetCommit"] = self._records.get("OffsetCommit", 0) + done.commits
            self._behind = done.behind
        if done.sampled is None:
            return  # new commits wait for the next sample: lag needs both from about the same time

        # Commits and groups by partition of the offsets topic, because the tracker restores whole partitions.
        commits: dict[int, list[Any]] = {}
        for row in tables.cluster_frame("current", self._cluster).where("NOT deleted").collect():
            commits.setdefault(row.offsets_partition, []).append(row)
        groups: dict[int, dict[str, Any]] = {}
        for row in tables.cluster_frame("group_states", self._cluster).collect():
            saved = json.loads(row.saved)["groups"] if row.saved else {}
            groups.setdefault(row.offsets_partition, {}).update(saved)
        states = {
            partition: _build_state(commits.get(partition, []), groups.get(partition, {}))
            for partition in commits.keys() | groups.keys()
        }
        samples, newest = self._collect_samples(tables)

        # All was read: Spark is not waited for while the lock is held.
        with self._lock:
            for partition, state in states.items():
                self._tracker.restore_partition(partition, state)
            for at_ms, sample in sorted(samples.items()):
                self._apply_sample(at_ms, sample)
            self._applied_until = newest
            self._sampled_at = time.monotonic()

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
            self._tracker.forget_offsets(absent, gone=gone)
        self._tracker.add_samples(ends=ends, starts=starts, stables=stables, at_ms=at_ms)

    def _assess_readiness(self, age_s: float | None, behind: int | None) -> Readiness:
        """Ready when the stream has caught up and the newest sample of end offsets is not stale."""
        if age_s is None:
            left = "" if behind is None else f", {behind} offsets behind"
            return Readiness(False, f"not ready: reading the log{left}")
        if age_s > self._limit_s:
            return Readiness(False, f"not ready: the end offsets are {age_s:.0f} s old")
        return Readiness(True, "ready")


def _withhold_ends(snapshot: Snapshot) -> Snapshot:
    """The snapshot without all that depends on end offsets: none of them is fresh."""
    bits = {
        number: np.where(snapshot.lags(shard).known, Reason.END_NOT_CURRENT, 0).astype(np.uint8)
        for number, shard in snapshot.shards.items()
    }
    return snapshot.withhold(bits, {}, np.ones(len(snapshot.partitions.partition), np.bool_))


def _build_state(rows: list[Any], groups: dict[str, Any]) -> State:
    """The state of one partition of the offsets topic, as the tracker restores it.

    `rows` are rows of `current`; `groups` maps a group to its saved state.
    """
    # Groups and topics are numbers in a state: their place in the lists of names.
    group_names, topic_names = sorted({row["group"] for row in rows}), sorted({row.topic for row in rows})
    group_numbers = {name: number for number, name in enumerate(group_names)}
    topic_numbers = {name: number for number, name in enumerate(topic_names)}

    # The last commits of each slot. `recent` has the newest first, the window takes the oldest first.
    windows = WindowTable()
    windows.resize(len(rows))
    recent = [(number, *commit) for number, row in enumerate(rows) for commit in reversed(row.recent or ())]
    if recent:
        numbers, at_ms, committed, lag = zip(*recent, strict=True)
        lags = [UNKNOWN if value is None else value for value in lag]
        windows.add(*(np.array(column, np.int64) for column in (numbers, committed, at_ms, lags)))

    # One entry for each slot. The types are those of the tracker's columns.
    committed_at = [_to_ms(row.commit_timestamp) for row in rows]
    columns: dict[str, Any] = {
        "group": np.array([group_numbers[row["group"]] for row in rows], np.int32),
        "topic": np.array([topic_numbers[row.topic] for row in rows], np.int32),
        "partition": np.array([row.partition for row in rows], np.int32),
        "committed": np.array([row.committed for row in rows], np.int64),
        "committed_at": np.array(committed_at, np.int64),
        "topic_id": np.array([fold_topic_id(row.topic_id or "") for row in rows], np.int64),
        "seen_at": np.array([_to_ms(row.timestamp) for row in rows], np.int64),
    }
    group_state = {**GroupTable().to_state(), "groups": groups}
    facts = {"groups": group_state, "group_names": group_names, "topic_names": topic_names}
    return State(facts, columns | windows.save(np.arange(len(rows))))


def _to_ms(at: Any) -> int:
    return UNKNOWN if at is None else round(at.timestamp() * 1000)


@contextmanager
def serve_tables(listen: str, job: Job, tables: Tables) -> Iterator[Server | None]:
    """Serves the job's newest state inside this block, and yields the server. If `listen` is "", yields None.

    It serves the first cluster of the job. Enter it before `job.run`: it replaces `job.progress`.
    """
    if not listen:
        yield None
        return
    view = TableView(job.names[0], job.conf.interval_s)
    report_progress = job.progress

    def apply_progress(done: Progress) -> None:
        view.apply_batch(done, tables)
        report_progress(done)

    with Server(view, ServeConf(listen)) as server:
        job.progress = apply_progress
        log.info("listening", url=server.url)
        yield server
