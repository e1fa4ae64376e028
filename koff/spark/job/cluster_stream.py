"""The stream of one cluster: a Spark query that writes each batch into the tables and samples end offsets."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from koff.client import Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.config.clusters import WatchedCluster
from koff.errors import ConnectError
from koff.spark.job.batch_progress import ProgressCounter
from koff.spark.job.batch_writer import BatchWriter, write_once
from koff.spark.job.end_curves import EndCurves
from koff.spark.job.end_offsets import EndOffsetSampler, Sample
from koff.spark.job.hourly_lag import HourlyLag
from koff.spark.job.lag_changes import FullSamples
from koff.spark.job.samples import write_sample_and_lag
from koff.spark.rows.decoding import DataLost
from koff.spark.source.kafka import MAX_OFFSETS, make_recreated_error
from koff.spark.source.log_position import LogPosition
from koff.spark.spark_session import count_tasks, persist_frame, tune_for_batch
from koff.spark.tables.coverage import Coverage, Interval, Span, intersect_spans
from koff.spark.tables.leases import Lease
from koff.spark.tables.maintenance import KEEP_ALL, MaintainConf, maintain_cluster
from koff.spark.tables.schemas import Tables, filesystem, read_text
from koff.spark.worker_errors import summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger(component="spark.job")
SMALL_BATCH = 50_000
"""If a batch has fewer offsets and the table `current` has fewer slots than this, the batch takes less time
than to compile Spark's generated code. Such a batch runs without code generation."""
FIRST_MAINTENANCE_S = 3600.0
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


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is in the tables. `seconds` is the time that it took.

    `behind` is the number of offsets of the offsets topic that are not read yet. `sampled` is the number of
    partitions whose end offsets were sampled and for which lag was computed; None if the batch has no sample.
    """

    cluster: str
    batch: int
    records: int
    seconds: float
    behind: int
    sampled: int | None = None
    commits: int = 0


class _Stopped(Exception):
    """Raised in a batch to end the query."""


def _keep_log_record(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is _Stopped)


# py4j logs every exception that a callback raises. _Stopped is not an error.
logging.getLogger("py4j.clientserver").addFilter(_keep_log_record)


class ClusterStream:
    """Reads one cluster into the tables. The caller connects and closes `cluster`.

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
        self._sampler = EndOffsetSampler(cluster, tables.spark)
        self._curves = EndCurves(self.name, reach_s=conf.reach_s)
        self._full = FullSamples(conf.full_lag_s)
        self._hourly = HourlyLag(self.name)
        self._stopping, self._stop_deadline = threading.Event(), 0.0
        self._query: StreamingQuery | None = None
        # Mappings of offsets below are by partition of the offsets topic.
        self._positions: Mapping[int, int] = {}
        """Where the newest batch ends."""
        self._counted_to: Mapping[int, int] | None = None
        """Where the newest batch ends that `counter` knows; None before the first batch."""
        self._last_stable: Mapping[int, int] = {}
        """The last stable offsets after the batch before."""
        self._next_batch_at = 0.0  # monotonic
        self._maintain_at = time.monotonic() + min(conf.maintain_s, FIRST_MAINTENANCE_S)
        self._truncated: dict[int, int] = {}
        """The truncated partitions that the batch before has seen, with their last stable offsets."""
        self._is_first_batch = True
        """No batch was written since `start`."""
        self._fresh = fresh
        self._slot_count = 0 if fresh else None
        """How many slots are committed to or assigned; None until they are counted."""
        self._coverage: Coverage | None = None  # set by `start`
        self._begun: Mapping[int, Sequence[Interval]] = {}
        """Offsets of which the tables had some rows at the start."""
        self._target: Mapping[int, int] = {}
        """The last stable offsets at the start: with `once` the stream ends there."""
        self._log_starts: Mapping[int, int] = {}
        """The log start offsets at the start."""

    def start(self) -> None:
        """Starts the query, from its checkpoint if there is one, otherwise from the start of the log.

        Raises `ConnectError`, `DataLost`.
        """
        from pyspark.sql import functions as f

        self._coverage = self._load_coverage()
        self._begun = self._coverage.list_begun()
        self._target = self._last_stable = self._fetch_offsets(Isolation.READ_COMMITTED)
        self._log_starts = self._fetch_offsets(Isolation.READ_COMMITTED, OffsetSpec.EARLIEST)
        spark = self._tables.spark
        clock = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false")
        no_rows = clock.select(f.lit(None).cast("string").alias("what"))
        rows = spark.readStream.format("koff").options(**self._source_options()).load()
        # Spark makes no batch without new input. The source `rate` is new input once a second, and `where`
        # drops its rows: so end offsets are sampled also while no group commits.
        query = rows.unionByName(no_rows, allowMissingColumns=True).writeStream.foreachBatch(
            self._process_batch
        )
        query = query.queryName(f"koff {self.name}").option("checkpointLocation", self._checkpoint)
        self._query = query.start()

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

    @property
    def _checkpoint(self) -> str:
        return self._tables.checkpoint_path(self.name)

    def _source_options(self) -> dict[str, str]:
        watched = self.watched
        return {
            "brokers": watched.conf.brokers,
            "cluster": self.name,
            "offsetsTopic": watched.offsets_topic,
            "maxOffsetsPerBatch": str(self.conf.max_offsets_per_batch),
            "covered": json.dumps(self._coverage.list_complete() if self._coverage else {}),
            "failOnDataLoss": str(self.conf.fail_on_data_loss).lower(),
            "packed": "true",
            "tasks": str(count_tasks(self._tables.spark)),
            **({"group": watched.groups} if watched.groups else {}),
            **({"commitsTo": watched.topics} if watched.topics else {}),
            **{f"property.{key}": value for key, value in watched.conf.properties.items()},
        }

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
        # Once caught up, the next batch begins when the next sample is due.
        self._stopping.wait(max(0.0, self._next_batch_at - time.monotonic()))

    def _summarize_samples(self) -> None:
        """Brings `end_curves` and `lag_hourly` up to date. After a failure, the next batch tries again."""
        if (newest := self._curves.newest) is None:
            return
        try:
            self._curves.fold_if_due(self._tables)
            self._hourly.write_ended(self._tables, newest)
        except Exception as error:
            if not self._stopping.is_set():
                log.warning("samples are not summarized", cluster=self.name, why=summarize_error(error))

    def _maintain(self) -> None:
        """Maintains the rows of the cluster. A failure is a warning: the next maintenance tries again."""
        began = time.monotonic()
        try:
            done = maintain_cluster(self._tables, self.name, self.conf.maintain)
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
        if self._counted_to is None:
            self._counted_to = self._read_position(batch - 1).offsets or self._log_starts
            self.counter.todo = self._count_offsets_to(self._target)
        ends = self._read_position(batch).offsets
        group = records.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        self.counter.begin_batch(self._count_offsets_to(ends), group)
        self._counted_to = {**self._counted_to, **ends}

    def _count_offsets_to(self, ends: Mapping[int, int]) -> int:
        """How many offsets lie between the last counted batch and `ends`; beyond the target none counts."""
        counted = self._counted_to or {}
        left = {p: min(end, ends.get(p, 0)) - counted.get(p, 0) for p, end in self._target.items()}
        return sum(max(0, offsets) for offsets in left.values())

    def _write_batch(self, records: DataFrame, batch: int) -> None:
        """Writes the batch into all tables, and the sample and the lag that follow it."""
        began, spark = time.monotonic(), records.sparkSession
        # What the batch is: its name for Delta, its offsets, whether it is small. Use the session of the
        # batch, which Spark cloned from the job's: `write_once` changes its settings.
        app, version = self._lease.next_transaction()
        tables = Tables(spark, self._tables.root)
        starts = self._positions or self._read_position(batch - 1).offsets
        if self._is_first_batch and self.conf.sample:  # a backfill has the bar
            self._log_begin(starts)
        position = self._read_position(batch)
        self._positions = position.offsets
        small = self._is_small(tables, starts)
        fresh, self._fresh = self._fresh, False
        spans = [Span(p, starts.get(p, 0), end) for p, end in self._positions.items()]
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
        self._refresh_topics()
        with (
            tune_for_batch(spark, small=small),
            persist_frame(records),
            write_once(spark, app, version),
        ):
            self._coverage.begin(spans)
            count = writer.write(records, self._sampler.topic_names)
            self._coverage.complete(spans)

            # Where the log ends now. The sample comes after the records: lag needs the newest commits.
            stable = self._fetch_offsets(Isolation.READ_COMMITTED)
            self._check_truncation(stable)
            behind = {p: max(0, end - self._positions.get(p, 0)) for p, end in stable.items()}
            sampled = None
            if self.conf.sample:
                sampled = write_sample_and_lag(
                    writer,
                    self._take_sample,
                    batch,
                    self._curves,
                    self._full,
                    reach_s=self.conf.reach_s,
                    small=small,
                )
            if sampled is not None:
                self._next_batch_at = began + self.conf.interval_s
            self._last_stable = stable

        # The batch is in the tables.
        self._is_first_batch = False
        self.batches += 1
        self.done = self.conf.once and self._has_read(self._target)
        if count.records or sampled is not None:
            seconds = time.monotonic() - began
            left = sum(behind.values())
            self._progress(Progress(self.name, batch, count.records, seconds, left, sampled, count.commits))

    def _log_begin(self, starts: Mapping[int, int]) -> None:
        """Logs how much of the log there is to read: the first batch may take minutes."""
        ends = self._target.items()
        log.info(
            "reading the log",
            cluster=self.name,
            offsets=sum(max(0, end - (starts or self._log_starts).get(p, 0)) for p, end in ends),
            begins="where the last run ended" if starts else "at the log start",
        )

    def _is_small(self, tables: Tables, starts: Mapping[int, int]) -> bool:
        """Whether the batch (from `starts` to the current positions) and the table `current` are small."""
        if sum(end - starts.get(p, 0) for p, end in self._positions.items()) >= SMALL_BATCH:
            return False
        if self._slot_count is None:
            with tune_for_batch(tables.spark, small=True):
                self._slot_count = tables.cluster_frame("current", self.name).count()
        return self._slot_count < SMALL_BATCH

    def write_unknown_lag(self) -> None:
        """Writes a last sample without offsets, so that no lag of the sample before looks current.

        The stream has ended, and nothing is known of what happened since then. An error is only logged.
        """
        if not self.conf.sample:
            return
        try:
            with write_once(self._tables.spark, *self._lease.next_transaction()):
                writer = BatchWriter(self._tables, self.name)
                write_sample_and_lag(
                    writer,
                    self._make_unknown_sample,
                    None,
                    self._curves,
                    self._full,
                    reach_s=self.conf.reach_s,
                )
        except Exception as error:
            log.warning("cannot write that the lag is unknown", cluster=self.name, why=summarize_error(error))

    def _make_unknown_sample(self, current: DataFrame, states: DataFrame) -> list[Sample]:
        now = datetime.now(UTC)
        watched = self._list_watched_partitions(current, states)
        return [Sample(now, topic, p, None, None, None, None, False) for topic, p in watched]

    def _take_sample(self, current: DataFrame, states: DataFrame) -> list[Sample] | None:
        """A sample of all partitions that are committed to or assigned; None if none can be taken now."""
        if not self._has_read(self._last_stable):
            return None  # commits that are not in the tables yet would look like lag
        if self._truncated or (self._positions and not self._last_stable):
            return None  # the commits that were read are no longer in the log, or the topic is gone
        try:
            return self._sampler.take_sample(self._list_watched_partitions(current, states))
        except ConnectError as error:
            log.warning(
                "no end offsets sampled: the next batch tries again", cluster=self.name, why=str(error)
            )
            return None

    def _list_watched_partitions(self, current: DataFrame, states: DataFrame) -> list[tuple[str, int]]:
        """The (topic, partition) that groups commit to or are assigned. Also counts the slots."""
        from pyspark.sql import functions as f

        committed = current.where(~f.col("deleted")).select("topic", "partition")
        assigned = states.select(f.explode("assigned").alias("a")).select("a.topic", "a.partition")
        slots = committed.union(assigned)
        counted = slots.groupBy("topic", "partition").count().collect()
        self._slot_count = sum(row[2] for row in counted)
        return [(row[0], row[1]) for row in counted]

    def _check_truncation(self, ends: Mapping[int, int]) -> None:
        """Raises `DataLost` if a partition ends below the offset that was read.

        The partition has to be seen like this in two batches in a row, except with `once`: a new leader may
        not know its last stable offset at once.
        """
        truncated = {p: end for p, end in ends.items() if end < self._positions.get(p, 0)}
        confirmed = truncated.keys() if self.conf.once else truncated.keys() & self._truncated.keys()
        self._truncated = truncated
        for partition in sorted(confirmed):
            raise DataLost(
                f"cluster {self.name}: partition {partition} of {self.watched.offsets_topic} ends at "
                f"{truncated[partition]}, below offset {self._positions[partition]} that was read: the log "
                "was truncated; read it under another name of the cluster, or into new tables"
            )

    def _refresh_topics(self) -> None:
        try:
            self._sampler.refresh_topics()
        except ConnectError as error:
            log.warning(
                "cannot list topics: topics keep the names and ids of the last listing",
                cluster=self.name,
                why=str(error),
            )

    def _fetch_offsets(self, isolation: Isolation, spec: OffsetSpec = OffsetSpec.LATEST) -> dict[int, int]:
        """Offsets of the offsets topic; partitions with an error are left out."""
        topic = self.watched.offsets_topic
        info = self._cluster.fetch_topic(topic)
        partitions = [TopicPartition(topic, p) for p in range(info.partitions if info else 0)]
        offsets = self._cluster.fetch_offsets(partitions, spec, isolation)
        return {at.partition: offset for at, offset in offsets.items() if isinstance(offset, int)}

    def _read_position(self, batch: int) -> LogPosition:
        """Where the batch ends, by the checkpoint, which Spark writes before a batch; else no offsets."""
        path = f"{self._checkpoint}/offsets/{batch}"
        fs, at = filesystem(self._tables.spark, path)
        if batch < 0 or not fs.exists(at):
            return LogPosition({})
        # Line 1 is the version, line 2 Spark's metadata, then one line for each source: koff's is the first.
        lines = read_text(self._tables.spark, path).splitlines()
        return LogPosition.from_json(json.loads(lines[2]))

    def _has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether the tables have the log up to these offsets."""
        return all(self._positions.get(p, 0) >= end for p, end in ends.items())

    def _load_coverage(self) -> Coverage:
        """The coverage of the cluster for this offsets topic and these filters.

        Raises `ConnectError`, and `DataLost` if the tables have rows of an earlier topic of that name.
        """
        topic, watched = self.watched.offsets_topic, self.watched
        described = self._cluster.describe_topics([topic]).get(topic)
        filters = [watched.groups, watched.topics]
        coverage = Coverage(
            self._tables,
            self.name,
            self._lease,
            topic_id=described.topic_id if described else None,
            filter_text=json.dumps(filters) if any(filters) else "",
        )
        coverage.load(fresh=self._fresh)
        if other := coverage.find_other_topic():
            raise make_recreated_error(self.name, topic, other, coverage.topic_id or "")
        return coverage
