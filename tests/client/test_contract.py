"""What every `Client` keeps: the same tests for the one in memory and for a real Kafka."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from koff.client import (
    Broker,
    Client,
    Closed,
    Compression,
    Consumer,
    ConsumerConf,
    HashProducer,
    InvalidMessage,
    Isolation,
    Message,
    MxClosed,
    MxError,
    NoData,
    NoDataInTime,
    OffsetChange,
    OffsetCoordinator,
    OffsetCoordinatorConf,
    OffsetOutOfRange,
    OffsetSpec,
    ProduceError,
    Producer,
    ProducerConf,
    RequiredAcks,
    StartOffset,
    TopicPartition,
    TopicRecreated,
    UnknownTopic,
    dial,
    merge,
    plan_reset,
)
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.broker.producer import PartitionProducer
from koff.client.multicluster import Writer
from koff.errors import ConfigError
from koff.kafkatest import wait_until
from koff.kafkatest.doubles import MemoryBroker, MemoryOffsetCoordinator, MemoryProducer, MemoryWriter
from koff.kafkatest.memory_consumer import MemoryConsumer


@dataclass
class World:
    """A client, the name of its cluster, and how to come by a topic for it."""

    client: Client
    cluster: str
    make_topic: Callable[..., str]
    delete_before: Callable[[str, int], None]
    """Deletes the messages of partition 0 before the offset."""
    create_again: Callable[[str], object]
    """Deletes the topic, and creates it again with one partition."""
    consumers: list[Consumer] = field(default_factory=list)
    """Keeps the consumers: the client's `close` closes them."""

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int | None:
        return self.client.producer().produce(topic, partition, *map(Message, values))

    def consumer(self, topic: str, partition: int = 0, **conf: Any) -> Consumer:
        """One that gives up soon."""
        consumer = self.client.consumer(ConsumerConf(topic, partition, **{"retry_limit": 2, **conf}))
        self.consumers.append(consumer)
        return consumer


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        with MemoryBroker() as memory:
            names = iter(range(1000))
            yield World(
                memory,
                "memory:9092",
                lambda partitions=1: memory.create_topic(f"t-{next(names)}", partitions),
                lambda topic, offset: memory.delete_before(topic, 0, offset),
                memory.create_topic,
            )
    else:
        kafka = request.getfixturevalue("kafka")
        with dial(kafka.bootstrap) as broker:
            yield World(
                broker,
                kafka.bootstrap,
                lambda partitions=1: kafka.create_topic(partitions=partitions),
                lambda topic, offset: kafka.delete_before(topic, 0, offset),
                kafka.create_topic_again,
            )


def test_all_parts_keep_their_protocols(world):
    topic = world.make_topic()
    assert isinstance(world.client, Client)
    assert isinstance(world.client.producer(), Producer)
    assert isinstance(world.consumer(topic), Consumer)
    assert isinstance(world.client.offset_coordinator(OffsetCoordinatorConf("g")), OffsetCoordinator)


PAIRS = [
    (Broker, MemoryBroker),
    (PartitionProducer, MemoryProducer),
    (PartitionConsumer, MemoryConsumer),
    (GroupCoordinator, MemoryOffsetCoordinator),
    (Writer, MemoryWriter),
]


@pytest.mark.parametrize(("real", "double"), PAIRS)
def test_a_double_has_every_public_call_with_the_same_parameters(real, double):
    inside = {"start_waiting", "poll_batch"}  # what `merge` calls
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


def test_produce_tells_the_first_offset_and_sets_the_place_of_each_message(world):
    topic = world.make_topic(partitions=2)
    producer = world.client.producer()
    assert producer.produce(topic, 1, Message(b"first")) == 0
    messages = [Message(b"%d" % number) for number in range(3)]
    assert producer.produce(topic, 1, *messages) == 1
    assert [(each.topic, each.partition, each.offset) for each in messages] == [
        (topic, 1, 1),
        (topic, 1, 2),
        (topic, 1, 3),
    ]


def test_producing_nothing_is_a_mistake(world):
    with pytest.raises(ValueError, match="no message"):
        world.client.producer().produce(world.make_topic(), 0)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {"value": "text"},
        {"key": 7},
        {"timestamp_ms": -1},
        {"headers": (("h", 5),)},
        {"headers": ("h",)},
    ],
    ids=str,
)
def test_a_call_with_a_message_that_cannot_be_written_writes_nothing(world, fields):
    bad: Any = 5 if fields is None else Message(**fields)
    topic = world.make_topic()
    with_header = Message(b"two", headers=(("h", b"1"),))
    with pytest.raises(InvalidMessage, match="message 2 of 3"):
        world.client.producer().produce(topic, 0, Message(b"one"), with_header, bad)
    assert world.client.offset_latest(topic, 0) == 0


@pytest.mark.parametrize(("timestamp_ms", "written"), [(0, 1), (1, 1), (None, None)])
def test_every_message_can_be_forwarded_whatever_its_timestamp_is(world, timestamp_ms, written):
    topic = world.make_topic()
    with world.consumer(topic) as consumer:
        world.client.producer().produce(topic, 0, Message(b"x", timestamp_ms=timestamp_ms))
        got = consumer.consume()
        assert written is None or got.timestamp_ms == written
        world.client.producer().produce(topic, 0, got)
        assert consumer.consume().timestamp_ms == got.timestamp_ms


def test_a_message_that_is_too_large_is_not_written_and_the_others_are(world):
    topic = world.make_topic()
    with pytest.raises(ProduceError, match="too large") as caught:
        world.produce(topic, b"a", b"x" * 1_000_001, b"b")
    assert (caught.value.written, caught.value.failed, caught.value.unknown) == ((0, 2), (1,), ())
    assert [message.value for message in world.consumer(topic)] == [b"a", b"b"]


def test_a_message_has_the_name_of_its_cluster(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    consumer = world.consumer(topic)
    assert consumer.consume().cluster == world.cluster
    assert consumer.consume_batch()[0].cluster == world.cluster


def test_offsets_are_fetched_with_an_isolation(world):
    topic = world.make_topic()
    world.produce(topic, b"a")
    at = TopicPartition(topic, 0)
    for isolation in Isolation:
        assert world.client.offsets([at], OffsetSpec.LATEST, isolation) == {at: 1}


def test_a_message_that_is_passed_twice_is_written_twice(world):
    topic = world.make_topic()
    twice, other = Message(b"twice"), Message(b"other")
    assert world.client.producer().produce(topic, 0, twice, other, twice) == 0
    assert (twice.offset, other.offset) == (2, 1)
    with world.consumer(topic) as consumer:
        assert [message.value for message in consumer] == [b"twice", b"other", b"twice"]


def test_acknowledgements_and_compression_may_be_plain_values(world):
    topic = world.make_topic()
    conf: Any = ProducerConf
    assert (
        world.client.producer(conf(compression="gzip", required_acks=0)).produce(topic, 0, Message(b"x"))
        is None
    )
    with pytest.raises(ConfigError, match="required_acks 7 is not valid"):
        conf(required_acks=7)
    with pytest.raises(ConfigError, match="'none', 'gzip'"):
        conf(compression="tar")


@pytest.mark.parametrize(
    ("compression", "acks"),
    [
        *((each, RequiredAcks.ALL) for each in Compression),
        *((Compression.NONE, each) for each in RequiredAcks),
    ],
)
def test_what_is_produced_comes_back_whole(world, compression, acks):
    topic = world.make_topic()
    producer = world.client.producer(ProducerConf(compression=compression, required_acks=acks))
    sent = [
        Message(b"v" * 1000, b"k", headers=(("h", b"1"), ("none", None), ("h", b"2")), timestamp_ms=1_234),
        Message(None, b"tombstone"),
        Message(b""),
    ]
    first = producer.produce(topic, 0, *sent)
    assert first == (None if acks is RequiredAcks.NONE else 0)
    assert [each.offset for each in sent] == ([-1] * 3 if first is None else [0, 1, 2])
    with world.consumer(topic, retry_limit=-1) as consumer:
        got = [consumer.consume() for _ in range(3)]
    assert [(each.value, each.key, each.headers) for each in got] == [
        (each.value, each.key, each.headers) for each in sent
    ]
    assert [(each.topic, each.partition, each.offset) for each in got] == [(topic, 0, at) for at in range(3)]
    assert got[0].timestamp_ms == 1_234


def test_a_consumer_starts_at_the_oldest_message_and_ends_where_there_is_no_data(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    with world.consumer(topic) as consumer:
        assert [message.value for message in consumer] == [b"a", b"b"]
        with pytest.raises(NoData, match=topic):
            consumer.consume()


def test_a_consumer_goes_on_after_no_data(world):
    topic = world.make_topic()
    with world.consumer(topic, retry_limit=0) as consumer:
        with pytest.raises(NoData):
            consumer.consume()
        world.produce(topic, b"late")
        assert wait_until(lambda: list(consumer), what="the message")[0].value == b"late"


def test_a_consumer_from_the_newest_sees_only_what_comes_after_it_was_made(world):
    topic = world.make_topic()
    world.produce(topic, b"before")
    with world.consumer(topic, start_offset=StartOffset.NEWEST, retry_limit=-1) as consumer:
        world.produce(topic, b"after")
        assert consumer.consume().value == b"after"


def test_an_offset_out_of_range_says_what_the_range_is_and_can_be_tried_again(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    with world.consumer(topic, start_offset=3, retry_limit=-1) as consumer:
        with pytest.raises(OffsetOutOfRange) as caught:
            consumer.consume()
        assert (caught.value.offset, caught.value.earliest, caught.value.latest) == (3, 0, 2)
        world.produce(topic, b"c", b"d")
        assert consumer.consume().offset == 3


def test_a_consumer_waits_for_ever_unless_it_is_told_otherwise(world):
    topic = world.make_topic()
    got: list[Message] = []
    with world.client.consumer(ConsumerConf(topic)) as consumer:
        waiting = threading.Thread(target=lambda: got.append(consumer.consume()))
        waiting.start()
        world.produce(topic, b"at last")
        waiting.join(60)
    assert [message.value for message in got] == [b"at last"]


def test_batches_and_single_messages_can_be_had_in_turn(world):
    topic = world.make_topic()
    world.produce(topic, *(b"%d" % number for number in range(10)))
    with world.consumer(topic) as consumer:
        seen = [consumer.consume().offset, consumer.consume().offset]
        while len(seen) < 7:
            batch = consumer.consume_batch(7 - len(seen))
            assert batch.values() == [b"%d" % each.offset for each in batch]
            assert batch.keys() == [None] * len(batch)
            assert batch.next_offset == batch[-1].offset + 1 == batch.offsets()[-1] + 1
            seen += batch.offsets()
        seen += [message.offset for message in consumer]
    assert seen == list(range(10))


def test_messages_that_were_consumed_are_ones_own_to_change(world):
    topic = world.make_topic()
    world.produce(topic, b"a")
    with world.consumer(topic) as one, world.consumer(topic) as other:
        batch = one.consume_batch()
        batch[0].value = b"changed"
        assert batch[0].value == b"changed"
        assert batch.values() == [b"changed"]
        assert other.consume().value == b"a"


def test_a_consumer_says_where_it_is_and_goes_elsewhere(world):
    topic = world.make_topic()
    world.produce(topic, *(b"%d" % number for number in range(10)))
    with world.consumer(topic) as consumer:
        assert consumer.position() == 0
        assert consumer.consume().offset == 0
        assert consumer.position() == 1  # the messages behind it were read ahead
        consumer.seek(7)
        assert consumer.position() == 7
        assert [message.offset for message in consumer] == [7, 8, 9]
        assert consumer.position() == 10
        consumer.seek(StartOffset.OLDEST)
        assert consumer.consume_batch(3).offsets() == [0, 1, 2]
        consumer.seek(StartOffset.NEWEST)
        with pytest.raises(NoData):
            consumer.consume()
        consumer.seek(5)
        read = []
        for message in consumer:
            read.append(message.offset)
            if len(read) == 2:
                consumer.seek(1)  # also while it is iterated
        assert read == [5, 6, *range(1, 10)]
        consumer.seek(99)
        with pytest.raises(OffsetOutOfRange) as caught:
            consumer.consume()
        consumer.seek(caught.value.earliest)
        assert consumer.consume().offset == 0
        with pytest.raises(ConfigError, match="-5 is no offset"):
            consumer.seek(-5)
    for call in (consumer.position, lambda: consumer.seek(0)):
        with pytest.raises(Closed):
            call()


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


@pytest.mark.parametrize("part", ["consumer", "client"])
def test_messages_that_were_fetched_before_the_close_are_not_handed_out(world, part):
    topic = world.make_topic()
    world.produce(topic, *(b"%d" % number for number in range(100)))
    one, iterated = world.consumer(topic), world.consumer(topic)
    iterator = iter(iterated)
    assert one.consume().offset == next(iterator).offset == 0
    for closed in [one, iterated] if part == "consumer" else [world.client]:
        closed.close()
    for call in (one.consume, one.consume_batch):
        with pytest.raises(Closed):
            call()
    assert [*iterator, *iterated] == []


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
    for start in (-3, 1 << 63, 1 << 70, "0"):
        with pytest.raises(ConfigError, match="start_offset"):
            world.consumer(topic, start_offset=start)
    for time_ms in (-5, 1 << 63):
        with pytest.raises(ConfigError, match="no time"):
            world.client.offsets([TopicPartition(topic, 0)], time_ms)
    assert world.consumer(topic).consume().value == b"x"


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_of_no_messages_is_refused(world, count):
    topic = world.make_topic()
    world.produce(topic, b"x")
    consumer = world.consumer(topic)
    with pytest.raises(ConfigError, match=f"a batch of {count} messages"):
        consumer.consume_batch(count)
    assert consumer.consume().value == b"x"


@pytest.mark.parametrize("offset", [-1, -5])
def test_an_offset_below_zero_is_not_committed(world, offset):
    topic = world.make_topic()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf(f"g-{topic}"))
    with pytest.raises(ConfigError, match=f"offset {offset} "):
        coordinator.commit(topic, 0, offset)
    assert coordinator.offset(topic, 0) == (-1, "")


def test_a_consumer_that_is_closed_says_so_and_leaves_the_others_alone(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    with world.consumer(topic) as one, world.consumer(topic) as other:
        one.consume()
        one.close()
        one.close()
        with pytest.raises(Closed):
            one.consume()
        assert other.consume().value == b"a"


@pytest.mark.parametrize("part", ["consumer", "client"])
def test_closing_ends_a_wait(world, part):
    topic = world.make_topic()
    consumer = world.client.consumer(ConsumerConf(topic))
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            consumer.consume()
        except Exception as error:
            ended.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    (consumer if part == "consumer" else world.client).close()
    waiting.join(60)
    assert ended == [Closed]


def test_a_producer_and_a_coordinator_may_be_closed_by_themselves(world):
    topic = world.make_topic()
    producer = world.client.producer()
    coordinator = world.client.offset_coordinator(OffsetCoordinatorConf("g"))
    for closed in (producer, coordinator):
        closed.close()
        closed.close()
    for call in (
        lambda: producer.produce(topic, 0, Message(b"x")),
        lambda: producer.produce_async(topic, 0, Message(b"x")),
        lambda: coordinator.commit(topic, 0, 1),
        lambda: coordinator.offset(topic, 0),
        coordinator.offsets,
    ):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("part", ["consumer", "client"])
def test_closing_ends_an_iteration(world, part):
    topic = world.make_topic()
    world.produce(topic, b"x")
    consumer = world.client.consumer(ConsumerConf(topic))
    seen: list[Message] = []
    iterating = threading.Thread(target=lambda: seen.extend(consumer))
    iterating.start()
    (consumer if part == "consumer" else world.client).close()
    iterating.join(60)
    assert not iterating.is_alive()
    assert list(consumer) == []


def test_a_call_with_a_timeout_ends_without_a_message_and_the_next_one_goes_on(world):
    topic = world.make_topic()
    with world.consumer(topic, retry_limit=-1) as consumer:
        for call in (lambda: consumer.consume(timeout_s=0.05), lambda: consumer.consume_batch(timeout_s=0)):
            with pytest.raises(NoDataInTime, match=topic):
                call()
        world.produce(topic, b"late", b"later")
        assert consumer.consume(timeout_s=60).value == b"late"
        assert consumer.consume(timeout_s=60).value == b"later"
        with pytest.raises(ConfigError, match="timeout_s"):
            consumer.consume(timeout_s=-1)


def test_calls_with_short_timeouts_find_the_end_of_the_data_too(world):
    with world.consumer(world.make_topic(), retry_limit=2) as consumer:

        def reach_end() -> bool:
            try:
                consumer.consume(timeout_s=0.01)
            except NoDataInTime:
                return False
            except NoData:
                return True
            raise AssertionError

        wait_until(reach_end, what="NoData")


def move_to(consumer: Consumer, offset: int, has_skipped: Callable[[], bool] = lambda: True) -> None:
    """Lets the consumer look at the partition until it is at the offset, without a message."""

    def has_moved() -> bool:
        with suppress(NoDataInTime, UnknownTopic):
            consumer.consume(timeout_s=0.01)
        return consumer.position() == offset and has_skipped()

    wait_until(has_moved, what=f"offset {offset}")


def test_a_consumer_behind_the_log_goes_on_where_it_is_told_and_counts_what_it_skips(world):
    topic = world.make_topic()
    world.produce(topic, b"0", b"1", b"2")
    world.delete_before(topic, 1)
    conf = {"start_offset": 0, "retry_limit": -1}
    with world.consumer(topic, on_out_of_range="oldest", **conf) as consumer:
        assert [consumer.consume().offset for _ in range(2)] == [1, 2]
        assert consumer.skipped == 1
    with world.consumer(topic, on_out_of_range=StartOffset.NEWEST, **conf) as consumer:
        move_to(consumer, 3)
        world.produce(topic, b"3")
        assert consumer.consume().offset == 3
        assert consumer.skipped == 3


def test_a_consumer_beyond_the_log_goes_on_where_it_is_told_and_skips_nothing(world):
    topic = world.make_topic()
    world.produce(topic, b"0", b"1")
    conf = {"start_offset": 9, "retry_limit": -1}
    with world.consumer(topic, on_out_of_range="oldest", **conf) as consumer:
        assert [consumer.consume().offset for _ in range(2)] == [0, 1]
        assert consumer.skipped == 0
    with world.consumer(topic, on_out_of_range="newest", **conf) as consumer:
        move_to(consumer, 2)
        world.produce(topic, b"2")
        assert consumer.consume().offset == 2


@pytest.mark.parametrize("pause", [True, False], ids=["at-the-end", "in-the-middle"])
def test_a_topic_that_is_created_again_is_an_error_and_its_messages_are_not_skipped_silently(world, pause):
    topic = world.make_topic()
    world.produce(topic, *(b"old" for _ in range(50)))
    with world.consumer(topic, retry_limit=-1) as consumer:
        for _ in range(50 if pause else 20):
            consumer.consume()
        if pause:
            with pytest.raises(NoDataInTime):
                consumer.consume(timeout_s=0.5)
        world.create_again(topic)
        world.produce(topic, *(b"%d" % number for number in range(100)))
        with pytest.raises(TopicRecreated, match="deleted and created again") as caught:
            read_until(consumer, b"never")
        assert (caught.value.earliest, caught.value.latest) == (0, 100)
        consumer.seek(caught.value.earliest)
        assert [consumer.consume(timeout_s=60).value for _ in range(100)] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(("to", "skipped"), [("oldest", 0), ("newest", 100)])
def test_a_consumer_of_a_topic_that_is_created_again_continues_where_it_is_told(world, to, skipped):
    topic = world.make_topic()
    world.produce(topic, *(b"old" for _ in range(50)))
    with world.consumer(topic, retry_limit=-1, on_out_of_range=to) as consumer:
        for _ in range(50):
            consumer.consume()
        world.create_again(topic)
        world.produce(topic, *(b"%d" % number for number in range(100)))
        if to == "newest":
            move_to(consumer, 100, lambda: consumer.skipped == skipped)
            world.produce(topic, b"next")
            assert consumer.consume(timeout_s=60).value == b"next"
        else:
            assert read_until(consumer, b"0") == b"0"
            assert [consumer.consume(timeout_s=60).value for _ in range(99)] == [
                b"%d" % n for n in range(1, 100)
            ]
        assert consumer.skipped == skipped


def test_no_data_is_not_told_of_a_topic_that_was_created_again(world):
    topic = world.make_topic()
    world.produce(topic, *(b"old" for _ in range(5)))
    with world.consumer(topic, retry_limit=0) as consumer:
        assert len(list(consumer)) == 5
        world.create_again(topic)
        world.produce(topic, *(b"new" for _ in range(5)))
        with pytest.raises(TopicRecreated):
            list(consumer)


def read_until(consumer: Consumer, value: bytes) -> bytes | None:
    """Reads until the value comes, also through errors about the topic while it does not exist."""
    for _ in range(1_000):
        with suppress(NoDataInTime, UnknownTopic):
            if consumer.consume(timeout_s=1).value == value:
                return value
    return None


def test_a_merged_stream_goes_on_behind_the_log_too(world):
    topic = world.make_topic()
    world.produce(topic, b"0", b"1", b"2")
    world.delete_before(topic, 2)
    with merge(world.consumer(topic, start_offset=0, on_out_of_range="oldest", retry_limit=-1)) as mx:
        assert mx.consume().offset == 2


def test_produce_async_gives_the_offset_later_and_keeps_the_order(world):
    topic = world.make_topic()
    producer = world.client.producer()
    done: list[int | None] = []
    messages = [Message(b"%d" % number) for number in range(50)]
    calls = [
        producer.produce_async(topic, 0, message, on_done=lambda future: done.append(future.result()))
        for message in messages
    ]
    assert [call.result(60) for call in calls] == list(range(50))
    assert [message.offset for message in messages] == list(range(50))
    wait_until(lambda: len(done) == 50, what="the callbacks")
    assert done == list(range(50))
    with world.consumer(topic) as consumer:
        assert [message.value for message in consumer] == [message.value for message in messages]


def test_produce_async_checks_the_messages_and_the_place_first(world):
    topic = world.make_topic()
    producer = world.client.producer()
    bad: Any = Message("text")  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidMessage):
        producer.produce_async(topic, 0, Message(b"a"), bad)
    with pytest.raises(UnknownTopic):
        producer.produce_async(topic, 7, Message(b"a"))
    assert world.client.offset_latest(topic, 0) == 0


def test_a_callback_of_produce_async_that_fails_disturbs_nothing(world, caplog):
    topic = world.make_topic()
    producer = world.client.producer()

    def fail(future: Future[int | None]) -> None:
        raise RuntimeError("of the test")

    first = producer.produce_async(topic, 0, Message(b"a"), on_done=fail)
    assert first.result(60) == 0
    assert producer.produce_async(topic, 0, Message(b"b"), on_done=fail).result(60) == 1
    assert producer.produce(topic, 0, Message(b"c")) == 2


def test_after_close_each_future_is_done_and_new_calls_are_refused(world):
    topic = world.make_topic()
    producer = world.client.producer()
    calls = [producer.produce_async(topic, 0, Message(b"x" * 1000)) for _ in range(200)]
    world.client.close()
    for call in calls:
        error = call.exception(60)
        assert error is None or isinstance(error, ProduceError)
    with pytest.raises(Closed):
        producer.produce_async(topic, 0, Message(b"a"))


def test_a_merged_stream_has_all_messages_in_order_by_partition_and_then_closes(world):
    topics = [world.make_topic(partitions=3), world.make_topic()]
    places = [(topics[0], 0), (topics[0], 2), (topics[1], 0)]
    for topic, partition in places:
        world.produce(topic, *(b"%d" % number for number in range(50)), partition=partition)
    mx = merge(*(world.consumer(topic, partition) for topic, partition in places))
    seen: dict[tuple[str, int], list[int]] = {}
    for message in mx:
        seen.setdefault((message.topic, message.partition), []).append(message.offset)
    assert seen == {place: list(range(50)) for place in places}
    with pytest.raises(MxClosed):
        mx.consume()


def test_a_merged_stream_of_nothing_is_closed(world):
    with pytest.raises(MxClosed):
        merge().consume()


def test_closing_a_merged_stream_twice_is_fine_and_does_not_wait(world):
    topic = world.make_topic()
    mx = merge(world.consumer(topic, retry_limit=-1))
    began = time.monotonic()
    mx.close()
    mx.close()
    assert time.monotonic() - began < 20  # the consumer waits for ever
    with pytest.raises(MxClosed):
        mx.consume()


def test_closing_a_merged_stream_ends_a_wait(world):
    topic = world.make_topic()
    mx = merge(world.consumer(topic, retry_limit=-1))
    ended: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: ended.append(list(mx)))
    waiting.start()
    mx.close()
    waiting.join(60)
    assert ended == [[]]


def test_a_merged_stream_waits_no_longer_than_it_was_told(world):
    topic, other = world.make_topic(), world.make_topic()
    with merge(world.consumer(topic, retry_limit=-1), world.consumer(other, retry_limit=-1)) as mx:
        for call in (lambda: mx.consume(timeout_s=0.05), lambda: mx.consume_batch(timeout_s=0)):
            with pytest.raises(NoDataInTime):
                call()
        world.produce(topic, b"late")
        assert mx.consume(timeout_s=60).value == b"late"
        world.produce(topic, b"later")
        assert mx.consume_batch(timeout_s=60).values() == [b"later"]
        with pytest.raises(ConfigError, match="timeout_s"):
            mx.consume(timeout_s=-1)
        waiting = threading.Thread(target=lambda: list(mx))
        waiting.start()
        with pytest.raises(NoDataInTime):  # also while another thread waits
            mx.consume(timeout_s=0.01)
    waiting.join(60)
    with pytest.raises(MxClosed):
        mx.consume(timeout_s=0)


def test_threads_that_share_a_merged_stream_get_each_message_once_however_they_ask(world):
    topic, count = world.make_topic(partitions=2), 2_000
    for partition in range(2):
        world.produce(topic, *(b"%d" % number for number in range(count)), partition=partition)
    mx = merge(*(world.consumer(topic, partition) for partition in range(2)))
    seen: list[Message] = []

    def consume() -> None:
        with suppress(MxClosed):
            while True:
                seen.append(mx.consume())

    def consume_batches() -> None:
        with suppress(MxClosed):
            while True:
                seen.extend(mx.consume_batch())

    def iterate_in_parts() -> None:
        while part := list(islice(mx, 7)):
            seen.extend(part)

    asking = [threading.Thread(target=ask) for ask in (consume, consume_batches, iterate_in_parts) * 2]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(120)
    places = sorted((message.partition, message.offset) for message in seen)
    assert places == [(partition, offset) for partition in range(2) for offset in range(count)]


def test_a_failing_consumer_is_named_by_the_merged_stream_and_the_others_go_on(world):
    good, bad = world.make_topic(), world.make_topic()
    world.produce(good, b"fine")
    with merge(world.consumer(good, retry_limit=-1), world.consumer(bad, start_offset=5)) as mx:
        values: list[bytes | None] = []
        failures: list[MxError] = []
        while not (values and failures):
            try:
                values.append(mx.consume().value)
            except MxError as error:
                failures.append(error)
    assert values == [b"fine"]
    assert (failures[0].topic, failures[0].partition) == (bad, 0)
    assert isinstance(failures[0].__cause__, OffsetOutOfRange)
    assert bad in str(failures[0])


def test_a_merged_stream_whose_client_is_closed_says_so_and_closes(world):
    topic = world.make_topic()
    mx = merge(world.consumer(topic, retry_limit=-1))
    world.client.close()
    with pytest.raises(MxError) as caught:
        mx.consume()
    assert isinstance(caught.value.__cause__, Closed)
    with pytest.raises(MxClosed):
        mx.consume()


@pytest.mark.parametrize("part", ["consumer", "client"])
def test_a_merged_stream_hands_out_no_message_of_a_consumer_that_was_closed(world, part):
    topic, other = world.make_topic(), world.make_topic()
    world.produce(topic, *(b"%d" % number for number in range(100)))
    world.produce(other, b"other")
    consumers = [world.consumer(name, retry_limit=-1) for name in (topic, other)]
    with merge(*consumers) as mx:
        seen = mx.consume()
        while seen.topic != topic:
            seen = mx.consume()
        (consumers[0] if part == "consumer" else world.client).close()
        errors: list[MxError] = []
        messages: list[Message] = []
        while not errors:
            try:
                messages.append(mx.consume())
            except MxError as error:
                errors.append(error)
    assert {message.topic for message in messages} <= ({other} if part == "consumer" else set())
    assert isinstance(errors[0].__cause__, Closed)


def test_a_hash_producer_puts_each_message_where_its_key_belongs(world):
    topic = world.make_topic(partitions=4)
    keys = [b"key-%d" % (number % 10) for number in range(40)]
    messages = [Message(b"v%d" % number, key) for number, key in enumerate(keys)]
    offset = HashProducer(world.client.producer(), 4).distribute(topic, *messages)
    assert offset == messages[0].offset == 0
    homes = {message.key: message.partition for message in messages}
    assert len(set(homes.values())) > 1
    got = list(merge(*(world.consumer(topic, partition) for partition in range(4))))
    assert len(got) == 40
    assert all(homes[message.key] == message.partition for message in got)
