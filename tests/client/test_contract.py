"""What every `Client` keeps: the same tests for the one in memory and for a real Kafka."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from koff.client import (
    Broker,
    Client,
    Closed,
    Consumer,
    ConsumerConf,
    Isolation,
    Message,
    OffsetChange,
    OffsetCoordinator,
    OffsetCoordinatorConf,
    OffsetSpec,
    Producer,
    TopicPartition,
    UnknownTopic,
    plan_reset,
)
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.multicluster import Writer
from koff.errors import ConfigError
from koff.kafkatest.doubles import MemoryBroker, MemoryOffsetCoordinator, MemoryProducer, MemoryWriter
from koff.kafkatest.memory_consumer import MemoryConsumer


def test_all_parts_keep_their_protocols(blocking_world):
    topic = blocking_world.make_topic()
    assert isinstance(blocking_world.client, Client)
    assert isinstance(blocking_world.client.producer(), Producer)
    assert isinstance(blocking_world.consumer(topic), Consumer)
    assert isinstance(blocking_world.client.offset_coordinator(OffsetCoordinatorConf("g")), OffsetCoordinator)


PAIRS = [
    (Broker, MemoryBroker),
    (PartitionProducer, MemoryProducer),
    (PartitionConsumer, MemoryConsumer),
    (GroupCoordinator, MemoryOffsetCoordinator),
    (Writer, MemoryWriter),
]


@pytest.mark.parametrize(("real", "double"), PAIRS)
def test_a_double_has_every_public_call_with_the_same_parameters(real, double):
    inside = {"start_waiting", "poll_batch", "resume_at"}  # what `merge` and intakes call
    for name, call in vars(real).items():
        if not name.startswith("_") and inspect.isfunction(call) and name not in inside:
            assert_same_parameters(call, getattr(double, name))


def assert_same_parameters(call: Callable[..., Any], other: Callable[..., Any]) -> None:
    one, two = (
        [(each.name, each.kind, each.default) for each in inspect.signature(each).parameters.values()]
        for each in (call, other)
    )
    assert one == two


def test_metadata_names_brokers_topics_and_leaders(world):
    topic = world.make_topic(partitions=3)
    told = world.client.metadata()
    assert len(told.topics[topic]) == 3
    assert {each.leader for each in told.topics[topic]} <= {each.id for each in told.brokers}
    assert told.cluster_id


def test_an_unknown_topic_is_an_error_and_is_not_made(world):
    for ask in (
        lambda: world.client.partition_count("nonesuch"),
        lambda: world.client.offset_latest("nonesuch", 0),
        lambda: world.consumer("nonesuch"),
        lambda: world.produce("nonesuch", b"x"),
    ):
        with pytest.raises(UnknownTopic, match="nonesuch"):
            ask()
    assert "nonesuch" not in world.client.metadata().topics


def test_a_partition_that_is_not_there_is_an_error(world):
    topic = world.make_topic(partitions=2)
    assert world.client.partition_count(topic) == 2
    for ask in (
        lambda: world.client.offset_earliest(topic, 2),
        lambda: world.consumer(topic, 2),
        lambda: world.produce(topic, b"x", partition=2),
        lambda: world.produce(topic, b"x", partition=-1),
    ):
        with pytest.raises(UnknownTopic):
            ask()


def test_offsets_are_those_of_the_first_and_the_next_message(world):
    topic = world.make_topic(partitions=2)
    world.produce(topic, b"a", b"b", b"c")
    client = world.client
    assert (client.offset_earliest(topic, 0), client.offset_latest(topic, 0)) == (0, 3)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert client.offsets(both) == {both[0]: 3, both[1]: 0}
    assert client.offsets(both, OffsetSpec.EARLIEST) == dict.fromkeys(both, 0)


def test_offsets_at_a_time_are_the_first_since(world):
    topic = world.make_topic()
    world.client.producer().produce(
        topic, 0, *(Message(b"x", timestamp_ms=now) for now in (10_000, 20_000, 30_000))
    )
    at = TopicPartition(topic, 0)
    assert world.client.offsets([at], 15_000) == {at: 1}
    assert world.client.offsets([at], 30_001) == {at: -1}


def test_offsets_are_fetched_with_an_isolation(world):
    topic = world.make_topic()
    world.produce(topic, b"a")
    at = TopicPartition(topic, 0)
    for isolation in Isolation:
        assert world.client.offsets([at], OffsetSpec.LATEST, isolation) == {at: 1}


def test_offsets_are_committed_with_metadata(world):
    topic = world.make_topic(partitions=2)
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf(f"g-{topic}"))
    assert coordinator.offset(topic, 0) == (-1, "")
    coordinator.commit(topic, 0, 12)
    assert coordinator.offset(topic, 0) == (12, "")
    coordinator.commit(topic, 0, 3, metadata="back, für immer")
    assert coordinator.offset(topic, 0) == (3, "back, für immer")
    assert coordinator.offset(topic, 1) == (-1, "")
    other = world.client.offset_coordinator(OffsetCoordinatorConf(f"h-{topic}"))
    assert other.offset(topic, 0) == (-1, "")


def test_the_offsets_of_a_group_are_committed_and_fetched_together(world):
    one, two = world.make_topic(partitions=2), world.make_topic()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf(f"g-{one}"))
    assert coordinator.offsets() == {}
    offsets = {TopicPartition(one, 0): 5, TopicPartition(one, 1): 6, TopicPartition(two, 0): 7}
    coordinator.commit_offsets(offsets, "together")
    coordinator.commit(one, 1, 8)
    assert coordinator.offsets() == {
        TopicPartition(one, 0): (5, "together"),
        TopicPartition(one, 1): (8, ""),
        TopicPartition(two, 0): (7, "together"),
    }
    coordinator.commit_offsets({})
    with pytest.raises(ConfigError, match="offset -1"):
        coordinator.commit_offsets({TopicPartition(one, 0): 9, TopicPartition(one, 1): -1})
    assert coordinator.offset(one, 0) == (5, "together")
    coordinator.delete_offsets([TopicPartition(one, 0), TopicPartition(two, 0)])
    coordinator.delete_offsets([])
    assert coordinator.offsets() == {TopicPartition(one, 1): (8, "")}


def test_a_reset_is_planned_and_then_committed(world):
    topic, group = world.make_topic(partitions=2), "resets"
    for number in range(4):
        world.client.producer().produce(
            topic, 0, Message(b"v", timestamp_ms=1_700_000_000_000 + number * 1000)
        )
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf(f"{group}-{topic}"))
    coordinator.commit(topic, 0, 4)

    def plan(to, **options):
        return plan_reset(world.client, f"{group}-{topic}", to, **options)

    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert plan(OffsetSpec.EARLIEST) == [OffsetChange(first, 4, 0)]
    assert plan(OffsetSpec.LATEST, topics=[topic]) == [OffsetChange(first, 4, 4), OffsetChange(second, -1, 0)]
    at = datetime.fromtimestamp(1_700_000_001.5, UTC)
    assert plan(at, topics=[topic]) == [OffsetChange(first, 4, 2), OffsetChange(second, -1, 0)]
    assert plan(1_700_000_009_000) == [OffsetChange(first, 4, 4)]  # nothing so late: the next offset
    with pytest.raises(ConfigError, match="time zone"):
        plan(datetime(2026, 1, 1))  # that is the mistake
    assert coordinator.offset(topic, 0) == (4, "")

    coordinator.commit_offsets({change.partition: change.after for change in plan(at)})
    assert coordinator.offset(topic, 0) == (2, "")


def test_a_commit_for_a_topic_that_is_not_there_is_an_error(world):
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf("g"))
    with pytest.raises(UnknownTopic, match="nonesuch"):
        coordinator.commit("nonesuch", 0, 1)


def test_after_close_every_call_says_so(world):
    topic = world.make_topic()
    client, consumer, producer = world.client, world.consumer(topic), world.client.producer()
    coordinator = client.offset_coordinator(OffsetCoordinatorConf("g"))
    client.close()
    client.close()
    for ask in (
        client.metadata,
        lambda: client.partition_count(topic),
        lambda: client.offset_earliest(topic, 0),
        lambda: client.offset_latest(topic, 0),
        lambda: client.offsets([]),
        client.producer,
        lambda: client.consumer(ConsumerConf(topic)),
        lambda: client.offset_coordinator(OffsetCoordinatorConf("g")),
        consumer.consume,
        consumer.consume_batch,
        lambda: producer.produce(topic, 0, Message(b"x")),
        lambda: coordinator.commit(topic, 0, 1),
        lambda: coordinator.offset(topic, 0),
    ):
        with pytest.raises(Closed):
            ask()
    consumer.close()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 250, "a\0b", "\ud800", None, 7, b"t"])
def test_what_cannot_be_the_name_of_a_topic_is_an_unknown_topic(world, name):
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf("g"))
    for ask in (
        lambda: world.client.partition_count(name),
        lambda: world.client.offset_latest(name, 0),
        lambda: world.client.producer().produce(name, 0, Message(b"x")),
        lambda: world.client.consumer(ConsumerConf(name)),
        lambda: coordinator.commit(name, 0, 1),
        lambda: coordinator.offset(name, 0),
    ):
        with pytest.raises(UnknownTopic, match="cannot be the name of a topic"):
            ask()


@pytest.mark.parametrize("partition", [-1, 1 << 31, 1 << 70, "0", None, 0.5])
def test_what_cannot_be_a_partition_is_unknown(world, partition):
    topic = world.make_topic()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf("g"))
    for ask in (
        lambda: world.client.offset_latest(topic, partition),
        lambda: world.client.producer().produce(topic, partition, Message(b"x")),
        lambda: world.client.consumer(ConsumerConf(topic, partition)),
        lambda: coordinator.commit(topic, partition, 1),
        lambda: coordinator.offset(topic, partition),
    ):
        with pytest.raises(UnknownTopic, match="has no partition"):
            ask()


def test_numbers_that_kafka_does_not_have_are_refused(world):
    topic = world.make_topic()
    world.produce(topic, b"x")
    for start in (-3, 1 << 63, 1 << 70, "0", "earliest", None):
        with pytest.raises(ConfigError, match="start_offset"):
            world.consumer(topic, start_offset=start)
    for time_ms in (-5, 1 << 63):
        with pytest.raises(ConfigError, match="no time"):
            world.client.offsets([TopicPartition(topic, 0)], time_ms)
    assert world.consumer(topic, start_offset="oldest").consume().value == b"x"


@pytest.mark.parametrize("offset", [-1, -5])
def test_an_offset_below_zero_is_not_committed(world, offset):
    topic = world.make_topic()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf(f"g-{topic}"))
    with pytest.raises(ConfigError, match=f"offset {offset} "):
        coordinator.commit(topic, 0, offset)
    assert coordinator.offset(topic, 0) == (-1, "")


def test_a_producer_and_a_coordinator_may_be_closed_by_themselves(world):
    topic = world.make_topic()
    producer = world.client.producer()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf("g"))
    for closed in (producer, coordinator):
        closed.close()
        closed.close()
    for call in (
        lambda: producer.produce(topic, 0, Message(b"x")),
        lambda: coordinator.commit(topic, 0, 1),
        lambda: coordinator.offset(topic, 0),
        coordinator.offsets,
    ):
        with pytest.raises(Closed):
            call()
