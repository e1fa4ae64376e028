"""`koff decode segments`: decodes log segments from the disk of a broker that is down."""

import json
import mmap
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from pathlib import Path

import click
from click import option

from koff.cli.options import GROUP_FILTER, TOPIC_FILTER
from koff.cli.record_formats import FORMATS, Format, build_filter, find_format, format_time
from koff.client.batches import RawRecord
from koff.errors import ConfigError
from koff.records import Undecodable, decode, decode_share_state
from koff.records.segments import Buffer, Chunk, Damage, Marker, TransactionOutcomes, read_segment
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)$")


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """The segment files of one partition, in log order. `topic` is "" if the folder has another name."""

    topic: str
    partition: int
    files: tuple[Path, ...]


@dataclass(slots=True)
class Tally:
    """How many records, markers and damaged places were found."""

    records: int = 0
    undecodable: int = 0
    markers: Counter[str] = field(default_factory=Counter)
    damage: int = 0


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@option("--format", "form", type=click.Choice(list(FORMATS)), default="text", help="As in koff printer.")
@option("--read-committed", is_flag=True, help="Only committed records: applies the transaction markers.")
@option("--share-state", is_flag=True, help="The segments are of __share_group_state.")
@option(
    "--offsets-topic",
    help="The topic to look for in a broker's data.  [default: __consumer_offsets, or __share_group_state]",
)
@GROUP_FILTER
@TOPIC_FILTER
@option("--check-crc/--no-check-crc", default=True, help="Whether to verify the checksums of the batches.")
def segments(
    paths: tuple[Path, ...],
    form: str,
    read_committed: bool,
    share_state: bool,
    offsets_topic: str | None,
    group: re.Pattern[str] | None,
    topic: re.Pattern[str] | None,
    check_crc: bool,
) -> None:
    """Decode Kafka log segments: .log files, or folders copied off a broker.

    A folder is one partition (`__consumer_offsets-7`) or the data of a broker, which holds such folders. All
    of Kafka's codecs are supported. Commit and abort markers are shown with their producer. Torn or damaged
    batches are reported on standard error, with the place and the reason; the rest is decoded, and the exit
    code is 1.

    \b
    Examples:
      koff decode segments __consumer_offsets-7
      koff decode segments --read-committed --format json kafka-data | jq .group
      koff decode segments 00000000000000000000.log --group '^payments$'
    """
    # Find the files.
    printer = _SegmentPrinter(find_format(form), form, share_state, group, topic)
    offsets_topic = offsets_topic or (SHARE_STATE_TOPIC if share_state else OFFSETS_TOPIC)
    logs = list(find_logs(paths, offsets_topic))
    total = sum(path.stat().st_size for log in logs for path in log.files)
    with click.progressbar(
        length=total, label="decoding", file=sys.stderr, hidden=not sys.stderr.isatty() or sys.stdout.isatty()
    ) as bar:
        for log in logs:
            _decode_log(log, printer, bar.update, read_committed=read_committed, check_crc=check_crc)
    # Print the counts.
    tally = printer.tally
    counts = [f"{tally.records} records", f"{tally.undecodable} of them undecodable"]
    counts += [f"{count} {kind} markers" for kind, count in sorted(tally.markers.items())]
    counts += [f"{tally.damage} damaged places"] if tally.damage else []
    click.echo(", ".join(counts), err=True)
    sys.exit(1 if tally.damage else 0)


def find_logs(paths: Sequence[Path], topic: str) -> Iterator[SegmentLog]:
    """The logs in files and folders. In a folder that holds folders, only the logs of `topic`.

    Raises `ConfigError` for a path without a log.
    """
    for path in paths:
        if not path.is_dir():
            if not path.is_file():  # to read a pipe or a device could take for ever
                raise ConfigError(f"{path} is neither a file nor a folder")
            yield _build_log(path.absolute().parent, [path])
            continue
        # A folder such as `topic-7.0f3c...-delete` is of a partition that Kafka deletes.
        named = ((_FOLDER.search(folder.name), folder) for folder in path.iterdir())
        numbered = [(int(at["partition"]), folder) for at, folder in named if at and at["topic"] == topic]
        folders = [path, *(folder for _, folder in sorted(numbered))]
        logs = [_build_log(folder, files) for folder in folders if (files := sorted(folder.glob("*.log")))]
        if not logs:
            raise ConfigError(f"{path} holds no .log files, and no folders such as {topic}-7 with .log files")
        yield from logs


def _build_log(folder: Path, files: Sequence[Path]) -> SegmentLog:
    match = _FOLDER.search(folder.resolve().name)
    return SegmentLog(match["topic"] if match else "", int(match["partition"]) if match else 0, tuple(files))


class _SegmentPrinter:
    """Prints records, markers and damage, and counts them in `tally`."""

    def __init__(
        self,
        show: Format,
        form: str,
        share_state: bool,
        group: re.Pattern[str] | None,
        topic: re.Pattern[str] | None,
    ) -> None:
        self.tally = Tally()
        self._show = show
        self._form = form
        self._decode = decode_share_state if share_state else decode
        self._is_selected = build_filter(group, topic)
        self._shows_markers = group is None and topic is None  # a marker belongs to no group and no topic

    def print_chunk(self, log: SegmentLog, path: Path, chunk: Chunk) -> None:
        """Prints records and markers in the order of their offsets, and damage on standard error."""
        records = chunk.records
        columns = (records.offset.tolist(), records.timestamp.tolist(), records.keys, records.values)
        decoded = (RawRecord(log.partition, *row) for row in zip(*columns, strict=True))
        found: Iterator[Marker | RawRecord] = merge(chunk.markers, decoded, key=attrgetter("offset"))
        for each in found:
            line = self._format_marker(log, each) if isinstance(each, Marker) else self._format_record(each)
            sys.stdout.write(line)
        for damage in chunk.damage:
            self._print_damage(path, damage)

    def _format_record(self, record: RawRecord) -> str:
        message = self._decode(record.key, record.value)
        self.tally.records += 1
        self.tally.undecodable += isinstance(message.record, Undecodable)
        return self._show(record, message) + "\n" if self._is_selected(message) else ""

    def _format_marker(self, log: SegmentLog, marker: Marker) -> str:
        self.tally.markers[marker.kind] += 1
        if not self._shows_markers:
            return ""
        if self._form == "json":
            at = {"partition": log.partition, "offset": marker.offset, "timestamp": marker.timestamp}
            producer = {"producer_id": marker.producer_id, "producer_epoch": marker.producer_epoch}
            return json.dumps({"at": at, "marker": marker.kind, **producer}) + "\n"
        if self._form != "text":
            return ""  # the formats kafka and raw have no line for a marker
        prefix = f"{format_time(marker.timestamp)} {log.partition:>2}@{marker.offset:<6}"
        return (
            f"{prefix} marker  {marker.kind} of producer {marker.producer_id} epoch {marker.producer_epoch}\n"
        )

    def _print_damage(self, path: Path, damage: Damage) -> None:
        self.tally.damage += 1
        offset = "" if damage.offset is None else f" (offset {damage.offset})"
        click.echo(
            f"{path}: at byte {damage.position}{offset}, {damage.size} bytes: {damage.reason}", err=True
        )


@contextmanager
def _map_file(path: Path) -> Iterator[Buffer]:
    """The bytes of the file. Raises `ConfigError` if the file cannot be read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    with file:
        if path.stat().st_size == 0:  # mmap refuses an empty file
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def _decode_log(
    log: SegmentLog,
    printer: _SegmentPrinter,
    progress: Callable[[int], None],
    *,
    read_committed: bool,
    check_crc: bool,
) -> None:
    outcomes = None
    if read_committed:  # read the files twice: the marker of a transaction comes after its records
        outcomes = TransactionOutcomes()
        for path in log.files:
            with _map_file(path) as buffer:
                outcomes.scan(buffer)
    for path in log.files:
        with _map_file(path) as buffer:
            done = 0
            for chunk in read_segment(buffer, outcomes=outcomes, check_crc=check_crc):
                printer.print_chunk(log, path, chunk)
                progress(chunk.position - done)
                done = chunk.position
