"""The job: one stream for each cluster, all into the same tables. It starts, restarts and stops streams."""

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
from koff.spark.job.cluster_stream import ClusterStream, PipelineConf, Progress
from koff.spark.rows.decoding import DataLost
from koff.spark.tables.leases import Lease, hold_leases
from koff.spark.tables.schemas import TABLES, Tables
from koff.spark.worker_errors import (
    WorkerLost,
    find_koff_error,
    is_java_gone,
    make_java_error,
    summarize_error,
)

log = structlog.get_logger(component="spark.job")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""The pause before a stream is started again; it doubles while the cluster cannot be reached."""


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
    `ConnectError` or `ConfigError` with the cluster's name. `progress` is called after each batch, in a
    thread of its stream.
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
        self._streams: list[ClusterStream] = []
        self.errors: dict[int, KoffError] = {}
        """By number of a cluster that is down for good: why."""
        self._retries: dict[int, float] = {}
        """By number of a stream that has failed: when to start it again (monotonic)."""
        self._pauses_s: dict[int, float] = defaultdict(lambda: FIRST_PAUSE_S)
        self.failures = Counter[str]()
        """By name of a cluster: how often its stream has failed."""
        self.why_down: dict[str, str] = {}
        """By name of a cluster whose stream does not run now: why. (Any thread may read it.)"""
        self._leases: dict[str, Lease] = {}
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
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def count_progress(self) -> tuple[int, int]:
        """How many offsets are done and how many there are in all, of all clusters. Only with `once`."""
        counters = [stream.counter for stream in self._streams]
        return sum(counter.done for counter in counters), sum(counter.todo for counter in counters)

    def run(self, tables: Tables) -> None:
        """Runs until `stop` is called, or with `once` until all streams are done.

        A stream with an error affects no other stream. If its cluster cannot be reached, or a Python process
        of Spark was killed, it is started again after a pause; with `once`, or after another error, it stays
        down. When all streams are done or down, the first error is raised as `KoffError`. Raises `LeaseHeld`
        if another process writes a cluster.
        """
        with hold_leases(tables, self.names, "a job") as self._leases:
            self._run_streams(tables)

    def _run_streams(self, tables: Tables) -> None:
        self._pairs = list(zip(self._watched, self._clusters, strict=True))
        # `fresh`: all tables were just made, so no stream has to search them for rows. It holds only for the
        # first start: from now on the tables get rows.
        fresh = tables.new_tables.issuperset(TABLES)
        tables.new_tables.clear()
        streams = self._streams
        try:
            for number in range(len(self._pairs)):
                if not self.stopped:
                    streams.append(self._start_stream(tables, number, fresh=fresh))
            while not self._stopping.wait(0.2):
                for number, stream in enumerate(streams):
                    if not stream.done and number not in self.errors:
                        self._watch_stream(tables, number, stream)
                if all(stream.done or number in self.errors for number, stream in enumerate(streams)):
                    break
        finally:
            # First ask all streams to stop, so that their last batches end at the same time.
            for stream in streams:
                stream.request_stop()
            for stream in streams:
                stream.stop()
        if self.errors and not self.stopped:
            raise next(iter(self.errors.values()))

    def _watch_stream(self, tables: Tables, number: int, stream: ClusterStream) -> None:
        """Starts the stream again if its pause is over, or decides what happens when it has ended."""
        if number in self._retries:
            if time.monotonic() >= self._retries[number]:
                self._restart_stream(tables, number, stream)
        elif not stream.alive:
            error = self._find_error(stream)
            if self.conf.once or not isinstance(error, ConnectError | WorkerLost):
                self._note_down(number, stream, error)
            else:
                self._plan_retry(number, stream, error)

    def _note_down(self, number: int, stream: ClusterStream, error: KoffError) -> None:
        self.errors[number] = error
        self._note_failure(number, error)
        if isinstance(error, DataLost):
            stream.write_unknown_lag()
        if len(self._pairs) > 1:
            log.error("a cluster is down: the others go on", cluster=stream.name, why=str(error))

    def _note_failure(self, number: int, error: KoffError) -> None:
        name = self.names[number]
        self.failures[name] += 1
        self.why_down[name] = str(error)

    def _plan_retry(self, number: int, stream: ClusterStream, error: ConnectError | WorkerLost) -> None:
        self._note_failure(number, error)
        # The pause doubles until a stream has written a batch.
        pause_s = FIRST_PAUSE_S if stream.batches else min(2 * self._pauses_s[number], LONGEST_PAUSE_S)
        self._pauses_s[number] = pause_s
        self._retries[number] = time.monotonic() + pause_s
        log.warning(
            "the stream has failed: trying again later"
            if isinstance(error, WorkerLost)
            else "cannot reach the cluster: trying again later",
            cluster=stream.name,
            why=str(error),
            pause_s=pause_s,
        )

    def _start_stream(self, tables: Tables, number: int, *, fresh: bool = False) -> ClusterStream:
        lease, conf = self._leases[self.names[number]], self.conf
        if number:  # files are deleted in whole tables: one stream is enough for that
            conf = replace(conf, maintain=replace(conf.maintain, vacuum=False))
        stream = ClusterStream(
            tables,
            *self._pairs[number],
            conf,
            self.progress,
            lease,
            fresh=fresh,
        )
        stream.start()
        return stream

    def _restart_stream(self, tables: Tables, number: int, failed: ClusterStream) -> None:
        """Replaces the failed stream by a new one, or plans a later retry if the cluster is still down."""
        del self._retries[number]
        try:
            self._streams[number] = self._start_stream(tables, number)
            self.why_down.pop(self.names[number], None)
        except ConnectError as error:
            failed.batches = 0
            self._plan_retry(number, failed, error)
        except KoffError as error:
            self._note_down(number, failed, error)

    def _find_error(self, stream: ClusterStream) -> KoffError:
        """Why the stream has ended, in one line. Raises the error if no other stream can go on, too."""
        error = stream.exception()
        if error is None:
            return KoffError(
                f"cluster {stream.name}: the Spark query ended without an error: start the job again, and "
                "check the log of Spark"
            )
        if is_java_gone(error):
            raise make_java_error() from error
        found = find_koff_error(error) or KoffError(
            f"cluster {stream.name}: Spark failed: {summarize_error(error)}"
        )
        if isinstance(found, WorkerLost):
            found = WorkerLost(f"cluster {stream.name}: {found}")
        if found is not error:
            found.__cause__ = error
        return found
