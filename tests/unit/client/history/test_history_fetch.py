"""A history comes from the leaders as columns. What is not usual ends it, at the right position."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from koff.client import OffsetSpec, TopicPartition
from koff.client import fetch_messages as messages
from koff.client.history import history_fetch
from koff.client.history.history_fetch import HistoryFetch, HistoryFetched, HistoryStart
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.connection import Connection
from koff.errors import ConnectError
from koff.kafkatest import wait_until
from koff.proto import compression
from koff.proto.compression import MissingLibrary
from koff.proto.requests import Api
from koff.records import segments
from tests.fake_brokers import FakeBrokers, FakeTopic, list_batches, pack_fetched
from tests.record_batches import batch
from tests.unit.records.decoding import GOLDEN

TOPIC = "t"


def log(count: int, a_batch: int = 10) -> bytes:
    return b"".join(batch(first, min(a_batch, count - first)) for first in range(0, count, a_batch))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not hang is not late on a busy machine."""
    monkeypatch.setattr(history_fetch, "RESPONSE_S", 60.0)


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
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("librdkafka is not needed")

    with OffsetLister(brokers.conf) as made:
        made.list_offsets([TopicPartition(TOPIC, p) for p in range(3)], OffsetSpec.LATEST)
        yield made


class Read:
    """All that a history has returned."""

    def __init__(self, history: HistoryFetch, **starts: tuple[int, int]) -> None:
        self.history = history
        self.offsets: dict[int, list[int]] = {}
        self.positions: dict[int, int] = {}
        self.ended: dict[int, tuple[int, int]] = {}
        self.added = history.add({int(p[1:]): HistoryStart(*start) for p, start in starts.items()})

    def fetch(self) -> HistoryFetched:
        fetched = self.history.fetch(0.05)
        for run in fetched.runs:
            offsets = list(run.offsets)
            assert list(run.keys) == [b"k%d" % offset for offset in offsets]
            assert list(run.values) == [b"v%d" % offset for offset in offsets]
            assert run.partition not in self.ended
            self.offsets.setdefault(run.partition, []).extend(offsets)
        self.positions |= fetched.positions
        assert not self.ended.keys() & fetched.ended.keys()
        self.ended |= fetched.ended
        return fetched

    def until_ended(self, *partitions: int) -> Read:
        def is_done() -> bool:
            self.fetch()
            return self.ended.keys() >= set(partitions)

        wait_until(is_done, every_s=0.001, what=f"the end of {partitions}")
        return self


@pytest.fixture
def history(lister: OffsetLister) -> Iterator[HistoryFetch]:
    with HistoryFetch(lister, TOPIC) as made:
        yield made


def check_no_gap(read: Read, partition: int, first: int = 0) -> None:
    """What was returned is all up to the position at which the partition ended: nothing is lost or twice."""
    position, _ = read.ended[partition]
    assert read.offsets.get(partition, []) == list(range(first, position))


# --- What is usual ------------------------------------------------------------------------------------------


def test_all_records_up_to_the_end_are_returned_in_order(history: HistoryFetch) -> None:
    read = Read(history, p0=(0, 300), p1=(0, 300), p2=(0, 300))
    assert read.added == {0, 1, 2}
    read.until_ended(0, 1, 2)
    assert read.offsets == {partition: list(range(300)) for partition in range(3)}
    assert read.positions == dict.fromkeys(range(3), 300)
    assert read.ended == dict.fromkeys(range(3), (300, 5))
    assert history.partitions == set()


@pytest.mark.parametrize("room", [1, 500, 2_000])
def test_responses_that_cut_a_batch_off_lose_nothing(
    room: int, brokers: FakeBrokers, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", room)
    read = Read(history, p0=(0, 300)).until_ended(0)
    check_no_gap(read, 0)
    assert read.ended[0] == (300, 5)
    assert brokers[1].count(Api.FETCH) > 2


def test_partitions_of_one_leader_take_turns(
    brokers: FakeBrokers, topic: FakeTopic, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PARTITION_BYTES", 600)
    monkeypatch.setattr(history_fetch, "PARTITIONS", 1)
    made = brokers.add_topic("u", [1] * 3)
    made.logs = {partition: log(100) for partition in range(3)}
    lister.list_offsets([TopicPartition("u", p) for p in range(3)])
    with HistoryFetch(lister, "u") as history:
        Read(history, p0=(0, 100), p1=(0, 100), p2=(0, 100)).until_ended(0, 1, 2)
    asked = [
        each.topics[0].partitions[0].partition for api, _, each in brokers[1].requests if api == Api.FETCH
    ]
    assert asked[:6] == [0, 1, 2, 0, 1, 2]


def test_a_history_may_begin_within_a_batch(history: HistoryFetch) -> None:
    read = Read(history, p0=(25, 300)).until_ended(0)
    check_no_gap(read, 0, 25)


def test_a_history_ends_at_the_last_stable_offset_if_that_is_lower_than_wanted(history: HistoryFetch) -> None:
    read = Read(history, p0=(0, 5000)).until_ended(0)
    assert read.ended[0] == (300, 5)
    check_no_gap(read, 0)


def test_control_batches_and_compacted_batches_move_the_position(
    topic: FakeTopic, history: HistoryFetch
) -> None:
    # A batch that compaction emptied, a control batch (which no reader decodes as records), and a gap.
    marker = (GOLDEN / "segments" / "none.log").read_bytes()
    control = next(each for first, _, each in list_batches(marker) if first == 1006)
    control = struct.pack(">q", 20) + control[8:]
    emptied = batch(21, 0, last=21, attributes=0x30)  # a marker without its record
    topic.logs[0] = batch(0, 10) + batch(10, 0, last=19) + control + emptied + batch(30, 5, last=39, epoch=6)
    read = Read(history, p0=(0, 40)).until_ended(0)
    assert read.offsets[0] == [*range(10), *range(30, 35)]
    assert read.ended[0] == (40, 6)


def test_every_codec_is_read(topic: FakeTopic, lister: OffsetLister) -> None:
    for number, codec in enumerate(("gzip", "zstd", "lz4")):
        whole = (GOLDEN / "segments" / f"{codec}.log").read_bytes()
        topic.logs[number] = b"".join(each for first, _, each in list_batches(whole))
    with HistoryFetch(lister, TOPIC) as history:
        history.add({p: HistoryStart(0, 1 << 40) for p in range(3)})
        found: dict[int, list[int]] = {}
        while history.partitions:
            for run in history.fetch(0.05).runs:
                found.setdefault(run.partition, []).extend(run.offsets)
    assert len(found[0]) > 10
    assert found[0] == found[1] == found[2]


# --- What is not usual --------------------------------------------------------------------------------------


def fence(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.epochs[0] += 1


def move(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.move(0, 2)


def fail(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.fetch_errors[0] = ErrorCode.offset_out_of_range


def abort(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.aborted[0] = [(7, 120)]


def stop(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers.stop(1)


def cut(brokers: FakeBrokers, topic: FakeTopic) -> None:
    brokers[1].tamper = lambda api, body: body[:-3] if api is Api.FETCH else body


def lose_log(brokers: FakeBrokers, topic: FakeTopic) -> None:
    topic.logs[0] = log(50)


@pytest.mark.parametrize("fault", [fence, move, fail, abort, stop, cut, lose_log])
def test_what_is_not_usual_ends_the_history_where_it_is_and_others_go_on(
    fault: Callable[[FakeBrokers, FakeTopic], None],
    brokers: FakeBrokers,
    topic: FakeTopic,
    history: HistoryFetch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    read = Read(history, p0=(0, 300), p1=(0, 300))
    wait_until(lambda: read.fetch() and len(read.offsets.get(0, [])) >= 60, every_s=0.001)
    fault(brokers, topic)
    read.until_ended(0, 1)
    assert 60 <= read.ended[0][0] < 300
    assert read.ended[0][1] == 5
    check_no_gap(read, 0)
    assert read.ended[1] == (300, 5)
    check_no_gap(read, 1)


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
        case "a far offset":
            bad[0:8] = struct.pack(">q", 1 << 60)
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
        "a far offset",
        "an offset that is no int64",
        "an end before its records",
    ],
)
def test_a_damaged_batch_ends_the_history_before_it(
    name: str, topic: FakeTopic, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    topic.logs[0] = damage(name)
    read = Read(history, p0=(0, 300), p1=(0, 300)).until_ended(0, 1)
    assert read.ended[0][0] <= 100
    check_no_gap(read, 0)
    assert read.ended[1][0] == 300


@pytest.mark.parametrize("size", [-1, 0, 13, 48])
def test_a_batch_with_a_size_that_cannot_be_ends_the_history(
    size: int, topic: FakeTopic, history: HistoryFetch, brokers: FakeBrokers
) -> None:
    good, bad = log(100), bytearray(batch(100, 10))
    bad[8:12] = struct.pack(">i", size)

    def tamper(api: Api, body: bytes) -> bytes:
        return body.replace(batch(100, 10), bytes(bad))

    brokers[1].tamper = tamper
    read = Read(history, p0=(0, 300)).until_ended(0)
    assert read.ended[0][0] <= len(good)
    check_no_gap(read, 0)


def test_any_byte_that_is_changed_ends_the_history_or_is_read(
    topic: FakeTopic, history: HistoryFetch, brokers: FakeBrokers
) -> None:
    """Whatever the bytes are: no error but a `KoffError`, and every history ends."""
    body = brokers_body(topic)
    for at in range(len(body)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            broken = body[:at] + bytes([byte]) + body[at + 1 :]
            try:
                response = messages._decode(frozenset({TOPIC}), broken, 0)
            except Exception:  # the connection makes a ConnectError of it
                continue
            leader = make_leader()
            fetched = HistoryFetched()
            for moved in leader._move(response, fetched):
                leader._decode(moved, fetched)
            for run in fetched.runs:
                assert len(run.offsets) == len(run.keys) == len(run.values)


def brokers_body(topic: FakeTopic) -> bytes:
    data = batch(0, 2) + batch(2, 1)
    part = pack_fetched(0, ErrorCode.none, 3, None, data)
    return struct.pack(">ihi", 0, 0, 0) + b"\2\2t\2" + part + b"\0\0"


def make_leader() -> Any:
    leader = object.__new__(history_fetch._Leader)
    leader._topic = TOPIC
    leader.left = {0: history_fetch._Partition(0, 3, 5)}
    leader._requested = {0: 0}
    return leader


def test_a_broker_that_hangs_is_given_up_and_others_are_read_meanwhile(
    brokers: FakeBrokers, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_fetch, "RESPONSE_S", 4.0)  # broker 2 must respond sooner
    brokers[1].hangs = {Api.FETCH}
    began_s = time.monotonic()
    read = Read(history, p0=(0, 300), p1=(0, 300)).until_ended(1)
    assert read.ended == {1: (300, 5)}
    read.until_ended(0)
    assert read.ended[0] == (0, -1)
    assert time.monotonic() - began_s < 60


def test_records_that_came_before_the_connection_failed_are_returned(
    history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    post, count = Connection.post_request, 0

    def fail_at_the_third(connection: Connection, request: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:  # the response to the second was read just before
            raise ConnectError("Disconnected")
        return post(connection, request)

    monkeypatch.setattr(Connection, "post_request", fail_at_the_third)
    read = Read(history, p0=(0, 300)).until_ended(0)
    assert 0 < read.ended[0][0] < 300
    check_no_gap(read, 0)


def test_a_response_to_an_earlier_request_is_not_taken_for_that_of_another_position(
    history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    read = Read(history, p0=(0, 300), p1=(0, 300))
    wait_until(lambda: read.fetch() and len(read.offsets.get(0, [])) >= 60, every_s=0.001)
    history.remove([0])  # the next response is under way
    again = Read(history, p0=(250, 300))
    wait_until(lambda: again.fetch() and 0 in again.ended, every_s=0.001)
    assert again.ended[0] == (300, 5)
    check_no_gap(again, 0, 250)


def test_a_broker_is_not_late_because_another_one_is_slow(
    brokers: FakeBrokers, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s, sleep=time.sleep)
    monkeypatch.setattr(history_fetch, "time", clock)
    receive = history_fetch._Leader.receive

    def receive_slowly(leader: Any, fetched: HistoryFetched) -> None:
        nonlocal late_s
        receive(leader, fetched)
        late_s += 2 * history_fetch.RESPONSE_S

    monkeypatch.setattr(history_fetch._Leader, "receive", receive_slowly)
    brokers[2].hangs = {Api.FETCH}
    read = Read(history, p0=(0, 300), p1=(0, 300))
    wait_until(lambda: read.fetch() and 0 in read.offsets, every_s=0.001)
    assert 1 not in read.ended


def test_a_connection_that_cannot_be_opened_is_given_up(
    brokers: FakeBrokers, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: Any, *, timeout_s: float) -> Any:
        raise ConnectError("no route")

    monkeypatch.setattr(lister.brokers, "connect", refuse)
    with HistoryFetch(lister, TOPIC) as history:
        assert Read(history, p0=(0, 300)).until_ended(0).ended == {0: (0, -1)}


def test_a_broker_without_the_version_is_given_up(brokers: FakeBrokers, history: HistoryFetch) -> None:
    brokers[1].versions[Api.FETCH] = (4, 11)
    assert Read(history, p0=(0, 300)).until_ended(0).ended == {0: (0, -1)}


def test_a_codec_that_is_not_installed_ends_the_history(
    topic: FakeTopic, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> Any:
        raise MissingLibrary(name)

    monkeypatch.setattr(compression, "import_library", refuse)
    topic.logs[0] = (GOLDEN / "segments" / "zstd.log").read_bytes()
    assert Read(history, p0=(0, 1 << 40)).until_ended(0).ended == {0: (0, -1)}


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_batches_that_are_too_large_together_end_the_history_before_them(
    codec: str, topic: FakeTopic, history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.logs[0] = (GOLDEN / "segments" / f"{codec}.log").read_bytes()
    number = compression.CODEC_NAMES.index(codec)
    batches = [each for _, _, each in list_batches(topic.logs[0]) if each[22] & 7 == number]
    largest = max(len(compression.decompress(number, each[61:], 1 << 20)) for each in batches)
    monkeypatch.setattr(segments, "BATCH_LIMIT", largest)  # each of them would fit
    assert Read(history, p0=(0, 1 << 40)).until_ended(0).ended == {0: (0, -1)}


def test_a_partition_without_records_below_the_wanted_end_is_given_up(
    topic: FakeTopic, brokers: FakeBrokers, history: HistoryFetch
) -> None:
    def tamper(api: Api, body: bytes) -> bytes:  # the last stable offset is 300, and there are no records
        return body if api is not Api.FETCH else answer

    part = pack_fetched(0, ErrorCode.none, 300, None, b"")
    answer = struct.pack(">ihi", 0, 0, 0) + b"\2\2t\2" + part + b"\0\0"
    brokers[1].tamper = tamper
    assert Read(history, p0=(0, 300)).until_ended(0).ended == {0: (0, -1)}


def test_partitions_without_a_known_leader_are_not_read(history: HistoryFetch) -> None:
    assert Read(history, p0=(0, 300), p7=(0, 300)).added == {0}
    assert HistoryFetch(history._lister, "never requested").add({0: HistoryStart(0, 5)}) == set()


def test_a_partition_that_was_removed_is_not_returned(
    history: HistoryFetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    read = Read(history, p0=(0, 300), p1=(0, 300))
    wait_until(lambda: read.fetch() and len(read.offsets.get(0, [])) >= 60, every_s=0.001)
    history.remove([0, 9])
    before = list(read.offsets[0])
    read.until_ended(1)
    assert read.offsets[0] == before
    assert 0 not in read.ended


def test_a_connection_that_opens_after_the_end_is_closed(
    brokers: FakeBrokers, lister: OffsetLister, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    connect = lister.brokers.connect
    release = threading.Event()

    def delay(address: Any, *, timeout_s: float) -> Any:
        release.wait(60)
        opened.append(connect(address, timeout_s=timeout_s))
        return opened[-1]

    monkeypatch.setattr(lister.brokers, "connect", delay)
    with HistoryFetch(lister, TOPIC) as history:
        history.add({0: HistoryStart(0, 300)})
        assert history.fetch(0.01) == HistoryFetched()
    release.set()
    wait_until(lambda: bool(opened) and opened[0].closed)
