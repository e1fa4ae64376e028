"""The threads that read internal topics: what they post, what they read on after, and what ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import Message
from structlog.testing import capture_logs

from koff.client import ClusterConf, FeedConf, TopicPartition
from koff.client.feed.feed import Fetched, PartitionLost, Run
from koff.errors import ConnectError, Denied
from koff.kafkatest import wait_until
from koff.monitor import readers as readers_module
from koff.monitor.readers import HistoryReader, TopicReader
from koff.monitor.requests import (
    Failed,
    HistoryRead,
    Lost,
    Polled,
    Read,
    ReadFailed,
    ReadHistory,
    Start,
    StopReading,
)
from tests.unit.monitor.fakes import FakeCluster, FakeFeed, Inbox

TOPIC = "__consumer_offsets"
RECONNECT = ("reconnect", None)
_Reader = TypeVar("_Reader", TopicReader, HistoryReader)


def run_of(partition: int, offsets: Sequence[int], epoch: int = 3) -> Run:
    """Records of which key and value say where they are from."""
    messages = [
        Message(
            topic=TOPIC,
            partition=partition,
            offset=offset,
            key=b"k%d" % offset,
            value=b"v%d" % offset,
            leader_epoch=epoch,
        )
        for offset in offsets
    ]
    return Run(partition, messages)


def records(partition: int, *offsets: int, full: bool = False) -> Fetched:
    return Fetched([run_of(partition, offsets)], full=full)


def read(attempt: int = 1, *, stalled: bool = False, **starts: int) -> Read:
    """Read partitions (p0=5: partition 0 from offset 5)."""
    return Read(TOPIC, {int(p[1:]): Start(at, attempt) for p, at in starts.items()}, stalled)


@pytest.fixture(autouse=True)
def feeds(monkeypatch: pytest.MonkeyPatch) -> list[FakeFeed]:
    FakeFeed.made = []
    monkeypatch.setattr(readers_module, "Feed", FakeFeed)
    monkeypatch.setattr(readers_module, "POLL_S", 0.01)
    monkeypatch.setattr(readers_module, "GATHER_S", 0.0)
    return FakeFeed.made


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextmanager
def running(reader: _Reader) -> Iterator[_Reader]:
    reader.start()
    try:
        yield reader
    finally:
        reader.close()
        reader.join(60)
        assert not reader._thread.is_alive()


@pytest.fixture
def reader(inbox: Inbox) -> Iterator[TopicReader]:
    with running(make_reader(inbox)) as reader:
        yield reader


def make_reader(inbox: Inbox) -> TopicReader:
    return TopicReader(ClusterConf("127.0.0.1:1"), TOPIC, FeedConf(), inbox.post)


def wait_for_feed(feeds: list[FakeFeed], count: int = 1, **assigned: int) -> FakeFeed:
    """The newest feed, once there are so many, and once it reads these partitions."""
    wanted = {int(p[1:]): at for p, at in assigned.items()}
    wait_until(lambda: len(feeds) == count and feeds[-1].assigned == wanted, every_s=0.005, what=str(wanted))
    return feeds[-1]


def wait_for_the_owner(reader: TopicReader | HistoryReader) -> None:
    """Waits until the reader waits until the owner has applied its batch."""
    waiters = reader._applied._cond._waiters  # type: ignore[attr-defined]  # CPython's
    wait_until(lambda: len(waiters) == 1, every_s=0.001)


# --- Reading ------------------------------------------------------------------------------------------------


def test_records_come_with_the_attempt_by_which_they_are_read(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(Read(TOPIC, {0: Start(5, 4, 2), 1: Start(0, 9)}))
    feed = wait_for_feed(feeds, p0=5, p1=0)
    assert feed.epochs == {0: 2}
    feed.give(Fetched([run_of(0, [5, 7]), run_of(1, [0])], ends={1: 3}))
    (polled,) = inbox.wait(Polled)
    assert polled.topic == TOPIC
    assert [tuple(found) for found in polled.records] == [
        (0, 4, [b"k5", b"k7"], [b"v5", b"v7"], [5, 7], 3),
        (1, 9, [b"k0"], [b"v0"], [0], 3),
    ]
    assert polled.positions == {1: (9, 3)}
    assert not polled.lost
    assert not polled.full


def test_a_partition_that_begins_again_lower_is_added_again_and_its_records_have_the_new_attempt(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(p0=500, p1=0))
    feed = wait_for_feed(feeds, p0=500, p1=0)
    feed.give(records(0, 500))
    inbox.wait(Polled)
    reader.send(read(2, p0=100))
    wait_for_feed(feeds, p0=100, p1=0)
    assert feed.history[-2:] == [("remove", [0]), ("add", {0: 100})]
    feed.give(Fetched([run_of(0, [100]), run_of(1, [0])]))
    polled = inbox.wait(Polled, 2)[-1]
    assert [(found.partition, found.attempt) for found in polled.records] == [(0, 2), (1, 1)]


def test_records_of_partitions_that_are_read_no_more_are_left_out(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(p0=0, p1=0))
    feed = wait_for_feed(feeds, p0=0, p1=0)
    reader.send(StopReading(TOPIC, frozenset({0, 7})))
    wait_for_feed(feeds, p1=0)
    feed.give(
        Fetched([run_of(0, [0])], ends={0: 1}, lost=[PartitionLost(0, "gone")]),
        Fetched([run_of(0, [1]), run_of(1, [4])]),
    )
    (polled,) = inbox.wait(Polled)  # nothing is posted for the first fetch
    assert [found.partition for found in polled.records] == [1]


@pytest.mark.parametrize(
    ("commands", "assigned"),
    [
        ([read(1, p0=5), StopReading(TOPIC, frozenset({0})), read(2, p0=1)], {"p0": 1}),
        ([StopReading(TOPIC, frozenset({0})), read(1, p0=5, p1=6)], {"p0": 5, "p1": 6}),
        ([read(1, p0=5, p1=6), StopReading(TOPIC, frozenset({0, 1})), read(2, p2=0)], {"p2": 0}),
        ([read(1, p0=5), read(2, p0=9), read(3, p0=2)], {"p0": 2}),
    ],
)
def test_commands_are_carried_out_in_order(
    commands: list[Read | StopReading],
    assigned: dict[str, int],
    inbox: Inbox,
    feeds: list[FakeFeed],
) -> None:
    reader = make_reader(inbox)
    for command in commands:  # before the start: all in one round
        reader.send(command)
    with running(reader):
        wait_for_feed(feeds, **assigned)
    assert not inbox.of_kind(ReadFailed)


def test_records_that_wait_are_gathered_into_one_batch(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "BATCH_RECORDS", 4)
    reader.send(read(p0=0, p1=0))
    feed = wait_for_feed(feeds, p0=0, p1=0)
    feed.give(
        records(0, 0, 1, full=True),
        Fetched([run_of(1, [0]), run_of(0, [2], epoch=8)], full=True),
        records(0, 3, full=True),
    )
    first, second = inbox.wait(Polled, 2)
    assert [list(found.offsets) for found in first.records] == [[0, 1, 2], [0]]
    assert [found.leader_epoch for found in first.records] == [8, 3]
    assert first.full
    assert [list(found.offsets) for found in second.records] == [[3]]


def test_a_reader_makes_no_batch_before_the_one_before_is_applied(
    feeds: list[FakeFeed], reader: TopicReader, inbox: Inbox
) -> None:
    inbox.applies = False
    reader.send(read(p0=0))
    feed = wait_for_feed(feeds, p0=0)
    feed.give(*(records(0, offset) for offset in range(5)))
    for count in range(1, 6):
        inbox.wait(Polled, count)
        wait_for_the_owner(reader)
        assert len(feed.waiting) == 5 - count
        inbox.apply()
    offsets = [list(found.offsets) for polled in inbox.of_kind(Polled) for found in polled.records]
    assert offsets == [[0], [1], [2], [3], [4]]


def test_a_reader_that_waits_for_the_owner_can_be_closed(feeds: list[FakeFeed], inbox: Inbox) -> None:
    inbox.applies = False
    with running(make_reader(inbox)) as reader:  # which closes and joins it
        reader.send(read(p0=0))
        feed = wait_for_feed(feeds, p0=0)
        feed.give(records(0, 0), records(0, 1))
        inbox.wait(Polled)
    assert feed.is_closed
    assert len(inbox.of_kind(Polled)) == 1


def test_a_reader_that_was_never_started_can_be_closed(inbox: Inbox) -> None:
    for reader in (make_reader(inbox), make_history_reader(FakeCluster(), inbox)):
        reader.close()
        reader.join(60)


# --- Partitions that are lost -------------------------------------------------------------------------------


def test_a_partition_that_is_lost_is_read_no_more_and_others_are(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(4, p0=5, p1=0))
    feed = wait_for_feed(feeds, p0=5, p1=0)
    feed.give(Fetched([run_of(0, [5]), run_of(1, [0])], lost=[PartitionLost(0, "truncated", gone=True)]))
    (polled,) = inbox.wait(Polled)
    assert polled.lost == [Lost(0, 4, "truncated", gone=True)]
    assert [found.partition for found in polled.records] == [0, 1]
    wait_for_feed(feeds, p1=0)
    feed.give(records(1, 1))
    inbox.wait(Polled, 2)
    assert not inbox.of_kind(ReadFailed)


def test_a_partition_that_is_lost_twice_in_one_fetch_is_lost_once(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(p0=5, p1=0))
    feed = wait_for_feed(feeds, p0=5, p1=0)
    feed.give(Fetched(lost=[PartitionLost(0, "unknown"), PartitionLost(0, "unknown")]))
    (polled,) = inbox.wait(Polled)
    assert polled.lost == [Lost(0, 1, "unknown")]
    feed.give(records(1, 0))
    inbox.wait(Polled, 2)
    assert not inbox.of_kind(ReadFailed)


# --- Failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Denied("may not read"), ReadFailed(TOPIC, "may not read", denied=True)),
        (ConnectError("no broker"), ReadFailed(TOPIC, "no broker")),
        (KeyError("odd"), ReadFailed(TOPIC, "KeyError: 'odd'")),
    ],
    ids=["denied", "unreachable", "fault"],
)
def test_after_a_failure_a_new_feed_reads_what_is_requested_next(
    error: Exception, result: ReadFailed, reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    with capture_logs():
        reader.send(read(1, p0=5, p1=0))
        wait_for_feed(feeds, p0=5, p1=0).give(error)
        assert inbox.wait(ReadFailed) == [result]
        wait_until(lambda: feeds[0].is_closed, every_s=0.005)
    reader.send(read(2, p1=3))
    feed = wait_for_feed(feeds, 2, p1=3)
    feed.give(Fetched([run_of(0, [6]), run_of(1, [3])]))
    (polled,) = inbox.wait(Polled)
    assert [(found.partition, found.attempt) for found in polled.records] == [(1, 2)]


def test_what_was_read_before_a_failure_in_the_same_batch_is_left_to_the_next_attempt(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(p0=0))
    wait_for_feed(feeds, p0=0).give(records(0, 0, 1, full=True), Denied("may not read"))
    inbox.wait(ReadFailed)
    assert not inbox.of_kind(Polled)


def test_a_failure_is_posted_although_the_feed_cannot_be_closed(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    with capture_logs() as logs:
        reader.send(read(p0=0))
        feed = wait_for_feed(feeds, p0=0)
        feed.close_fault = RuntimeError("Consumer closed")
        feed.give(ConnectError("no broker"))
        inbox.wait(ReadFailed)
        reader.send(read(2, p0=0))
        wait_for_feed(feeds, 2, p0=0).give(records(0, 0))
        inbox.wait(Polled)
    assert [line["event"] for line in logs] == ["a feed cannot be closed"]


def test_a_failure_is_posted_before_the_feed_is_closed(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(FakeFeed, "close", lambda feed: release.wait())
    try:
        reader.send(read(p0=0))
        wait_for_feed(feeds, p0=0).give(ConnectError("no broker"))
        inbox.wait(ReadFailed)
    finally:
        release.set()


def test_a_feed_that_cannot_be_made_is_a_failure(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> FakeFeed:
        raise ConnectError("librdkafka refuses the properties")

    monkeypatch.setattr(readers_module, "Feed", fail)
    reader.send(read(p0=0))
    assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, "librdkafka refuses the properties")]
    monkeypatch.setattr(readers_module, "Feed", FakeFeed)
    reader.send(read(2, p0=0))
    wait_for_feed(feeds, p0=0)


def test_partitions_that_cannot_be_added_are_a_failure(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(read(p0=0))
    wait_for_feed(feeds, p0=0).add_fault = RuntimeError("Consumer closed")
    with capture_logs():
        reader.send(read(p1=0))
        assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, "RuntimeError: Consumer closed")]
    reader.send(read(2, p0=0, p1=0))
    wait_for_feed(feeds, 2, p0=0, p1=0)


def test_stalled_partitions_get_a_new_connection_at_most_once_a_minute(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.send(read(1, p0=0))
    feed = wait_for_feed(feeds, p0=0)
    reader.send(read(2, p0=1, stalled=True))  # the connection is new
    wait_for_feed(feeds, p0=1)
    assert not feed.history.count(RECONNECT)
    reader._new_client_s -= readers_module.NEW_CLIENT_S
    reader.send(read(3, p0=2))  # not stalled
    wait_for_feed(feeds, p0=2)
    assert not feed.history.count(RECONNECT)
    for attempt in range(4, 7):
        reader.send(read(attempt, p0=attempt, stalled=True))
        wait_for_feed(feeds, p0=attempt)
    assert feed.history.count(RECONNECT) == 1
    reader._new_client_s -= readers_module.NEW_CLIENT_S
    reader.send(read(7, p0=7, stalled=True))
    wait_for_feed(feeds, p0=7)
    assert feed.history.count(RECONNECT) == 2


def test_a_new_connection_that_cannot_be_made_is_a_failure(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "NEW_CLIENT_S", 0.0)

    def fail(feed: FakeFeed) -> None:
        raise ConnectError("no broker")

    monkeypatch.setattr(FakeFeed, "reconnect", fail)
    reader.send(read(1, p0=0, stalled=True))
    assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, "no broker")]
    reader.send(read(2, p0=0))
    wait_for_feed(feeds, 2, p0=0)


# --- History ------------------------------------------------------------------------------------------------


def make_history_reader(cluster: FakeCluster, inbox: Inbox) -> HistoryReader:
    given: Any = cluster
    return HistoryReader(given, FeedConf(), inbox.post)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def history(cluster: FakeCluster, inbox: Inbox) -> Iterator[HistoryReader]:
    with running(make_history_reader(cluster, inbox)) as history:
        yield history


def history_of(request_id: int, partition: int, until: int) -> ReadHistory:
    return ReadHistory(request_id, TOPIC, partition, until)


def test_a_history_is_read_from_the_log_start_and_ends_at_until(
    history: HistoryReader, cluster: FakeCluster, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    cluster.starts = {TopicPartition(TOPIC, 2): 10}
    history.send(history_of(1, 2, 15))
    feed = wait_for_feed(feeds, p2=10)
    feed.give(records(2, 10, 11), records(2, 14, 15, 16))
    first, second = inbox.wait(HistoryRead, 2)
    assert first == HistoryRead(1, [b"k10", b"k11"], [b"v10", b"v11"], [10, 11], 12, final=False)
    assert second == HistoryRead(1, [b"k14"], [b"v14"], [14], 15, final=True)
    wait_for_feed(feeds)
    assert not inbox.of_kind(Failed)


def test_a_history_that_retention_removed_is_empty(
    history: HistoryReader, cluster: FakeCluster, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    cluster.starts = {TopicPartition(TOPIC, 0): 7}
    history.send(history_of(1, 0, 7))
    assert inbox.wait(HistoryRead) == [HistoryRead(1, [], [], [], 7, final=True)]
    assert not feeds


def test_one_connection_serves_several_histories_and_records_of_others_are_left_out(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    history.send(history_of(1, 0, 1))
    wait_for_feed(feeds, p0=0).give(records(0, 0))
    inbox.wait(HistoryRead)
    history.send(history_of(2, 1, 2))
    feed = wait_for_feed(feeds, p1=0)
    feed.give(Fetched([run_of(0, [1]), run_of(1, [0])], ends={0: 9}, lost=[PartitionLost(0, "gone")]))
    assert inbox.wait(HistoryRead, 2)[-1] == HistoryRead(2, [b"k0"], [b"v0"], [0], 1, final=False)
    feed.give(records(1, 1))
    assert inbox.wait(HistoryRead, 3)[-1].final


def test_the_connection_for_histories_is_closed_when_nobody_asks(
    cluster: FakeCluster, inbox: Inbox, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "IDLE_S", 0.01)
    with running(make_history_reader(cluster, inbox)) as history:
        history.send(history_of(1, 0, 1))
        wait_for_feed(feeds, p0=0).give(records(0, 0))
        inbox.wait(HistoryRead)
        wait_until(lambda: feeds[0].is_closed, every_s=0.005)
        history.send(history_of(2, 0, 1))
        wait_for_feed(feeds, 2, p0=0)


def test_a_newer_request_ends_the_one_before(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    history.send(history_of(1, 0, 100))
    feed = wait_for_feed(feeds, p0=0)
    feed.give(records(0, 0))
    inbox.wait(HistoryRead)
    history.send(history_of(2, 1, 1))
    wait_for_feed(feeds, p1=0)
    feed.give(records(1, 0))
    assert [(read.id, read.final) for read in inbox.wait(HistoryRead, 2)] == [(1, False), (2, True)]
    assert not inbox.of_kind(Failed)


def test_a_history_is_given_back_one_batch_at_a_time(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    inbox.applies = False
    history.send(history_of(1, 0, 3))
    feed = wait_for_feed(feeds, p0=0)
    feed.give(*(records(0, offset) for offset in range(3)))
    for count in range(1, 4):
        inbox.wait(HistoryRead, count)
        wait_for_the_owner(history)
        assert len(feed.waiting) == 3 - count
        inbox.apply()
    assert inbox.of_kind(HistoryRead)[-1].final


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Denied("may not read"), Failed(1, "may not read", denied=True)),
        (ConnectError("no broker"), Failed(1, "no broker")),
        (KeyError("odd"), Failed(1, "KeyError: 'odd'")),
    ],
    ids=["denied", "unreachable", "fault"],
)
def test_after_a_failure_the_next_history_is_read_over_a_new_connection(
    error: Exception, result: Failed, history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    with capture_logs():
        history.send(history_of(1, 0, 5))
        wait_for_feed(feeds, p0=0).give(error)
        assert inbox.wait(Failed) == [result]
        wait_until(lambda: feeds[0].is_closed, every_s=0.005)
    history.send(history_of(2, 0, 1))
    wait_for_feed(feeds, 2, p0=0).give(records(0, 0))
    assert inbox.wait(HistoryRead)[0].final


def test_a_partition_that_is_lost_fails_its_history(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    history.send(history_of(1, 0, 5))
    wait_for_feed(feeds, p0=0).give(Fetched(lost=[PartitionLost(0, "truncated")]))
    assert inbox.wait(Failed) == [Failed(1, f"partition 0 of {TOPIC}: truncated")]


def test_a_cluster_that_cannot_be_reached_fails_the_history(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    history.send(history_of(1, 0, 5))
    wait_for_feed(feeds, p0=0).unreachable = ConnectError("every connection was lost")
    assert inbox.wait(Failed) == [Failed(1, "every connection was lost")]


def test_a_history_without_a_known_log_start_fails(
    history: HistoryReader, cluster: FakeCluster, inbox: Inbox
) -> None:
    cluster.starts = {TopicPartition(TOPIC, 0): "LEADER_NOT_AVAILABLE"}
    history.send(history_of(1, 0, 5))
    (failed,) = inbox.wait(Failed)
    assert "LEADER_NOT_AVAILABLE" in failed.why
    cluster.fault = ConnectError("no broker")
    history.send(history_of(2, 0, 5))
    assert inbox.wait(Failed, 2)[-1] == Failed(2, "no broker")


def test_a_history_that_cannot_close_its_connection_goes_on(
    history: HistoryReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    with capture_logs() as logs:
        history.send(history_of(1, 0, 5))
        feed = wait_for_feed(feeds, p0=0)
        feed.close_fault = RuntimeError("Consumer closed")
        feed.give(ConnectError("no broker"))
        inbox.wait(Failed)
        history.send(history_of(2, 0, 1))
        wait_for_feed(feeds, 2, p0=0).give(records(0, 0))
        inbox.wait(HistoryRead)
    assert [line["event"] for line in logs] == ["a feed cannot be closed"]


def test_a_history_under_way_ends_when_the_reader_is_closed(
    cluster: FakeCluster, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    with running(make_history_reader(cluster, inbox)) as history:  # which closes and joins it
        history.send(history_of(1, 0, 100))
        wait_for_feed(feeds, p0=0).give(records(0, 0))
        inbox.wait(HistoryRead)
    assert feeds[0].is_closed
