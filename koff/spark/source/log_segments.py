"""`spark.read.format("koff.segments").load(PATH)`: the rows of the source `koff`, from copied log segments.

The path is the folder of a partition (`__consumer_offsets-7`), a broker's data folder, which contains such
folders, or a .log file; or several of them with commas between. Workers read the path themselves: every
machine has it under the same name, or it is a URI that pyarrow knows (s3://, gs://, hdfs://, abfs://), with
credentials that pyarrow finds on the worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import structlog
from pyarrow import fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from koff.errors import ConfigError
from koff.records.segments import Damage, SegmentRecords, TransactionOutcomes, read_segment
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import DDL, SCHEMA, Decoder, RecordFilter
from koff.spark.rows.packing import PACKED_DDL, Extent, pack_batches
from koff.spark.source.source_options import check_options, parse_filter, parse_flag, parse_number

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = structlog.get_logger(component="spark.source.log_segments")
TASKS = 16
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)$")


@dataclass(frozen=True, slots=True)
class Segments:
    """The segment files of one partition in log order. The files from `first` to before `last` are read.

    The files from `last` on are there because they may have markers that end transactions of earlier files.
    """

    partition: int
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many bytes to read."""
        return sum(self.sizes[self.first : self.last])


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

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SegmentsOptions:
        """The options that Spark gives a source. Raises `ConfigError`."""
        names = "path cluster offsetstopic group topic from until tasks checkcrc packed"
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
        logs = [copy for path in self._options.paths for copy in _find_logs(path, self._options.topic)]
        return [SegmentsTask(share) for share in split_logs(_drop_copies(logs), self._options.tasks)]

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

    def schema(self) -> str:
        """The columns as DDL; `koff.spark.rows.decoding` explains them."""
        options = SegmentsOptions.parse(self.options)
        return PACKED_DDL if options.packed else DDL

    def reader(self, schema: StructType) -> SegmentsReader:
        """The reader for `spark.read`."""
        return SegmentsReader(SegmentsOptions.parse(self.options))


def segments_size(path: str) -> int:
    """How many bytes the source reads at a path. Raises `ConfigError` if the path has no segments."""
    shares = SegmentsReader(SegmentsOptions.parse({"path": path})).partitions()
    return sum(segments.size for share in shares for segments in share.segments)


def _find_logs(path: str, topic: str) -> Iterator[Segments]:
    """The logs in a file or folder. In a folder of folders, only the logs of the topic."""
    system, base = _open_filesystem(path)
    # pyarrow returns paths without the scheme of the URI. Workers need it again.
    prefix = path[: path.index(base)] if base in path else ""
    info = system.get_file_info(base)
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"there is no {path}: every worker must have it under this name, or give a URI")
    if info.type == fs.FileType.File:
        yield _list_segments(str(PurePosixPath(base).parent), [info], prefix)
        return

    # The name of a segment file is its first offset with zeros in front: sorted by name, it is in log order.
    infos = system.get_file_info(fs.FileSelector(base, recursive=True))
    files = sorted((info for info in infos if info.base_name.endswith(".log")), key=lambda info: info.path)
    logs = []
    for folder, in_folder in groupby(files, key=lambda info: str(PurePosixPath(info.path).parent)):
        match = _FOLDER.search(PurePosixPath(folder).name)
        if folder == base.rstrip("/") or (match and match["topic"] == topic):
            logs.append(_list_segments(folder, list(in_folder), prefix))
    if not logs:
        raise ConfigError(f"{path} has no .log files, and no folders such as {topic}-7 that have some")
    yield from logs


def _open_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path within that file system."""
    try:
        if "://" not in path:
            return fs.LocalFileSystem(), str(Path(path).absolute())
        # pyarrow does not know s3a:// and s3n://, Hadoop's names for S3.
        system, base = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", path))
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"cannot read {path}: {error}; mount it, or copy the files") from error
    return system, base


def _list_segments(folder: str, files: Sequence[fs.FileInfo], prefix: str) -> Segments:
    """All files of a partition's folder; a folder with another name counts as partition 0."""
    match = _FOLDER.search(PurePosixPath(folder).name)
    return Segments(
        partition=int(match["partition"]) if match else 0,
        files=tuple(prefix + info.path for info in files),
        sizes=tuple(info.size for info in files),
        first=0,
        last=len(files),
    )


def _drop_copies(logs: Sequence[Segments]) -> list[Segments]:
    """One log for each partition: of copies from several brokers, the one that reaches furthest."""
    best: dict[int, Segments] = {}
    for copy in logs:
        # Keep the copy that is known so far, unless this one reaches further.
        kept, ignored = best.get(copy.partition, copy), copy
        if _log_reach(copy) > _log_reach(kept):
            kept, ignored = copy, kept
        best[copy.partition] = kept
        if kept is not ignored:
            log.warning(
                "a partition has two copies: reading the longer one",
                partition=copy.partition,
                read=kept.files[0],
                ignored=ignored.files[0],
            )
    return [best[partition] for partition in sorted(best)]


def _log_reach(segments: Segments) -> tuple[str, int]:
    """A key that is larger for a copy that reaches further: the name of its last segment, then its size."""
    return PurePosixPath(segments.files[-1]).name, sum(segments.sizes)


def split_logs(logs: Sequence[Segments], tasks: int) -> list[list[Segments]]:
    """Splits logs into at most `tasks` shares of about equal size; large logs are cut between files."""
    share = sum(whole.size for whole in logs) / tasks
    pieces = [piece for whole in logs for piece in _cut_log(whole, share)]
    shares: list[list[Segments]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    # Largest piece first, each to the share that is smallest so far.
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(piece)
        sizes[smallest] += piece.size
    return [pieces for pieces in shares if pieces]


def _cut_log(whole: Segments, share: float) -> Iterator[Segments]:
    """Pieces of whole files, none larger than `share` unless a single file is."""
    first, size = 0, 0
    for last, file_size in enumerate(whole.sizes):
        if size and size + file_size > share:
            yield Segments(whole.partition, whole.files, whole.sizes, first, last)
            first, size = last, 0
        size += file_size
    yield Segments(whole.partition, whole.files, whole.sizes, first, len(whole.files))


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

    # Then the records. `next_offset` places damage that has no readable offset of its own. The name of a file
    # is its first offset.
    name = PurePosixPath(segments.files[segments.first]).stem if segments.first < segments.last else ""
    start = int(name) if name.isdigit() else None
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
                yield _decode_records(segments.partition, chunk.records, decoder)
            if chunk.damage:
                yield _make_damage_rows(segments.partition, path, chunk.damage, next_offset, options.cluster)

    if start is not None and start < next_offset:
        sound_end = max(start, min([next_offset, *unsound]))
        extents.append(Extent(segments.partition, start, next_offset, sound_end))


def _map_file(path: str) -> memoryview:
    """The bytes of a file: mapped if it is local, else read into memory."""
    system, base = _open_filesystem(path)
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
