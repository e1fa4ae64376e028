"""Kafka's primitive types, read from and written to bytes.

Generated readers call these functions for all that takes more than a line of code. A function that reads
takes `(buffer, position)` and returns `(value, next position)`. The rules are those of Kafka's
`ByteBufferAccessor` and `ByteUtils`:

* An unsigned varint has at most five bytes, and bits beyond 32 are dropped. Java then has a signed number:
  2**31 and above is negative. A negative length means null, a negative count means no items.
* A compact length holds n + 1, and 0 means null. 2**31 wraps around to 2**31 - 1 bytes.
* A string has at most 32,767 bytes. Invalid UTF-8 becomes U+FFFD, as in Java (`JAVA_REPLACEMENT`).
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
"""The most bytes that a string may have."""
ZERO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The uuid of 16 zero bytes, which stands for "none"."""
JAVA_REPLACEMENT = "koff-java"
"""The codec error handler that replaces invalid UTF-8 as Java does: `data.decode("utf-8",
JAVA_REPLACEMENT)`."""


def cached(function: Function) -> Function:
    """`functools.cache` for functions of classes, which its type annotation does not accept as hashable."""
    return cast(Function, functools.cache(function))


class Malformed(KoffError):
    """The bytes do not match the schema. If they only end too early, it is a `Truncated`."""


class Truncated(Malformed):
    """The bytes end before the last field does."""


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Returns one U+FFFD for each malformed sequence as Java's decoder counts them, and the next position.

    Python's own "replace" counts the same sequences, except for encoded surrogates (`ED A0..BF xx`): there it
    makes a U+FFFD of each byte.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        has_third_byte = at + 2 < len(data) and 0x80 <= data[at + 2] <= 0xBF
        return "\ufffd", at + (3 if has_third_byte else 2)
    return "\ufffd", error.end


codecs.register_error(JAVA_REPLACEMENT, _replace_as_java)


def read_uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    """Reads an unsigned 32-bit varint.

    Raises `Malformed` if it has more than five bytes, and IndexError if the buffer ends inside it.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, at  # the fifth byte has three bits too many
    raise Malformed("a varint of more than five bytes")


def read_strings(buffer: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
    """Reads `count` strings with int16 lengths. Raises `Malformed` if a string is null or cut short."""
    end = len(buffer)
    strings = []
    for _ in range(count):
        if at + 2 > end:
            raise Truncated("ends inside an array of strings")
        # Read as unsigned: a negative length (null) is then above STRING_MAX.
        size = buffer[at] << 8 | buffer[at + 1]
        start, at = at + 2, at + 2 + size
        if size > STRING_MAX:
            raise Malformed("null in an array of strings")
        if at > end:
            raise Truncated("ends inside an array of strings")
        strings.append(buffer[start:at].decode("utf-8", JAVA_REPLACEMENT))
    return tuple(strings), at


def read_compact_strings(buffer: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
    """Reads `count` strings with compact lengths. Raises what `read_strings` and `read_uvarint` raise."""
    end = len(buffer)
    strings = []
    for _ in range(count):
        # The compact length is one more than the size. 0 is null.
        length, start = read_uvarint(buffer, at)
        if length == 0 or length > STRING_MAX + 1:
            raise Malformed("a string that is null or too long in an array of strings")
        at = start + length - 1
        if at > end:
            raise Truncated("ends inside an array of strings")
        strings.append(buffer[start:at].decode("utf-8", JAVA_REPLACEMENT))
    return tuple(strings), at


@functools.lru_cache(maxsize=4096)
def format_uuid(data: bytes) -> str:
    """Returns 16 bytes as Kafka prints a Uuid: base64 with `-` and `_`, unpadded, 22 characters."""
    return binascii.b2a_base64(data, newline=False)[:22].translate(_URL_SAFE).decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Returns the 16 bytes of a uuid in Kafka's notation. Raises `Malformed` if the text is not a uuid."""
    try:
        data = binascii.a2b_base64(text.translate(_STANDARD) + "==")
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"{text!r} is not a uuid in Kafka's notation: {error}") from error
    # a2b_base64 skips characters that are not base64, so the length must be checked on both sides.
    if len(text) != len(ZERO_UUID) or len(data) != 16:
        raise Malformed(f"{text!r} is not a uuid in Kafka's notation: 22 characters of base64")
    return data


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_STANDARD = str.maketrans("-_", "+/")


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Appends a signed varint in zigzag coding: small numbers of either sign take few bytes."""
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def write_tags(out: bytearray, tags: Iterable[tuple[int, bytes]]) -> None:
    """Appends a tag section of `(tag, data)` pairs, in ascending order of tags as Kafka writes it."""
    ordered = sorted(tags, key=lambda tag: tag[0])
    write_uvarint(out, len(ordered))
    for tag, data in ordered:
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data
