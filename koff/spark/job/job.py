"""The job: a stream a cluster, all into the same tables; restarted, watched over and stopped here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from koff.client import Cluster
from koff.config.clusters import Watched
from koff.errors import ConnectError, KoffError
from koff.spark.job.batch_progress import Headway
from koff.spark.job.batch_writer import BatchWriter, Written
from koff.spark.job.cluster_stream import ClusterStream, PipelineConf, Progress
from koff.spark.source.log_segments import size
from koff.spark.spark_session import held
from koff.spark.tables.files import Into
from koff.spark.tables.schemas import TABLES, Tables
from koff.spark.worker_errors import line, named

log = structlog.get_logger(component="spark.job")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


def log_progress(done: Progress) -> None:
    """A line a batch."""
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
    """Runs the pipeline for some clusters. A context manager: connects on entry, so that what cannot be
    reached is known before anything is written."""

    def __init__(
        self,
        clusters: Sequence[Watched],
        conf: PipelineConf | None = None,
        progress: Callable[[Progress], None] = log_progress,
    ) -> None:
        self.conf = conf or PipelineConf()
        self._watched, self.progress = clusters, progress
        self._open = ExitStack()
        self._clusters: list[Cluster] = []
        self._stopping = threading.Event()
        self._streams: list[ClusterStream] = []
        self.names: list[str] = []

    def __enter__(self) -> Job:
        for watched in self._watched:
            cluster = self._open.enter_context(Cluster(watched.conf))
            try:
                cluster.connect()
            except ConnectError as failure:
                self._open.close()
                raise type(failure)(f"cluster {watched.name or watched.conf.brokers}: {failure}") from failure
            self._clusters.append(cluster)
            self.names.append(watched.name or cluster.id)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def stop(self) -> None:
        """Ends `run` soon; may be called from a signal handler."""
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self._stopping.is_set()

    def headway(self) -> tuple[int, int]:
        """How many offsets are done, `once`, and how many there were to do, in all clusters."""
        told = [stream.headway for stream in self._streams]
        return sum(each.done for each in told), sum(each.todo for each in told)

    def run(self, tables: Tables) -> None:
        """Runs until stopped, or until all is read `once`. Raises the `KoffError` of a stream that fails
        before it got anywhere; later, it is tried again, while the others go on."""
        self._pairs = list(zip(self._watched, self._clusters, strict=True))
        streams, again = self._streams, dict[int, tuple[float, float]]()
        fresh = tables.made.issuperset(TABLES)
        tables.made.clear()
        try:
            for number in range(len(self._pairs)):
                if not self.stopped:
                    streams.append(self._started(tables, number, fresh=fresh))
            while not self._stopping.wait(0.2):
                for number, stream in enumerate(streams):
                    if stream.done:
                        continue
                    if number in again and time.monotonic() >= again[number][0]:
                        pause_s = again.pop(number)[1]
                        streams[number] = self._restarted(tables, number, stream, again, pause_s)
                    elif number not in again and not stream.alive:
                        pause_s = self._pause_s(stream)
                        again[number] = (time.monotonic() + pause_s, pause_s)
                if all(stream.done for stream in streams):
                    return
        finally:
            for stream in streams:
                stream.end()
            for stream in streams:
                stream.stop()

    def _started(self, tables: Tables, number: int, *, fresh: bool = False) -> ClusterStream:
        stream = ClusterStream(tables, *self._pairs[number], self.conf, self.progress, fresh=fresh)
        stream.start()
        return stream

    def _restarted(
        self,
        tables: Tables,
        number: int,
        dead: ClusterStream,
        again: dict[int, tuple[float, float]],
        pause_s: float,
    ) -> ClusterStream:
        try:
            return self._started(tables, number)
        except ConnectError as failure:
            log.warning("the cluster does not answer", cluster=dead.name, why=str(failure))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            again[number] = (time.monotonic() + pause_s, pause_s)
            return dead

    def _pause_s(self, stream: ClusterStream) -> float:
        """How long to wait before the next try; raises what no other try would mend."""
        failure = stream.exception()
        if failure is None:
            raise KoffError(f"cluster {stream.name}: the query ended by itself")
        told = named(failure)
        if told is None:
            raise KoffError(f"cluster {stream.name}: Spark failed: {line(failure)}") from failure
        if self.conf.once or not stream.batches or not isinstance(told, ConnectError):
            raise told from failure
        log.warning("begun again", cluster=stream.name, why=str(told))
        return FIRST_PAUSE_S


def backfill_segments(tables: Tables, path: str, cluster: str, headway: Headway | None = None) -> Written:
    """Takes log segments into the tables, but what is there already; what they hold.

    `headway` is of bytes.
    """
    headway = headway or Headway(tables.spark)
    headway.todo = size(path)
    headway.begin(headway.todo)
    fresh = tables.made.issuperset(TABLES)
    tables.made.clear()
    kept = () if fresh else ("commits", "groups", "quarantine")
    there = any(not tables.of(name, cluster).isEmpty() for name in kept)
    folder = None if there else tables.folder("commits")
    how = {"into": Into(folder, cluster).told()} if folder else {"packed": "true"}
    rows = tables.spark.read.format("koff.segments").options(cluster=cluster, **how).load(path)
    try:
        with held(rows):
            written = BatchWriter(tables, cluster, overlapping=there, fresh=fresh).write(rows, {})
    except Exception as failure:
        told = named(failure)
        if told is None:
            raise KoffError(f"segments {path}: Spark failed: {line(failure)}") from failure
        raise told from failure
    headway.end()
    return written
