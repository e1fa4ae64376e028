"""The table of record types, which follows from the classes in the unions of `record`."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from koff.proto.schema import list_layouts
from koff.records.record import DecodedRecord, OffsetsRecord, ShareStateRecord

Struct = type[Any]


class RecordType(NamedTuple):
    """A record type: the structs of its key (with the value: the record) and of its value."""

    type: int
    record: Struct
    value: Struct
    early: tuple[str, ...]
    """The layouts of early-access releases under the same version."""
    kafka_name: str


def _describe_type(record: Struct) -> RecordType:
    fields: dict[str, Any] = {field.name: field for field in dataclasses.fields(record)}
    value = get_args(fields["value"].type)[0]  # it is declared as a struct or None
    return RecordType(fields["type"].default, record, value, list_layouts(value), record.__name__)


_OFFSETS = {row.type: row for row in map(_describe_type, get_args(OffsetsRecord))}
# Kafka 4.1 and later accept type 0 only with value version 0, releases up to 4.0 with any version.
_OFFSETS[0] = _OFFSETS[1]._replace(type=0, kafka_name="LegacyOffsetCommit")
# Only 4.0 wrote type 9, in the current layout of type 4. No release is known to have written type 18.
_OFFSETS[9] = _OFFSETS[9]._replace(early=())
OFFSETS_ROWS = tuple(sorted(_OFFSETS.values()))
SHARE_STATE_ROWS = tuple(map(_describe_type, get_args(ShareStateRecord)))

RECORD_TYPES: Mapping[int, str] = MappingProxyType({row.type: row.kafka_name for row in OFFSETS_ROWS})
"""Kafka's names for the types of `__consumer_offsets`, by number."""
SHARE_STATE_TYPES: Mapping[int, str] = MappingProxyType(
    {row.type: row.kafka_name for row in SHARE_STATE_ROWS}
)
"""Kafka's names for the types of `__share_group_state`, by number."""


def type_name(type: int | None) -> str:
    """Kafka's name for a type of `__consumer_offsets`; "Unknown" for other numbers and for None."""
    return RECORD_TYPES.get(type, "Unknown") if type is not None else "Unknown"


def record_type_name(record: DecodedRecord) -> str:
    types = SHARE_STATE_TYPES if isinstance(record, ShareStateRecord) else RECORD_TYPES
    return types.get(record.type, type(record).__name__)
