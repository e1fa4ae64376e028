"""What compressed a record batch, undone. Never more than a given number of bytes comes out.

gzip is Python's own; snappy, lz4 and zstd are cramjam's, which is imported when first needed.
"""

import zlib
from types import ModuleType

import numpy as np

from koff.errors import KoffError
from koff.proto.primitives import Malformed

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in a batch's attributes."""

_XERIAL = b"\x82SNAPPY\0"
"""Java's snappy begins its stream so; then two versions, and blocks with their length in front."""
_XERIAL_HEADER = 16


class MissingLibrary(KoffError):
    """A library that koff needs for log segments only, and that is not installed."""


def library(name: str) -> ModuleType:
    """The module of that name. Raises `MissingLibrary` with what to install."""
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingLibrary(f"log segments need {name}: pip install 'koff[segments]'") from error


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """The bytes that were compressed. Raises `Malformed` when they were not, or are more than `limit`."""
    match NAMES[codec] if codec < len(NAMES) else "":
        case "none":
            return data
        case "gzip":
            return _gzip(data, limit)
        case "snappy":
            return _snappy(data, limit)
        case "lz4" | "zstd" as name:
            return _streamed(name, data, limit)
        case _:
            raise Malformed(f"unknown codec {codec}")


def _gzip(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        found = stream.decompress(data, limit)
    except zlib.error as error:
        raise Malformed(f"gzip: {error}") from error
    if not stream.eof:
        raise Malformed(f"gzip: ends early, or is more than {limit} bytes")
    return found


def _streamed(name: str, data: bytes, limit: int) -> bytes:
    """lz4 and zstd do not say how much they hold: room is made for what is usual, then for more."""
    cramjam = library("cramjam")
    refusal = ""
    for room in (4 * len(data) + 4096, 64 * len(data) + 65536, limit):
        out = np.empty(min(room, limit), np.uint8)
        try:
            size = getattr(cramjam, name).decompress_into(data, out)
        except cramjam.DecompressionError as error:
            refusal = str(error)
        else:
            return out[:size].tobytes()
    raise Malformed(f"{name}: {refusal}, or it is more than {limit} bytes")


def _snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit)
    out = bytearray()
    at = _XERIAL_HEADER
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + size]
        if at + 4 > len(data) or len(block) < size:
            raise Malformed("snappy: ends early")
        out += _snappy_block(block, limit - len(out))
        at += 4 + size
    return bytes(out)


def _snappy_block(data: bytes, limit: int) -> bytes:
    cramjam = library("cramjam")
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise Malformed(f"snappy: says that it is more than {limit} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Malformed(f"snappy: {error}") from error
