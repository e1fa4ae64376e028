"""`spark.read.format("koff")`: decoded records of a cluster's offsets topic.

Options (docs/pipeline.md says more):

* where: `brokers`, `property.<name>` (librdkafka's), `cluster` (the name of the cluster in rows),
  `offsetsTopic`;
* which records: `group`, `topic`, `commitsTo` (regular expressions), `from`, `until` (times), `starting`,
  `ending` (earliest, latest or a time);
* how: `tasks`, `failOnDataLoss`;
* as what: `raw` (true: as they are in the log).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from koff.client.batches import RecordRun
from koff.client.cluster import Cluster
from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.errors import ConfigError, ConnectError
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import RAW, SCHEMA, TIME, Decoder, RecordFilter, to_arrow
from koff.spark.rows.spans import Span, make_spans, split_spans
from koff.spark.source.log_position import fetch_position
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

TASKS = 16
"""The default of the option `tasks`."""
RAW_ROWS = RAW.set(RAW.names.index("timestamp_ms"), pa.field("timestamp", TIME))
"""The columns of rows with the option `raw`."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The parsed options of the source `koff`."""

    origin: ReadOrigin
    record_filter: RecordFilter
    starting: OffsetSpec | int = OffsetSpec.EARLIEST
    ending: OffsetSpec | int = OffsetSpec.LATEST
    tasks: int = TASKS
    raw: bool = False
    spans: tuple[tuple[int, int, int, int], ...] | None = None
    """The only offsets to read: partition, start, end, and the leader epoch at the start (-1: unknown)."""

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
            tasks=parse_number(options, "tasks", TASKS),
            raw=parse_flag(options, "raw", default=False),
        )


_NAMES = frozenset(
    {
        *("brokers", "cluster", "offsetstopic", "group", "topic", "from", "until", "starting", "ending"),
        *("commitsto", "tasks", "failondataloss", "raw", "path"),
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


class KafkaReader(DataSourceReader):
    """Reads the log as it is now, up to its last stable offset, as one bounded table."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def partitions(self) -> list[KafkaTask]:
        """The tasks. Raises `ConnectError` if only one of the two requests returned an offset of a partition.

        A partition without a leader during both requests is left out; a warning names it.
        """
        options = self._options
        if options.spans is not None:
            epochs = {(partition, start): epoch for partition, start, _, epoch in options.spans}
            chosen = (Span(*each[:3]) for each in options.spans)
            return [KafkaTask(share, epochs) for share in split_spans(chosen, options.tasks) or [[]]]
        origin = options.origin
        with Cluster(origin.conf) as cluster:
            try:
                cluster.connect()
            except ConnectError as error:
                raise type(error)(f"cluster {origin.cluster}: {error}") from error
            starts = _resolve_offsets(cluster, origin, options.starting)
            ends = _resolve_offsets(cluster, origin, options.ending)
        missing = ends.keys() ^ starts.keys()
        if missing:
            raise ConnectError(
                f"cluster {origin.cluster}: partitions {sorted(missing)} of {origin.topic} "
                "have no leader: try again when they have one"
            )
        # For an empty list, Spark would make one task and pass None to `read`: return one task without spans.
        shares = split_spans(make_spans(starts, ends), options.tasks) or [[]]
        return [KafkaTask(share) for share in shares]

    def read(self, partition: KafkaTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark passes our tasks
        """The rows of one task, on a worker."""
        options = self._options
        runs = read_spans(options.origin, partition.spans, partition.leader_epochs)
        if options.raw:
            return map(_build_raw_batch, runs)
        decoded = decode_runs(runs, Decoder(options.origin.cluster))
        return filter(len, map(options.record_filter.filter_rows, decoded))


def _resolve_offsets(cluster: Cluster, origin: ReadOrigin, spec: OffsetSpec | int) -> Mapping[int, int]:
    """The offset of each partition that has one now; partitions without a leader are missing.

    Latest is the last stable offset. A time gives the offset of the first record that is not older, or latest
    if there is no such record.
    """
    offsets = fetch_position(cluster, origin.cluster, origin.topic, spec).offsets
    if not isinstance(spec, int) or all(offset >= 0 for offset in offsets.values()):
        return offsets
    latest = fetch_position(cluster, origin.cluster, origin.topic).offsets
    return {p: offset if offset >= 0 else latest[p] for p, offset in offsets.items() if p in latest}


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

    def reader(self, schema: StructType) -> KafkaReader:
        """The reader for `spark.read`."""
        return KafkaReader(KafkaOptions.parse(self.options))


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
