"""The decoder: turns the key and value of a record into a `DecodedMessage`, by the table of record types."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from koff.proto.frozen import builder_class
from koff.proto.primitives import Malformed
from koff.proto.readers import READ_ERRORS, compile_key_reader, compile_value_reader, describe_error
from koff.proto.writers import encode_key, encode_value
from koff.records.decoded_message import DecodedMessage
from koff.records.record import DecodedRecord, Record, Undecodable, Unknown
from koff.records.record_types import OFFSETS_ROWS, SHARE_STATE_ROWS, RecordType

ValueReader = Callable[[bytes], Any]


class _ValueReaders(dict[int, ValueReader]):
    """The strict readers of a row's values, by the version's second byte, each compiled at its first use."""

    def __init__(self, row: RecordType) -> None:
        super().__init__()
        self.row = row

    def __missing__(self, version: int) -> ValueReader:
        read = find_value_reader(self.row, bytes((0, version)), lenient=False)
        self[version] = read
        return read


def find_value_reader(row: RecordType, version: bytes, *, lenient: bool) -> ValueReader:
    """Returns the reader for a version of the row's values, in any layout.

    `version` is the first two bytes of the value. Raises `Malformed` if the table has no such version, or
    there are fewer than two bytes.
    """
    if len(version) < 2:
        raise Malformed("ends before its version does" if version else "is empty")
    number = int.from_bytes(version, "big", signed=True)
    current = compile_value_reader(row.value, number, lenient=lenient)
    if current is None:
        raise Malformed(f"unknown version {number}")
    if not row.early:
        return current
    early = [compile_value_reader(row.value, number, layout, lenient=lenient) for layout in row.early]
    return _combine_layouts(current, [read for read in early if read is not None])


def _combine_layouts(current: ValueReader, early: list[ValueReader]) -> ValueReader:
    """Returns a reader that tries the current layout first, then the early layouts.

    An early-access release wrote its layout under the same version, so only the bytes show the layout. An
    early layout is used if the current layout does not fit (it fails, or leaves bytes over) and the early
    layout fits to the last byte.
    """

    def read_early_layout(data: bytes) -> Any:
        for read_early in early:
            try:
                value = read_early(data)
            except READ_ERRORS:
                continue
            if not value.trailing:
                return value
        return None

    def read(data: bytes) -> Any:
        try:
            value = current(data)
        except READ_ERRORS:
            early_value = read_early_layout(data)
            if early_value is None:
                raise
            return early_value
        # Bytes after the last field: an early layout that fits exactly is more likely.
        return (read_early_layout(data) or value) if value.trailing else value

    return read


_Builder = builder_class(DecodedMessage)


def _make_decoder(rows: Iterable[RecordType]) -> Callable[[bytes | None, bytes | None], DecodedMessage]:
    """Returns `decode` for the records of one topic.

    It is a closure, and not a method: attribute look-ups would take a noticeable part of its time.
    """
    rows_by_key = {row.type.to_bytes(2, "big"): row for row in rows}
    readers = {
        key[1]: (row.type, compile_key_reader(row.record), _ValueReaders(row))
        for key, row in rows_by_key.items()
    }

    def decode(key: bytes | None, value: bytes | None) -> DecodedMessage:
        """Decodes a record. Raises nothing: bytes that cannot be decoded become an `Undecodable`."""
        # All types and versions are below 256, so their first byte is 0. A null key raises TypeError, an
        # empty key or value IndexError: checks for them would cost time for every record.
        try:
            if key[0] or (value and value[0]):  # type: ignore[index]  # None raises TypeError, caught below
                return _decode_step_by_step(rows_by_key, key, value)
            type_, read_key, values = readers[key[1]]  # type: ignore[index]  # not None: key[0] succeeded
            record, group = read_key(key, type_, None if value is None else values[value[1]](value))  # type: ignore[arg-type]  # not None
        except (KeyError, TypeError, UnicodeDecodeError, *READ_ERRORS):
            return _decode_step_by_step(rows_by_key, key, value)
        # As in a generated reader: fill the mutable builder, then turn it into the frozen class.
        message = _Builder()
        message.consumer = group
        message.record = record
        message.__class__ = DecodedMessage
        return message  # type: ignore[no-any-return]  # the builder is Any, and a DecodedMessage by now

    return decode


def _decode_step_by_step(
    rows: Mapping[bytes, RecordType], key: bytes | None, value: bytes | None
) -> DecodedMessage:
    """Decodes a record that `decode` could not: accepts invalid UTF-8, and finds the reason if that fails."""
    # The type, then the rest of the key, then the value: each step needs the one before.
    if key is None:
        return DecodedMessage("", Undecodable(key, value, "the key is null"))
    if len(key) < 2:
        return DecodedMessage("", Undecodable(key, value, "the key ends before its type does"))
    type_, row = int.from_bytes(key[:2], "big", signed=True), rows.get(key[:2])
    if row is None:
        return DecodedMessage("", Unknown(type_, key, value))
    read_key = compile_key_reader(row.record, lenient=True)
    try:
        tombstone, group = read_key(key, type_, None)
    except READ_ERRORS as error:
        return DecodedMessage("", Undecodable(key, value, f"key: {describe_error(error)}", type_))
    if value is None:  # the key was read as that of a tombstone: this is the record
        return DecodedMessage(group, tombstone)
    try:
        decoded = find_value_reader(row, value[:2], lenient=True)(value)
    except READ_ERRORS as error:
        return DecodedMessage(group, Undecodable(key, value, f"value: {describe_error(error)}", type_))
    return DecodedMessage(group, read_key(key, type_, decoded)[0])


decode = _make_decoder(OFFSETS_ROWS)
"""`decode(key, value)` returns a record of `__consumer_offsets` as a `DecodedMessage`. It raises nothing."""
decode_share_state = _make_decoder(SHARE_STATE_ROWS)
"""`decode_share_state(key, value)` does the same for a record of `__share_group_state`."""


@overload
def encode(record: DecodedRecord) -> tuple[bytes, bytes | None]: ...
@overload
def encode(record: Record) -> tuple[bytes | None, bytes | None]: ...
def encode(record: Record) -> tuple[bytes | None, bytes | None]:
    """Returns the key and value that a broker writes for the record.

    An `Unknown` or `Undecodable` record has its own bytes. Raises `Malformed` if a field cannot be written.
    """
    if isinstance(record, Unknown | Undecodable):
        return record.key, record.value
    return encode_key(record), None if record.value is None else encode_value(record.value)
