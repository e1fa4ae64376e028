"""What every `Producer` keeps, in memory and on a real Kafka."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from koff.client import (
    Closed,
    Compression,
    HashProducer,
    InvalidMessage,
    Message,
    ProduceError,
    ProducerConf,
    RequiredAcks,
    UnknownTopic,
    merge,
)
from koff.errors import ConfigError
from koff.kafkatest import wait_until


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


def test_produce_async_gives_the_offset_later_and_keeps_the_order(blocking_world):
    topic = blocking_world.make_topic()
    producer = blocking_world.client.producer()
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
    with blocking_world.consumer(topic) as consumer:
        assert [message.value for message in consumer] == [message.value for message in messages]


def test_produce_async_checks_the_messages_and_the_place_first(blocking_world):
    topic = blocking_world.make_topic()
    producer = blocking_world.client.producer()
    bad: Any = Message("text")  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidMessage):
        producer.produce_async(topic, 0, Message(b"a"), bad)
    with pytest.raises(UnknownTopic):
        producer.produce_async(topic, 7, Message(b"a"))
    assert blocking_world.client.offset_latest(topic, 0) == 0


def test_a_callback_of_produce_async_that_fails_disturbs_nothing(blocking_world, caplog):
    topic = blocking_world.make_topic()
    producer = blocking_world.client.producer()

    def fail(future: Future[int | None]) -> None:
        raise RuntimeError("of the test")

    first = producer.produce_async(topic, 0, Message(b"a"), on_done=fail)
    assert first.result(60) == 0
    assert producer.produce_async(topic, 0, Message(b"b"), on_done=fail).result(60) == 1
    assert producer.produce(topic, 0, Message(b"c")) == 2


@pytest.mark.parametrize("part", ["producer", "client"])
def test_after_close_each_future_is_done_and_new_calls_are_refused(blocking_world, part):
    topic = blocking_world.make_topic()
    producer = blocking_world.client.producer()
    calls = [producer.produce_async(topic, 0, Message(b"x" * 1000)) for _ in range(200)]
    (producer if part == "producer" else blocking_world.client).close()
    for call in calls:
        error = call.exception(60)
        assert error is None or isinstance(error, ProduceError)
    with pytest.raises(Closed):
        producer.produce_async(topic, 0, Message(b"a"))


def test_a_hash_producer_puts_each_message_where_its_key_belongs(blocking_world):
    topic = blocking_world.make_topic(partitions=4)
    keys = [b"key-%d" % (number % 10) for number in range(40)]
    messages = [Message(b"v%d" % number, key) for number, key in enumerate(keys)]
    offset = HashProducer(blocking_world.client.producer(), 4).distribute(topic, *messages)
    assert offset == messages[0].offset == 0
    homes = {message.key: message.partition for message in messages}
    assert len(set(homes.values())) > 1
    got = list(merge(*(blocking_world.consumer(topic, partition) for partition in range(4))))
    assert len(got) == 40
    assert all(homes[message.key] == message.partition for message in got)
