"""Messages as JSON: koff's own shape, and that of Kafka's console formatters.

`kafka_line` equals, byte for byte, what Kafka's formatters print. Record types that Kafka's formatters do not
print get the same shape.
"""

import json
import re
from typing import Any

from koff.proto.json_data import kafka_data
from koff.records.message import Message
from koff.records.record import Undecodable, Unknown

_LOWER_ESCAPE = re.compile(r"\\\\|\\u00[01][a-f]")


def as_dict(message: Message) -> dict[str, Any]:
    """The message as plain data for JSON, in koff's shape; see `plain_record`."""
    return message.to_dict()


def kafka_json(message: Message) -> dict[str, Any]:
    """`{"key": {"type": .., "data": ..}, "value": {"version": .., "data": ..} | None}` in Kafka's names.

    What Kafka would not decode is `{"error": ..}`.
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


def kafka_line(message: Message) -> str:
    """`kafka_json` as Kafka's console formatters write it: Jackson has upper-case digits in its escapes."""
    line = json.dumps(kafka_json(message), separators=(",", ":"), ensure_ascii=False)
    return _LOWER_ESCAPE.sub(lambda found: found[0][:4] + found[0][4:].upper(), line)
