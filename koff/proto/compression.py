"""Decompresses the payload of record batches, to at most a given number of bytes.

gzip is in Python's standard library. snappy, lz4 and zstd need cramjam, which is imported when it is first
needed.
"""

import zlib
from types import ModuleType

import numpy as np

from koff.errors import KoffError
from koff.proto.primitives import Malformed

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""The name of each codec. The index is the codec's number in a batch's attributes."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
"""The first bytes of the format that snappy-java, and so Java's producer, writes. Two int32 versions
follow, then blocks, each with its int32 length in front. Data without this header is one bare snappy
block."""
_XERIAL_HEADER_SIZE = 16


class MissingLibrary(KoffError):
    """A library that koff needs only for log segments is not installed."""


def import_library(name: str) -> ModuleType:
    """Returns the module `name`. Raises `MissingLibrary` with the command to install it."""
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingLibrary(f"log segments need {name}: pip install {name}") from error


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """Returns the decompressed bytes. `codec` is the number in the batch's attributes.

    Raises `Malformed` if the data cannot be decompressed or holds more than `limit` bytes, and
    `MissingLibrary` if the codec's library is not installed.
    """
    match CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else "":
        case "none":
            return data
        case "gzip":
            return _decompress_gzip(data, limit)
        case "snappy":
            return _decompress_snappy(data, limit)
        case "lz4" | "zstd" as name:
            return _decompress_frames(name, data, limit)
        case _:
            raise Malformed(f"unknown compression codec {codec}")


def _decompress_gzip(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)  # 16 + 15: a gzip header, the largest window
    try:
        decompressed = stream.decompress(data, limit)
    except zlib.error as error:
        raise Malformed(f"gzip: {error}") from error
    if not stream.eof:
        raise Malformed(f"gzip: the data is cut short, or holds more than {limit} bytes")
    return decompressed


def _decompress_frames(name: str, data: bytes, limit: int) -> bytes:
    """Decompresses lz4 or zstd frames, which need not state the size of their content.

    The output buffer is first of a usual size, then larger, then of `limit` bytes.
    """
    cramjam = import_library("cramjam")
    last_error = ""
    for room in (4 * len(data) + 4096, 64 * len(data) + 65536, limit):
        out = np.empty(min(room, limit), np.uint8)
        try:
            size = getattr(cramjam, name).decompress_into(data, out)
        except cramjam.DecompressionError as error:  # raised for damaged data and for too small a buffer
            last_error = str(error)
        else:
            return out[:size].tobytes()
    raise Malformed(f"{name}: {last_error}, or the data holds more than {limit} bytes")


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(data, limit)
    # The limit is for all blocks together.
    out = bytearray()
    at = _XERIAL_HEADER_SIZE
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + size]
        if at + 4 > len(data) or len(block) < size:
            raise Malformed("snappy: the data is cut short")
        out += _decompress_snappy_block(block, limit - len(out))
        at += 4 + size
    return bytes(out)


def _decompress_snappy_block(data: bytes, limit: int) -> bytes:
    cramjam = import_library("cramjam")
    try:
        size = cramjam.snappy.decompress_raw_len(data)  # only what the block states: check it first
        if size > limit:
            raise Malformed(f"snappy: the block states a size of more than {limit} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Malformed(f"snappy: {error}") from error
