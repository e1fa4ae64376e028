"""Kafka's primitive types, read from and written to bytes.

What a generated reader cannot say in a line of its own stands here. Readers take `(buffer, position)`
and give `(value, next position)`. Rules, each as Kafka's `ByteBufferAccessor` and `ByteUtils` have it:

* An unsigned varint has at most five bytes; bits beyond 32 are dropped. Where Kafka goes on with a
  signed number, 2**31 and above is negative: a length is then null, a count is none.
* A compact length holds n + 1, and 0 is null. 2**31 wraps around to the greatest length there is.
* A string has at most 32,767 bytes. Invalid UTF-8 becomes U+FFFD, in Java's places (`JAVA_TEXT`).
"""

import binascii
import codecs
import functools
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from koff.errors import KoffError

Function = TypeVar("Function", bound=Callable[..., object])

INT32_MAX = 0x7FFFFFFF
STRING_MAX = 0x7FFF
COMPACT_NULL_ABOVE = 0x80000000
ZERO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
JAVA_TEXT = "koff-java"


def cached(function: Function) -> Function:
    """`functools.cache` for functions of types, which its own annotation does not take for hashable."""
    return cast(Function, functools.cache(function))


class Malformed(KoffError):
    """Bytes that are not what the schema says. `Truncated` when there are merely too few."""


class Truncated(Malformed):
    """Bytes that end before the last field does."""


def _java_replacement(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for what Java's decoder takes as one malformed sequence.

    Python agrees except for encoded surrogates (`ED A0..BF xx`): it stops after each byte of them.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        continued = at + 2 < len(data) and 0x80 <= data[at + 2] <= 0xBF
        return "\ufffd", at + (3 if continued else 2)
    return "\ufffd", error.end


codecs.register_error(JAVA_TEXT, _java_replacement)


def uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    """An unsigned 32-bit varint. Raises IndexError at the end of the buffer."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at
    raise Malformed("a varint of more than five bytes")


def signed(value: int) -> int:
    """What Java makes of an unsigned 32-bit number."""
    return value - 0x100000000 if value > INT32_MAX else value


def texts(buffer: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
    """`count` strings with int16 lengths."""
    end = len(buffer)
    found = []
    for _ in range(count):
        if at + 2 > end:
            raise Truncated("ends inside an array of strings")
        size = buffer[at] << 8 | buffer[at + 1]
        start, at = at + 2, at + 2 + size
        if size > STRING_MAX:
            raise Malformed("null in an array of strings")
        if at > end:
            raise Truncated("ends inside an array of strings")
        found.append(buffer[start:at].decode("utf-8", JAVA_TEXT))
    return tuple(found), at


def compact_texts(buffer: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
    """`count` strings with compact lengths."""
    end = len(buffer)
    found = []
    for _ in range(count):
        length, start = uvarint(buffer, at)
        if length == 0 or length > STRING_MAX + 1:
            raise Malformed("a string that is null or too long in an array of strings")
        at = start + length - 1
        if at > end:
            raise Truncated("ends inside an array of strings")
        found.append(buffer[start:at].decode("utf-8", JAVA_TEXT))
    return tuple(found), at


@functools.lru_cache(maxsize=4096)
def uuid_text(data: bytes) -> str:
    """16 bytes as Kafka prints a Uuid: base64 with `-` and `_`, unpadded, 22 characters."""
    return binascii.b2a_base64(data, newline=False)[:22].translate(_URL_SAFE).decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid in Kafka's notation. Raises `Malformed` when it is none."""
    try:
        data = binascii.a2b_base64(text.translate(_STANDARD) + "==")
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"{text!r} is not a uuid in Kafka's notation: {error}") from error
    if len(text) != len(ZERO_UUID) or len(data) != 16:
        raise Malformed(f"{text!r} is not a uuid in Kafka's notation: 22 characters of base64")
    return data


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_STANDARD = str.maketrans("-_", "+/")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_tags(out: bytearray, tags: Iterable[tuple[int, bytes]]) -> None:
    """A tag section, in ascending order as Kafka writes it."""
    ordered = sorted(tags, key=lambda tag: tag[0])
    write_uvarint(out, len(ordered))
    for tag, data in ordered:
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data
