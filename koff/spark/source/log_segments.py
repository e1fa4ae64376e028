"""`spark.read.format("koff.segments").load(PATH)`: the rows of the source `koff`, from copied log segments.

The path is the folder of a partition (`__consumer_offsets-7`), a broker's data folder, which contains such
folders, or a .log file; or several of them with commas between. Workers read the path themselves: every
machine has it under the same name, or it is a URI that pyarrow knows (s3://, gs://, hdfs://, abfs://), with
credentials that pyarrow finds on the worker.

Two options are koff's own. `files` has the only files to read, as JSON: `[[7, FIRST, LAST]]`, a partition and
two names of files. `covered` has offsets to leave out, as for the source `koff`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from koff.errors import ConfigError
from koff.records.segments import Damage, SegmentRecords, TransactionOutcomes, read_segment
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import SCHEMA, Decoder, RecordFilter
from koff.spark.rows.packing import PACKED, Extent, pack_batches
from koff.spark.source.segment_files import (
    ChosenFiles,
    Segments,
    choose_files,
    list_logs,
    open_filesystem,
    split_logs,
)
from koff.spark.source.source_options import check_options, parse_filter, parse_flag, parse_number
from koff.spark.tables.coverage import Interval, Intervals

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TASKS = 16


@dataclass(frozen=True, slots=True)
class SegmentsOptions:
    """The parsed options of the source `koff.segments`."""

    paths: tuple[str, ...]
    topic: str
    cluster: str
    record_filter: RecordFilter
    tasks: int = TASKS
    check_crc: bool = True
    packed: bool = False
    files: tuple[ChosenFiles, ...] = ()
    covered: Intervals = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SegmentsOptions:
        """The options that Spark gives a source. Raises `ConfigError`."""
        names = "path cluster offsetstopic group topic from until tasks checkcrc packed files covered"
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
            packed=parse_flag(options, "packed", default=False),
            files=tuple(ChosenFiles(*each) for each in json.loads(options.get("files", "[]"))),
            covered={int(p): spans for p, spans in json.loads(options.get("covered", "{}")).items()},
        )


def make_batch_options(batch: Sequence[Segments], covered: Intervals) -> dict[str, str]:
    """The options with which the source reads only the files of `batch`, without the offsets in `covered`."""
    files = [astuple(ChosenFiles.from_segments(segments)) for segments in batch]
    return {"files": json.dumps(files), "covered": json.dumps(covered)}


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
        logs = list_logs(self._options.paths, self._options.topic)
        if self._options.files:
            logs = choose_files(logs, self._options.files)
        return [SegmentsTask(share) for share in split_logs(logs, self._options.tasks)]

    def read(self, partition: SegmentsTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark passes our tasks
        """The rows of one task, on a worker."""
        options, decoder = self._options, Decoder(self._options.cluster)
        extents: list[Extent] = []
        decoded = (
            rows
            for segments in partition.segments
            for rows in _read_rows(segments, decoder, options, extents)
        )
        kept = filter(len, map(options.record_filter.filter_rows, decoded))
        return _append_extents(pack_batches(kept), extents) if options.packed else kept


def _append_extents(batches: Iterable[pa.RecordBatch], extents: Iterable[Extent]) -> Iterator[pa.RecordBatch]:
    """The batches, and then the extents: to read the batches adds to `extents`."""
    yield from batches
    for extent in extents:
        yield extent.pack()


class SegmentsSource(DataSource):
    """The format `koff.segments`."""

    @classmethod
    def name(cls) -> str:
        """The name of the source for `format(...)`."""
        return "koff.segments"

    def schema(self) -> StructType:
        """The columns; `koff.spark.rows.decoding` explains them."""
        return from_arrow_schema(PACKED if SegmentsOptions.parse(self.options).packed else SCHEMA)

    def reader(self, schema: StructType) -> SegmentsReader:
        """The reader for `spark.read`."""
        return SegmentsReader(SegmentsOptions.parse(self.options))


def _read_rows(
    segments: Segments, decoder: Decoder, options: SegmentsOptions, extents: list[Extent]
) -> Iterator[pa.RecordBatch]:
    """The decoded rows of the committed records, and a row for each damage.

    At the end, it adds the offsets that it has read to `extents`.
    """
    # First the transaction markers of these files, and of later files while a transaction is open.
    outcomes = TransactionOutcomes()
    for number, path in enumerate(segments.files[segments.first :], segments.first):
        if number < segments.last or outcomes.has_open_transaction:
            outcomes.scan(_map_file(path))

    # Then the records. `next_offset` places damage that has no readable offset of its own.
    start, covered = segments.start, options.covered.get(segments.partition, ())
    next_offset, unsound = start or 0, []
    if outcomes.first_open_offset is not None:
        unsound.append(outcomes.first_open_offset)
    for path in segments.files[segments.first : segments.last]:
        for chunk in read_segment(_map_file(path), outcomes=outcomes, check_crc=options.check_crc):
            # Damage without an offset may be anywhere in the chunk.
            unsound += [next_offset if each.offset is None else each.offset for each in chunk.damage]
            if len(chunk.records):
                start = int(chunk.records.offset[0]) if start is None else start
                next_offset = int(chunk.records.offset[-1]) + 1
                yield _decode_records(segments.partition, _drop_covered(chunk.records, covered), decoder)
            if chunk.damage:
                yield _make_damage_rows(segments.partition, path, chunk.damage, next_offset, options.cluster)

    # Between the last record and the next file are no records: they were compacted away, or are markers.
    next_offset = max(next_offset, segments.end or 0)
    if start is not None and start < next_offset:
        sound_end = max(start, min([next_offset, *unsound]))
        extents.append(Extent(segments.partition, start, next_offset, sound_end))


def _drop_covered(records: SegmentRecords, covered: Sequence[Interval]) -> SegmentRecords:
    is_kept = np.ones(len(records), np.bool_)
    for start, end in covered:
        is_kept &= (records.offset < start) | (records.offset >= end)
    return records if is_kept.all() else records.select_rows(is_kept)


def _map_file(path: str) -> memoryview:
    """The bytes of a file: mapped if it is local, else read into memory."""
    system, base = open_filesystem(path)
    if isinstance(system, fs.LocalFileSystem):
        with pa.memory_map(base) as file:
            return memoryview(file.read_buffer())  # the buffer keeps the mapping after the file is closed
    with system.open_input_file(base) as file:
        return memoryview(file.read_buffer())


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
