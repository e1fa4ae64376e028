"""`--listen`: the daemon's server with the views of all clusters of a job, and the sizes of the tables."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from koff.lag import Reason
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.spark.job.cluster_job import Progress
from koff.spark.job.table_status import read_file_sizes
from koff.spark.tables.delta_tables import Tables
from koff.spark.worker_errors import summarize_error
from koff.tracker import Snapshot, Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, PipelineStats, Readiness, StoredTable, Views

if TYPE_CHECKING:
    from koff.spark.job.job import Job

log = structlog.get_logger(component="spark.job")
FIRST_SIZES_S, SIZES_S = 60.0, 600.0
"""The time between two looks at the sizes of the tables. At the first look, new tables are empty."""


class TableView:
    """The view of one cluster: that of its newest sample. Its lags are not served after `limit_s`."""

    def __init__(self, cluster: str, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()  # guards all below
        self._view = ClusterView(cluster, Tracker().take_snapshot(), Readiness(False, ""), MonitorStats())
        self._sampled_s: float | None = None
        self._counts: Counter[str] = Counter()
        self._behind: int | None = None
        self._pipeline = PipelineStats(running=True)
        self._why_down = ""

    @property
    def is_starting(self) -> bool:
        """Whether the cluster is read and has no sample yet."""
        with self._lock:
            return self._sampled_s is None and not self._why_down

    def note_job(self, failures: int, why_down: str | None) -> None:
        """Notes how often the cluster has failed, and why it is not read now (None: it is)."""
        with self._lock:
            self._why_down = why_down or ""
            self._pipeline = replace(self._pipeline, running=why_down is None, failures=failures)

    def apply_batch(self, done: Progress) -> None:
        """Takes over the view of a batch."""
        with self._lock:
            self._behind = done.behind
            self._counts.update({"OffsetCommit": done.commits, "": done.records})
            self._pipeline = replace(
                self._pipeline,
                batches=self._pipeline.batches + 1,
                records=self._counts[""],
                last_batch_s=round(time.time(), 3),
                last_batch_took_s=round(done.seconds, 3),
            )
            if done.view is not None and done.sampled_at is not None:
                self._view = done.view
                self._sampled_s = time.monotonic() - max(0.0, time.time() - done.sampled_at.timestamp())

    def take_view(self) -> ClusterView:
        """What may be served now. No lag is, if the newest sample is stale."""
        with self._lock:
            age_s = None if self._sampled_s is None else time.monotonic() - self._sampled_s
            readiness, snapshot = self._assess_readiness(age_s), self._view.snapshot
            rows = sum(int(snapshot.lags(shard).known.sum()) for shard in snapshot.shards.values())
            if not readiness.ready:
                snapshot = _withhold_ends(snapshot)
            stats = replace(
                self._view.stats,
                records={"OffsetCommit": self._counts["OffsetCommit"]},
                behind=self._behind,
                input_ages_s={} if age_s is None else {"end_offsets": age_s},
                rows=rows,
                withheld=snapshot.withheld_rows(),
                up=readiness.ready,
                pipeline=self._pipeline,
            )
            return replace(self._view, snapshot=snapshot, readiness=readiness, stats=stats)

    def _assess_readiness(self, age_s: float | None) -> Readiness:
        down = f"; the cluster is not read: {self._why_down}" if self._why_down else ""
        if age_s is None:
            left = "" if self._behind is None else f", {self._behind} offsets behind"
            return Readiness(False, f"not ready: reading the log{left}{down}")
        if age_s > self._limit_s:
            return Readiness(False, f"not ready: the end offsets are {age_s:.0f} s old{down}")
        return Readiness(True, f"ready{down}")


def _withhold_ends(snapshot: Snapshot) -> Snapshot:
    """The snapshot without all that depends on end offsets: none of them is fresh."""
    bits = {}
    for number, shard in snapshot.shards.items():
        old = np.where(snapshot.lags(shard).known, Reason.END_NOT_CURRENT, 0).astype(np.uint8)
        bits[number] = old if shard.withheld is None else old | shard.withheld
    return snapshot.withhold(bits, {}, np.ones(len(snapshot.partitions.partition), np.bool_))


class TableViews:
    """A `ViewSource` of all clusters of a job. The job calls `apply_batch` after each batch."""

    def __init__(self, job: Job, tables: Tables) -> None:
        self._job, self._tables = job, tables
        self._views = {name: TableView(name, job.conf.limit_s) for name in job.names}
        self._sizes: Mapping[str, StoredTable] = {}

    def apply_batch(self, done: Progress) -> None:
        """Takes over the view of a batch."""
        self._views[done.cluster].apply_batch(done)

    def look_at_sizes(self) -> None:
        """Reads the sizes of the tables. If that fails, they are unknown until the next look."""
        try:
            sizes = read_file_sizes(self._tables)
        except Exception as error:
            log.debug("the sizes of the tables are not known", why=summarize_error(error))
            self._sizes = {}
        else:
            self._sizes = {name: StoredTable(*size) for name, size in sizes.items()}

    def take_views(self) -> Views:
        """The views of all clusters. A cluster that has failed has a view, too."""
        for name, view in self._views.items():
            view.note_job(self._job.failures[name], self._job.why_down.get(name))
        views = tuple(view.take_view() for view in self._views.values())
        if len(views) == 1:
            return Views(views, views[0].readiness, self._sizes)
        ready = sum(view.readiness.ready for view in views)
        # As in the daemon: a cluster that is down does not make the others wait.
        is_ready = ready > 0 and not any(view.is_starting for view in self._views.values())
        head = f"{'ready' if is_ready else 'not ready'}: {ready} of {len(views)} clusters"
        lines = [head, *(f"{view.cluster}: {view.readiness.text}" for view in views)]
        return Views(views, Readiness(is_ready, "\n".join(lines)), self._sizes)

    def find_stall(self) -> str | None:
        """None: a job that fails ends the process, and a batch may take as long as it needs."""
        return None


@contextmanager
def serve_tables(listen: str, job: Job, tables: Tables) -> Iterator[Server | None]:
    """Serves the job's newest views inside this block, and yields the server. If `listen` is "", yields None.

    Enter it before `job.run`: it replaces `job.progress`.
    """
    if not listen:
        yield None
        return
    views = TableViews(job, tables)
    report_progress = job.progress

    def apply_progress(done: Progress) -> None:
        views.apply_batch(done)
        report_progress(done)

    with Server(views, ServeConf(listen)) as server, _call_regularly(views.look_at_sizes):
        job.progress = apply_progress
        log.info("listening", url=server.url)
        yield server


@contextmanager
def _call_regularly(work: Callable[[], None]) -> Iterator[None]:
    """Calls `work` now and again, in a thread of its own, until the block ends."""
    ended = threading.Event()

    def call() -> None:
        work()
        pause_s = FIRST_SIZES_S
        while not ended.wait(pause_s):
            work()
            pause_s = SIZES_S

    # A daemon: a look that hangs in Spark must not keep the process from ending.
    thread = threading.Thread(target=call, name="koff-table-sizes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
