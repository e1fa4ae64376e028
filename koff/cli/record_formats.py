"""How a decoded record is printed: the formats that `koff printer` and `koff decode` share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from koff.client import RawRecord
from koff.records import Message, as_dict, kafka_line, text

Show = Callable[[RawRecord | None, Message], str]
"""A record's place (None where it has none) and its meaning, to a line without its end."""
COLOURS: dict[str, dict[str, Any]] = {
    "bad": {"fg": "red", "bold": True},
    "unknown": {"fg": "yellow"},
    "offset": {},
}


def as_text(record: RawRecord | None, message: Message) -> str:
    """`time partition@offset what it says`."""
    line = text(message)
    if record is None:
        return line
    return f"{moment(record.timestamp_ms)} {record.partition:>2}@{record.offset:<6} {line}"


def as_coloured_text(record: RawRecord | None, message: Message) -> str:
    """The same in colours: deletions dim, what is not a commit cyan, what does not decode red."""
    line = as_text(record, message)
    if message.tombstone:
        return click.style(line, dim=True)
    kind = text(message).split(" ", 1)[0]
    return click.style(line, **COLOURS.get(kind, {"fg": "cyan"}))


def as_json(record: RawRecord | None, message: Message) -> str:
    """An object; `at` is its place."""
    where: Mapping[str, Any] = {}
    if record is not None:
        at = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp_ms}
        where = {"at": at}
    return json.dumps({**where, **as_dict(message)}, ensure_ascii=False)


def as_kafka(record: RawRecord | None, message: Message) -> str:
    """Exactly the line of Kafka's console formatters."""
    return kafka_line(message)


def as_raw(record: RawRecord | None, message: Message) -> str:
    """Key and value in hex, as `koff decode` reads them: `-` a null, `e` an empty one."""
    assert record is not None
    return f"{_hex(record.key)} {_hex(record.value)}"


FORMATS: dict[str, Show] = {"text": as_text, "json": as_json, "kafka": as_kafka, "raw": as_raw}


def format_named(name: str) -> Show:
    """The format; text is coloured on a terminal, unless NO_COLOR is set."""
    if name == "text" and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return as_coloured_text
    return FORMATS[name]


def moment(timestamp_ms: int) -> str:
    """UTC, to the millisecond; a number of ms where the calendar ends."""
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}ms"
    return f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex() or "e"
