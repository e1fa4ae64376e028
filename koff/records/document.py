"""Messages as JSON: Kafka's own shape, and koff's.

`kafka_line` is, to the byte, what Kafka's console formatters print, and the same shape for types
that they do not print.
"""

import dataclasses
import json
import re
from typing import Any

from koff.proto.plain import kafka_data
from koff.proto.schema import Tag, fields_of
from koff.records.blobs import CONSUMER, UndecodableBlob, assignment, subscription
from koff.records.classic import GroupMetadataValue
from koff.records.consumer import ConsumerGroupMemberMetadataValue
from koff.records.message import Message
from koff.records.record import DecodedRecord, Undecodable, Unknown
from koff.records.table import title

_LOWER_ESCAPE = re.compile(r"\\\\|\\u00[01][a-f]")


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


def as_dict(message: Message) -> dict[str, Any]:
    """The message as plain data for JSON: the same keys for every record of a type, bytes in hex.

    Unknown tags, trailing bytes and the fields of an early layout are there only when there are any.
    """
    record = message.record
    if isinstance(record, Undecodable | Unknown):
        reason = {"reason": record.reason} if isinstance(record, Undecodable) else {}
        head = {"record": type(record).__name__, "type": record.type, "group": message.consumer}
        return head | reason | {"key": _hex(record.key), "value": _hex(record.value)}
    return {"record": title(record), "type": record.type, "group": message.consumer} | _record_fields(record)


def _record_fields(record: DecodedRecord) -> dict[str, Any]:
    fields = _fields(record)
    for name in ("type", "group", "group_id", "value"):
        fields.pop(name, None)
    if record.value is None:
        return fields | {"value": None}
    value = {"version": record.value.version} | _fields(record.value)
    if isinstance(record.value, GroupMetadataValue):
        kind = record.value.protocol_type
        value["members"] = [member | _blobs(kind, member) for member in value["members"]]
    elif isinstance(record.value, ConsumerGroupMemberMetadataValue) and value["classic_member_metadata"]:
        for protocol in value["classic_member_metadata"]["supported_protocols"]:
            protocol["metadata"] = _blob(subscription(bytes.fromhex(protocol["metadata"])))
    return fields | {"value": value}


def _blobs(protocol_type: str, member: dict[str, Any]) -> dict[str, Any]:
    """A classic member's blobs decoded, or in hex with the name of their format."""
    asked, given = bytes.fromhex(member["subscription"]), bytes.fromhex(member["assignment"])
    if protocol_type != CONSUMER:
        return {
            "subscription": {"format": protocol_type, "data": asked.hex()},
            "assignment": {"format": protocol_type, "data": given.hex()},
        }
    return {"subscription": _blob(subscription(asked)), "assignment": _blob(assignment(given))}


def _blob(blob: Any) -> dict[str, Any]:
    if isinstance(blob, UndecodableBlob):
        return {"reason": blob.reason, "data": blob.data.hex()}
    return {"version": blob.version} | _fields(blob)


_ONLY_WHEN_GIVEN = frozenset({"trailing", "key_trailing", "layout", "unknown_tags"})


def _fields(struct: Any) -> dict[str, Any]:
    layout = getattr(struct, "layout", "")
    left_out = {each.name for each in fields_of(type(struct)) if each.only_in not in (None, layout)}
    fields = {}
    for each in dataclasses.fields(struct):
        given = getattr(struct, each.name)
        if each.name not in left_out and (given or each.name not in _ONLY_WHEN_GIVEN):
            fields[each.name] = _plain(given)
    return fields


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case Tag():
            return {"tag": value.tag, "data": value.data.hex()}
        case tuple():
            return [_plain(item) for item in value]
        case None | int() | str():
            return value
        case _:
            return _fields(value)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
