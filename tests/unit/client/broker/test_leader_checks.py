"""Consumers ask leaders for the ends of partitions: together, and without a wait for a leader that hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Message

from koff.client import ConsumerConf, merge
from koff.client.broker.consumer import PartitionConsumer
from koff.client.cluster_conf import ClusterConf, TopicPartition
from koff.client.feed.offset_requests import OffsetRequests
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.errors import ConnectError
from koff.kafkatest import wait_until


class HungCluster:
    """A cluster whose leaders respond to no request for offsets before `respond` is set."""

    def __init__(self) -> None:
        self.conf = ClusterConf("127.0.0.1:1")
        self.respond = threading.Event()
        self.requests: list[list[TopicPartition]] = []

    def fetch_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        return {}

    def lacks_partition(self, *_: object) -> bool:
        return False

    def fetch_offsets(self, partitions: Iterable[TopicPartition], *_: Any, **__: Any) -> dict[Any, Any]:
        self.requests.append(list(partitions))
        assert self.respond.wait(60)
        return dict.fromkeys(self.requests[-1], "_TIMED_OUT")


@pytest.fixture
def cluster() -> Iterator[HungCluster]:
    cluster = HungCluster()
    yield cluster
    cluster.respond.set()


@pytest.fixture
def consumers(cluster: HungCluster) -> Iterator[list[PartitionConsumer]]:
    """Three consumers whose fetches are overdue at once."""
    with SharedFeed(cluster, FeedConf()) as feed:  # type: ignore[arg-type]  # it needs two members only
        conf = ConsumerConf("t", retry_err_wait_s=0.0)
        yield [
            PartitionConsumer(feed, feed.open_buffer("t", number, 0), conf, patience_s=0.0)
            for number in range(3)
        ]


def test_a_merged_stream_hands_out_messages_while_a_leader_hangs(cluster, consumers):
    with merge(*consumers) as mx:
        consumers[2].buffer.add_messages([Message(topic="t", partition=2, offset=0, value=b"x")])
        assert mx.consume().value == b"x"
        assert not cluster.respond.is_set()


def test_requests_that_wait_for_a_leader_are_sent_together():
    release, sent = threading.Event(), []

    def fetch(partitions: list[TopicPartition]) -> dict[TopicPartition, int | Exception]:
        sent.append(partitions)
        assert release.wait(60)
        return {at: at.partition + 100 if at.partition else ConnectError("away") for at in partitions}

    requests = OffsetRequests(fetch)
    at = [TopicPartition("t", number) for number in range(3)]
    first = requests.request_offset(at[0])
    wait_until(lambda: sent, what="the first request")
    second, third, again = (requests.request_offset(at[number]) for number in (1, 2, 1))
    release.set()
    assert (second.result(60), third.result(60), again.result(60)) == (101, 102, 101)
    with pytest.raises(ConnectError, match="away"):
        first.result(60)
    assert sent == [at[:1], at[1:]]


def test_an_error_of_a_request_is_that_of_all_its_partitions():
    def fetch(_: list[TopicPartition]) -> dict[TopicPartition, int | Exception]:
        raise ValueError("unexpected")

    with pytest.raises(ValueError, match="unexpected"):
        OffsetRequests(fetch).request_offset(TopicPartition("t", 0)).result(60)


def test_a_leader_that_does_not_respond_is_an_error_of_its_consumer(cluster, consumers):
    cluster.respond.set()
    with pytest.raises(ConnectError, match="the leader of t/0 does not respond: _TIMED_OUT"):
        consumers[0].consume()
