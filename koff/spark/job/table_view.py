"""`--listen`: the metrics of the tables' newest state, by the daemon's own code."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from koff.lag import UNKNOWN
from koff.serve import MonitorStats, Readiness, ServeConf, Server
from koff.spark.job.cluster_stream import Progress
from koff.spark.tables.schemas import Tables
from koff.tracker import Snapshot, State, Tracker
from koff.tracker.groups import GroupTable
from koff.tracker.recent_commits import WindowTable
from koff.tracker.topic_partitions import fold_text

if TYPE_CHECKING:
    from koff.spark.job.job import Job

log = structlog.get_logger(component="spark.job")
REPLAYED_S = 3600.0
"""How much of the history of ends is looked at when serving begins."""
STALE_INTERVALS = 5


class TableView:
    """A `View` of one cluster's `current`, `group_states` and newest `end_offsets`: the tracker, seeded."""

    def __init__(self, cluster: str, interval_s: float) -> None:
        self.cluster = cluster
        self._tracker = Tracker()
        self._interval_s = interval_s
        self._records: dict[str, int] = {}
        self._behind: int | None = None
        self._sampled_at: float | None = None
        self._seen_until: Any = None

    def snapshot(self) -> Snapshot:
        """All groups."""
        return self._tracker.snapshot(time.time_ns() // 1_000_000)

    def readiness(self) -> Readiness:
        """Ready once the log was caught up with and ends were sampled, not long ago."""
        if self._sampled_at is None:
            left = "" if self._behind is None else f", {self._behind} offsets behind"
            return Readiness(False, f"not ready: reading the log{left}")
        if not self._fresh:
            return Readiness(False, f"not ready: end offsets are {self._age_s:.0f} s old")
        return Readiness(True, "ready")

    def reader_stats(self) -> MonitorStats:
        """What is known of the reading."""
        return MonitorStats(
            records=dict(self._records),
            behind=self._behind,
            end_offsets_age_s=None if self._sampled_at is None else self._age_s,
            lag_is_fresh=self._fresh,
            up=self._fresh,
        )

    def take(self, done: Progress, tables: Tables) -> None:
        """Learns what a batch has written."""
        self._records["OffsetCommit"] = self._records.get("OffsetCommit", 0) + done.commits
        self._behind = done.behind
        if done.sampled is None:
            return
        homes: dict[int, list[Any]] = {}
        for row in tables.of("current", self.cluster).where("NOT deleted").collect():
            homes.setdefault(row.offsets_partition, []).append(row)
        states: dict[int, dict[str, Any]] = {}
        for row in tables.of("group_states", self.cluster).collect():
            told = json.loads(row.saved)["groups"] if row.saved else {}
            states.setdefault(row.offsets_partition, {}).update(told)
        for home in homes.keys() | states.keys():
            self._tracker.restore(home, _state(homes.get(home, []), states.get(home, {})))
        self._take_ends(tables)
        self._sampled_at = time.monotonic()

    def _take_ends(self, tables: Tables) -> None:
        from pyspark.sql import functions as f

        ends = tables.of("end_offsets", self.cluster)
        newest = ends.where(f.col("day") >= f.date_sub(f.current_date(), 1)).agg(f.max("at")).first()
        if newest is None or newest[0] is None:
            return
        since = self._seen_until or newest[0] - timedelta(seconds=REPLAYED_S)
        rows = ends.where((f.col("at") > since) & (f.col("day") >= f.date_sub(f.current_date(), 1)))
        rounds: dict[int, list[Any]] = {}
        for row in rows.withColumn("at_ms", f.unix_millis("at")).collect():
            rounds.setdefault(row.at_ms, []).append(row)
        for at_ms, sampled in sorted(rounds.items()):
            self._take_round(at_ms, sampled)
        self._seen_until = newest[0]

    def _take_round(self, at_ms: int, rows: list[Any]) -> None:
        at = {(row.topic, row.partition): row for row in rows}

        def known(name: str) -> dict[tuple[str, int], int]:
            return {key: row[name] for key, row in at.items() if row[name] is not None}

        self._tracker.identify_topics({row.topic: row.topic_id for row in rows if row.topic_id})
        ends, starts, stables = (known(name) for name in ("end_offset", "start_offset", "stable_offset"))
        for gone in (True, False):
            absent = [key for key, row in at.items() if row.end_offset is None and bool(row.gone) is gone]
            self._tracker.forget(absent, gone=gone)
        self._tracker.sample(ends=ends, starts=starts, stables=stables, at_ms=at_ms)

    @property
    def _age_s(self) -> float:
        return time.monotonic() - (self._sampled_at or 0.0)

    @property
    def _fresh(self) -> bool:
        return self._sampled_at is not None and self._age_s <= STALE_INTERVALS * max(self._interval_s, 5.0)


def _state(rows: list[Any], groups: dict[str, Any]) -> State:
    """What a shard restores: the rows of `current` of one partition of the offsets topic, and its groups."""
    group_names, topic_names = sorted({row["group"] for row in rows}), sorted({row.topic for row in rows})
    places = {name: number for number, name in enumerate(group_names)}
    topics = {name: number for number, name in enumerate(topic_names)}
    windows = WindowTable()
    windows.resize(len(rows))
    recent = [(number, *each) for number, row in enumerate(rows) for each in reversed(row.recent or ())]
    if recent:
        row_, at_ms, committed, lag = zip(*recent, strict=True)
        lags = [UNKNOWN if each is None else each for each in lag]
        windows.add(*(np.array(column, np.int64) for column in (row_, committed, at_ms, lags)))
    at = [_ms(row.commit_timestamp) for row in rows]
    columns: dict[str, Any] = {
        "group": np.array([places[row["group"]] for row in rows], np.int32),
        "topic": np.array([topics[row.topic] for row in rows], np.int32),
        "partition": np.array([row.partition for row in rows], np.int32),
        "committed": np.array([row.committed for row in rows], np.int64),
        "committed_at": np.array(at, np.int64),
        "topic_id": np.array([fold_text(row.topic_id or "") for row in rows], np.int64),
        "seen_at": np.array([_ms(row.timestamp) for row in rows], np.int64),
    }
    told = {**GroupTable().to_state(), "groups": groups}
    facts = {"groups": told, "group_names": group_names, "topic_names": topic_names}
    return State(facts, columns | windows.save(np.arange(len(rows))))


def _ms(at: Any) -> int:
    return UNKNOWN if at is None else round(at.timestamp() * 1000)


@contextmanager
def served(listen: str, job: Job, tables: Tables) -> Iterator[Server | None]:
    """Serves what the job writes, while inside; nothing where there is no address."""
    if not listen:
        yield None
        return
    view = TableView(job.names[0], job.conf.interval_s)
    log_batch = job.progress

    def take(done: Progress) -> None:
        view.take(done, tables)
        log_batch(done)

    with Server(view, ServeConf(listen)) as server:
        job.progress = take
        log.info("listening", url=server.url)
        yield server
