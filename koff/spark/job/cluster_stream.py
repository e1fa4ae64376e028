"""The stream of one cluster: a Spark query that writes each batch into the tables and samples end offsets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from koff.client.cluster import Cluster
from koff.config.clusters import WatchedCluster
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.job.batch_progress import ProgressCounter
from koff.spark.job.batch_writer import BatchWriter
from koff.spark.job.cluster_samples import ClusterSamples
from koff.spark.job.end_offsets import EndOffsetSampler
from koff.spark.job.log_progress import LogProgress
from koff.spark.job.share_lags import ShareLags, ShareRow
from koff.spark.job.stream_source import load_coverage, make_source_options
from koff.spark.source.kafka import MAX_OFFSETS
from koff.spark.spark_session import count_tasks, persist_frame, tune_for_batch
from koff.spark.tables.coverage import Coverage, Interval, count_offsets, intersect_spans
from koff.spark.tables.leases import Lease
from koff.spark.tables.maintenance import KEEP_ALL, MaintainConf, maintain_cluster
from koff.spark.tables.schemas import Tables
from koff.spark.tables.session_settings import write_once
from koff.spark.worker_errors import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger(component="spark.job")
SMALL_BATCH = 50_000
"""If a batch has fewer offsets and the table `current` has fewer slots than this, the batch takes less time
than to compile Spark's generated code. Such a batch runs without code generation."""
FIRST_MAINTENANCE_S = 3600.0
STALE_INTERVALS = 5
"""Lag counts for so many sampling intervals (of at least 5 s)."""
STOP_S = 20.0
"""How long a running batch may take to end after a request to stop."""


@dataclass(frozen=True, slots=True)
class PipelineConf:
    """How the job runs.

    `interval_s` is the time between two samples of end offsets, and between two batches once the stream has
    caught up. With `once`, the job ends when it has read the log up to where the log ended at the start.
    Without `sample`, the job writes neither end offsets nor lag. A batch has at most
    `max_offsets_per_batch` offsets. A record that arrived more than `reach_s` ago has
    no time lag. Each `full_lag_s`, a sample writes the lag of all slots, and between them of those that have
    changed. With `fail_on_data_loss`, records that were deleted before they were read are an error;
    otherwise a warning. Each `maintain_s`, the rows of the cluster are maintained between two batches, the
    first time after `FIRST_MAINTENANCE_S`.
    """

    interval_s: float = 30.0
    once: bool = False
    sample: bool = True
    max_offsets_per_batch: int = MAX_OFFSETS
    reach_s: float = 86_400.0
    full_lag_s: float = 600.0
    fail_on_data_loss: bool = True
    maintain_s: float = 86_400.0
    maintain: MaintainConf = KEEP_ALL

    @property
    def limit_s(self) -> float:
        """How old an end offset or a commit may be, and how far apart both, for a lag that counts."""
        return STALE_INTERVALS * max(self.interval_s, 5.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is in the tables. `seconds` is the time that it took.

    `behind` is the number of offsets of the offsets topic that are not read yet. `sampled` is the number of
    partitions whose end offsets were sampled, at `sampled_at`, and for which lag was computed; None if the
    batch has no sample.
    `offsets_partitions` is the partition count of the offsets topic, and `shares` has the rows of all share
    groups as of the sample.
    """

    cluster: str
    batch: int
    records: int
    seconds: float
    behind: int
    sampled: int | None = None
    commits: int = 0
    offsets_partitions: int = 0
    shares: Mapping[str, Sequence[ShareRow]] = field(default_factory=dict)
    sampled_at: datetime | None = None


class _Stopped(Exception):
    """Raised in a batch to end the query."""


def _keep_log_record(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is _Stopped)


# py4j logs every exception that a callback raises. _Stopped is not an error.
logging.getLogger("py4j.clientserver").addFilter(_keep_log_record)


class ClusterStream:
    """Reads one cluster into the tables. The caller connects `cluster`, and closes it.

    `progress` is called after each batch, in a thread of the query. `fresh`: the tables were just made and
    have no rows. The caller holds `lease`, the lease of the cluster.
    """

    def __init__(
        self,
        tables: Tables,
        watched: WatchedCluster,
        cluster: Cluster,
        conf: PipelineConf,
        progress: Callable[[Progress], None],
        lease: Lease,
        *,
        fresh: bool = False,
    ) -> None:
        self.watched, self.conf = watched, conf
        self.name = watched.name or cluster.id
        self.done = False
        """With `once`: whether the stream has read the log up to its end at the start."""
        self.error: BaseException | None = None
        """What a batch raised; Spark's own exception has only its text."""
        self.batches = 0
        """How many batches are in the tables."""
        self.counter = ProgressCounter(tables.spark)
        """With `once`: how many offsets are done, up to the end of the log at the start."""
        self._tables, self._cluster, self._progress, self._lease = tables, cluster, progress, lease
        self._log = LogProgress(tables, cluster, self.name, watched.offsets_topic, once=conf.once)
        # Groups in a topic of another name are not those of the coordinators.
        asks = watched.offsets_topic == OFFSETS_TOPIC
        self._shares = ShareLags(cluster, asks=asks, topics=watched.topics)
        self._samples = ClusterSamples(
            tables,
            EndOffsetSampler(cluster),
            self.name,
            self._log,
            self._shares,
            lease.next_transaction,
            reach_s=conf.reach_s,
            full_lag_s=conf.full_lag_s,
            limit_s=conf.limit_s,
            fresh=fresh,
        )
        self._stopping, self._stop_deadline = threading.Event(), 0.0
        self._query: StreamingQuery | None = None
        self._next_batch_at = 0.0  # monotonic
        self._maintain_at = time.monotonic() + min(conf.maintain_s, FIRST_MAINTENANCE_S)
        self._is_first_batch = True
        """No batch was written since `start`."""
        self._is_read = False
        """Whether the tables have the log up to its end at the start."""
        self._fresh = fresh
        self._coverage: Coverage | None = None  # set by `start`
        self._begun: Mapping[int, Sequence[Interval]] = {}
        """By partition of the offsets topic: offsets of which the tables had some rows at the start."""

    def start(self) -> None:
        """Starts the query, from its checkpoint if there is one, otherwise from the start of the log.

        Raises `ConnectError`, `DataLost`, `WrongCheckpoint`.
        """
        from pyspark.sql import functions as f

        self._coverage = load_coverage(
            self._tables, self._cluster, self.watched, self.name, self._lease, fresh=self._fresh
        )
        self._check_checkpoint(self._coverage)
        self._begun = self._coverage.list_begun()
        self._log.fetch_bounds()
        spark = self._tables.spark
        clock = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false")
        no_rows = clock.select(f.lit(None).cast("string").alias("what"))
        options = make_source_options(
            self.watched,
            self.name,
            covered=self._coverage.list_complete(),
            max_offsets_per_batch=self.conf.max_offsets_per_batch,
            fail_on_data_loss=self.conf.fail_on_data_loss,
            tasks=count_tasks(spark),
        )
        rows = spark.readStream.format("koff").options(**options).load()
        # Spark makes no batch without new input. The source `rate` is new input once a second, and `where`
        # drops its rows: so end offsets are sampled also while no group commits.
        query = rows.unionByName(no_rows, allowMissingColumns=True).writeStream.foreachBatch(
            self._process_batch
        )
        checkpoint = self._tables.checkpoint_path(self.name)
        query = query.queryName(f"koff {self.name}").option("checkpointLocation", checkpoint)
        self._query = query.start()

    def _check_checkpoint(self, coverage: Coverage) -> None:
        """Records the last batch as complete that is. Raises `WrongCheckpoint`.

        A checkpoint of other tables would make the stream leave out offsets that these tables do not have.
        """
        position, spans = self._log.find_committed()
        known, found = coverage.topic_id, position.topic_id
        if known and found and found != known:
            raise self._log.make_checkpoint_error(
                f"it is of an offsets topic with the id {found}, not {known}"
            )
        if lacking := coverage.find_lacking(position.offsets):
            partition, start, end = lacking[0]
            raise self._log.make_checkpoint_error(
                f"it is of other tables: these lack the offsets {start} to {end} of partition {partition}"
            )
        coverage.complete_begun(spans)

    @property
    def alive(self) -> bool:
        """Whether the query is running."""
        return self._query is not None and self._query.isActive

    def exception(self) -> BaseException | None:
        """The error that ended the query; None if the query is running or ended without an error."""
        if self.error is not None:
            return self.error
        return self._query.exception() if self._query is not None else None

    def request_stop(self) -> None:
        """Lets no further batch begin, and gives the running batch `STOP_S` to end. Does not wait."""
        if not self._stopping.is_set():
            self._stop_deadline = time.monotonic() + STOP_S
            self._stopping.set()

    def stop(self) -> None:
        """Stops the query after the running batch, or inside it when `STOP_S` is over.

        A batch that is interrupted is repeated at the next start.
        """
        self.request_stop()
        if self._query is None:
            return
        try:
            while self._query.isActive and time.monotonic() < self._stop_deadline:
                time.sleep(0.05)
            self._query.stop()
            if self._coverage is not None:
                self._coverage.flush()
        except Exception as error:
            # Java may have ended, and the error that ended the job is of more interest. The last batch then
            # counts as begun.
            log.debug("the stream was not stopped in order", cluster=self.name, why=summarize_error(error))

    def _process_batch(self, records: DataFrame, batch: int) -> None:
        """Spark calls this for every batch. After a restart, the last batch may be repeated."""
        if self._stopping.is_set() or self.done:
            raise _Stopped  # if this returned, Spark would record the batch as written
        try:
            if self.conf.once:
                self._count_batch(records, batch)
            self._write_batch(records, batch)
            self.counter.end_batch()
            self._lease.check()  # else Spark would record a batch that the tables may not have
        except BaseException as error:
            if self._stopping.is_set():
                # The error of an interrupted job has a very long text. Spark's search for the cause of the
                # interruption in such a text overflows Java's stack.
                raise _Stopped from None
            self.error = error
            raise
        self._summarize_samples()
        if not self.done and time.monotonic() >= self._maintain_at:
            self._maintain()
        # Once caught up, the next batch begins when the next sample is due. The sample comes last: Spark
        # fixes the end of the next batch when this returns.
        if not self._stopping.wait(max(0.0, self._next_batch_at - time.monotonic())) and not self.done:
            self._samples.take()

    def _summarize_samples(self) -> None:
        """Brings `end_curves` and `lag_hourly` up to date. After a failure, the next batch tries again."""
        try:
            self._samples.summarize()
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("samples are not summarized", cluster=self.name, why=summarize_error(error))

    def _maintain(self) -> None:
        """Maintains the rows of the cluster. A failure is a warning: the next maintenance tries again."""
        began = time.monotonic()
        try:
            done = maintain_cluster(
                self._tables,
                self.name,
                self.conf.maintain,
                next_transaction=self._lease.next_transaction,
            )
        except Exception as error:
            log.warning("maintenance failed", cluster=self.name, why=summarize_error(error))
        else:
            log.info(
                "maintenance",
                cluster=self.name,
                rows_deleted=sum(each.deleted for each in done),
                seconds=round(time.monotonic() - began, 1),
            )
        self._maintain_at = time.monotonic() + self.conf.maintain_s

    def _count_batch(self, records: DataFrame, batch: int) -> None:
        """Sets the counter's total before the first batch, and begins this batch in the counter."""
        left, amount = self._log.count_batch(batch)
        self.counter.todo = self.counter.todo or left
        group = records.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        self.counter.begin_batch(amount, group)

    def _write_batch(self, records: DataFrame, batch: int) -> None:
        """Writes the batch into all tables, then the sample that was taken before it, with its lag."""
        began, began_at, spark = time.monotonic(), datetime.now(UTC), records.sparkSession
        # What the batch is: its name for Delta, its offsets, whether it is small. Use the session of the
        # batch, which Spark cloned from the job's: `write_once` changes its settings.
        app, version = self._lease.next_transaction()
        tables = Tables(spark, self._tables.root)
        position, spans = self._log.begin_batch(batch), self._log.spans
        if self._is_first_batch and self.conf.sample:  # a backfill has the bar
            self._log_begin()
        small = count_offsets(spans) < SMALL_BATCH and self._samples.has_fewer_slots(SMALL_BATCH, tables)
        fresh, self._fresh = self._fresh, False
        begun = intersect_spans(self._begun, spans)
        writer = BatchWriter(
            tables,
            self.name,
            overlapping=bool(begun),
            begun=begun,
            first=self._is_first_batch,
            fresh=fresh,
            begin_step=self.counter.begin_step,
        )
        assert self._coverage is not None
        self._coverage.topic_id = position.topic_id or self._coverage.topic_id
        self._samples.refresh_topics()
        with (
            tune_for_batch(spark, small=small),
            persist_frame(records),
            write_once(spark, app, version),
        ):
            self._coverage.begin(spans)
            count = writer.write(records, self._samples.topic_names)
            self._coverage.complete(spans)

            # Where the log ends now. The sample comes after the records: lag needs the newest commits. If one
            # batch cannot reach the end, no sample would fit it.
            behind, sample = self._log.fetch_ends(), None
            if self.conf.sample:
                again = behind <= self.conf.max_offsets_per_batch
                sample = self._samples.write(writer, batch, began_at, small=small, again=again)
            if sample is not None:
                self._next_batch_at = began + self.conf.interval_s

        # The batch is in the tables. With `once`, one more batch writes the sample.
        self._is_first_batch = False
        self.batches += 1
        is_read, self._is_read = self._is_read, self._log.is_done
        self.done = self.conf.once and self._is_read and (is_read or not self.conf.sample)
        if count.records or sample is not None:
            seconds = time.monotonic() - began
            done = Progress(self.name, batch, count.records, seconds, behind, commits=count.commits)
            done = replace(done, offsets_partitions=len(self._log.positions))
            if sample is not None:
                shares = self._shares.by_group()
                done = replace(done, sampled=sample.partitions, sampled_at=sample.at, shares=shares)
            self._progress(done)

    def _log_begin(self) -> None:
        """Logs how much of the log there is to read: the first batch may take minutes."""
        log.info(
            "reading the log",
            cluster=self.name,
            offsets=self._log.offsets_to_target,
            begins="where the last run ended" if self._log.starts else "at the log start",
        )

    def write_unknown_lag(self) -> None:
        """Writes a last sample without offsets, so that no lag of the sample before looks current.

        The stream has ended, and nothing is known of what happened since then. An error is only logged.
        """
        if not self.conf.sample:
            return
        try:
            with write_once(self._tables.spark, *self._lease.next_transaction()):
                self._samples.write_unknown(BatchWriter(self._tables, self.name))
        except Exception as error:
            log.warning("cannot write that the lag is unknown", cluster=self.name, why=summarize_error(error))
