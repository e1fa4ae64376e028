"""Records as they are in produce requests, fetch responses and log segments, one Python object for each.

    data = encode_batch(Batch([Record(b"value", key=b"key")], codec=Codec.ZSTD))
    for batch in decode_batches(data):
        print(batch.records)

Record batches (format 2) are written and read. Message sets (formats 0 and 1, before Kafka 0.11) are read.
koff's own readers use `record_batch`, which decodes columns. Source: Kafka's `DefaultRecordBatch`,
`DefaultRecord`, `AbstractLegacyRecordBatch` and `LegacyRecord`.
"""

import dataclasses
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from koff.proto.compression import compress, decompress, import_library, repair_lz4_header
from koff.proto.primitives import JAVA_REPLACEMENT, Malformed, Truncated, write_varint
from koff.proto.record_batch import (
    CODEC,
    CONTROL,
    CRC_BEGIN,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)

LONGEST_BATCH: Final = 256 << 20
"""How many bytes the records of a batch may have after decompression, unless a caller says otherwise."""
_BATCH = struct.Struct(">qiibIhiqqqhii")
_OF_PRODUCERS = ("producer_id", "producer_epoch", "base_sequence")
_MESSAGE = struct.Struct(">qiIbb")
_CHECKED_FROM = 16  # the checksum of a message covers all from its magic on
_INT64 = struct.Struct(">q").unpack_from
_INT32 = struct.Struct(">i").unpack_from
assert _BATCH.size == HEADER.itemsize


class Codec(IntEnum):
    """Compression, by its number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record. `offset` and `timestamp_ms` are -1 where they are not known.

    `encode_batch` chooses the offset, and writes -1 for a timestamp that is not known.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    offset: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A record batch, or one message of a message set with all that its compressed value holds.

    Compaction may leave a batch without records. The fields of producers are -1 where there is none.
    """

    records: Sequence[Record]
    codec: Codec = Codec.NONE
    base_offset: int = 0
    last_offset: int | None = None
    """The last offset that the batch stands for, also if compaction removed that record.
    `encode_batch` ignores it."""
    leader_epoch: int = -1
    log_append_time: bool = False
    """Whether the timestamps are the broker's; otherwise they are the producer's."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    magic: int = 2
    """The format: 2 for record batches, 0 and 1 for message sets."""


def encode_batch(batch: Batch) -> bytes:
    """The bytes of a record batch. Its records get consecutive offsets from `base_offset` on.

    Raises `Malformed` for another format than 2 and for a batch without records, and `MissingLibrary`.
    """
    if batch.magic != 2:
        raise Malformed(f"message format {batch.magic} is only read: write format 2")
    if not batch.records:
        raise Malformed("a batch without records cannot be written")
    base_ms = batch.records[0].timestamp_ms
    body = bytearray()
    for delta, record in enumerate(batch.records):
        encoded = _encode_record(record, record.timestamp_ms - base_ms, delta)
        write_varint(body, len(encoded))
        body += encoded
    attributes = (
        batch.codec
        | LOG_APPEND_TIME * batch.log_append_time
        | TRANSACTIONAL * batch.transactional
        | CONTROL * batch.control
    )
    payload = compress(batch.codec, bytes(body))
    head = bytearray(
        _BATCH.pack(
            batch.base_offset,
            _BATCH.size - LOG_OVERHEAD + len(payload),
            batch.leader_epoch,
            batch.magic,
            0,  # the checksum, below
            attributes,
            len(batch.records) - 1,
            base_ms,
            max(record.timestamp_ms for record in batch.records),
            *(getattr(batch, name) for name in _OF_PRODUCERS),
            len(batch.records),
        )
    )
    checksum = _crc32c(bytes(head[CRC_BEGIN:]) + payload)
    struct.pack_into(">I", head, CRC_BEGIN - 4, checksum)
    return bytes(head) + payload


def decode_batches(data: bytes, *, limit: int = LONGEST_BATCH) -> Iterator[Batch]:
    """The batches in `data`, which begins with one. A last batch that is cut off is left out: brokers cut.

    Raises `Malformed`, with the position, for damaged bytes or a batch of more than `limit` bytes, after the
    batches before it; and `MissingLibrary`.
    """
    at = 0
    while at + _MESSAGE.size <= len(data):
        size, magic = _INT32(data, at + 8)[0], data[at + 16]
        end = at + LOG_OVERHEAD + size
        least = {0: _MESSAGE.size + 8, 1: _MESSAGE.size + 16, 2: _BATCH.size}.get(magic)
        if least is None:
            raise Malformed(f"message format {magic} at position {at} is not known")
        if end - at < least:
            raise Malformed(f"the batch at position {at} states a size of {size} bytes, which is too small")
        if end > len(data):
            return
        try:
            yield _decode_batch(data[at:end], limit) if magic == 2 else _decode_message(data[at:end], limit)
        except (Malformed, IndexError, struct.error) as error:
            raise Malformed(f"the batch at position {at}: {error}") from error
        at = end


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    out = bytearray(1)  # attributes, which are unused
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for name, value in record.headers:
        _write_bytes(out, name.encode())
        _write_bytes(out, value)
    return bytes(out)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    write_varint(out, -1 if data is None else len(data))
    out += data or b""


def _decode_batch(data: bytes, limit: int) -> Batch:
    """A whole record batch of format 2."""
    head = dict(zip(HEADER.names or (), _BATCH.unpack_from(data), strict=True))
    if _crc32c(data[CRC_BEGIN:]) != head["crc"]:
        raise Malformed("the checksum is wrong")
    base, attributes = head["base_offset"], head["attributes"]
    codec = _find_codec(attributes & CODEC)
    body, records, at = decompress(codec, data[_BATCH.size :], limit), [], 0
    log_append_time = bool(attributes & LOG_APPEND_TIME)
    for _ in range(head["count"]):
        size, at = _read_varint(body, at)
        end = at + size
        if size < 0 or end > len(body):
            raise Truncated("a record ends beyond its batch")
        record = _decode_record(body[at:end], base, head["base_timestamp"])
        if log_append_time:
            record = dataclasses.replace(record, timestamp_ms=head["max_timestamp"])
        records.append(record)
        at = end
    if head["count"] < 0 or at != len(body):
        raise Malformed("the records do not fill the batch")
    return Batch(
        records=tuple(records),
        codec=codec,
        base_offset=base,
        last_offset=base + head["last_offset_delta"],
        log_append_time=log_append_time,
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & CONTROL),
        **{name: head[name] for name in ("leader_epoch", "magic", *_OF_PRODUCERS)},
    )


def _decode_record(data: bytes, base_offset: int, base_ms: int) -> Record:
    timestamp_delta, at = _read_varint(data, 1)  # 1: after the attributes, which are unused
    offset_delta, at = _read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = _read_varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise Malformed("a header without a name")
        header, at = _read_bytes(data, at)
        headers.append((name.decode("utf-8", JAVA_REPLACEMENT), header))
    if count < 0 or at != len(data):
        raise Malformed("the fields do not fill the record")
    return Record(value, key, tuple(headers), base_ms + timestamp_delta, base_offset + offset_delta)


def _decode_message(data: bytes, limit: int) -> Batch:
    """A whole message of format 0 or 1. A compressed one holds a message set."""
    offset, _, checksum, magic, attributes = _MESSAGE.unpack_from(data)
    if zlib.crc32(data[_CHECKED_FROM:]) != checksum:
        raise Malformed("the checksum is wrong")
    timestamp_ms, at = (_INT64(data, _MESSAGE.size)[0], _MESSAGE.size + 8) if magic else (-1, _MESSAGE.size)
    key, at = _read_sized(data, at)
    value, at = _read_sized(data, at)
    if at != len(data):
        raise Malformed("the fields do not fill the message")
    codec = _find_codec(attributes & CODEC)
    log_append_time = bool(magic and attributes & LOG_APPEND_TIME)
    records: tuple[Record, ...] = (Record(value, key, (), timestamp_ms, offset),)
    if codec:
        records = _decode_inner(value or b"", codec, magic, limit)
    if codec and magic:
        # The message has the last absolute offset, and its messages relative ones (KIP-31).
        shift = offset - records[-1].offset
        records = tuple(dataclasses.replace(record, offset=record.offset + shift) for record in records)
    if log_append_time:
        records = tuple(dataclasses.replace(record, timestamp_ms=timestamp_ms) for record in records)
    return Batch(
        records=records,
        codec=codec,
        base_offset=records[0].offset,
        last_offset=offset,
        log_append_time=log_append_time,
        magic=magic,
    )


def _decode_inner(value: bytes, codec: Codec, magic: int, limit: int) -> tuple[Record, ...]:
    """The messages in a compressed message. Raises `Malformed` if there is none or one is compressed, too."""
    if codec is Codec.LZ4 and magic == 0:
        value = repair_lz4_header(value)
    data = decompress(codec, value, limit)
    inner = tuple(decode_batches(data, limit=limit))
    if any(batch.codec or batch.magic != magic for batch in inner):
        raise Malformed("a compressed message holds a message of another format, or a compressed one")
    records = tuple(itertools.chain.from_iterable(batch.records for batch in inner))
    if not records:
        raise Malformed("a compressed message without messages")
    return records


def _find_codec(number: int) -> Codec:
    try:
        return Codec(number)
    except ValueError as error:
        raise Malformed(f"unknown compression codec {number}") from error


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Bytes after their int32 length, -1 for null."""
    (size,) = _INT32(data, at)
    return _cut(data, at + 4, size)


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Bytes after their varint length, -1 for null."""
    size, at = _read_varint(data, at)
    return _cut(data, at, size)


def _cut(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    if size == -1:
        return None, at
    if size < 0 or at + size > len(data):
        raise Truncated("a field ends beyond its record")
    return data[at : at + size], at + size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1
            return (value >> 1) ^ -(value & 1), at
    raise Malformed("a varint of more than ten bytes")


def _crc32c(data: bytes) -> int:
    checksum: int = import_library("crc32c").crc32c(data)
    return checksum
