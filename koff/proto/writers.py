"""Writers: structs as the bytes that a broker writes for them.

Tagged fields that have their default are left out. Tags are in ascending order, known and unknown tags
together.
"""

import struct as packing
from typing import Any

from koff.proto.primitives import STRING_MAX, Malformed, parse_uuid, write_tags, write_uvarint
from koff.proto.schema import Field, Shape, Wire, find_shape


def encode_value(value: Any) -> bytes:
    """Returns a versioned struct with its int16 version before it and its trailing bytes after it.

    Raises `Malformed` if the table lacks the version, or a field cannot be written.
    """
    shape = find_shape(type(value), value.version, value.layout)
    if shape is None:
        raise Malformed(f"{type(value).__name__} has no version {value.version}")
    out = bytearray(packing.pack(">h", value.version))
    _write_struct(out, shape, value)
    return bytes(out + value.trailing)


def encode_key(record: Any) -> bytes:
    """Returns the key of a record: int16 type, then its fields. Raises `Malformed` if a field is invalid."""
    shape = find_shape(type(record), 0)
    assert shape is not None
    out = bytearray(packing.pack(">h", record.type))
    _write_struct(out, shape, record)
    return bytes(out + record.key_trailing)


def _write_struct(out: bytearray, shape: Shape, value: Any) -> None:
    for field in shape.plain_fields:
        _write_field(out, shape, field, value)
    # Known and unknown tags together: `write_tags` sorts them.
    if shape.flexible:
        tags = list(value.unknown_tags)
        for field in shape.tagged_fields:
            if getattr(value, field.name) != field.default:
                data = bytearray()
                _write_field(data, shape, field, value)
                tags.append((field.tag, bytes(data)))
        write_tags(out, tags)


def _write_field(out: bytearray, shape: Shape, field: Field, value: Any) -> None:
    """Appends a field of `value`. Any error on the way becomes a `Malformed` that names the field."""
    # struct.error: not a number, or out of range. AttributeError and TypeError: a value of another type.
    # UnicodeError: a lone surrogate.
    try:
        _write_value(out, shape, field.wire, getattr(value, field.name), tagged=field.tag is not None)
    except (packing.error, AttributeError, TypeError, UnicodeError) as error:
        raise Malformed(f"{shape.struct.__name__}.{field.name} cannot be written: {error}") from error


def _write_value(out: bytearray, shape: Shape, wire: Wire[Any], value: Any, *, tagged: bool) -> None:
    match wire.kind:
        case "number":
            out += packing.pack(">" + wire.format, value)
        case "uuid":
            out += parse_uuid(value)
        case "struct":
            _write_nested(out, shape, wire, value, tagged=tagged)
        case _:
            _write_sized(out, shape, wire, value)


def _write_nested(out: bytearray, shape: Shape, wire: Wire[Any], value: Any, *, tagged: bool) -> None:
    assert wire.struct is not None
    if wire.nullable:
        # Null is the signed byte -1 outside the tag section, and the varint 0 inside it.
        null = 0 if tagged else 0xFF
        out.append(null if value is None else 1)
        if value is None:
            return
    _write_struct(out, shape.nested_shape(wire.struct), value)


def _write_sized(out: bytearray, shape: Shape, wire: Wire[Any], value: Any) -> None:
    """Appends a string, bytes or an array: the length, then the content."""
    if value is None and not wire.nullable:
        raise TypeError("it must not be null")
    data = value.encode() if wire.kind == "string" and value is not None else value
    length = -1 if data is None else len(data)
    if wire.kind == "string" and length > STRING_MAX:
        raise TypeError(f"a string has at most {STRING_MAX} bytes, not {length}")
    if shape.flexible:
        write_uvarint(out, length + 1)  # null is 0
    else:
        out += packing.pack(">h" if wire.kind == "string" else ">i", length)
    if wire.kind == "array":
        assert wire.item is not None
        for item in value or ():
            _write_value(out, shape, wire.item, item, tagged=False)
    elif data is not None:
        out += data
