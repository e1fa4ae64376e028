"""Record batches and message sets as Python objects. tests/integration compares them with Kafka's code."""

import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.proto import Batch, Codec, Malformed, Record, decode_batches, encode_batch

some_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    value=some_bytes,
    key=some_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple),
    timestamp_ms=st.integers(-1, 1 << 50),
)
batches = st.builds(
    Batch,
    records=st.lists(records, min_size=1, max_size=20).map(tuple),
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 1 << 60),
    leader_epoch=st.integers(-1, 1 << 30),
    producer_id=st.integers(-1, 1 << 60),
    producer_epoch=st.integers(-1, 1 << 14),
    base_sequence=st.integers(-1, 1 << 30),
    transactional=st.booleans(),
    control=st.booleans(),
)
ONE = encode_batch(Batch((Record(b"value", b"key", (("h", None),), 1000),)))


def placed(batch: Batch) -> Batch:
    """The batch as it is read again: with offsets."""
    numbered = tuple(
        dataclasses.replace(record, offset=batch.base_offset + number)
        for number, record in enumerate(batch.records)
    )
    return dataclasses.replace(batch, records=numbered, last_offset=numbered[-1].offset)


@given(st.lists(batches, max_size=3))
def test_what_is_written_is_read_again(some: list[Batch]):
    data = b"".join(map(encode_batch, some))
    assert list(decode_batches(data)) == [placed(batch) for batch in some]


@given(batches, st.data())
def test_a_batch_that_is_cut_off_is_left_out(batch: Batch, data: st.DataObject):
    whole = encode_batch(batch)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert len(list(decode_batches(whole + whole[:cut]))) == 1


@given(batches, st.data())
def test_a_changed_byte_is_found(batch: Batch, data: st.DataObject):
    whole = bytearray(encode_batch(batch))
    at = data.draw(st.integers(16, len(whole) - 1))  # offset, size and epoch are not part of the checksum
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Malformed, match="position 0"):
        list(decode_batches(bytes(whole)))


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_malformed(data: bytes):
    for checked in (data, with_checksum(data)):
        try:
            list(decode_batches(checked))
        except Malformed:
            pass


def with_checksum(data: bytes) -> bytes:
    """A message of format 0 or 1 whose size and checksum are right, and whose rest may be anything."""
    magic = bytes([data[0] & 1]) if data else b"\0"
    body = magic + data[1:] + bytes(20)
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def test_the_batches_before_a_damaged_one_are_read():
    batches = decode_batches(ONE + ONE[:-1] + b"\xff")
    assert next(batches).records[0].value == b"value"
    with pytest.raises(Malformed, match=f"the batch at position {len(ONE)}: the checksum is wrong"):
        next(batches)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused(codec: Codec):
    bomb = encode_batch(Batch((Record(bytes(1 << 20)),), codec))
    assert len(bomb) < 1 << 17
    with pytest.raises(Malformed):
        list(decode_batches(bomb, limit=1 << 18))


def test_only_batches_of_format_2_with_records_are_written():
    with pytest.raises(Malformed, match="format 1"):
        encode_batch(Batch((Record(b""),), magic=1))
    with pytest.raises(Malformed, match="without records"):
        encode_batch(Batch(()))
