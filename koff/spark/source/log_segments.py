"""`spark.read.format("koff.segments").load(PATH)`: the same rows, out of log segments copied off brokers.

The path is a partition's folder (`__consumer_offsets-7`), a broker's data, which holds such folders, or a
.log file; several with commas between. Workers read it themselves: it is on every machine under the same
name, or a URI that pyarrow knows (s3://, gs://, hdfs://, abfs://), with the credentials it finds there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
from koff.records.segments import Damage, Outcomes, Records, read
from koff.records.topics import OFFSETS_TOPIC
from koff.spark.rows.decoding import DDL, SCHEMA, Decoder, Wanted
from koff.spark.rows.packing import PACKED_DDL, pack
from koff.spark.source.source_options import check, flag, number, wanted
from koff.spark.tables.files import Into, written

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = structlog.get_logger(component="spark.source.log_segments")
TASKS = 16
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)$")


@dataclass(frozen=True, slots=True)
class Segments:
    """Files of one partition in order: those from `first` to before `last` are to be read.

    What became of their transactions, later ones may tell.
    """

    partition: int
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    first: int
    last: int

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return sum(self.sizes[self.first : self.last])


@dataclass(frozen=True, slots=True)
class SegmentsOptions:
    """What the source was told."""

    paths: tuple[str, ...]
    topic: str
    cluster: str
    wanted: Wanted
    tasks: int = TASKS
    check_crc: bool = True
    packed: bool = False
    into: Into | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SegmentsOptions:
        """Those of a reader. Raises `ConfigError`."""
        names = "path cluster offsetstopic group topic from until tasks checkcrc packed into"
        told = check("koff.segments", given, frozenset(names.split()))
        paths = tuple(path.strip() for path in told.get("path", "").split(",") if path.strip())
        if not paths:
            raise ConfigError('the source koff.segments needs a path: .load("/data/kafka")')
        return cls(
            paths=paths,
            topic=told.get("offsetstopic", OFFSETS_TOPIC),
            cluster=told.get("cluster", ""),
            wanted=wanted(told),
            tasks=number(told, "tasks", TASKS),
            check_crc=flag(told, "checkcrc", default=True),
            packed=flag(told, "packed", default=False),
            into=Into.of(told["into"]) if "into" in told else None,
        )


class SegmentsTask(InputPartition):
    """What one task reads."""

    def __init__(self, segments: Sequence[Segments]) -> None:
        super().__init__(tuple(segments))
        self.segments = list(segments)


class SegmentsReader(DataSourceReader):
    """All records of the files that a read_committed consumer would have got, and their damage."""

    def __init__(self, options: SegmentsOptions) -> None:
        self._options = options

    def partitions(self) -> list[SegmentsTask]:
        """What each task reads. Raises `ConfigError` where there are no segments."""
        found = [each for path in self._options.paths for each in _logs(path, self._options.topic)]
        return [SegmentsTask(each) for each in dealt(_once(found), self._options.tasks)]

    def read(self, partition: SegmentsTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a share, on a worker."""
        options, decoder = self._options, Decoder(self._options.cluster)
        every = (rows for segments in partition.segments for rows in _rows(segments, decoder, options))
        kept = filter(len, map(options.wanted.of, every))
        if options.into:
            return written(kept, options.into)
        return pack(kept) if options.packed else kept


class SegmentsSource(DataSource):
    """The format `koff.segments`."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `format(...)`."""
        return "koff.segments"

    def schema(self) -> str:
        """The columns; koff.spark.rows.decoding says what they mean."""
        options = SegmentsOptions.of(self.options)
        return PACKED_DDL if options.packed or options.into else DDL

    def reader(self, schema: StructType) -> SegmentsReader:
        """For `spark.read`."""
        return SegmentsReader(SegmentsOptions.of(self.options))


def size(path: str) -> int:
    """How many bytes the source reads there. Raises `ConfigError` where there are no segments."""
    shares = SegmentsReader(SegmentsOptions.of({"path": path})).partitions()
    return sum(segments.size for share in shares for segments in share.segments)


def _logs(path: str, topic: str) -> Iterator[Segments]:
    """The logs in a file or folder; of a folder of folders only those of the topic."""
    system, base = _system(path)
    prefix = path[: path.index(base)] if base in path else ""
    info = system.get_file_info(base)
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"there is no {path}: workers must see it under that name, or give a URI")
    if info.type == fs.FileType.File:
        yield _log(str(PurePosixPath(base).parent), [info], prefix)
        return
    inside = system.get_file_info(fs.FileSelector(base, recursive=True))
    files = sorted((each for each in inside if each.base_name.endswith(".log")), key=lambda each: each.path)
    logs = []
    for folder, of in groupby(files, key=lambda each: str(PurePosixPath(each.path).parent)):
        named = _FOLDER.search(PurePosixPath(folder).name)
        if folder == base.rstrip("/") or (named and named["topic"] == topic):
            logs.append(_log(folder, list(of), prefix))
    if not logs:
        raise ConfigError(f"{path} holds no .log files, nor folders such as {topic}-7 that do")
    yield from logs


def _system(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the name of it there."""
    try:
        if "://" not in path:
            return fs.LocalFileSystem(), str(Path(path).absolute())
        system, base = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", path))
    except (pa.ArrowInvalid, OSError) as failure:
        raise ConfigError(f"cannot read {path}: {failure}; mount it, or copy the files") from failure
    return system, base


def _log(folder: str, files: Sequence[fs.FileInfo], prefix: str) -> Segments:
    named = _FOLDER.search(PurePosixPath(folder).name)
    return Segments(
        partition=int(named["partition"]) if named else 0,
        files=tuple(prefix + each.path for each in files),
        sizes=tuple(each.size for each in files),
        first=0,
        last=len(files),
    )


def _once(logs: Sequence[Segments]) -> list[Segments]:
    """One log a partition: of copies from several brokers, the one that goes furthest."""
    best: dict[int, Segments] = {}
    for each in logs:
        kept, left = best.get(each.partition, each), each
        if _reach(each) > _reach(kept):
            kept, left = each, kept
        best[each.partition] = kept
        if kept is not left:
            log.warning("two copies of a partition: one is read", read=kept.files[0], left=left.files[0])
    return [best[partition] for partition in sorted(best)]


def _reach(segments: Segments) -> tuple[str, int]:
    return PurePosixPath(segments.files[-1]).name, sum(segments.sizes)


def dealt(logs: Sequence[Segments], tasks: int) -> list[list[Segments]]:
    """The logs in up to so many shares of about equal size; the large ones cut between files."""
    share = sum(each.size for each in logs) / tasks
    shares: list[list[Segments]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for piece in sorted((piece for each in logs for piece in _cut(each, share)), key=lambda each: -each.size):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += piece.size
    return [each for each in shares if each]


def _cut(whole: Segments, share: float) -> Iterator[Segments]:
    first, size = 0, 0
    for last, more in enumerate(whole.sizes):
        if size and size + more > share:
            yield Segments(whole.partition, whole.files, whole.sizes, first, last)
            first, size = last, 0
        size += more
    yield Segments(whole.partition, whole.files, whole.sizes, first, len(whole.files))


def _rows(segments: Segments, decoder: Decoder, options: SegmentsOptions) -> Iterator[pa.RecordBatch]:
    outcomes = Outcomes()
    for number_, path in enumerate(segments.files[segments.first :], segments.first):
        if number_ < segments.last or outcomes.undecided:
            outcomes.scan(_bytes(path))
    behind = 0
    for path in segments.files[segments.first : segments.last]:
        for chunk in read(_bytes(path), outcomes=outcomes, check_crc=options.check_crc):
            if len(chunk.records):
                behind = int(chunk.records.offset[-1]) + 1
                yield _decoded(segments.partition, chunk.records, decoder)
            if chunk.damage:
                yield _damaged(segments.partition, path, chunk.damage, behind, options.cluster)


def _bytes(path: str) -> memoryview:
    system, base = _system(path)
    if isinstance(system, fs.LocalFileSystem):
        with pa.memory_map(base) as file:
            return memoryview(file.read_buffer())
    with system.open_input_file(base) as file:
        return memoryview(file.read_buffer())


def _decoded(partition: int, records: Records, decoder: Decoder) -> pa.RecordBatch:
    return decoder.rows(
        pa.array(np.full(len(records), partition, np.int32)),
        pa.array(records.offset),
        records.timestamp,
        records.keys,
        records.values,
    )


def _damaged(
    partition: int, path: str, damage: Sequence[Damage], behind: int, cluster: str
) -> pa.RecordBatch:
    """A row for every place that could not be read: nothing is lost without a word."""
    rows = [
        dict.fromkeys(SCHEMA.names)
        | {
            "cluster": cluster,
            "offsets_partition": partition,
            "log_offset": behind if each.offset is None else each.offset,
            "kind": "Undecodable",
            "tombstone": False,
            "reason": f"{PurePosixPath(path).name} at byte {each.position}, {each.size} bytes: {each.reason}",
        }
        for each in damage
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
