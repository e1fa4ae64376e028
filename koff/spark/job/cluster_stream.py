"""One cluster's stream: a query that writes every batch into the tables, and samples ends beside it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from koff.client import Cluster, Isolation, OffsetSpec, TopicPartition
from koff.config.clusters import Watched
from koff.errors import ConnectError
from koff.spark.job.batch_progress import Headway
from koff.spark.job.batch_writer import BatchWriter, once
from koff.spark.job.end_offsets import Samples
from koff.spark.job.lag_rows import joined, lag_rows
from koff.spark.source.kafka import MAX_OFFSETS
from koff.spark.spark_session import held, interpreted
from koff.spark.tables.files import Into
from koff.spark.tables.schemas import TABLES, Tables, filesystem, read_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger(component="spark.job")
LITTLE = 50_000
"""A batch of fewer offsets, where fewer slots are current, is not worth Spark's compiling."""
STOP_S = 20.0
"""How long a batch may take to end once told to stop."""


@dataclass(frozen=True, slots=True)
class PipelineConf:
    """`interval_s` between samples of ends (and batches, once the log was caught up with).

    `once`: ends when the log was read to where it stood. `sample` no: only what the log says. No batch takes
    more than `max_offsets_per_partition`. A record that arrived more than `reach_s` ago has no time lag.
    """

    interval_s: float = 30.0
    once: bool = False
    sample: bool = True
    max_offsets_per_partition: int = MAX_OFFSETS
    reach_s: float = 86_400.0
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is in the tables. `behind`: offsets of the offsets topic that are yet to be read.

    `sampled`: of how many partitions the ends were looked at, and lag computed; None: not this time.
    """

    cluster: str
    batch: int
    records: int
    seconds: float
    behind: int
    sampled: int | None = None
    commits: int = 0


class _Stopped(Exception):
    """Ends the query between two batches, or a batch that takes too long."""


def _unless_stopped(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is _Stopped)


logging.getLogger("py4j.clientserver").addFilter(_unless_stopped)  # it tells of all that callbacks raise


class ClusterStream:
    """Reads one cluster into the tables. `cluster` is connected and closed by the caller. `fresh`: the tables
    were just made."""

    def __init__(
        self,
        tables: Tables,
        watched: Watched,
        cluster: Cluster,
        conf: PipelineConf,
        progress: Callable[[Progress], None],
        *,
        fresh: bool = False,
    ) -> None:
        self.watched, self.conf = watched, conf
        self.name = watched.name or cluster.id
        self.done = False
        """Whether all was read that there was to read `once`."""
        self.failure: BaseException | None = None
        self.batches = 0
        self.headway = Headway(tables.spark)
        """How far it is on the way to where the log stood, `once`."""
        self._tables, self._cluster, self._progress = tables, cluster, progress
        self._samples = Samples(cluster, tables.spark)
        self._stopping, self._until = threading.Event(), 0.0
        self._query: StreamingQuery | None = None
        self._positions: Mapping[int, int] = {}
        self._reached: Mapping[int, int] | None = None
        self._noted: Mapping[int, int] = {}
        self._due = 0.0
        self._cut: dict[int, int] = {}
        self._told_cut: set[int] = set()
        self._first = True
        self._fresh = fresh
        self._slots = 0 if fresh else None
        """How many are committed to or assigned, once that was counted."""
        self._overlap: Mapping[int, int] = {}
        self._target: Mapping[int, int] = {}

    def start(self) -> None:
        """Starts the query where it was, or at the log's start."""
        from pyspark.sql import functions as f

        self._overlap = self._overlapping()
        self._target = self._noted = self._offsets(Isolation.READ_COMMITTED)
        spark = self._tables.spark
        tick = spark.readStream.format("rate").option("rowsPerSecond", 1).load().where("false")
        nothing = tick.select(f.lit(None).cast("string").alias("what"))
        rows = spark.readStream.format("koff").options(**self._options()).load()
        # The clock makes a batch of each interval, so that ends are sampled when nobody commits.
        query = rows.unionByName(nothing, allowMissingColumns=True).writeStream.foreachBatch(self._batch)
        query = query.queryName(f"koff {self.name}").option("checkpointLocation", self._checkpoint)
        self._query = query.start()

    @property
    def alive(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and self._query.isActive

    def exception(self) -> BaseException | None:
        """Why it ended, if it failed."""
        if self.failure is not None:
            return self.failure
        return self._query.exception() if self._query is not None else None

    def end(self) -> None:
        """Lets no further batch begin."""
        if not self._stopping.is_set():
            self._until = time.monotonic() + STOP_S
            self._stopping.set()

    def stop(self) -> None:
        """Ends after the batch that runs, or in the midst of it if it takes long: it is then done again."""
        self.end()
        if self._query is None:
            return
        while self._query.isActive and time.monotonic() < self._until:
            time.sleep(0.05)
        self._query.stop()

    @property
    def _checkpoint(self) -> str:
        return self._tables.checkpoint(self.name)

    def _options(self) -> dict[str, str]:
        watched = self.watched
        return {
            "brokers": watched.conf.brokers,
            "cluster": self.name,
            "offsetsTopic": watched.offsets_topic,
            "maxOffsetsPerPartition": str(self.conf.max_offsets_per_partition),
            "failOnDataLoss": str(self.conf.fail_on_data_loss).lower(),
            **self._taken(),
            **({"group": watched.groups} if watched.groups else {}),
            **({"commitsTo": watched.topics} if watched.topics else {}),
            **{f"property.{key}": value for key, value in watched.conf.properties.items()},
        }

    def _taken(self) -> dict[str, str]:
        """How workers hand on what they read: commits go into files where those can be written."""
        folder = self._tables.folder("commits")
        return {"into": Into(folder, self.name, self._overlap).told()} if folder else {"packed": "true"}

    def _batch(self, records: DataFrame, batch: int) -> None:
        """What Spark calls with every batch; a batch may come again after a restart."""
        if self._stopping.is_set() or self.done:
            raise _Stopped  # a batch that returned would count as done
        try:
            if self.conf.once:
                self._begin(records, batch)
            self._take(records, batch)
            self.headway.end()
        except BaseException as failure:
            if self._stopping.is_set():
                # Of a text as long as that of a job that was cut off, Spark's own search for what
                # interrupted it overflows Java's stack.
                raise _Stopped from None
            self.failure = failure
            raise
        self._stopping.wait(max(0.0, self._due - time.monotonic()))

    def _begin(self, records: DataFrame, batch: int) -> None:
        """Notes how much there is to do, when the first batch begins, and how much of it this one takes."""
        if self._reached is None:
            first = self._read_positions(batch - 1)
            self._reached = first or self._offsets(Isolation.READ_COMMITTED, OffsetSpec.EARLIEST)
            self.headway.todo = self._from_reached(self._target)
        ends = self._read_positions(batch)
        group = records.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        self.headway.begin(self._from_reached(ends), group)
        self._reached = {**self._reached, **ends}

    def _from_reached(self, ends: Mapping[int, int]) -> int:
        """Offsets from where the tables are to those ends, but not behind where the log stood."""
        reached = self._reached or {}
        some = {p: min(end, ends.get(p, 0)) - reached.get(p, 0) for p, end in self._target.items()}
        return sum(max(0, left) for left in some.values())

    def _take(self, records: DataFrame, batch: int) -> None:
        began, spark = time.monotonic(), records.sparkSession
        app = f"koff {spark.sparkContext.getLocalProperty('sql.streaming.queryId')}"
        tables = Tables(spark, self._tables.root)
        starts, self._positions = (
            self._positions or self._read_positions(batch - 1),
            self._read_positions(batch),
        )
        little = self._is_little(tables, starts)
        fresh, self._fresh = self._fresh, False
        writer = BatchWriter(
            tables,
            self.name,
            overlapping=self._may_overlap(starts),
            again=self._first and not fresh,
            fresh=fresh,
        )
        self._look_at_topics()
        with interpreted(spark) if little else nullcontext(), held(records), once(spark, app, batch):
            count = writer.write(records, self._samples.topic_names)
            stable = self._offsets(Isolation.READ_COMMITTED)
            self._look_for_cuts(stable)
            behind = {p: max(0, end - self._positions.get(p, 0)) for p, end in stable.items()}
            sampled = self._sample(tables, writer, batch) if self.conf.sample else None
            if sampled is not None:
                self._due = began + self.conf.interval_s
            self._noted = stable
        self._first = False
        self.batches += 1
        self.done = self.conf.once and self._has_read(self._target)
        if count.records or sampled is not None:
            seconds = time.monotonic() - began
            left = sum(behind.values())
            self._progress(Progress(self.name, batch, count.records, seconds, left, sampled, count.commits))

    def _is_little(self, tables: Tables, starts: Mapping[int, int]) -> bool:
        """Whether the batch, which starts there, and what is current are."""
        if sum(end - starts.get(p, 0) for p, end in self._positions.items()) >= LITTLE:
            return False
        if self._slots is None:
            with interpreted(tables.spark):
                self._slots = tables.of("current", self.name).count()
        return self._slots < LITTLE

    def _sample(self, tables: Tables, writer: BatchWriter, batch: int) -> int | None:
        """Samples ends, unless that was done when the batch was tried before; then lag from the tables."""
        from pyspark.sql import functions as f

        ends = tables.of("end_offsets", self.name)
        mine = (f.col("batch") == batch) & (f.col("day") >= f.date_sub(f.current_date(), 30))
        sampled = ends.where(mine).count() if self._first else 0
        if not sampled:
            if not self._has_read(self._noted):
                return None  # what is not in the tables yet would look like lag
            try:
                rows = self._samples.take(self._watched_partitions(tables))
            except ConnectError as failure:
                log.warning("no sample of end offsets", cluster=self.name, why=str(failure))
                return None
            if not rows:
                return 0
            writer.sample(rows, batch)
            sampled, ends = len(rows), tables.of("end_offsets", self.name)
        days = f.col("day") >= f.date_sub(f.current_date(), 2 + int(self.conf.reach_s // 86_400))
        current, states = tables.of("current", self.name), tables.of("group_states", self.name)
        frame = joined(ends.where(mine), current, states, ends.where(days), reach_s=self.conf.reach_s)
        writer.lag(frame.mapInArrow(lag_rows, TABLES["lag"].ddl))
        return sampled

    def _watched_partitions(self, tables: Tables) -> list[tuple[str, int]]:
        from pyspark.sql import functions as f

        current = tables.of("current", self.name).where(~f.col("deleted")).select("topic", "partition")
        states = tables.of("group_states", self.name).select(f.explode("assigned").alias("a"))
        every = current.union(states.select("a.topic", "a.partition"))
        counted = every.groupBy("topic", "partition").count().collect()
        self._slots = sum(row[2] for row in counted)
        return [(row[0], row[1]) for row in counted]

    def _look_for_cuts(self, ends: Mapping[int, int]) -> None:
        """Says once of a partition that it ends below what was read: what comes there now is not read again.

        Seen twice in a row: a new leader may not know at once how far its log is committed.
        """
        cut = {p: end for p, end in ends.items() if end < self._positions.get(p, 0)}
        for partition in cut.keys() & (cut if self.conf.once else self._cut).keys() - self._told_cut:
            self._told_cut.add(partition)
            log.error(
                "the log was cut below what had been read: until it is as long again, nothing is read",
                cluster=self.name,
                topic=self.watched.offsets_topic,
                partition=partition,
                ends_at=cut[partition],
                read_to=self._positions[partition],
            )
        self._cut = cut

    def _look_at_topics(self) -> None:
        try:
            self._samples.look_at_topics()
        except ConnectError as failure:
            log.warning("topics cannot be listed", cluster=self.name, why=str(failure))

    def _offsets(self, isolation: Isolation, spec: OffsetSpec = OffsetSpec.LATEST) -> dict[int, int]:
        topic = self.watched.offsets_topic
        info = self._cluster.fetch_topic(topic)
        at = [TopicPartition(topic, p) for p in range(info.partitions if info else 0)]
        found = self._cluster.offsets(at, spec, isolation)
        return {each.partition: end for each, end in found.items() if isinstance(end, int)}

    def _read_positions(self, batch: int) -> dict[int, int]:
        """Where that batch ends, as Spark wrote it down before it began."""
        path = f"{self._checkpoint}/offsets/{batch}"
        fs, at = filesystem(self._tables.spark, path)
        if batch < 0 or not fs.exists(at):
            return {}
        lines = read_text(self._tables.spark, path).splitlines()
        return {int(p): int(offset) for p, offset in json.loads(lines[2]).items()}

    def _has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether the tables hold the log up to there."""
        return all(self._positions.get(p, 0) >= end for p, end in ends.items())

    def _overlapping(self) -> dict[int, int]:
        """Up to which offsets the tables had rows before the query was first begun, by backfill.

        Written down beside the checkpoint, so that a restart in the midst of them knows as well.
        """
        from pyspark.sql import functions as f

        path = f"{self._checkpoint}.before"
        fs, at = filesystem(self._tables.spark, path)
        begun, metadata = filesystem(self._tables.spark, f"{self._checkpoint}/metadata")
        if begun.exists(metadata):
            told = read_text(self._tables.spark, path) if fs.exists(at) else "{}"
            return {int(p): offset for p, offset in json.loads(told).items()}
        if self._fresh:
            return {}
        commits, groups, quarantine = (
            self._tables.of(name, self.name).select("offsets_partition", "log_offset")
            for name in ("commits", "groups", "quarantine")
        )
        rows = commits.union(groups).union(quarantine).groupBy("offsets_partition")
        found: dict[int, int] = dict(map(tuple, rows.agg(f.max("log_offset")).collect()))
        if found:
            stream = fs.create(at)
            stream.write(bytearray(json.dumps(found).encode()))
            stream.close()
        return found

    def _may_overlap(self, starts: Mapping[int, int]) -> bool:
        return any(starts.get(p, 0) <= offset for p, offset in self._overlap.items())
