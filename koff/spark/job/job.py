"""The job: one stream for each cluster, all into the same tables. It starts, restarts and stops streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from koff.client import Cluster
from koff.config.clusters import WatchedCluster
from koff.errors import ConnectError, KoffError
from koff.spark.job.batch_progress import ProgressCounter
from koff.spark.job.batch_writer import BatchWriter, WrittenCounts
from koff.spark.job.cluster_stream import ClusterStream, PipelineConf, Progress
from koff.spark.source.log_segments import segments_size
from koff.spark.spark_session import persist_frame
from koff.spark.tables.files import FileTarget
from koff.spark.tables.schemas import TABLES, Tables
from koff.spark.worker_errors import find_koff_error, summarize_error

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
    `ConnectError` with the cluster's name. `progress` is called after each batch, in a thread of its stream.
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
        self.names: list[str] = []

    def __enter__(self) -> Job:
        for watched in self._watched:
            cluster = self._open.enter_context(Cluster(watched.conf))
            try:
                cluster.connect()
            except ConnectError as error:
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

        A stream whose cluster cannot be reached after its first batch is started again after a pause, while
        the other streams run. Any other error of a stream ends the job and is raised as `KoffError`, and with
        `once` every error.
        """
        self._pairs = list(zip(self._watched, self._clusters, strict=True))
        # `retries`: by number of a failed stream, when to start it again (monotonic time), and the pause
        # before.
        streams, retries = self._streams, dict[int, tuple[float, float]]()
        # `fresh`: all tables were just made, so no stream has to search them for rows. It holds only for the
        # first start: from now on the tables get rows.
        fresh = tables.new_tables.issuperset(TABLES)
        tables.new_tables.clear()
        try:
            for number in range(len(self._pairs)):
                if not self.stopped:
                    streams.append(self._start_stream(tables, number, fresh=fresh))
            # Watch the streams: restart those whose pause is over, and note those that have failed.
            while not self._stopping.wait(0.2):
                for number, stream in enumerate(streams):
                    if stream.done:
                        continue
                    if number in retries and time.monotonic() >= retries[number][0]:
                        pause_s = retries.pop(number)[1]
                        streams[number] = self._restart_stream(tables, number, stream, retries, pause_s)
                    elif number not in retries and not stream.alive:
                        pause_s = self._decide_pause_s(stream)
                        retries[number] = (time.monotonic() + pause_s, pause_s)
                if all(stream.done for stream in streams):
                    return
        finally:
            # First ask all streams to stop, so that their last batches end at the same time.
            for stream in streams:
                stream.request_stop()
            for stream in streams:
                stream.stop()

    def _start_stream(self, tables: Tables, number: int, *, fresh: bool = False) -> ClusterStream:
        stream = ClusterStream(tables, *self._pairs[number], self.conf, self.progress, fresh=fresh)
        stream.start()
        return stream

    def _restart_stream(
        self,
        tables: Tables,
        number: int,
        failed: ClusterStream,
        retries: dict[int, tuple[float, float]],
        pause_s: float,
    ) -> ClusterStream:
        """The new stream; or the failed stream, with a later retry in `retries`, if the cluster is down."""
        try:
            return self._start_stream(tables, number)
        except ConnectError as error:
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            log.warning(
                "cannot reach the cluster: trying again later",
                cluster=failed.name,
                why=str(error),
                pause_s=pause_s,
            )
            retries[number] = (time.monotonic() + pause_s, pause_s)
            return failed

    def _decide_pause_s(self, stream: ClusterStream) -> float:
        """The pause before the ended stream is started again. Raises the error if a retry cannot help."""
        error = stream.exception()
        if error is None:
            raise KoffError(
                f"cluster {stream.name}: the Spark query ended without an error: start the job again, and "
                "check the log of Spark"
            )
        koff_error = find_koff_error(error)
        if koff_error is None:
            raise KoffError(f"cluster {stream.name}: Spark failed: {summarize_error(error)}") from error
        if self.conf.once or not stream.batches or not isinstance(koff_error, ConnectError):
            raise koff_error from error
        log.warning(
            "the stream lost its cluster: starting it again", cluster=stream.name, why=str(koff_error)
        )
        return FIRST_PAUSE_S


def backfill_segments(
    tables: Tables, path: str, cluster: str, counter: ProgressCounter | None = None
) -> WrittenCounts:
    """Writes log segments into the tables, without rows that the tables already have.

    Returns how many records were read, including those that the tables had. `counter` counts bytes of
    segments. Raises `KoffError`.
    """
    # The size of the work.
    counter = counter or ProgressCounter(tables.spark)
    counter.todo = segments_size(path)
    counter.begin_batch(counter.todo)
    fresh = tables.new_tables.issuperset(TABLES)
    tables.new_tables.clear()

    # If the tables already have rows of the cluster, Spark compares the new rows with them. Otherwise the
    # workers may write files.
    names = () if fresh else ("commits", "groups", "quarantine")
    overlapping = any(not tables.cluster_frame(name, cluster).isEmpty() for name in names)
    folder = None if overlapping else tables.folder("commits")
    output = {"into": FileTarget(folder, cluster).to_option()} if folder else {"packed": "true"}
    rows = tables.spark.read.format("koff.segments").options(cluster=cluster, **output).load(path)
    try:
        with persist_frame(rows):
            written = BatchWriter(tables, cluster, overlapping=overlapping, fresh=fresh).write(rows, {})
    except Exception as error:
        koff_error = find_koff_error(error)
        if koff_error is None:
            raise KoffError(f"segments {path}: Spark failed: {summarize_error(error)}") from error
        raise koff_error from error
    counter.end_batch()
    return written
