"""Messages as JSON, in koff's own shape or in that of Kafka's console formatters.

A `kafka_line` equals the line of Kafka's formatters byte for byte. Record types that Kafka's
formatters do not print get the same shape.
"""

import dataclasses
import json
import re
from typing import Any

from koff.proto.json_data import kafka_data
from koff.proto.schema import Tag, wire_fields
from koff.records.classic_records import GroupMetadataValue
from koff.records.consumer_protocol import CONSUMER, UndecodableBlob, decode_assignment, decode_subscription
from koff.records.consumer_records import ConsumerGroupMemberMetadataValue
from koff.records.decoded_message import DecodedMessage
from koff.records.record import DecodedRecord, Undecodable, Unknown
from koff.records.record_types import record_type_name

_LOWER_ESCAPE = re.compile(r"\\\\|\\u00[01][a-f]")


def as_dict(message: DecodedMessage) -> dict[str, Any]:
    """The message as plain data for JSON in koff's shape: bytes in hex, and for a type always the same keys.

    Only unknown tags, trailing bytes and the fields of an early-access layout are left out if there are none.
    """
    record, group = message.record, message.consumer
    if isinstance(record, Undecodable | Unknown):
        reason = {"reason": record.reason} if isinstance(record, Undecodable) else {}
        head = {"record": type(record).__name__, "type": record.type, "group": group}
        return head | reason | {"key": _to_hex(record.key), "value": _to_hex(record.value)}
    return {"record": record_type_name(record), "type": record.type, "group": group} | _record_fields(record)


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


def _record_fields(record: DecodedRecord) -> dict[str, Any]:
    fields = _struct_fields(record)
    # The caller shows type and group itself. The value is added below, with its version first.
    for name in ("type", "group", "group_id", "value"):
        fields.pop(name, None)
    if record.value is None:
        return fields | {"value": None}
    # The blobs that `_struct_fields` wrote in hex are replaced by what they decode to.
    value = {"version": record.value.version} | _struct_fields(record.value)
    if isinstance(record.value, GroupMetadataValue):
        protocol_type = record.value.protocol_type
        value["members"] = [member | _plain_blobs(protocol_type, member) for member in value["members"]]
    elif isinstance(record.value, ConsumerGroupMemberMetadataValue) and value["classic_member_metadata"]:
        for protocol in value["classic_member_metadata"]["supported_protocols"]:
            protocol["metadata"] = _plain_blob(decode_subscription(bytes.fromhex(protocol["metadata"])))
    return fields | {"value": value}


def _plain_blobs(protocol_type: str, member: dict[str, Any]) -> dict[str, Any]:
    """The subscription and assignment of a classic member: decoded, or in hex with their format's name."""
    subscription, assignment = bytes.fromhex(member["subscription"]), bytes.fromhex(member["assignment"])
    if protocol_type != CONSUMER:
        return {
            "subscription": {"format": protocol_type, "data": subscription.hex()},
            "assignment": {"format": protocol_type, "data": assignment.hex()},
        }
    return {
        "subscription": _plain_blob(decode_subscription(subscription)),
        "assignment": _plain_blob(decode_assignment(assignment)),
    }


def _plain_blob(blob: Any) -> dict[str, Any]:
    if isinstance(blob, UndecodableBlob):
        return {"reason": blob.reason, "data": blob.data.hex()}
    return {"version": blob.version} | _struct_fields(blob)


_LEFT_OUT_IF_EMPTY = frozenset({"trailing", "key_trailing", "layout", "unknown_tags"})


def _struct_fields(struct: Any) -> dict[str, Any]:
    layout = getattr(struct, "layout", "")
    # A field of an early-access layout would only show its default in all other records.
    of_other_layouts = {
        field.name for field in wire_fields(type(struct)) if field.only_in not in (None, layout)
    }
    fields = {}
    for field in dataclasses.fields(struct):
        value = getattr(struct, field.name)
        if field.name not in of_other_layouts and (value or field.name not in _LEFT_OUT_IF_EMPTY):
            fields[field.name] = _plain_value(value)
    return fields


def _plain_value(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case Tag():
            return {"tag": value.tag, "data": value.data.hex()}
        case tuple():
            return [_plain_value(item) for item in value]
        case None | int() | str():
            return value
        case _:
            return _struct_fields(value)


def _to_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
