"""`spark.read.format("koff.segments").load(PATH)`: the rows of the source `koff`, from copied log segments.

The path is the folder of a partition (`__consumer_offsets-7`), a broker's data folder, which contains such
folders, or a .log file; or several of them with commas between. Workers read the path themselves: every
machine has it under the same name, or it is a URI that pyarrow knows (s3://, gs://, hdfs://, abfs://), with
credentials that pyarrow finds on the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from koff.errors import ConfigError
from koff.records.segments import Damage, SegmentRecords, TransactionOutcomes, read_segment
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import SCHEMA, Decoder, RecordFilter
from koff.spark.source.segment_files import (
    NO_END,
    Segments,
    list_logs,
    map_file,
    split_logs,
)
from koff.spark.source.source_options import check_options, parse_filter, parse_flag, parse_number

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TASKS = 16


@dataclass(frozen=True, slots=True)
class SegmentsOptions:
    """The parsed options of the source `koff.segments`.

    `files`, if any, are the only ones to read, and `offsets` has the only offsets to read, by partition.
    """

    paths: tuple[str, ...]
    topic: str
    cluster: str
    record_filter: RecordFilter
    tasks: int = TASKS
    check_crc: bool = True
    files: tuple[Segments, ...] = ()
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SegmentsOptions:
        """The options that Spark gives a source. Raises `ConfigError`."""
        names = "path cluster offsetstopic group topic from until tasks checkcrc"
        options = check_options("koff.segments", given, frozenset(names.split()))
        paths = tuple(path.strip() for path in options.get("path", "").split(",") if path.strip())
        if not paths:
            raise ConfigError('the source koff.segments needs a path: .load("/data/kafka")')
        return cls(
            paths=paths,
            topic=options.get("offsetstopic", OFFSETS_TOPIC),
            cluster=options.get("cluster", ""),
            record_filter=parse_filter(options),
            tasks=parse_number(options, "tasks", TASKS),
            check_crc=parse_flag(options, "checkcrc", default=True),
        )


class SegmentsTask(InputPartition):
    """The segments that one task reads."""

    def __init__(self, segments: Sequence[Segments]) -> None:
        super().__init__(tuple(segments))
        self.segments = list(segments)


class SegmentsReader(DataSourceReader):
    """Reads the records that a read_committed consumer would get from the log, and a row for each damage."""

    def __init__(self, options: SegmentsOptions) -> None:
        self._options = options

    def partitions(self) -> list[SegmentsTask]:
        """The tasks. Raises `ConfigError` if a path has no segments."""
        logs = self._options.files or list_logs(self._options.paths, self._options.topic)
        return [SegmentsTask(share) for share in split_logs(logs, self._options.tasks)]

    def read(self, partition: SegmentsTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark passes our tasks
        """The rows of one task, on a worker."""
        options, decoder = self._options, Decoder(self._options.cluster)
        decoded = (rows for each in partition.segments for rows in _read_rows(each, decoder, options))
        return filter(len, map(options.record_filter.filter_rows, decoded))


class SegmentsSource(DataSource):
    """The format `koff.segments`."""

    @classmethod
    def name(cls) -> str:
        """The name of the source for `format(...)`."""
        return "koff.segments"

    def schema(self) -> StructType:
        """The columns; `koff.spark.rows.decoding` explains them."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> SegmentsReader:
        """The reader for `spark.read`."""
        return SegmentsReader(SegmentsOptions.parse(self.options))


def _read_rows(segments: Segments, decoder: Decoder, options: SegmentsOptions) -> Iterator[pa.RecordBatch]:
    """The decoded rows of the committed records, and a row for each damage."""
    # First the transaction markers of these files, and of later files while a transaction is open.
    outcomes = TransactionOutcomes()
    for number, path in enumerate(segments.files[segments.first :], segments.first):
        if number < segments.last or outcomes.has_open_transaction:
            outcomes.scan(map_file(path))

    # Then the records. `next_offset` places damage that has no readable offset of its own.
    start, end = options.offsets.get(segments.partition, (0, NO_END))
    next_offset = segments.start or 0
    for path in segments.files[segments.first : segments.last]:
        for chunk in read_segment(map_file(path), outcomes=outcomes, check_crc=options.check_crc):
            if len(chunk.records):
                next_offset = int(chunk.records.offset[-1]) + 1
                is_wanted = (chunk.records.offset >= start) & (chunk.records.offset < end)
                yield _decode_records(segments.partition, chunk.records.select_rows(is_wanted), decoder)
            if chunk.damage and start <= next_offset < end:
                yield _make_damage_rows(segments.partition, path, chunk.damage, next_offset, options.cluster)


def _decode_records(partition: int, records: SegmentRecords, decoder: Decoder) -> pa.RecordBatch:
    return decoder.decode_buffers(
        pa.array(np.full(len(records), partition, np.int32)),
        pa.array(records.offset),
        records.timestamp,
        records.keys,
        records.values,
    )


def _make_damage_rows(
    partition: int, path: str, damages: Sequence[Damage], next_offset: int, cluster: str
) -> pa.RecordBatch:
    """A row of kind `Undecodable` for each place that could not be read, so that no loss is silent."""
    name = PurePosixPath(path).name
    rows = [
        dict.fromkeys(SCHEMA.names)
        | {
            "cluster": cluster,
            "offsets_partition": partition,
            "log_offset": next_offset if damage.offset is None else damage.offset,
            "kind": "Undecodable",
            "tombstone": False,
            "reason": f"{name} at byte {damage.position}, {damage.size} bytes: {damage.reason}",
        }
        for damage in damages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
