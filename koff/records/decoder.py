"""The decoder: the key and value of a record in, a `Message` out, by the table of record types."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from koff.proto.frozen import building
from koff.proto.primitives import Malformed
from koff.proto.readers import READ_ERRORS, key_reader, outer_reader, reason
from koff.proto.writers import encode_key, encode_outer
from koff.records.message import Message
from koff.records.record import Record, Undecodable, Unknown
from koff.records.record_types import OFFSETS_ROWS, SHARE_STATE_ROWS, RecordType

Read = Callable[[bytes], Any]


class _Values(dict[int, Read]):
    """Strict readers of a row's values by the second byte of their version, made when first needed."""

    def __init__(self, row: RecordType) -> None:
        super().__init__()
        self.row = row

    def __missing__(self, version: int) -> Read:
        read = value_reader(self.row, bytes((0, version)), lenient=False)
        self[version] = read
        return read


def value_reader(row: RecordType, version: bytes, *, lenient: bool) -> Read:
    """Reads values of that version in the row's layouts. Raises `Malformed` when there is no such version."""
    if len(version) < 2:
        raise Malformed("ends before its version does" if version else "is empty")
    number = int.from_bytes(version, "big", signed=True)
    current = outer_reader(row.value, number, lenient=lenient)
    if current is None:
        raise Malformed(f"unknown version {number}")
    if not row.early:
        return current
    early = [outer_reader(row.value, number, layout, lenient=lenient) for layout in row.early]
    return _any_layout(current, [read for read in early if read is not None])


def _any_layout(current: Read, early: list[Read]) -> Read:
    """The present layout; an early one only where that does not fit and it does, to the last byte."""

    def fitting(data: bytes) -> Any:
        for read_early in early:
            try:
                found = read_early(data)
            except READ_ERRORS:
                continue
            if not found.trailing:
                return found
        return None

    def read(data: bytes) -> Any:
        try:
            value = current(data)
        except READ_ERRORS:
            found = fitting(data)
            if found is None:
                raise
            return found
        return (fitting(data) or value) if value.trailing else value

    return read


_Building = building(Message)


def _decoder(rows: Iterable[RecordType]) -> Callable[[bytes | None, bytes | None], Message]:
    """`decode` for the records of one topic: a closure, since each attribute it looked up would be felt."""
    rows_by_key = {row.type.to_bytes(2, "big"): row for row in rows}
    readers = {key[1]: (row.type, key_reader(row.record), _Values(row)) for key, row in rows_by_key.items()}

    def decode(key: bytes | None, value: bytes | None) -> Message:
        """What the record says. Bytes that say nothing are an `Undecodable`: nothing is raised."""
        try:
            if key[0] or (value and value[0]):  # type: ignore[index]
                return _decode_unusual(rows_by_key, key, value)
            type_, read_key, values = readers[key[1]]  # type: ignore[index]
            record, group = read_key(key, type_, None if value is None else values[value[1]](value))  # type: ignore[arg-type]
        except (KeyError, TypeError, UnicodeDecodeError, *READ_ERRORS):
            return _decode_unusual(rows_by_key, key, value)
        message = _Building()
        message.consumer = group
        message.record = record
        message.__class__ = Message
        return message  # type: ignore[no-any-return]

    return decode


def _decode_unusual(rows: Mapping[bytes, RecordType], key: bytes | None, value: bytes | None) -> Message:
    """The same step by step, to say what is wrong; and strings that are no UTF-8."""
    if key is None:
        return Message("", Undecodable(key, value, "the key is null"))
    if len(key) < 2:
        return Message("", Undecodable(key, value, "the key ends before its type does"))
    type_, row = int.from_bytes(key[:2], "big", signed=True), rows.get(key[:2])
    if row is None:
        return Message("", Unknown(type_, key, value))
    read_key = key_reader(row.record, lenient=True)
    try:
        tombstone, group = read_key(key, type_, None)
    except READ_ERRORS as error:
        return Message("", Undecodable(key, value, f"key: {reason(error)}", type_))
    if value is None:
        return Message(group, tombstone)
    try:
        decoded = value_reader(row, value[:2], lenient=True)(value)
    except READ_ERRORS as error:
        return Message(group, Undecodable(key, value, f"value: {reason(error)}", type_))
    return Message(group, read_key(key, type_, decoded)[0])


decode = _decoder(OFFSETS_ROWS)
decode_share_state = _decoder(SHARE_STATE_ROWS)


def encode(record: Record) -> tuple[bytes | None, bytes | None]:
    """The key and value a broker writes for the record. Raises `Malformed` when a field cannot be written."""
    if isinstance(record, Unknown | Undecodable):
        return record.key, record.value
    return encode_key(record), None if record.value is None else encode_outer(record.value)
