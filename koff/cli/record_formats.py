"""The formats in which `koff printer` and `koff decode` print a decoded record."""

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from koff.client.batches import RawRecord
from koff.records import DecodedMessage, OffsetCommit, as_dict, kafka_line, text_line

Format = Callable[[RawRecord | None, DecodedMessage], str]
"""Formats a record (None if its place is unknown) and its message as one line without a newline."""
Filter = Callable[[DecodedMessage], Any]
"""Whether to print or count the message."""
COLOURS: dict[str, dict[str, Any]] = {
    "bad": {"fg": "red", "bold": True},
    "unknown": {"fg": "yellow"},
    "offset": {},
}


def format_text(record: RawRecord | None, message: DecodedMessage) -> str:
    """A readable line: `time partition@offset`, if known, and the content of the record."""
    line = text_line(message)
    if record is None:
        return line
    return f"{format_time(record.timestamp_ms)} {record.partition:>2}@{record.offset:<6} {line}"


def format_coloured_text(record: RawRecord | None, message: DecodedMessage) -> str:
    """The readable line in colours.

    Tombstones are dim, commits plain, unknown types yellow, undecodable records red, all others cyan.
    """
    line = format_text(record, message)
    if message.tombstone:
        return click.style(line, dim=True)
    kind = text_line(message).split(" ", 1)[0]  # the first word of the text names the kind of record
    return click.style(line, **COLOURS.get(kind, {"fg": "cyan"}))


def format_json(record: RawRecord | None, message: DecodedMessage) -> str:
    """A JSON object. `at` holds partition, offset and timestamp, if known."""
    location: Mapping[str, Any] = {}
    if record is not None:
        at = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp_ms}
        location = {"at": at}
    return json.dumps({**location, **as_dict(message)}, ensure_ascii=False)


def format_kafka(record: RawRecord | None, message: DecodedMessage) -> str:
    """The line that Kafka's console formatters print, byte for byte."""
    return kafka_line(message)


def format_raw(record: RawRecord | None, message: DecodedMessage) -> str:
    """Key and value in hex, as `koff decode` reads them. `-` is null, `e` is empty."""
    assert record is not None
    return f"{_format_hex(record.key)} {_format_hex(record.value)}"


FORMATS: dict[str, Format] = {
    "text": format_text,
    "json": format_json,
    "kafka": format_kafka,
    "raw": format_raw,
}


def find_format(name: str) -> Format:
    """The format with that name. Text is coloured on a terminal, unless NO_COLOR is set."""
    if name == "text" and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return format_coloured_text
    return FORMATS[name]


def build_filter(
    group: re.Pattern[str] | None, topic: re.Pattern[str] | None, types: Collection[int] | None = None
) -> Filter:
    """Returns a filter of messages: by the name of the group, the topic of a commit, and the record type."""

    def is_selected(message: DecodedMessage) -> bool:
        record = message.record
        if types is not None and record.type not in types:
            return False
        if group is not None and not group.search(message.consumer):
            return False
        return topic is None or (isinstance(record, OffsetCommit) and bool(topic.search(record.topic)))

    return is_selected


def format_time(timestamp_ms: int) -> str:
    """The time in ISO 8601, UTC, with milliseconds. `<number>ms` if Python has no such date."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}ms"
    return f"{time:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _format_hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex() or "e"
