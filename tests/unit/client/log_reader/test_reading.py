"""Partitions are read to the end and beyond: nothing is lost or twice, and damage is noticed."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from koff.client import fetch_messages as messages
from koff.client import log_leader
from koff.client.batches import Batches
from koff.client.log_reader import LogRead, LogReader, LogStart
from koff.client.offsets.lister import OffsetLister
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic, list_batches, pack_fetched
from tests.record_batches import batch
from tests.unit.client.log_reader.reading import TOPIC, Reading, log
from tests.unit.records.decoding import GOLDEN

# --- What is usual ------------------------------------------------------------------------------------------


def test_all_records_come_in_order_and_then_those_that_are_new(topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1, 2).until_read(p0=300, p1=300, p2=300)
    topic.logs[1] += log(320, 300)
    reading.until_read(p1=320)
    assert reader.partitions == {0, 1, 2}
    assert reader.unreachable is None


def test_an_idle_partition_is_confirmed_at_its_end(reader: LogReader) -> None:
    reading = Reading(reader, 0).until_read(p0=300)
    for _ in range(2):
        reading.positions.clear()
        reading.until(lambda: reading.positions == {0: 300})


def test_each_response_has_the_watermarks_of_a_moment_after_its_request(
    topic: FakeTopic, reader: LogReader
) -> None:
    Reading(reader, 0).until_read(p0=300)
    since_s, end = time.monotonic(), None
    while end is None or end.requested_s < since_s:
        end = reader.fetch(1.0).ends.get(0)
    assert end[:2] == (300, 300)
    topic.logs[0] += log(320, 300)
    while end.high_watermark == 300:
        end = reader.fetch(1.0).ends.get(0, end)
    assert end[:2] == (320, 320)


def test_further_records_gather_when_all_were_read(
    lister: OffsetLister, topic: FakeTopic, brokers: FakeBrokers
) -> None:
    with LogReader(lister, TOPIC, gather_s=3600) as reader:
        reading = Reading(reader, 0).until_read(p0=300)
        reading.positions.clear()
        reading.until(lambda: reading.positions == {0: 300})
        topic.logs[0] += log(320, 300)
        reading.until_read(p0=320)
        requests = brokers[1].count(Api.FETCH)
        topic.logs[0] += log(340, 320)
        assert not reader.fetch(0.3)
    assert brokers[1].count(Api.FETCH) == requests


@pytest.mark.parametrize("room", [1, 500, 1 << 20])
def test_responses_that_cut_a_batch_off_lose_nothing(
    room: int, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_leader, "RESPONSE_BYTES", room)
    Reading(reader, 0).until_read(p0=300)


def test_partitions_of_one_leader_take_turns(
    brokers: FakeBrokers, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_leader, "BEHIND_AT_ONCE", 1)
    made = brokers.add_topic("u", [1] * 3)
    made.logs = {partition: log(100) for partition in range(3)}
    with LogReader(lister, "u") as reader:
        Reading(reader, 0, 1, 2).until_read(p0=100, p1=100, p2=100)
    asked = [
        each.topics[0].partitions[0].partition for api, _, each in brokers[1].requests if api == Api.FETCH
    ]
    assert asked[:3] == [0, 1, 2]


def test_reading_may_begin_within_a_batch(reader: LogReader) -> None:
    Reading(reader, 0, first=25).until_read(p0=300)


def test_control_batches_and_compacted_batches_move_the_position(topic: FakeTopic, reader: LogReader) -> None:
    # A batch that compaction emptied, a control batch (which no reader decodes as records), and a gap.
    marker = (GOLDEN / "segments" / "none.log").read_bytes()
    control = next(each for first, _, each in list_batches(marker) if first == 1006)
    control = struct.pack(">q", 20) + control[8:]
    emptied = batch(21, 0, last=21, attributes=0x30)  # a marker without its record
    topic.logs[0] = batch(0, 10) + batch(10, 0, last=19) + control + emptied + batch(30, 5, last=39, epoch=6)
    reading = Reading(reader, 0)
    reading.until(lambda: reading.positions.get(0) == 40)
    assert reading.offsets[0] == [*range(10), *range(30, 35)]


def test_every_codec_is_read(topic: FakeTopic, reader: LogReader) -> None:
    for number, codec in enumerate(("gzip", "zstd", "lz4")):
        topic.logs[number] = (GOLDEN / "segments" / f"{codec}.log").read_bytes()
    end = list_batches(topic.logs[0])[-1][1] + 1
    reader.add(dict.fromkeys(range(3), LogStart(0)))
    found: dict[int, list[int]] = {}
    positions: dict[int, int] = {}
    while positions != dict.fromkeys(range(3), end):
        read = reader.fetch(0.05)
        positions |= read.positions
        for run in read.runs:
            found.setdefault(run.partition, []).extend(run.offsets)
    assert len(found[0]) > 10
    assert found[0] == found[1] == found[2]


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    data = (GOLDEN / "segments" / "none.log").read_bytes()
    aborted = (messages.AbortedTransaction(producer_id=7, first_offset=1000),)
    plain, read = Batches.find(0, data, 0), Batches.find(0, data, 0, aborted)
    assert plain is not None
    assert read is not None
    assert read.next_offset == plain.next_offset
    everything, committed = plain.decode(), read.decode()
    assert everything is not None
    assert committed is not None
    assert set(everything.offsets) - set(committed.offsets) == {1000, 1001}


# --- Bytes --------------------------------------------------------------------------------------------------


def damage(name: str) -> bytes:
    """Ten good batches, then one that is not."""
    good, bad = log(100), bytearray(batch(100, 10))
    match name:
        case "count":
            bad[57:61] = struct.pack(">i", 9)
        case "huge count":
            bad[57:61] = struct.pack(">i", 2**31 - 1)
        case "old format":
            bad[16] = 1
        case "a record's length":
            bad[61] = 0x7F
        case "an offset twice":
            bad[0:8] = struct.pack(">q", 95)
            bad[23:27] = struct.pack(">i", 30)
        case "an unknown codec":
            bad[22] = 7
        case "an offset that is no int64":
            bad[0:8] = struct.pack(">q", (1 << 63) - 5)
        case "an end before its records":
            bad[23:27] = struct.pack(">i", 3)
    return good + bytes(bad) + log(300)[len(log(110)) :]


@pytest.mark.parametrize(
    "name",
    [
        "count",
        "huge count",
        "old format",
        "a record's length",
        "an offset twice",
        "an unknown codec",
        "an offset that is no int64",
        "an end before its records",
    ],
)
def test_a_partition_is_lost_at_a_damaged_batch(name: str, topic: FakeTopic, reader: LogReader) -> None:
    topic.logs[0] = damage(name)
    reading = Reading(reader, 0, 1)
    assert reading.until_lost(0).reason.startswith("records from offset ")
    position = reading.positions.get(0, 0)
    assert position <= 100
    assert reading.offsets[0] == list(range(position))
    reading.until_read(p1=300)


@pytest.mark.parametrize("size", [-1, 0, 13, 48])
def test_a_partition_is_lost_at_a_batch_with_a_size_that_cannot_be(
    size: int, reader: LogReader, brokers: FakeBrokers
) -> None:
    bad = bytearray(batch(100, 10))
    bad[8:12] = struct.pack(">i", size)
    brokers[1].tamper = lambda api, body: body.replace(batch(100, 10), bytes(bad))
    reading = Reading(reader, 0)
    reading.until_lost(0)
    assert reading.offsets[0] == list(range(reading.positions.get(0, 0)))


@pytest.mark.parametrize("times", [1, 1000])
def test_batches_beyond_the_last_stable_offset_are_believed_when_the_broker_knows_them(
    times: int, topic: FakeTopic, reader: LogReader, brokers: FakeBrokers
) -> None:
    """A broker looks at the last stable offset, and then reads. A wrong offset stays beyond it."""
    true, older = (struct.pack(">ihqqq", 0, 0, 320, stable, 0) for stable in (320, 310))
    left = [times]

    def tamper(_: Api, body: bytes) -> bytes:
        if true not in body or not left[0]:
            return body
        left[0] -= 1
        return body.replace(true, older.replace(struct.pack(">q", 320), struct.pack(">q", 310)))

    reading = Reading(reader, 0).until_read(p0=300)
    brokers[1].tamper = tamper
    topic.logs[0] += log(320, 300)
    if times == 1:
        reading.until_read(p0=320)
        assert left == [0]
    else:
        assert "beyond the last stable offset" in reading.until_lost(0).reason
        assert reading.offsets[0] == list(range(300))


def test_any_byte_that_is_changed_is_read_or_gives_a_known_error(reader: LogReader) -> None:
    part = pack_fetched(0, ErrorCode.none, 3, None, batch(0, 2) + batch(2, 1))
    body = struct.pack(">ihi", 0, 0, 0) + b"\2\2t\2" + part + b"\0\0"
    leader = object.__new__(log_leader.LogLeader)
    leader.address, leader.requested_s = ("broker", 1), 0.0
    for at in range(len(body)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            broken = body[:at] + bytes([byte]) + body[at + 1 :]
            try:
                response = messages._decode(frozenset({TOPIC}), broken, 0)
            except Exception:  # the connection makes a ConnectError of it
                continue
            own, moved, read = log_leader.LogPartition(0, -1), list[Any](), LogRead()
            leader.left, reader._partitions = {0: own}, {0: own}
            asked = {0: 0}
            for fetched in (each for topic in response.topics for each in topic.partitions):
                if leader._is_of(fetched, asked):
                    reader._note(leader, fetched, moved, read)
            for each in moved:
                reader._decode(each, read)
            for run in read.runs:
                assert len(run.offsets) == len(run.keys) == len(run.values)
