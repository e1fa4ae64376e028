"""The job: one thread for each cluster, all into the same tables. It starts, restarts and stops them."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import structlog

from koff.client.cluster import Cluster
from koff.config.clusters import WatchedCluster
from koff.errors import ConnectError, KoffError
from koff.spark.job.cluster_job import ClusterJob, PipelineConf, Progress
from koff.spark.tables.delta_tables import Tables
from koff.spark.worker_errors import (
    WorkerLost,
    find_koff_error,
    is_java_gone,
    make_java_error,
    summarize_error,
)

log = structlog.get_logger(component="spark.job")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""The pause before a cluster is tried again; it doubles while the cluster cannot be reached."""
STOP_S = 20.0
"""How long running batches may take to end after a request to stop."""


def log_progress(done: Progress) -> None:
    """Logs one line for the batch."""
    log.info(
        "batch",
        cluster=done.cluster,
        batch=done.batch,
        records=done.records,
        records_per_s=round(done.records / done.seconds) if done.seconds else 0,
        behind=done.behind,
        seconds=round(done.seconds, 2),
        **({} if done.sampled is None else {"sampled": done.sampled}),
    )


class Job:
    """Runs the pipeline for some clusters. Use it as a context manager: the exit closes the connections.

    The entry connects to all clusters, so that an error is found before anything is written. It raises
    `ConnectError` or `ConfigError` with the cluster's name. `progress` is called after each batch, in the
    thread of its cluster.
    """

    def __init__(
        self,
        clusters: Sequence[WatchedCluster],
        conf: PipelineConf | None = None,
        progress: Callable[[Progress], None] = log_progress,
    ) -> None:
        self.conf = conf or PipelineConf()
        self._watched, self.progress = clusters, progress
        self._open = ExitStack()
        self._clusters: list[Cluster] = []
        self._stopping = threading.Event()
        self.stopped = False
        """Whether `stop` was called."""
        self._jobs: list[ClusterJob] = []
        self.errors: dict[str, KoffError] = {}
        """By name of a cluster that is down for good: why."""
        self.failures = Counter[str]()
        """By name of a cluster: how often it has failed."""
        self.why_down: dict[str, str] = {}
        """By name of a cluster that is not read now: why. (Any thread may read it.)"""
        self._pauses_s: dict[str, float] = defaultdict(lambda: FIRST_PAUSE_S)
        self._gone: KoffError | None = None
        self.names: list[str] = []

    def __enter__(self) -> Job:
        for watched in self._watched:
            cluster = self._open.enter_context(Cluster(watched.conf))
            try:
                cluster.connect()
            except KoffError as error:
                self._open.close()  # __exit__ is not called when __enter__ raises
                raise type(error)(f"cluster {watched.name or watched.conf.brokers}: {error}") from error
            self._clusters.append(cluster)
            self.names.append(watched.name or cluster.id)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def stop(self) -> None:
        """Makes `run` return soon. May be called from a signal handler."""
        self.stopped = True
        self._stopping.set()

    def count_progress(self) -> tuple[int, int]:
        """How many offsets are read and how many there are in all, of all clusters. Only with `once`."""
        return sum(each.done for each in self._jobs), sum(each.todo for each in self._jobs)

    def run(self, tables: Tables) -> None:
        """Runs until `stop` is called, or with `once` until all clusters are done.

        An error of a cluster affects no other one. If a cluster cannot be reached, or a Python process of
        Spark was killed, it is tried again after a pause; with `once`, or after another error, it stays down.
        When all are done or down, the first error is raised as `KoffError`.
        """
        for number, (watched, cluster) in enumerate(zip(self._watched, self._clusters, strict=True)):
            conf = self.conf
            if number:  # files are deleted in whole tables: one cluster is enough for that
                conf = replace(conf, maintain=replace(conf.maintain, vacuum=False))
            self._jobs.append(ClusterJob(tables, watched, cluster, conf, self._report, self._stopping))
        threads = [
            threading.Thread(target=self._keep_running, args=(each,), name=f"koff-{each.name}", daemon=True)
            for each in self._jobs
        ]
        for thread in threads:
            thread.start()
        while (running := [each for each in threads if each.is_alive()]) and self._gone is None:
            running[0].join(0.2)
            if self._stopping.is_set():
                break
        self._stopping.set()
        # A batch that is interrupted is completed by the next run.
        deadline = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._gone is not None:
            raise self._gone
        if self.errors:
            raise next(iter(self.errors.values()))

    def _report(self, done: Progress) -> None:
        self.progress(done)

    def _keep_running(self, job: ClusterJob) -> None:
        while not self._stopping.is_set():
            try:
                self.why_down.pop(job.name, None)
                job.run()
            except Exception as error:
                if self._stopping.is_set() or not self._handle_error(job, error):
                    return
            else:
                return

    def _handle_error(self, job: ClusterJob, raised: Exception) -> bool:
        """Whether the cluster is to be tried again: waits before that."""
        if is_java_gone(raised):
            self._gone = make_java_error()
            return False
        error = self._find_error(job.name, raised)
        self.failures[job.name] += 1
        self.why_down[job.name] = str(error)
        if self.conf.once or not isinstance(error, ConnectError | WorkerLost):
            self.errors[job.name] = error
            if len(self._jobs) > 1:
                log.error("a cluster is down: the others go on", cluster=job.name, why=str(error))
            return False
        # The pause doubles until a batch was written.
        pause_s = FIRST_PAUSE_S if job.batches else min(2 * self._pauses_s[job.name], LONGEST_PAUSE_S)
        self._pauses_s[job.name] = pause_s
        what = "a batch has failed" if isinstance(error, WorkerLost) else "cannot reach the cluster"
        log.warning(f"{what}: trying again later", cluster=job.name, why=str(error), pause_s=pause_s)
        self._stopping.wait(pause_s)
        return not self._stopping.is_set()

    @staticmethod
    def _find_error(name: str, raised: Exception) -> KoffError:
        """The error in one line."""
        found = find_koff_error(raised) or KoffError(
            f"cluster {name}: Spark failed: {summarize_error(raised)}"
        )
        if isinstance(found, WorkerLost):
            found = WorkerLost(f"cluster {name}: {found}")
        if found is not raised:
            found.__cause__ = raised
        return found
