"""A record as plain data: koff's own JSON shape."""

import dataclasses
from typing import Any

from koff.proto.schema import Tag, fields_of
from koff.records.classic_records import GroupMetadataValue
from koff.records.consumer_protocol import CONSUMER, UndecodableBlob, assignment, subscription
from koff.records.consumer_records import ConsumerGroupMemberMetadataValue
from koff.records.record import DecodedRecord, Record, Undecodable, Unknown
from koff.records.record_types import title


def plain_record(record: Record, *, group: str) -> dict[str, Any]:
    """The record as plain data for JSON: the same keys for every record of a type, bytes in hex.

    Unknown tags, trailing bytes and the fields of an early layout are there only when there are any.
    """
    if isinstance(record, Undecodable | Unknown):
        reason = {"reason": record.reason} if isinstance(record, Undecodable) else {}
        head = {"record": type(record).__name__, "type": record.type, "group": group}
        return head | reason | {"key": _hex(record.key), "value": _hex(record.value)}
    return {"record": title(record), "type": record.type, "group": group} | _record_fields(record)


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
