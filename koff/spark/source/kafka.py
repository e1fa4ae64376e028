"""`spark.read.format("koff")` and `readStream`: decoded records of a cluster's offsets topic.

Options (docs/pipeline.md says more): `brokers`, `property.<name>` (librdkafka's), `cluster` (the name that
rows carry), `offsetsTopic`; which records: `group`, `topic`, `commitsTo` (regular expressions), `from`,
`until` (times); `starting`, `ending` (earliest, latest or a time); `maxOffsetsPerPartition` of a batch of a
stream; `tasks`; `failOnDataLoss`; `raw` (true: as they stand in the log); `packed` (true: as
`koff.spark.rows.packing` has them), `into` (and commits into files, as `koff.spark.tables.files` writes
them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from koff.client import Cluster, ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.errors import ConfigError, ConnectError
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import DDL, RAW, TIME, Decoder, Wanted
from koff.spark.rows.packing import PACKED_DDL, pack
from koff.spark.source.log_segments import SegmentsSource
from koff.spark.source.range_reader import ReadOrigin, read
from koff.spark.source.ranges import Range, between, dealt
from koff.spark.source.source_options import check, flag, number, place, wanted
from koff.spark.tables.files import Into, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = structlog.get_logger(component="spark.source.kafka")
TASKS = 16
MAX_OFFSETS = 1_000_000
RAW_DDL = "offsets_partition INT, log_offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """What the source was told."""

    origin: ReadOrigin
    wanted: Wanted
    starting: OffsetSpec | int = OffsetSpec.EARLIEST
    ending: OffsetSpec | int = OffsetSpec.LATEST
    max_offsets_per_partition: int = MAX_OFFSETS
    tasks: int = TASKS
    raw: bool = False
    packed: bool = False
    into: Into | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> KafkaOptions:
        """Those of a reader. Raises `ConfigError`."""
        told = check("koff", given, _NAMES)
        prefix = "property."
        properties = {n.removeprefix(prefix): value for n, value in told.items() if n.startswith(prefix)}
        if not told.get("brokers"):
            raise ConfigError('the source koff needs .option("brokers", "host:port")')
        which = wanted(told)
        return cls(
            origin=ReadOrigin(
                ClusterConf(told["brokers"], properties, client_id="koff"),
                told.get("offsetstopic", OFFSETS_TOPIC),
                told.get("cluster", told["brokers"]),
                fail_on_data_loss=flag(told, "failondataloss", default=True),
            ),
            wanted=which,
            starting=place(
                told, "starting", OffsetSpec.EARLIEST if which.since_ms is None else which.since_ms
            ),
            ending=place(told, "ending", OffsetSpec.LATEST),
            max_offsets_per_partition=number(told, "maxoffsetsperpartition", MAX_OFFSETS),
            tasks=number(told, "tasks", TASKS),
            raw=flag(told, "raw", default=False),
            packed=flag(told, "packed", default=False),
            into=Into.of(told["into"]) if "into" in told else None,
        )


_NAMES = frozenset(
    {
        *("brokers", "cluster", "offsetstopic", "group", "topic", "from", "until", "starting", "ending"),
        *("commitsto", "maxoffsetsperpartition", "tasks", "failondataloss", "raw", "packed", "path", "into"),
    }
)


@dataclass
class KafkaTask(InputPartition):
    """What one task reads."""

    ranges: list[Range]

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = list(ranges)


class OffsetsLog:
    """The offsets topic of a cluster: how far it goes, and what is in it. Connects when it is first asked."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def place(self, spec: OffsetSpec | int, absent: OffsetSpec = OffsetSpec.LATEST) -> dict[int, int]:
        """The offset of each partition that can be had now. Latest is the last stable offset; of a time, the
        first offset not before it, or where there is none, the latest. Raises `ConnectError`."""
        found = self._offsets(spec)
        if isinstance(spec, int) and any(offset < 0 for offset in found.values()):
            behind = self._offsets(OffsetSpec.LATEST)
            found = {p: offset if offset >= 0 else behind[p] for p, offset in found.items() if p in behind}
        return found

    def _offsets(self, spec: OffsetSpec | int) -> dict[int, int]:
        cluster, origin = self._connected(), self.options.origin
        topic = cluster.fetch_topic(origin.topic)
        if topic is None and origin.topic == OFFSETS_TOPIC:
            return {}  # nobody has committed yet: the first who does makes it
        if topic is None:
            raise ConfigError(
                f"cluster {origin.cluster}: there is no topic {origin.topic}: check offsetsTopic"
            )
        at = [TopicPartition(origin.topic, p) for p in range(topic.partitions)]
        answers = cluster.offsets(at, spec, Isolation.READ_COMMITTED)
        untold = {p.partition: answer for p, answer in answers.items() if isinstance(answer, str)}
        if untold:
            log.warning("partitions do not answer", cluster=origin.cluster, topic=origin.topic, why=untold)
        return {p.partition: answer for p, answer in answers.items() if isinstance(answer, int)}

    def _connected(self) -> Cluster:
        if self._cluster is None:
            cluster = Cluster(self.options.origin.conf)
            try:
                self._cluster = cluster.connect()
            except ConnectError as failure:
                cluster.close()
                raise type(failure)(f"cluster {self.options.origin.cluster}: {failure}") from failure
        return self._cluster

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """What is in those ranges."""
        options = self.options
        batches = read(options.origin, ranges)
        if options.raw:
            return map(bare, batches)
        rows = filter(len, map(options.wanted.of, map(Decoder(options.origin.cluster), batches)))
        if options.into:
            return written(rows, options.into)
        return pack(rows) if options.packed else rows


def bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `RAW` with the times as Spark has them."""
    partition, offset, timestamp, key, value = batch.columns
    columns = [partition, offset, timestamp.cast(pa.timestamp("ms", "UTC")).cast(TIME), key, value]
    return pa.RecordBatch.from_arrays(
        columns, names=["offsets_partition", "log_offset", "timestamp", "key", "value"]
    )


class BatchReader(DataSourceReader):
    """What is in the log now, up to its last stable offset, as one bounded table."""

    def __init__(self, options: KafkaOptions) -> None:
        self._log = OffsetsLog(options)

    def partitions(self) -> list[KafkaTask]:
        """What each task reads."""
        options = self._log.options
        try:
            starts, ends = self._log.place(options.starting), self._log.place(options.ending)
        finally:
            self._log.close()
        missing = ends.keys() ^ starts.keys()
        if missing:
            raise ConnectError(
                f"cluster {options.origin.cluster}: partitions {sorted(missing)} of {options.origin.topic} "
                "have no leader: try again when they have one"
            )
        return [KafkaTask(share) for share in dealt(between(starts, ends), options.tasks)] or [KafkaTask([])]

    def read(self, partition: KafkaTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a share, on a worker."""
        return self._log.read(partition.ranges)


class StreamReader(DataSourceStreamReader):
    """The log batch by batch. An offset of the stream is `{partition: offset}`.

    Spark 4.0 asks for the latest offset without a word of where it is, so this remembers where the last
    batch ended; after a restart Spark tells by asking for the partitions of an empty batch.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._log = OffsetsLog(options)
        self._at: dict[str, int] | None = None
        self._starts: dict[int, int] = {}

    def initialOffset(self) -> dict[str, int]:
        """Where the first batch of all begins."""
        return {str(p): offset for p, offset in self._log.place(self._log.options.starting).items()}

    def latestOffset(self) -> dict[str, int]:
        """Where the next batch ends: at the last stable offsets, but no further than the cap."""
        if self._at is None:
            self._at = self.initialOffset()
        cap, ends = self._log.options.max_offsets_per_partition, dict(self._at)
        try:
            latest = self._log.place(OffsetSpec.LATEST)
            for partition, start in self._new(latest).items():
                ends[str(partition)] = start
        except ConnectError as failure:
            if self._log._cluster is None:
                raise
            log.warning(
                "the cluster does not answer", cluster=self._log.options.origin.cluster, why=str(failure)
            )
            return ends
        for partition, end in latest.items():
            at = ends[str(partition)]
            ends[str(partition)] = max(at, min(end, at + cap))
        return ends

    def _new(self, latest: Mapping[int, int]) -> dict[int, int]:
        """Where partitions begin that were not there before."""
        assert self._at is not None
        new = [p for p in latest if str(p) not in self._at]
        return (
            {p: start for p, start in self._log.place(OffsetSpec.EARLIEST).items() if p in new} if new else {}
        )

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[KafkaTask]:
        """What each task of a batch reads."""
        self._at = dict(end)
        ends = {int(p): offset for p, offset in end.items()}
        starts = {int(p): offset for p, offset in start.items()}
        fresh = sorted(ends.keys() - starts.keys())
        if fresh:
            first = self._log.place(OffsetSpec.EARLIEST)
            starts |= {p: first.get(p, 0) for p in fresh}
        return [KafkaTask(share) for share in dealt(between(starts, ends), self._log.options.tasks)]

    def read(self, partition: KafkaTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a share, on a worker."""
        return self._log.read(partition.ranges)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: the checkpoint is Spark's."""

    def stop(self) -> None:
        """Lets go of the connection."""
        self._log.close()


class KoffSource(DataSource):
    """The format `koff`."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `format(...)`."""
        return "koff"

    def schema(self) -> str:
        """The columns; koff.spark.rows.decoding says what they mean."""
        options = KafkaOptions.of(self.options)
        return RAW_DDL if options.raw else PACKED_DDL if options.packed or options.into else DDL

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        return BatchReader(KafkaOptions.of(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        return StreamReader(KafkaOptions.of(self.options))


def register(spark: SparkSession) -> None:
    """Makes the formats `koff` and `koff.segments` known to a session."""
    spark.dataSource.register(KoffSource)
    spark.dataSource.register(SegmentsSource)


def decode(df: DataFrame, cluster: str = "") -> DataFrame:
    """The decoded rows of a frame with `key` and `value` that came from Kafka some other way.

    `partition`, `offset` and `timestamp` are taken along where they are, as Spark's own connector names them.
    """
    from pyspark.sql import functions as f

    present = set(df.columns)
    names = {"partition": "INT", "offset": "BIGINT"}
    columns = [
        f.col(name).cast(kind) if name in present else f.lit(None).cast(kind) for name, kind in names.items()
    ]
    at = f.unix_millis("timestamp") if "timestamp" in present else f.lit(None).cast("BIGINT")
    given = df.select(*columns, at.alias("at"), f.col("key").cast("BINARY"), f.col("value").cast("BINARY"))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(cluster)
        for batch in batches:
            yield decoder(pa.RecordBatch.from_arrays(batch.columns, schema=RAW))

    return given.mapInArrow(work, DDL)  # type: ignore[arg-type]
