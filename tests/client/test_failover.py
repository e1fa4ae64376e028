"""Brokers, leaders and coordinators that are killed and frozen in the middle: all messages count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from koff.client import (
    BrokerConf,
    ConsumerConf,
    Message,
    OffsetCoordinatorConf,
    ProduceError,
    ProducerConf,
    dial,
    merge,
)
from koff.client.broker.group_offsets import GroupCoordinator
from koff.errors import ConnectError
from koff.kafkatest import LocalKafka, wait_until
from koff.kafkatest.node import KafkaNode
from tests.client.numbered_messages import Reader, Writer, account, progress

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PATIENT = BrokerConf(dial_timeout_s=3)


@contextmanager
def traffic(kafka: LocalKafka, partitions: int) -> Iterator[list[Writer]]:
    """A writer for each partition and one reader of all; at the end, all is accounted for."""
    topic = kafka.create_topic(partitions=partitions, config={"min.insync.replicas": "1"})
    with dial(kafka.bootstrap, PATIENT) as broker:
        consumers = [broker.consumer(ConsumerConf(topic, number)) for number in range(partitions)]
        writers = [Writer(broker, topic, number) for number in range(partitions)]
        with Reader(merge(*consumers)) as reader:
            for writer in writers:
                writer.__enter__()
            try:
                yield writers
            finally:
                for writer in writers:
                    writer.__exit__()
            ends = [broker.offset_latest(topic, number) for number in range(partitions)]

            def read_up_to_the_ends() -> bool:
                seen = [reader.seen.get(number) for number in range(partitions)]
                return all(each and each[-1].offset + 1 >= end for each, end in zip(seen, ends, strict=True))

            wait_until(read_up_to_the_ends, timeout_s=60, what="the rest of the messages")
        assert not reader.errors
        for writer in writers:
            account(writer, reader.seen[writer.partition])


def leader(kafka: LocalKafka, topic: str) -> KafkaNode:
    number = wait_until(
        lambda: kafka.leaders(topic) if max(kafka.leaders(topic).values(), default=-1) > 0 else None
    )
    return kafka.nodes[number[0] - 1]


@pytest.mark.long
def test_a_broker_that_is_killed_and_comes_back_makes_no_gap_and_no_repeat(more_kafka):
    kafka = more_kafka()
    with traffic(kafka, 2) as writers:
        progress(writers)
        kafka.kill()
        kafka.nodes[0].start()
        kafka.wait_until_up()
        progress(writers)
        kafka.restart()
        progress(writers)


def test_leaders_that_are_killed_and_frozen_lose_nothing_that_was_acknowledged(more_kafka):
    kafka = more_kafka(brokers=3)
    with traffic(kafka, 3) as writers:
        topic = writers[0].topic
        progress(writers)
        killed = leader(kafka, topic)
        killed.kill()
        progress(writers)
        killed.start()
        kafka.wait_until_up()
        frozen = leader(kafka, topic)
        frozen.pause()
        progress(writers)
        frozen.resume()
        progress(writers)


@pytest.mark.thorough
def test_commits_find_the_new_coordinator(more_kafka):
    kafka = more_kafka(brokers=3)
    topic = kafka.create_topic()
    with dial(kafka.bootstrap, PATIENT) as broker:
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf("g"))
        coordinator.commit(topic, 0, 1, "before")
        for number, end in enumerate((KafkaNode.kill, KafkaNode.pause), start=2):
            node = coordinating(kafka, coordinator)
            end(node)
            coordinator.commit(topic, 0, number, end.__name__)
            assert coordinator.offset(topic, 0) == (number, end.__name__)
            assert coordinating(kafka, coordinator) is not node
            node.resume()
            if not node.running:
                node.start()
            kafka.wait_until_up()
        # A broker that was frozen takes itself for the coordinator until it reads the metadata log again.
        with dial(kafka.bootstrap, PATIENT) as other:
            offsets = other.offset_coordinator(OffsetCoordinatorConf("g"))
            wait_until(lambda: offsets.offset(topic, 0) == (3, "pause"), timeout_s=60, what="both commits")


def coordinating(kafka: LocalKafka, coordinator: GroupCoordinator) -> KafkaNode:
    """The broker that was found to be the coordinator."""
    assert coordinator._coordinator is not None
    host, port = coordinator._coordinator
    return next(node for node in kafka.nodes if node.bootstrap == f"{host}:{port}")


@pytest.mark.thorough
def test_a_cluster_that_stays_away_is_an_error_in_the_end_and_the_consumer_outlives_it(more_kafka):
    kafka = more_kafka()
    topic = kafka.create_topic()
    with dial(kafka.bootstrap, BrokerConf(leader_retry_limit=0, dial_timeout_s=5)) as broker:
        producer = broker.producer(ProducerConf(request_timeout_s=5, retry_limit=1))
        producer.produce(topic, 0, Message(b"0"))
        consumer = broker.consumer(ConsumerConf(topic, retry_err_limit=2, retry_err_wait_s=0.2))
        assert consumer.consume().value == b"0"
        kafka.kill()
        with pytest.raises(ConnectError):
            consumer.consume()
        with pytest.raises(ProduceError) as caught:
            producer.produce(topic, 0, Message(b"lost"), Message(b"lost too"))
        assert (caught.value.written, caught.value.unknown) == ((), (0, 1))
        with pytest.raises(ConnectError):
            broker.offset_latest(topic, 0)
        kafka.nodes[0].start()
        kafka.wait_until_up()

        def written() -> bool:
            try:
                return producer.produce(topic, 0, Message(b"1")) is not None
            except ProduceError:
                return False

        wait_until(written, what="the producer to be back")
        values = []
        while b"1" not in values:
            try:
                values.append(consumer.consume().value)
            except ConnectError:
                continue
        assert set(values) <= {b"1", b"lost", b"lost too"}
