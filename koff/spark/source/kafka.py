"""`spark.read.format("koff")` and `readStream`: decoded records of a cluster's offsets topic.

Options (docs/pipeline.md says more):

* where: `brokers`, `property.<name>` (librdkafka's), `cluster` (the name of the cluster in rows),
  `offsetsTopic`;
* which records: `group`, `topic`, `commitsTo` (regular expressions), `from`, `until` (times), `starting`,
  `ending` (earliest, latest or a time);
* how: `maxOffsetsPerBatch` (of a stream), `tasks`, `failOnDataLoss`;
* `spans` (not of a stream): the only offsets to read, as JSON: `[[PARTITION, START, END, LEADER_EPOCH]]`;
* as what: `raw` (true: as they are in the log).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import structlog
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from koff.client.batches import RecordRun
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.errors import ConfigError, ConnectError
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import RAW, SCHEMA, TIME, DataLost, Decoder, RecordFilter, to_arrow
from koff.spark.rows.spans import Span, limit_offsets, make_spans, split_spans
from koff.spark.source.log_position import LogPosition
from koff.spark.source.log_segments import SegmentsSource
from koff.spark.source.source_options import (
    check_options,
    parse_filter,
    parse_flag,
    parse_number,
    parse_offset,
)
from koff.spark.source.span_reader import ReadOrigin, read_spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = structlog.get_logger(component="spark.source.kafka")
TASKS = 16
"""The default of the option `tasks`."""
MAX_OFFSETS = 10_000_000
"""The default of the option `maxOffsetsPerBatch`."""
RAW_ROWS = RAW.set(RAW.names.index("timestamp_ms"), pa.field("timestamp", TIME))
"""The columns of rows with the option `raw`."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The parsed options of the source `koff`."""

    origin: ReadOrigin
    record_filter: RecordFilter
    starting: OffsetSpec | int = OffsetSpec.EARLIEST
    ending: OffsetSpec | int = OffsetSpec.LATEST
    max_offsets_per_batch: int = MAX_OFFSETS
    tasks: int = TASKS
    raw: bool = False
    spans: tuple[tuple[int, int, int, int], ...] | None = None
    """Partition, start, end, and the leader epoch at the start (-1: unknown)."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> KafkaOptions:
        """The options that Spark gives a source. Raises `ConfigError`."""
        options = check_options("koff", given, _NAMES)
        prefix = "property."
        properties = {n.removeprefix(prefix): value for n, value in options.items() if n.startswith(prefix)}
        if not options.get("brokers"):
            raise ConfigError('the source koff needs .option("brokers", "host:port")')
        record_filter = parse_filter(options)
        # Without `starting`, nothing before `from` needs to be read.
        since_ms = record_filter.since_ms
        return cls(
            origin=ReadOrigin(
                ClusterConf(options["brokers"], properties, client_id="koff"),
                options.get("offsetstopic", OFFSETS_TOPIC),
                options.get("cluster", options["brokers"]),
                fail_on_data_loss=parse_flag(options, "failondataloss", default=True),
            ),
            record_filter=record_filter,
            starting=parse_offset(options, "starting", OffsetSpec.EARLIEST if since_ms is None else since_ms),
            ending=parse_offset(options, "ending", OffsetSpec.LATEST),
            max_offsets_per_batch=parse_number(options, "maxoffsetsperbatch", MAX_OFFSETS),
            tasks=parse_number(options, "tasks", TASKS),
            raw=parse_flag(options, "raw", default=False),
            spans=tuple(map(tuple, json.loads(options["spans"]))) if "spans" in options else None,
        )


_NAMES = frozenset(
    {
        *("brokers", "cluster", "offsetstopic", "group", "topic", "from", "until", "starting", "ending"),
        *("commitsto", "maxoffsetsperbatch", "tasks", "failondataloss", "raw", "path"),
        "spans",
    }
)


@dataclass
class KafkaTask(InputPartition):
    """The spans that one task reads. `leader_epochs`: see `read_spans`."""

    spans: list[Span]
    leader_epochs: dict[tuple[int, int], int]

    def __init__(
        self, spans: Sequence[Span], leader_epochs: Mapping[tuple[int, int], int] | None = None
    ) -> None:
        super().__init__(tuple(spans))
        self.spans, self.leader_epochs = list(spans), dict(leader_epochs or {})


class OffsetsLog:
    """The offsets topic of a cluster: its offsets and its records. Connects when it first needs to."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None

    @property
    def connected(self) -> bool:
        """Whether the cluster could be reached once."""
        return self._cluster is not None

    def close(self) -> None:
        """Closes the connection."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def resolve_offsets(self, spec: OffsetSpec | int) -> dict[int, int]:
        """The offset of each partition that has one now; partitions without a leader are missing.

        Latest is the last stable offset. A time gives the offset of the first record that is not older, or
        latest if there is no such record. Raises `ConnectError`, and `ConfigError` if there is no such topic.
        """
        offsets = dict(self._fetch_offsets(spec))
        if isinstance(spec, int) and any(offset < 0 for offset in offsets.values()):
            latest = self._fetch_offsets(OffsetSpec.LATEST)
            offsets = {
                p: offset if offset >= 0 else latest[p] for p, offset in offsets.items() if p in latest
            }
        return offsets

    def _fetch_offsets(self, spec: OffsetSpec | int) -> Mapping[int, int]:
        return self.fetch_position(spec).offsets

    def fetch_position(self, spec: OffsetSpec | int = OffsetSpec.LATEST) -> LogPosition:
        """The offset of each partition that has one now; -1 if no record is as new as a time.

        Raises as `resolve_offsets` does.
        """
        cluster, origin = self._connect(), self.options.origin
        topic = cluster.fetch_topic(origin.topic)
        if topic is None and origin.topic == OFFSETS_TOPIC:
            return LogPosition({})  # brokers create it when the first group is used
        if topic is None:
            raise ConfigError(
                f"cluster {origin.cluster}: there is no topic {origin.topic}: check the option offsetsTopic"
            )
        at = [TopicPartition(origin.topic, p) for p in range(topic.partitions)]
        results = cluster.lister.list_offsets(at, spec, Isolation.READ_COMMITTED)
        errors = {p.partition: result for p, result in results.items() if isinstance(result, str)}
        if errors:
            log.warning(
                "no offsets from some partitions", cluster=origin.cluster, topic=origin.topic, why=errors
            )
        listed = {p.partition: found for p, found in results.items() if not isinstance(found, str)}
        return LogPosition(
            {partition: found.offset for partition, found in listed.items()},
            topic.topic_id,
            {partition: found.leader_epoch for partition, found in listed.items()},
        )

    def _connect(self) -> Cluster:
        """The connected cluster. Raises `ConnectError` with the name of the cluster."""
        if self._cluster is None:
            cluster = Cluster(self.options.origin.conf)
            try:
                self._cluster = cluster.connect()
            except ConnectError as error:
                cluster.close()
                raise type(error)(f"cluster {self.options.origin.cluster}: {error}") from error
        return self._cluster

    def read_rows(self, task: KafkaTask) -> Iterator[pa.RecordBatch]:
        """The rows of the task's spans, in the columns that the options ask for."""
        options = self.options
        runs = read_spans(options.origin, task.spans, task.leader_epochs)
        if options.raw:
            return map(_build_raw_batch, runs)
        decoded = decode_runs(runs, Decoder(options.origin.cluster))
        return filter(len, map(options.record_filter.filter_rows, decoded))


def decode_runs(runs: Iterable[RecordRun], decoder: Decoder) -> Iterator[pa.RecordBatch]:
    """The decoded rows of the records."""
    for run in runs:
        yield decoder.decode_buffers(*_number_rows(run), run.timestamps_ms, run.keys, run.values)


def _number_rows(run: RecordRun) -> tuple[pa.Int32Array, pa.Int64Array]:
    """The columns with the partition and the offsets."""
    partitions = np.full(len(run), run.partition, np.int32)
    return pa.array(partitions), pa.array(np.asarray(run.offsets, np.int64))


def _build_raw_batch(run: RecordRun) -> pa.RecordBatch:
    """The columns `RAW_ROWS`."""
    times = pa.array(run.timestamps_ms, pa.timestamp("ms", "UTC")).cast(TIME)
    columns = [*_number_rows(run), times, to_arrow(run.keys), to_arrow(run.values)]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_ROWS)


class BatchReader(DataSourceReader):
    """Reads the log as it is now, up to its last stable offset, as one bounded table."""

    def __init__(self, options: KafkaOptions) -> None:
        self._log = OffsetsLog(options)

    def partitions(self) -> list[KafkaTask]:
        """The tasks. Raises `ConnectError` if only one of the two requests returned an offset of a partition.

        A partition without a leader during both requests is left out; `_fetch_offsets` logs a warning.
        """
        options = self._log.options
        if options.spans is not None:
            epochs = {(partition, start): epoch for partition, start, _, epoch in options.spans}
            chosen = (Span(*each[:3]) for each in options.spans)
            return [KafkaTask(share, epochs) for share in split_spans(chosen, options.tasks) or [[]]]
        try:
            starts = self._log.resolve_offsets(options.starting)
            ends = self._log.resolve_offsets(options.ending)
        finally:
            self._log.close()
        missing = ends.keys() ^ starts.keys()
        if missing:
            raise ConnectError(
                f"cluster {options.origin.cluster}: partitions {sorted(missing)} of {options.origin.topic} "
                "have no leader: try again when they have one"
            )
        # For an empty list, Spark would make one task and pass None to `read`: return one task without spans.
        shares = split_spans(make_spans(starts, ends), options.tasks) or [[]]
        return [KafkaTask(share) for share in shares]

    def read(self, partition: KafkaTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark passes our tasks
        """The rows of one task, on a worker."""
        return self._log.read_rows(partition)


class StreamReader(DataSourceStreamReader):
    """Reads the log batch by batch. An offset of the stream is a `LogPosition` as JSON.

    Spark 4.0 calls `latestOffset` without the current offset, so this class remembers where the last batch
    ended. After a restart it learns that from Spark, which first calls `partitions` for an empty batch that
    ends at the current offset.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._log = OffsetsLog(options)
        self._last_end: LogPosition | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where the first batch of the stream starts."""
        return LogPosition(self._log.resolve_offsets(self._log.options.starting)).to_json()

    def latestOffset(self) -> dict[str, Any]:
        """Where the next batch ends: at the last stable offsets, or after `maxOffsetsPerBatch` offsets.

        Raises `ConnectError` if the cluster was never reached. After that an unreachable cluster only means
        that there is no new batch. Raises `DataLost` if the topic was created again.
        """
        if self._last_end is None:
            self._last_end = LogPosition.from_json(self.initialOffset())
        last = self._last_end
        offsets, epochs = dict(last.offsets), dict(last.leader_epochs)
        try:
            latest = self._log.fetch_position()
            self._raise_if_recreated(latest)
            offsets |= self._fetch_new_starts(latest.offsets)
        except ConnectError as error:
            if not self._log.connected:
                raise
            cluster = self._log.options.origin.cluster
            log.warning("end offsets cannot be fetched: no new batch", cluster=cluster, why=str(error))
            return last.to_json()
        # A last stable offset may go back after an unclean leader election; a stream must not, and keeps the
        # epoch of the leader that knew the offset. A new partition whose log start is not known yet waits.
        ends = {p: end for p, end in latest.offsets.items() if p in offsets}
        counts = {p: max(0, end - offsets[p]) for p, end in ends.items()}
        for partition, count in limit_offsets(counts, self._log.options.max_offsets_per_batch).items():
            if counts[partition] or partition not in epochs:
                epochs[partition] = latest.leader_epochs[partition]
            offsets[partition] += count
        return LogPosition(offsets, latest.topic_id or last.topic_id, epochs).to_json()

    def _raise_if_recreated(self, latest: LogPosition) -> None:
        assert self._last_end is not None
        known = self._last_end.topic_id
        if known and latest.topic_id and latest.topic_id != known:
            origin = self._log.options.origin
            raise make_recreated_error(origin.cluster, origin.topic, known, latest.topic_id)

    def _fetch_new_starts(self, latest: Mapping[int, int]) -> dict[int, int]:
        """The log start offsets of partitions that the last batch did not have."""
        assert self._last_end is not None
        new = latest.keys() - self._last_end.offsets.keys()
        if not new:
            return {}
        return {p: start for p, start in self._log.resolve_offsets(OffsetSpec.EARLIEST).items() if p in new}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KafkaTask]:
        """The tasks of one batch."""
        begin, self._last_end = LogPosition.from_json(start), LogPosition.from_json(end)
        starts, ends = dict(begin.offsets), self._last_end.offsets
        # Partitions that were added since the last batch are read from their log start.
        new = sorted(ends.keys() - starts.keys())
        if new:
            log_starts = self._log.resolve_offsets(OffsetSpec.EARLIEST)
            starts |= {p: log_starts.get(p, 0) for p in new}
        spans = make_spans(starts, ends)
        epochs = {(p, starts[p]): epoch for p, epoch in begin.leader_epochs.items() if p in starts}
        return [KafkaTask(share, epochs) for share in split_spans(spans, self._log.options.tasks)]

    def read(self, partition: KafkaTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark passes our tasks
        """The rows of one task, on a worker."""
        return self._log.read_rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: Spark keeps the position of the stream in its checkpoint."""

    def stop(self) -> None:
        """Closes the connection."""
        self._log.close()


def make_recreated_error(cluster: str, topic: str, known_id: str, topic_id: str) -> DataLost:
    """The error for a topic that was created again while koff read it."""
    return DataLost(
        f"cluster {cluster}: the topic {topic} was created again (its id was {known_id}, now it is "
        f"{topic_id}): the new log does not continue the one that was read; read it under another name of "
        "the cluster, or into new tables"
    )


class KoffSource(DataSource):
    """The format `koff`."""

    @classmethod
    def name(cls) -> str:
        """The name of the source for `format(...)`."""
        return "koff"

    def schema(self) -> StructType:
        """The columns; `koff.spark.rows.decoding` explains them."""
        options = KafkaOptions.parse(self.options)
        return from_arrow_schema(RAW_ROWS if options.raw else SCHEMA)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader for `spark.read`."""
        return BatchReader(KafkaOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:
        """The reader for `spark.readStream`."""
        return StreamReader(KafkaOptions.parse(self.options))


def register(spark: SparkSession) -> None:
    """Registers the sources `koff` and `koff.segments` with a session."""
    spark.dataSource.register(KoffSource)
    spark.dataSource.register(SegmentsSource)


def decode(df: DataFrame, cluster: str = "") -> DataFrame:
    """Decodes a frame of Kafka records that another source read, such as Spark's connector.

    The frame has the columns `key` and `value`; `partition`, `offset` and `timestamp` are used if it has
    them. Returns rows with the columns `SCHEMA`. `cluster` is the name of the cluster in the rows.
    """
    from pyspark.sql import functions as f

    present = set(df.columns)
    names = {"partition": "INT", "offset": "BIGINT"}
    columns = [
        f.col(name).cast(kind) if name in present else f.lit(None).cast(kind) for name, kind in names.items()
    ]
    at = f.unix_millis("timestamp") if "timestamp" in present else f.lit(None).cast("BIGINT")
    records = df.select(*columns, at.alias("at"), f.col("key").cast("BINARY"), f.col("value").cast("BINARY"))

    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        # Made on the worker, once for each task: it keeps the names that it has decoded.
        decoder = Decoder(cluster)
        for batch in batches:
            yield decoder(pa.RecordBatch.from_arrays(batch.columns, schema=RAW))

    return records.mapInArrow(decode_batches, from_arrow_schema(SCHEMA))
