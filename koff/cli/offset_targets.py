"""What `--to` and `--topic` of `koff offsets plan` may be."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable
from pathlib import Path

from koff.cli.times import DURATION, parse_time
from koff.client.cluster_conf import TopicPartition
from koff.client.offset_plan import Commit
from koff.client.resets import Target
from koff.config.kinds import SHORT_NUMBER, text

_OFFSET = re.compile(r"[0-9]{1,19}")
_MOST_OFFSET = 2**63 - 1


def _parse_target(given: str) -> Target:
    if given in ("earliest", "latest"):
        return Target(given, given)  # type: ignore[arg-type]  # one of these two
    word, is_given, value = given.partition("=")
    if not is_given or word not in _FORMS:
        raise ValueError(f"must be earliest, latest or one of {', '.join(f'{form}=...' for form in _FORMS)}")
    return _FORMS[word](given, value)


def _parse_time(given: str, value: str) -> Target:
    timestamp_ms = parse_time(value)
    if timestamp_ms is None or not 0 <= timestamp_ms <= _MOST_OFFSET:
        raise ValueError(
            "has no time: write time=2026-01-31T12:00 (UTC), time=-1h or milliseconds since 1970"
        )
    return Target(given, "time", timestamp_ms)


def _parse_duration(given: str, value: str) -> Target:
    return Target(given, "time", max(0, int((time.time() - DURATION.parse(value)) * 1000)))


def _parse_by(given: str, value: str) -> Target:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        raise ValueError("has no number: write by=-100 to read 100 records again, by=1 to skip one")
    return Target(given, "by", int(value))


def _parse_offset(given: str, value: str) -> Target:
    return Target(given, "offset", _read_offset(value))


def _parse_file(given: str, value: str) -> Target:
    """The lines of a file as `kafka-consumer-groups.sh --export` writes it: topic,partition,offset."""
    try:
        rows = [row for row in csv.reader(Path(value).read_text().splitlines()) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    each: dict[TopicPartition, Commit | None] = {}
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or not SHORT_NUMBER.fullmatch(row[1]):
            raise ValueError(f"is wrong in line {number}: each line must be topic,partition,offset")
        at = TopicPartition(row[0], int(row[1]))
        if at in each:
            raise ValueError(f"names {at.topic},{at.partition} twice")
        each[at] = Commit(_read_offset(row[2]))
    if not each:
        raise ValueError("names no partition")
    return Target(given, "each", each=each)


def _read_offset(value: str) -> int:
    if not _OFFSET.fullmatch(value) or int(value) > _MOST_OFFSET:
        raise ValueError("has no offset: an offset is a whole number from 0")
    return int(value)


_FORMS: dict[str, Callable[[str, str], Target]] = {
    "time": _parse_time,
    "duration": _parse_duration,
    "by": _parse_by,
    "offset": _parse_offset,
    "file": _parse_file,
}
TARGET = text("TO", _parse_target)
"""The value of --to: a `Target`."""


def _parse_topic(given: str) -> tuple[str, list[int]]:
    name, has_numbers, numbers = given.partition(":")
    if not name or (has_numbers and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)):
        raise ValueError("must be a topic, or a topic and its partitions: orders:0,1")
    return name, sorted({int(number) for number in numbers.split(",")}) if has_numbers else []


TOPIC = text("TOPIC[:0,1]", _parse_topic)
"""The value of --topic: a topic and partitions of it; none stands for all. A topic's name has no colon."""
