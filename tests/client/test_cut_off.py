"""Clients that have forgotten every broker, for good, because one of them named none.

librdkafka does so when things happen in an unlucky order (its issue 5301), one time in ten or so; told to
look for no new brokers, it does each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from koff.client import (
    BrokerConf,
    ClusterConf,
    ConsumerConf,
    Message,
    ProduceError,
    ProducerConf,
    TopicPartition,
    dial,
    librdkafka,
)
from koff.client.cluster import Cluster
from koff.client.librdkafka import has_no_broker
from koff.client.multicluster import Reader, ReaderConf, Writer, WriterConf
from koff.errors import ConnectError, KoffError
from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka
from tests.forgetful import Forgetful
from tests.kafka_groups import produce

pytestmark = pytest.mark.kafka
UNLUCKY = {"metadata.recovery.strategy": "none", "topic.metadata.refresh.interval.ms": "100"}
SILENCE_S = 1.5


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with lend_kafka() as kafka:
        yield kafka


@pytest.fixture
def starting(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forgetful]:
    monkeypatch.setattr(librdkafka, "SILENCE_S", SILENCE_S)
    with Forgetful(kafka.bootstrap) as broker:
        yield broker


@pytest.fixture
def topic(kafka: LocalKafka) -> str:
    """With five messages."""
    topic = kafka.create_topic()
    produce(kafka, topic, 5)
    return topic


def conf(broker: Forgetful) -> ClusterConf:
    return ClusterConf(broker.bootstrap, UNLUCKY, request_timeout_s=3.0)


def forget(broker: Forgetful, topic: str, ask: Callable[[], object] = lambda: None) -> None:
    """Has all clients forget their brokers, which `ask` what they would not ask by themselves.

    One that nobody looks after stays cut off: so would the others.
    """
    lost = confluent_kafka.Consumer({**conf(broker).librdkafka_properties(), "group.id": "lost"})
    lost.list_topics(topic, timeout=60)
    broker.forgets = True
    ask()
    wait_until(lambda: has_no_broker(lost, topic, 0.3), what="a client to be cut off")
    seen = -1
    while seen != broker.empty_responses:  # the other clients look, too: who has looked asks no more
        seen = broker.empty_responses
        time.sleep(1.0)  # ten times the interval of UNLUCKY
    broker.forgets = False
    assert has_no_broker(lost, topic)
    lost.close()


def soon(ask: Callable[[], Any]) -> Any:
    """What it answers, once it does."""

    def answer() -> Any:
        try:
            return ask()
        except KoffError:
            return None

    return wait_until(answer, what="an answer")


def test_a_cluster_is_asked_again(starting, topic):
    with Cluster(conf(starting)).connect() as cluster:
        at = TopicPartition(topic, 0)
        assert cluster.fetch_offsets([at]) == {at: 5}
        starting.forgets = True
        with pytest.raises(ConnectError, match="knows no brokers yet"):
            cluster.fetch_metadata()
        starting.forgets = False
        assert cluster.fetch_offsets([at]) == {at: 5}
        assert len(cluster.fetch_metadata().topics[topic]) == 1


def test_consumers_that_share_a_client_read_on(kafka, starting):
    topics = [kafka.create_topic() for _ in range(3)]
    for each in topics:
        produce(kafka, each, 5)
    with dial(starting.bootstrap, BrokerConf(properties=UNLUCKY)) as broker:
        consumers = [broker.consumer(ConsumerConf(each, start_offset=0)) for each in topics]
        at_the_end = broker.consumer(ConsumerConf(kafka.create_topic()))  # nothing has come to it
        assert [[each.consume().offset for _ in range(5)] for each in consumers] == [[0, 1, 2, 3, 4]] * 3
        forget(starting, topics[0])
        for each in (*topics, at_the_end.topic):
            produce(kafka, each, 2)
        assert [[each.consume().offset for _ in range(2)] for each in consumers] == [[5, 6]] * 3
        assert [at_the_end.consume().offset for _ in range(2)] == [0, 1]


def test_a_producer_writes_again_after_a_call_that_failed(kafka, starting, topic):
    quick = ProducerConf(request_timeout_s=4.0, retry_limit=1)
    with dial(starting.bootstrap, BrokerConf(properties=UNLUCKY)) as broker:
        producer = broker.producer(quick)
        assert producer.produce(topic, 0, Message(b"a")) == 5
        forget(starting, topic)
        with pytest.raises(ProduceError):
            producer.produce(topic, 0, Message(b"b"))
        assert producer.produce(topic, 0, Message(b"c")) == 6


@pytest.mark.parametrize("group", ["", "a-group"])
def test_a_reader_of_many_clusters_reads_on(kafka, starting, topic, group):
    properties = {**UNLUCKY, **({"session.timeout.ms": "6000"} if group else {})}
    cluster = ClusterConf(starting.bootstrap, properties)
    with Reader({"only": cluster}, ReaderConf(topic, group_id=group, fail_after_s=1.0)) as reader:
        offsets: list[int] = []

        def read(until: int) -> bool:
            try:
                offsets.extend(message.offset for message in reader.read_message(0.2))
            except KoffError:
                pass  # it says that it is cut off
            return offsets[-1:] == [until]

        wait_until(lambda: read(4), what="the first messages")
        forget(starting, topic)
        produce(kafka, topic, 5)
        wait_until(lambda: read(9), timeout_s=60, what="the others")
        assert (sorted(set(offsets)) if group else offsets) == list(range(10))  # a group may read again


def test_a_writer_to_many_clusters_writes_again(starting, topic):
    once = WriterConf(topic, max_attempts=1, write_timeout_s=4.0)
    with Writer({"only": conf(starting)}, once) as writer:

        def written() -> bool:
            writer.write_messages(Message(b"a"))
            return True

        assert soon(written)
        forget(starting, topic)
        assert soon(written)
