"""Log segments that Kafka's own classes wrote, whole and damaged."""

import json
import random
import struct
from typing import Any

import pytest

from koff.proto import compression as codecs
from koff.proto import record_batch as recordbatch
from koff.proto.compression import CODEC_NAMES, MissingLibrary, decompress
from koff.proto.primitives import Malformed
from koff.records import segments
from koff.records.segments import Chunk, Damage, Marker, SegmentRecords, TransactionOutcomes, read_segment
from tests.unit.records.decoding import GOLDEN

LOGS = {name: (GOLDEN / "segments" / f"{name}.log").read_bytes() for name in CODEC_NAMES}
LOG = LOGS["none"]
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (GOLDEN / "segments" / "records.jsonl").read_text().splitlines()
]
DATA = [row for row in ROWS if not row["control"]]


def rows_of(records: SegmentRecords) -> list[dict[str, Any]]:
    return [
        {
            "offset": int(records.offset[row]),
            "timestamp": int(records.timestamp[row]),
            "producer_id": int(records.producer_id[row]),
            "transactional": bool(records.transactional[row]),
            "control": False,
            "key": key if key is None else key.hex(),
            "value": value if value is None else value.hex(),
        }
        for row, (key, value) in enumerate(zip(records.keys, records.values, strict=True))
    ]


def all_rows(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in rows_of(chunk.records)]


def damage_of(chunks: list[Chunk]) -> list[Damage]:
    return [damage for chunk in chunks for damage in chunk.damage]


def batches(log: bytes) -> list[tuple[int, int]]:
    """Where each batch begins and ends."""
    begins, end, _ = recordbatch.find_batches(log)
    return list(zip(begins, [*begins[1:], end], strict=True))


@pytest.fixture(params=["one by one", "all batches at once"])
def followed(request, monkeypatch):
    """The two ways to find out where records begin."""
    monkeypatch.setattr(recordbatch, "_FEW_BATCHES", 10_000 if request.param == "one by one" else 0)


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_records_are_those_kafka_reads(codec, wrap):
    (chunk,) = read_segment(wrap(LOGS[codec]))
    assert rows_of(chunk.records) == DATA
    assert chunk.damage == ()
    assert chunk.position == len(LOGS[codec])


def test_markers_tell_what_became_of_whose_transaction():
    (chunk,) = read_segment(LOG)
    assert [(marker.offset, marker.kind, marker.producer_id) for marker in chunk.markers] == [
        (1004, "abort", 7),
        (1006, "commit", 8),
        (1009, "commit", 7),
    ]
    assert chunk.markers[0] == Marker(1004, 1795223298551, "abort", 7, 3, 11)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_read_committed_gives_neither_aborted_nor_undecided_records(codec):
    outcomes = TransactionOutcomes()
    outcomes.scan(LOGS[codec])
    (chunk,) = read_segment(LOGS[codec], outcomes=outcomes)
    assert outcomes.first_open_offset == 1010
    hidden = {1000, 1001, 1010, 1011}
    assert rows_of(chunk.records) == [row for row in DATA if row["offset"] not in hidden]


def test_a_control_batch_that_compaction_emptied_is_no_damage():
    """Kafka keeps the last batch of a producer, without its record."""
    begin, end = next((b, e) for b, e in batches(LOG) if LOG[b : b + 8] == (1006).to_bytes(8, "big"))
    empty = bytearray(LOG[begin : begin + recordbatch.HEADER.itemsize])
    empty[8:12] = struct.pack(">i", len(empty) - recordbatch.LOG_OVERHEAD)
    empty[57:61] = bytes(4)
    (chunk,) = read_segment(LOG[:begin] + empty + LOG[end:], check_crc=False)
    assert chunk.damage == ()
    assert rows_of(chunk.records) == DATA
    assert [marker.offset for marker in chunk.markers] == [1004, 1009]
    # A record that the header does not count is damage all the same.
    uncounted = bytearray(LOG)
    uncounted[begin + 57 : begin + 61] = bytes(4)
    (chunk,) = read_segment(uncounted, check_crc=False)
    assert [damage.offset for damage in chunk.damage] == [1006]


def test_a_transaction_may_end_in_a_later_file():
    split = next(begin for begin, _ in batches(LOG) if LOG[begin : begin + 8] == (1004).to_bytes(8, "big"))
    outcomes = TransactionOutcomes()
    assert outcomes.first_open_offset is None
    outcomes.scan(LOG[:split])
    assert outcomes.first_open_offset == min(row["offset"] for row in DATA if row["transactional"])
    outcomes.scan(LOG[split:])
    assert outcomes.first_open_offset == 1010
    chunks = [*read_segment(LOG[:split], outcomes=outcomes), *read_segment(LOG[split:], outcomes=outcomes)]
    assert {row["offset"] for row in all_rows(chunks)} >= {1002, 1003, 1007, 1008}
    assert not {row["offset"] for row in all_rows(chunks)} & {1000, 1001, 1010, 1011}


@pytest.mark.parametrize("chunk_size", [100, 1000, 20_000])
def test_a_file_in_chunks_is_the_same_file(chunk_size, monkeypatch):
    monkeypatch.setattr(segments, "CHUNK_SIZE", chunk_size)
    chunks = list(read_segment(LOG))
    assert len(chunks) > 1
    assert all_rows(chunks) == DATA
    assert damage_of(chunks) == []
    assert [chunk.position for chunk in chunks] == sorted(chunk.position for chunk in chunks)
    assert chunks[-1].position == len(LOG)


def test_a_torn_last_batch_is_reported_and_not_fatal():
    begin, end = batches(LOG)[-1]
    for cut in range(begin + 1, end):
        chunks = list(read_segment(LOG[:cut]))
        (torn,) = damage_of(chunks)
        assert (torn.position, torn.size) == (begin, cut - begin)
        assert torn.reason.startswith("the last batch is torn: ")
        assert all_rows(chunks) == DATA[:-1]
        assert chunks[-1].position == cut


def test_zeros_at_the_end_are_space_that_kafka_allocated_ahead():
    chunks = list(read_segment(LOG + bytes(5000)))
    assert damage_of(chunks) == []
    assert all_rows(chunks) == DATA


def test_an_empty_file_has_nothing():
    assert list(read_segment(b"")) == []
    assert damage_of(list(read_segment(bytes(100)))) == []


@pytest.mark.parametrize("byte", [0, 1, 0x7F, 0x80, 0xFF])
def test_both_ways_to_follow_records_find_the_same(byte, monkeypatch):
    end = batches(LOG)[0][1]
    for at in range(recordbatch.HEADER.itemsize, end):
        broken = bytearray(LOG[:end])
        broken[at] = byte
        found = []
        for few in (0, 10_000):
            monkeypatch.setattr(recordbatch, "_FEW_BATCHES", few)
            (chunk,) = read_segment(broken, check_crc=False)
            found.append((rows_of(chunk.records), chunk.damage))
        assert found[0] == found[1]


def test_a_batch_with_a_wrong_checksum_is_stepped_over():
    begin, end = batches(LOG)[2]
    flipped = bytearray(LOG)
    flipped[end - 1] ^= 1
    (chunk,) = read_segment(flipped)
    assert chunk.damage == (Damage(begin, end - begin, "the checksum is wrong", 300),)
    assert rows_of(chunk.records) == [row for row in DATA if not 300 <= row["offset"] < 600]
    assert len(next(iter(read_segment(flipped, check_crc=False))).records) == len(DATA)


def test_a_length_that_cannot_be_ends_the_reading():
    begin, _ = batches(LOG)[1]
    broken = bytearray(LOG)
    broken[begin + 8 : begin + 12] = (3).to_bytes(4, "big")
    chunks = list(read_segment(broken))
    (damage,) = damage_of(chunks)
    assert (damage.position, damage.size, damage.offset) == (begin, len(LOG) - begin, 200)
    assert damage.reason == "a batch header states a size of 15 bytes: the rest of the file cannot be read"
    assert all_rows(chunks) == DATA[:4]


def test_messages_of_older_formats_are_named():
    old = struct.pack(">qiiBB", 7, 14 + 10, 0, 1, 0) + bytes(18)
    chunks = list(read_segment(old + LOG))
    assert [damage.reason for damage in damage_of(chunks)] == [
        "message format 1 is not supported, only 2 (Kafka 0.11 and later)"
    ]
    assert all_rows(chunks) == DATA


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("count", [-1, 0, 3, 5, 2**31 - 1])
def test_a_batch_with_another_count_of_records_is_damage(count):
    broken = bytearray(LOG)
    broken[57:61] = count.to_bytes(4, "big", signed=True)
    (chunk,) = read_segment(broken, check_crc=False)
    assert [damage.reason for damage in chunk.damage] == [
        "the batch does not hold as many records as its header states"
    ]
    assert rows_of(chunk.records) == DATA[4:]


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_nothing_that_is_changed_makes_the_reader_raise(codec):
    dice = random.Random(codec)
    begins = [begin for begin, _ in batches(LOGS[codec])]
    for _ in range(25):
        broken = bytearray(LOGS[codec])
        for _ in range(dice.choice((1, 3))):
            at = dice.choice((dice.randrange(len(broken)), dice.choice(begins) + dice.randrange(90)))
            broken[min(at, len(broken) - 1)] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        for chunk in read_segment(broken, check_crc=False):
            assert len(rows_of(chunk.records)) <= len(broken)
            for damage in chunk.damage:
                assert damage.reason
        TransactionOutcomes().scan(broken)


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_would_be_more_than_the_limit_is_refused(codec):
    begin, end = batches(LOGS[CODEC_NAMES[codec]])[2]
    data = LOGS[CODEC_NAMES[codec]][begin + recordbatch.HEADER.itemsize : end]
    whole = decompress(codec, data, 1 << 20)
    assert decompress(codec, data, len(whole)) == whole
    with pytest.raises(Malformed):
        decompress(codec, data, len(whole) - 1)
    with pytest.raises(Malformed):
        decompress(codec, b"\xff" + data[1:], 1 << 20)


def test_a_codec_that_kafka_has_not_is_damage():
    broken = bytearray(LOG)
    broken[22] |= 5
    (chunk,) = read_segment(broken, check_crc=False)
    assert [damage.reason for damage in chunk.damage] == ["unknown compression codec 5"]


def test_a_library_that_is_missing_is_named_with_what_to_install():
    with pytest.raises(MissingLibrary, match=r"pip install koff_has_no_such_library"):
        codecs.import_library("koff_has_no_such_library")
