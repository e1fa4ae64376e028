"""Copied log segments as files: which there are, which to read together, how to share them out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath

import pyarrow as pa
import structlog
from pyarrow import fs

from koff.errors import ConfigError
from koff.records.segments import TransactionOutcomes, read_segment
from koff.spark.rows.spans import Span, share_out

log = structlog.get_logger(component="spark.source.segment_files")
NO_END = 2**63 - 1
"""The end of the offsets of a file whose end is not known: the last file of a log."""
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)$")
_TOPIC_ID = re.compile(r"^topic_id: *(\S+)$", re.MULTILINE)


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

    @property
    def span(self) -> Span:
        """The offsets that the read files may have, by the names of the files: a name is the first offset."""
        known = self.start is not None and self.end is not None
        return Span(self.partition, self.start or 0, (self.end or 0) if known else NO_END)

    @property
    def start(self) -> int | None:
        """The first offset of the read files; None if their names do not say it."""
        return self._find_base(self.first)

    @property
    def end(self) -> int | None:
        """The first offset of the file after them; None if its name does not say it, or there is none."""
        return self._find_base(self.last)

    def cut(self, first: int, last: int) -> Segments:
        """The same log, of which the files from `first` to before `last` are read."""
        return replace(self, first=first, last=last)

    def _find_base(self, number: int) -> int | None:
        """The first offset of a file; None if its name does not say it, or if there is no such file."""
        name = PurePosixPath(self.files[number]).stem if number < len(self.files) else ""
        return int(name) if name.isdigit() else None


def list_logs(paths: Iterable[str], topic: str) -> list[Segments]:
    """The log of each partition, whole. Raises `ConfigError` if a path has no segments."""
    return _drop_copies([copy for path in paths for copy in _find_logs(path, topic)])


def plan_batches(logs: Sequence[Segments], most_bytes: int) -> list[list[Segments]]:
    """All files, in batches of at most `most_bytes`, or of one larger file.

    The files of a partition stay in log order from batch to batch.
    """
    batches: list[list[Segments]] = []
    size = 0
    for whole in logs:
        for number, file_size in enumerate(whole.sizes):
            if not batches or size + file_size > most_bytes:
                batches.append([])
                size = 0
            size += file_size
            last = batches[-1][-1] if batches[-1] else None
            if last is not None and last.partition == whole.partition:
                batches[-1][-1] = last.cut(last.first, number + 1)
            else:
                batches[-1].append(whole.cut(number, number + 1))
    return [batch for batch in batches if batch]


def find_log_end(whole: Segments) -> int:
    """The offset up to which the copy of a log is sound: its end, or its first open transaction.

    So is damage in the last file. (Damage in an earlier one becomes a row when it is read.)
    """
    last, outcomes = whole.cut(whole.last - 1, whole.last), TransactionOutcomes()
    for path in whole.files:
        outcomes.scan(map_file(path))
    buffer, end = map_file(whole.files[-1]), last.start or 0
    unsound = [] if outcomes.first_open_offset is None else [outcomes.first_open_offset]
    for chunk in read_segment(buffer, check_crc=False):
        unsound += [end if damage.offset is None else damage.offset for damage in chunk.damage]
        offsets = [*chunk.records.offset[-1:].tolist(), *(marker.offset for marker in chunk.markers[-1:])]
        end = max([end, *(offset + 1 for offset in offsets)])
    sound = min([end, *unsound])
    if sound < end:
        log.warning(
            "a copy of a log is sound up to a transaction that is open, or damage: the rest is left out",
            file=whole.files[-1],
            sound_to=sound,
            ends=end,
        )
    return sound


def map_file(path: str) -> memoryview:
    """The bytes of a file: mapped if it is local, else read into memory. Raises `ConfigError`."""
    system, base = open_filesystem(path)
    is_local = isinstance(system, fs.LocalFileSystem)
    try:
        with pa.memory_map(base) if is_local else system.open_input_file(base) as file:
            return memoryview(file.read_buffer())  # the buffer keeps the mapping after the file is closed
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}".replace("\n", " ")) from error


def read_topic_id(logs: Iterable[Segments]) -> str | None:
    """The topic id in the files `partition.metadata` beside the segments; None if there is no such file.

    Raises `ConfigError` if the folders are of several topics.
    """
    found: dict[str, str] = {}
    for whole in logs:
        path = f"{whole.files[0].rpartition('/')[0]}/partition.metadata"
        system, base = open_filesystem(path)
        if system.get_file_info(base).type == fs.FileType.File:
            with system.open_input_file(base) as file:
                match = _TOPIC_ID.search(file.read().decode(errors="replace"))
            if match:
                found[match[1]] = path
    if len(found) > 1:
        (one, path), (other, at) = list(found.items())[:2]
        raise ConfigError(
            f"segments of two topics: {path} has the topic id {one}, {at} has {other}; backfill each topic "
            "under a --cluster-name of its own"
        )
    return next(iter(found), None)


def _find_logs(path: str, topic: str) -> Iterator[Segments]:
    """The logs in a file or folder. In a folder of folders, only the logs of the topic."""
    system, base = open_filesystem(path)
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


def open_filesystem(path: str) -> tuple[fs.FileSystem, str]:
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
    return share_out((piece for whole in logs for piece in _cut_log(whole, share)), tasks)


def _cut_log(whole: Segments, share: float) -> Iterator[Segments]:
    """Pieces of whole files, none larger than `share` unless a single file is."""
    first, size = whole.first, 0
    for last in range(whole.first, whole.last):
        if size and size + whole.sizes[last] > share:
            yield whole.cut(first, last)
            first, size = last, 0
        size += whole.sizes[last]
    yield whole.cut(first, whole.last)
