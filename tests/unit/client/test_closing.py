"""What was made before a fork is an error at once in the forked process, and the parent goes on with it."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from koff.client import (
    Broker,
    BrokerConf,
    ClusterConf,
    ConsumerConf,
    Message,
    OffsetCoordinatorConf,
    OtherProcess,
    ProducerConf,
    TopicPartition,
    merge,
)
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.cluster import Cluster
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.client.multicluster import Reader, ReaderConf, Writer, WriterConf
from koff.errors import ConnectError
from koff.kafkatest import wait_until

NOWHERE = ClusterConf("127.0.0.1:1", connect_timeout_s=0.1, request_timeout_s=0.1)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run_forked(work: Callable[[], object]) -> None:
    """Runs `work` in a forked process, which must end within a minute, without an error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # no test may run on here
        code = 1
        try:
            work()
            gc.collect()  # what is freed here must not wait for threads of the parent
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(write)
    ended: list[int] = []

    def has_ended() -> bool:
        ended.extend(each for each in os.waitpid(child, os.WNOHANG) if each)
        return bool(ended)

    try:
        wait_until(has_ended, timeout_s=60, what="the end of the forked process")
    finally:
        if not ended:
            os.kill(child, 9)
            os.waitpid(child, 0)
    with open(read, "rb") as report:
        text = report.read().decode()
    assert ended == [child], text


def refuse_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        began = time.monotonic()
        with pytest.raises(OtherProcess, match="make a new one here"):
            call()
        assert time.monotonic() - began < 5


def test_a_forked_process_may_use_and_wait_for_nothing_that_its_parent_made(opened):
    cluster = opened.enter_context(Cluster(NOWHERE))
    broker = opened.enter_context(Broker(cluster, BrokerConf(leader_retry_limit=0)))
    producer = PartitionProducer(NOWHERE, ProducerConf(), _accept)
    opened.enter_context(producer)
    feed = opened.enter_context(SharedFeed(cluster, FeedConf()))
    consumer = PartitionConsumer(feed, feed.open_buffer("t", 0, 0), ConsumerConf("t"), patience_s=0.0)
    opened.enter_context(consumer)
    coordinator = opened.enter_context(GroupCoordinator(NOWHERE, OffsetCoordinatorConf("g")))
    mx = opened.enter_context(merge(consumer))
    reader = opened.enter_context(Reader({"east": NOWHERE}, ReaderConf("t")))
    writer = opened.enter_context(Writer({"east": NOWHERE}, WriterConf("t")))
    message: Any = Message(b"x")

    def use_all() -> None:
        refuse_all(
            [
                broker.metadata,
                lambda: broker.offset_latest("t", 0),
                broker.producer,
                lambda: broker.consumer(ConsumerConf("t")),
                lambda: broker.offset_coordinator(OffsetCoordinatorConf("g")),
                lambda: cluster.fetch_offsets([TopicPartition("t", 0)]),
                lambda: producer.produce("t", 0, message),
                lambda: producer.produce_async("t", 0, message),
                consumer.consume,
                lambda: list(consumer),
                consumer.position,
                lambda: consumer.seek(0),
                lambda: coordinator.commit("t", 0, 1),
                coordinator.offsets,
                mx.consume,
                lambda: list(mx),
                reader.read_message,
                lambda: list(reader),
                lambda: reader.set_offset(0, 0),
                lambda: writer.write_messages(message, timeout_s=5),
            ]
        )
        for each in (mx, consumer, feed, producer, coordinator, broker, cluster, reader, writer):
            each.close()

    run_forked(use_all)
    with pytest.raises(ConnectError):  # not `Closed`: the parent's objects are open
        broker.metadata()


def test_a_forked_process_may_drop_the_objects_of_its_parent(opened):
    made: list[Any] = [
        opened.enter_context(PartitionProducer(NOWHERE, ProducerConf(), _accept)),
        opened.enter_context(Reader({"east": NOWHERE}, ReaderConf("t", group_id="g"))),
    ]
    run_forked(made.clear)
    assert made


def _accept(*_: object) -> None:
    """Any partition exists."""
