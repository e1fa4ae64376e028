"""Messages as JSON, in koff's own shape or in that of Kafka's console formatters.

A `kafka_line` equals the line of Kafka's formatters byte for byte. Record types that Kafka's
formatters do not print get the same shape.
"""

import json
import re
from typing import Any

from koff.proto.json_data import kafka_data
from koff.records.decoded_message import DecodedMessage
from koff.records.plain_record import plain_record
from koff.records.record import Undecodable, Unknown

_LOWER_ESCAPE = re.compile(r"\\\\|\\u00[01][a-f]")


def as_dict(message: DecodedMessage) -> dict[str, Any]:
    """The message as plain data for JSON in koff's shape: see `plain_record`."""
    return plain_record(message.record, group=message.consumer)


def kafka_json(message: DecodedMessage) -> dict[str, Any]:
    """`{"key": {"type": .., "data": ..}, "value": {"version": .., "data": ..} | None}` with Kafka's names.

    A record of an unknown type, and one that cannot be decoded, is `{"error": ..}`.
    """
    record = message.record
    if isinstance(record, Undecodable):
        return {"error": record.reason}
    if isinstance(record, Unknown):
        return {"error": f"unknown record type {record.type}"}
    value = record.value
    return {
        "key": {"type": record.type, "data": kafka_data(record, 0)},
        "value": value and {"version": value.version, "data": kafka_data(value, value.version, value.layout)},
    }


def kafka_line(message: DecodedMessage) -> str:
    """`kafka_json` as the line that Kafka's console formatters print, without its end."""
    line = json.dumps(kafka_json(message), separators=(",", ":"), ensure_ascii=False)
    # Jackson writes control characters as \u001F, Python's json as \u001f. The pattern also matches an
    # escaped backslash, so that a text with a backslash and "u001f" after it stays as it is.
    return _LOWER_ESCAPE.sub(lambda escape: escape[0][:4] + escape[0][4:].upper(), line)
