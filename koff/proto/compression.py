"""Compresses the payload of record batches, and decompresses it, to at most a given number of bytes.

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
_XERIAL_VERSIONS = b"\0\0\0\1" * 2
_XERIAL_BLOCK = 32 << 10
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


class MissingLibrary(KoffError):
    """A library that koff needs only for raw record batches is not installed."""


def import_library(name: str) -> ModuleType:
    """Returns the module `name`. Raises `MissingLibrary` with the command to install it."""
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingLibrary(f"raw record batches need {name}: pip install {name}") from error


def compress(codec: int, data: bytes) -> bytes:
    """Returns the bytes as Kafka's producer compresses them. `codec` is the number in the batch's attributes.

    Raises `Malformed` for a number that is no codec, and `MissingLibrary` without the codec's library.
    """
    match CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else "":
        case "none":
            return data
        case "gzip":
            return zlib.compress(data, wbits=31)  # 16 + 15: a gzip header, the largest window
        case "snappy":
            raw = import_library("cramjam").snappy.compress_raw
            blocks = (bytes(raw(data[at : at + _XERIAL_BLOCK])) for at in range(0, len(data), _XERIAL_BLOCK))
            framed = (len(block).to_bytes(4, "big") + block for block in blocks)
            return _XERIAL_MAGIC + _XERIAL_VERSIONS + b"".join(framed)
        case "lz4":
            # Brokers refuse blocks that depend on each other.
            compressor = import_library("cramjam").lz4.Compressor(block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case "zstd":
            return bytes(import_library("cramjam").zstd.compress(data))
        case _:
            raise Malformed(f"unknown compression codec {codec}")


def repair_lz4_header(data: bytes) -> bytes:
    """The lz4 frame with the checksum of its header that the lz4 format has.

    Producers of message format 0 computed it over the magic number, too (KAFKA-3160).
    """
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise Malformed("lz4: not a frame")
    end = 6 + 8 * bool(
        data[4] & 0x08
    )  # after the descriptor: flags, block size, and perhaps the content's size
    return data[:end] + bytes([_xxh32(data[4:end]) >> 8 & 0xFF]) + data[end + 1 :]


def _xxh32(data: bytes) -> int:
    """The 32-bit xxHash, with seed 0, of less than 16 bytes."""
    mask, (p1, p2, p3, p4, p5) = 0xFFFFFFFF, _XXH32_PRIMES
    code = p5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        code = code + int.from_bytes(data[at : at + 4], "little") * p3 & mask
        code = ((code << 17 | code >> 15) & mask) * p4 & mask
    for byte in data[whole:]:
        code = code + byte * p5 & mask
        code = ((code << 11 | code >> 21) & mask) * p1 & mask
    code = (code ^ code >> 15) * p2 & mask
    code = (code ^ code >> 13) * p3 & mask
    return code ^ code >> 16


_XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


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
