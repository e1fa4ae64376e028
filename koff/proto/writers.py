"""The way back: a struct as the bytes that a broker writes for it.

Tagged fields at their default are left out, tags come in ascending order, unknown ones among them.
"""

import struct as packing
from typing import Any

from koff.proto.primitives import STRING_MAX, Malformed, uuid_bytes, write_tags, write_uvarint
from koff.proto.schema import Field, Shape, Wire, shape


def encode_outer(value: Any) -> bytes:
    """A versioned struct with its version in front and its trailing bytes behind. Raises `Malformed`."""
    found = shape(type(value), value.version, value.layout)
    if found is None:
        raise Malformed(f"{type(value).__name__} has no version {value.version}")
    out = bytearray(packing.pack(">h", value.version))
    _write_struct(out, found, value)
    return bytes(out + value.trailing)


def encode_key(record: Any) -> bytes:
    """The key of a record. Raises `Malformed`."""
    found = shape(type(record), 0)
    assert found is not None
    out = bytearray(packing.pack(">h", record.type))
    _write_struct(out, found, record)
    return bytes(out + record.key_trailing)


def _write_struct(out: bytearray, of: Shape, value: Any) -> None:
    for each in of.plain:
        _write_field(out, of, each, value)
    if of.flexible:
        tags = list(value.unknown_tags)
        for each in of.tagged:
            if getattr(value, each.name) != each.default:
                data = bytearray()
                _write_field(data, of, each, value)
                tags.append((each.tag, bytes(data)))
        write_tags(out, tags)


def _write_field(out: bytearray, of: Shape, each: Field, value: Any) -> None:
    try:
        _write_value(out, of, each.wire, getattr(value, each.name), tagged=each.tag is not None)
    except (packing.error, AttributeError, TypeError, UnicodeError) as error:
        raise Malformed(f"{of.struct.__name__}.{each.name} cannot be written: {error}") from error


def _write_value(out: bytearray, of: Shape, wire: Wire[Any], value: Any, *, tagged: bool) -> None:
    match wire.kind:
        case "number":
            out += packing.pack(">" + wire.format, value)
        case "uuid":
            out += uuid_bytes(value)
        case "struct":
            _write_nested(out, of, wire, value, tagged=tagged)
        case _:
            _write_sized(out, of, wire, value)


def _write_nested(out: bytearray, of: Shape, wire: Wire[Any], value: Any, *, tagged: bool) -> None:
    assert wire.struct is not None
    if wire.nullable:
        null = 0 if tagged else 0xFF
        out.append(null if value is None else 1)
        if value is None:
            return
    _write_struct(out, of.inner(wire.struct), value)


def _write_sized(out: bytearray, of: Shape, wire: Wire[Any], value: Any) -> None:
    if value is None and not wire.nullable:
        raise TypeError("it must not be null")
    data = value.encode() if wire.kind == "string" and value is not None else value
    length = -1 if data is None else len(data)
    if wire.kind == "string" and length > STRING_MAX:
        raise TypeError(f"a string has at most {STRING_MAX} bytes, not {length}")
    if of.flexible:
        write_uvarint(out, length + 1)
    else:
        out += packing.pack(">h" if wire.kind == "string" else ">i", length)
    if wire.kind == "array":
        assert wire.item is not None
        for item in value or ():
            _write_value(out, of, wire.item, item, tagged=False)
    elif data is not None:
        out += data
