"""A reader fetches a long history over koff's own connections, and lets librdkafka read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from koff.client import ClusterConf, FeedConf, TopicPartition
from koff.client import fetch_messages as messages
from koff.client.feed.feed import Fetched, PartitionLost
from koff.client.history.history_fetch import HistoryFetch
from koff.client.offsets.lister import OffsetLister
from koff.kafkatest import wait_until
from koff.monitor import readers as readers_module
from koff.monitor.readers import TopicReader
from koff.monitor.requests import Polled, Read, ReadFailed, Start, StopReading
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers, FakeTopic
from tests.unit.client.history.test_history_fetch import log
from tests.unit.monitor.fakes import FakeFeed, Inbox
from tests.unit.monitor.test_readers import TOPIC, feeds, run_of, running, wait_for_feed

__all__ = ["feeds"]  # a fixture


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBrokers]:
    monkeypatch.setattr(readers_module, "LONG_HISTORY", 300)
    monkeypatch.setattr(messages, "RESPONSE_BYTES", 800)
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def topic(brokers: FakeBrokers) -> FakeTopic:
    made = brokers.add_topic(TOPIC, [1, 2])
    made.logs = {0: log(200), 1: log(200)}
    return made


@pytest.fixture
def lister(brokers: FakeBrokers, topic: FakeTopic) -> Iterator[OffsetLister]:
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("librdkafka is not needed")

    with OffsetLister(brokers.conf) as made:
        made.list_offsets([TopicPartition(TOPIC, p) for p in range(2)])
        yield made


@pytest.fixture
def reader(inbox: Inbox, lister: OffsetLister) -> Iterator[TopicReader]:
    with running(make_reader(inbox, lister)) as reader:
        yield reader


def make_reader(inbox: Inbox, lister: OffsetLister, **properties: str) -> TopicReader:
    return TopicReader(ClusterConf("127.0.0.1:1", properties), TOPIC, FeedConf(), inbox.post, lister)


def replay(attempt: int, *partitions: int, until: int = 200) -> Read:
    return Read(TOPIC, {p: Start(0, attempt, history_until=until) for p in partitions})


def offsets(inbox: Inbox, partition: int, attempt: int) -> list[int]:
    return [
        offset
        for polled in inbox.of_kind(Polled)
        for records in polled.records
        if (records.partition, records.attempt) == (partition, attempt)
        for offset in records.offsets
    ]


def test_librdkafka_reads_on_where_a_long_history_ends(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    reader.send(replay(3, 0, 1))
    feed = wait_for_feed(feeds, p0=200, p1=200)
    assert feed.epochs == {0: 5, 1: 5}
    feed.give(Fetched([run_of(0, [200])], ends={1: 200}))
    wait_until(lambda: 200 in offsets(inbox, 0, 3), every_s=0.005)
    assert offsets(inbox, 0, 3) == list(range(201))
    assert offsets(inbox, 1, 3) == list(range(200))
    positions = [polled.positions.get(0) for polled in inbox.of_kind(Polled)]
    assert (3, 200) in positions
    records = [records for polled in inbox.of_kind(Polled) for records in polled.records]
    assert all(list(found.keys) == [b"k%d" % offset for offset in found.offsets] for found in records)
    assert not inbox.of_kind(ReadFailed)


def test_partitions_that_need_no_history_are_read_meanwhile(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed], brokers: FakeBrokers
) -> None:
    brokers[1].hangs = {Api.FETCH}
    reader.send(Read(TOPIC, {0: Start(0, 1, history_until=300), 1: Start(7, 1)}))
    wait_for_feed(feeds, p1=7).give(Fetched([run_of(1, [7])]))
    wait_until(lambda: offsets(inbox, 1, 1) == [7], every_s=0.005)


@pytest.mark.parametrize("case", ["short", "no history", "checksums"])
def test_librdkafka_reads_all_else(
    case: str, inbox: Inbox, lister: OffsetLister, feeds: list[FakeFeed], brokers: FakeBrokers
) -> None:
    properties = {"check.crcs": "true"} if case == "checksums" else {}
    command = replay(1, 0, 1, until={"short": 149, "no history": 0}.get(case, 200))
    with running(make_reader(inbox, lister, **properties)) as reader:
        reader.send(command)
        wait_for_feed(feeds, p0=0, p1=0)
    assert brokers[1].count(Api.FETCH) == 0


def test_a_partition_that_is_begun_again_meanwhile_leaves_its_history(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    inbox.applies = False
    reader.send(replay(1, 0, 1))
    inbox.wait(Polled)
    reader.send(StopReading(TOPIC, frozenset({1})))
    reader.send(Read(TOPIC, {0: Start(50, 2, 5)}))
    inbox.applies = True
    inbox.apply()
    feed = wait_for_feed(feeds, p0=50)
    feed.give(Fetched([run_of(0, [50])]))
    wait_until(lambda: offsets(inbox, 0, 2) == [50], every_s=0.005)
    assert reader._history is None or not reader._history.partitions
    assert not inbox.of_kind(ReadFailed)


def test_what_librdkafka_still_returns_of_a_partition_is_not_taken_for_its_history(
    inbox: Inbox, lister: OffsetLister, feeds: list[FakeFeed]
) -> None:
    """Else the core would take these offsets for read, and the history for known."""
    with running(make_reader(inbox, lister)) as reader:
        reader.send(Read(TOPIC, {0: Start(500, 1)}))
        feed = wait_for_feed(feeds, p0=500)
        feed.give(Fetched([run_of(0, [500])]))
        wait_until(lambda: offsets(inbox, 0, 1) == [500], every_s=0.005)
        inbox.applies = False
        reader.send(replay(2, 0, 1))
        wait_until(lambda: 2 in reader._attempts.values(), every_s=0.001)
        late = Fetched([run_of(0, [501])], lost=[PartitionLost(0, "late")], ends={0: 502})
        feed.give(late)
        inbox.applies = True
        inbox.apply()
        wait_for_feed(feeds, p0=200, p1=200)
        wait_until(lambda: offsets(inbox, 1, 2) == list(range(200)), every_s=0.005)
        assert not feed.waiting
    assert offsets(inbox, 0, 2) == list(range(200))
    polled = inbox.of_kind(Polled)
    assert all(each.positions.get(0, (2, 0))[1] <= 200 for each in polled)
    assert not any(each.lost for each in polled)


def test_a_partition_that_is_lost_after_its_history_is_read_by_librdkafka_alone(
    reader: TopicReader, inbox: Inbox, feeds: list[FakeFeed]
) -> None:
    """Else it would be lost after each history, for ever: a broker may know no end of an old epoch."""
    reader.send(replay(1, 0, 1))
    feed = wait_for_feed(feeds, p0=200, p1=200)
    feed.give(Fetched(lost=[PartitionLost(0, "truncated")]))
    wait_for_feed(feeds, p1=200)
    reader.send(replay(2, 0, 1, until=400))
    wait_for_feed(feeds, p0=0, p1=200)
    assert offsets(inbox, 0, 2) == []
    assert offsets(inbox, 1, 2) == list(range(200))


def test_a_fault_in_a_history_is_a_failure_after_which_librdkafka_reads(
    inbox: Inbox, lister: OffsetLister, feeds: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise KeyError("odd")

    monkeypatch.setattr(HistoryFetch, "fetch", fail)
    with capture_logs(), running(make_reader(inbox, lister)) as reader:
        reader.send(replay(1, 0, 1))
        assert inbox.wait(ReadFailed) == [ReadFailed(TOPIC, "KeyError: 'odd'")]
        reader.send(replay(2, 0, 1))
        wait_for_feed(feeds, 2, p0=0, p1=0)
