"""Partitions are read to the end and beyond, whatever happens to their leaders: nothing is lost or twice."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from koff.client import fetch_messages as messages
from koff.client import log_leader, log_reader
from koff.client.batches import Batches
from koff.client.log_reader import LogRead, LogReader, LogStart, PartitionLost
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.connection import Connection
from koff.errors import ConnectError, Denied, KoffError, LogInRefused
from koff.kafkatest import wait_until
from koff.proto.primitives import Malformed
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic, list_batches, pack_fetched
from tests.record_batches import batch
from tests.unit.records.decoding import GOLDEN

TOPIC = "t"


def log(count: int, first: int = 0) -> bytes:
    return b"".join(batch(at, min(10, count - at)) for at in range(first, count, 10))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not hang is not late on a busy machine. Small responses."""
    monkeypatch.setattr(log_leader, "RESPONSE_S", 60.0)
    monkeypatch.setattr(log_leader, "RESPONSE_BYTES", 800)


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def topic(brokers: FakeBrokers) -> FakeTopic:
    """Partitions 0 to 2 have leaders of their own, and 300 records each."""
    made = brokers.add_topic(TOPIC, [1, 2, 3])
    made.logs = {partition: log(300) for partition in range(3)}
    return made


@pytest.fixture
def lister(brokers: FakeBrokers, topic: FakeTopic) -> Iterator[OffsetLister]:
    with OffsetLister(brokers.conf) as made:
        yield made


@pytest.fixture
def reader(lister: OffsetLister) -> Iterator[LogReader]:
    with LogReader(lister, TOPIC) as made:
        yield made


class Reading:
    """All that a reader has returned."""

    def __init__(self, reader: LogReader, *partitions: int, first: int = 0) -> None:
        self.reader, self.first = reader, first
        self.offsets: dict[int, list[int]] = {partition: [] for partition in partitions}
        self.positions: dict[int, int] = {}
        self.lost: dict[int, PartitionLost] = {}
        reader.add(dict.fromkeys(partitions, LogStart(first)))

    def fetch(self) -> LogRead:
        read = self.reader.fetch(0.05)
        for run in read.runs:
            offsets = list(run.offsets)
            assert list(run.keys) == [b"k%d" % offset for offset in offsets]
            assert list(run.values) == [b"v%d" % offset for offset in offsets]
            self.offsets[run.partition].extend(offsets)
        self.positions |= read.positions
        for lost in read.lost:
            assert lost.partition not in self.lost
            self.lost[lost.partition] = lost
        return read

    def until(self, is_done: Callable[[], bool]) -> Reading:
        def look() -> bool:
            self.fetch()
            return is_done()

        wait_until(look, every_s=0.001, what="records")
        return self

    def until_read(self, **ends: int) -> Reading:
        """Reads until these positions. Checks that no record is missing or came twice."""
        wanted = {int(name[1:]): end for name, end in ends.items()}
        self.until(lambda: all(self.positions.get(p) == end for p, end in wanted.items()))
        for partition, end in wanted.items():
            assert self.offsets[partition] == list(range(self.first, end))
        return self

    def until_lost(self, partition: int) -> PartitionLost:
        return self.until(lambda: partition in self.lost).lost[partition]

    def begin(self, partition: int = 0) -> Reading:
        """Reads some of the records."""
        return self.until(lambda: len(self.offsets[partition]) >= 60)


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


# --- Leaders ------------------------------------------------------------------------------------------------


def fence(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.epochs[0] += 1


def move(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.move(0, 2)


def disconnect(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.disconnect(1)


def drop(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers[1].drops = 3


def restart(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.restart_elsewhere(1)


def stop(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.stop(1)
    topic.move(0, 3)


def cut_once(brokers: FakeBrokers, topic: FakeTopic) -> None:
    def tamper(api: Api, body: bytes) -> bytes:
        if api is not Api.FETCH:
            return body
        brokers[1].tamper = lambda api, body: body
        return body[:-3]

    brokers[1].tamper = tamper


def fail_once(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.fetch_errors[0] = ErrorCode.kafka_storage_error

    def tamper(api: Api, body: bytes) -> bytes:
        if api is Api.FETCH:
            topic.fetch_errors.clear()
        return body

    brokers[1].tamper = tamper


@pytest.mark.parametrize("fault", [fence, move, disconnect, drop, restart, stop, cut_once, fail_once])
def test_reading_goes_on_where_it_was(
    fault: Callable[[FakeBrokers, FakeTopic], None],
    brokers: FakeBrokers,
    topic: FakeTopic,
    reader: LogReader,
) -> None:
    reading = Reading(reader, 0, 1).begin()
    fault(brokers, topic)
    reading.until_read(p0=300, p1=300)
    topic.logs[0] += log(320, 300)
    reading.until_read(p0=320)
    assert not reading.lost


def test_a_log_that_was_truncated_is_lost(brokers: FakeBrokers, topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).until_read(p0=300, p1=300)
    topic.epoch_ends[0] = 250
    topic.move(0, 2)
    topic.logs[0] += log(320, 300)
    lost = reading.until_lost(0)
    assert lost.reason == "the log was truncated to 250, and offset 300 was read next"
    assert not lost.gone
    assert reading.offsets[0] == list(range(300))
    assert reader.partitions == {1}


def test_a_log_that_does_not_know_the_epoch_is_lost(topic: FakeTopic, reader: LogReader) -> None:
    topic.epoch_ends[0] = -1
    reader.add({0: LogStart(100, 5)})
    wait_until(lambda: reader.fetch(0.05).lost, every_s=0.001)
    assert reader.partitions == set()


def test_an_offset_that_is_not_in_the_log_is_lost(topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).begin()
    topic.fetch_errors[0] = ErrorCode.offset_out_of_range
    assert "OFFSET_OUT_OF_RANGE" in reading.until_lost(0).reason
    reading.until_read(p1=300)


def test_a_partition_that_does_not_exist_is_gone(
    topic: FakeTopic, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "GONE_S", 0.0)
    reading = Reading(reader, 0, 7)
    assert reading.until_lost(7).gone
    reading.until_read(p0=300)


def test_nobody_is_asked_without_end_for_a_partition_that_is_refused(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    topic.fetch_errors[0] = ErrorCode.not_leader_or_follower
    reading = Reading(reader, 0, 1).until_read(p1=300)
    until_s = time.monotonic() + 2.0
    reading.until(lambda: time.monotonic() >= until_s)
    assert 2 <= brokers[1].count(Api.FETCH) <= 6  # after 0, 0.1, 0.3, 0.7, 1.5 s
    topic.fetch_errors.clear()
    reading.until_read(p0=300)


def test_partitions_that_are_added_one_after_the_other_need_not_wait(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(log_reader, "MOST_PAUSE_S", 3600.0)
    for partition in range(3):
        Reading(reader, partition).until_read(**{f"p{partition}": 300})
        reader.remove([partition])


def test_who_may_not_read_is_told_so_after_the_records(topic: FakeTopic, reader: LogReader) -> None:
    reading = Reading(reader, 0, 1).begin(1)
    topic.fetch_errors[1] = ErrorCode.topic_authorization_failed
    with pytest.raises(Denied, match="READ"):
        reading.until(lambda: False)


def test_the_leader_says_now_and_then_where_the_log_ends_while_a_follower_is_read(
    brokers: FakeBrokers, topic: FakeTopic
) -> None:
    topic.followers = {"a": 2}
    conf = replace(brokers.conf, properties={"client.rack": "a"})
    with OffsetLister(conf) as lister, LogReader(lister, TOPIC, ends_s=0.1) as reader:
        reading = Reading(reader, 0).until_read(p0=300)
        requested_s: set[float] = set()

        def has_three_ends() -> bool:
            requested_s.update(end.requested_s for end in reader.fetch(0.05).ends.values())
            return len(requested_s) >= 3

        wait_until(has_three_ends, every_s=0.001, what="ends of the log")
        topic.logs[0] += log(320, 300)
        reading.until_read(p0=320)
        assert brokers[2].count(Api.FETCH) > 1


def test_a_follower_in_the_same_rack_is_read_and_the_leader_when_it_fails(
    brokers: FakeBrokers, topic: FakeTopic
) -> None:
    topic.followers = {"a": 2}
    conf = replace(brokers.conf, properties={"client.rack": "a"})
    with OffsetLister(conf) as lister, LogReader(lister, TOPIC) as reader:
        reading = Reading(reader, 0).begin()
        assert brokers[1].count(Api.FETCH) == 1
        del topic.followers["a"]
        reading.until_read(p0=300)
        assert brokers[1].count(Api.FETCH) > 1


# --- Brokers ------------------------------------------------------------------------------------------------


def test_a_broker_that_hangs_is_given_up_and_others_are_read_meanwhile(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_leader, "RESPONSE_S", 0.5)
    brokers[1].hangs = {Api.FETCH}
    reading = Reading(reader, 0, 1).until_read(p1=300)
    reading.until(lambda: brokers[1].count(Api.FETCH) >= 2)
    topic.move(0, 3)
    reading.until_read(p0=300)


def test_it_says_when_no_broker_can_be_reached_and_when_one_can_again(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    reading = Reading(reader, 0, 1).begin()
    for number in brokers.brokers:
        brokers.stop(number)
    reading.until(lambda: isinstance(reader.unreachable, ConnectError))
    assert "127.0.0.1" in str(reader.unreachable)


@pytest.mark.parametrize("error", [ConnectError("no route"), LogInRefused("wrong password")])
def test_one_broker_that_refuses_is_no_reason_to_stop(
    error: KoffError,
    brokers: FakeBrokers,
    lister: OffsetLister,
    reader: LogReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = lister.brokers.connect

    def refuse(address: Any, *, timeout_s: float) -> Any:
        if address[1] == brokers[1].port:
            raise error
        return connect(address, timeout_s=timeout_s)

    monkeypatch.setattr(lister.brokers, "connect", refuse)
    Reading(reader, 0, 1).until_read(p1=300)


def test_a_log_in_that_all_brokers_refuse_is_an_error(
    lister: OffsetLister, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: Any, *, timeout_s: float) -> Any:
        raise LogInRefused("wrong password")

    monkeypatch.setattr(lister.brokers, "connect", refuse)
    with pytest.raises(LogInRefused):
        Reading(reader, 0, 1).until(lambda: False)


def test_a_broker_that_throttles_is_asked_after_the_time_that_it_says(
    brokers: FakeBrokers, reader: LogReader
) -> None:
    brokers[1].throttle_ms = 400
    reading = Reading(reader, 0, 1).until_read(p1=300)
    began_s, before = time.monotonic(), brokers[1].count(Api.FETCH)
    reading.until(lambda: time.monotonic() >= began_s + 1.0)
    assert brokers[1].count(Api.FETCH) - before <= 3
    brokers[1].throttle_ms = 0
    reading.until_read(p0=300)


def test_a_batch_that_is_larger_than_the_response_is_read_although_others_are_busy(
    brokers: FakeBrokers, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = brokers.add_topic("u", [1, 1])
    made.logs = {0: log(10), 1: batch(0, 50)}

    def tamper(api: Api, body: bytes) -> bytes:
        """There is something new in partition 0 for each request."""
        made.logs[0] += batch(list_batches(made.logs[0])[-1][1] + 1, 5)
        return body

    brokers[1].tamper = tamper
    with LogReader(lister, "u") as reader:
        reading = Reading(reader, 0, 1)
        reading.until(lambda: reading.positions.get(1) == 50)


def test_one_broker_that_cannot_be_reached_is_no_cut(
    brokers: FakeBrokers, topic: FakeTopic, reader: LogReader
) -> None:
    reading = Reading(reader, 0, 1).until_read(p0=300, p1=300)
    connections = brokers.connections
    brokers.stop(1)
    reading.until(lambda: brokers[1].count(Api.FETCH) > 0 and brokers.connections >= connections)
    topic.logs[1] += log(320, 300)
    reading.until_read(p1=320)
    assert reader.unreachable is None


def test_records_that_came_before_the_connection_failed_are_returned(
    reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, count = Connection.post_request, 0

    def fail_at_the_third(connection: Connection, request: Any) -> Any:
        nonlocal count
        count += request.api == Api.FETCH
        if count == 3:  # the response to the second was read just before
            raise ConnectError("Disconnected")
        return post(connection, request)

    monkeypatch.setattr(Connection, "post_request", fail_at_the_third)
    Reading(reader, 0).until_read(p0=300)


def test_a_response_to_an_earlier_request_is_not_taken_for_that_of_another_position(
    reader: LogReader,
) -> None:
    Reading(reader, 0, 1).begin()
    reader.remove([0])  # the next response is under way
    again = Reading(reader, 0, first=250)
    again.offsets[1] = []
    again.until_read(p0=300)


def test_a_broker_is_not_late_because_another_one_is_slow(
    brokers: FakeBrokers, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s, sleep=time.sleep)
    monkeypatch.setattr(log_reader, "time", clock)
    monkeypatch.setattr(log_leader, "time", clock)
    receive, note_failure = log_leader.LogLeader.receive, LogReader._note_failure
    failures: list[KoffError] = []

    def receive_slowly(leader: Any) -> Any:
        nonlocal late_s
        received = receive(leader)
        late_s += log_leader.RESPONSE_S / 10
        return received

    def note(self: LogReader, leader: Any, error: KoffError) -> None:
        failures.append(error)
        note_failure(self, leader, error)

    monkeypatch.setattr(log_leader.LogLeader, "receive", receive_slowly)
    monkeypatch.setattr(LogReader, "_note_failure", note)
    Reading(reader, 0, 1, 2).until_read(p0=300, p1=300, p2=300)
    assert not failures


def test_a_broker_without_the_version_is_an_error(brokers: FakeBrokers, reader: LogReader) -> None:
    brokers[1].versions[Api.FETCH] = (4, 11)
    with pytest.raises(KoffError, match="supports no version of FETCH"):
        Reading(reader, 0).until(lambda: False)


def test_a_reader_that_is_closed_leaves_no_connection(brokers: FakeBrokers, lister: OffsetLister) -> None:
    reader = LogReader(lister, TOPIC)
    Reading(reader, 0, 1, 2).begin()
    connections = [leader._connection for leader in reader._leaders.values()]
    reader.close()
    reader.close()
    assert len(connections) == 3
    assert all(connection is None or connection.closed for connection in connections)


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


def test_batches_beyond_the_last_stable_offset_are_not_believed() -> None:
    part = pack_fetched(0, ErrorCode.none, 9, None, batch(0, 10))
    response = messages._decode(
        frozenset({TOPIC}), struct.pack(">ihi", 0, 0, 0) + b"\2\2t\2" + part + b"\0\0", 0
    )
    with pytest.raises(Malformed, match="beyond the last stable offset"):
        log_reader._find_batches(response.topics[0].partitions[0], 0)


def test_any_byte_that_is_changed_is_read_or_gives_a_known_error(reader: LogReader) -> None:
    part = pack_fetched(0, ErrorCode.none, 3, None, batch(0, 2) + batch(2, 1))
    body = struct.pack(">ihi", 0, 0, 0) + b"\2\2t\2" + part + b"\0\0"
    leader = object.__new__(log_leader.LogLeader)
    leader.requested_s = 0.0
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
