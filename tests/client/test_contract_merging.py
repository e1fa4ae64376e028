"""What a merged stream keeps, of consumers in memory and of a real Kafka."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import islice

import pytest

from koff.client import (
    Closed,
    Message,
    MxClosed,
    MxError,
    NoDataInTime,
    OffsetOutOfRange,
    merge,
)
from koff.errors import ConfigError


def test_a_merged_stream_goes_on_behind_the_log_too(blocking_world):
    topic = blocking_world.make_topic()
    blocking_world.produce(topic, b"0", b"1", b"2")
    blocking_world.delete_before(topic, 2)
    with merge(
        blocking_world.consumer(topic, start_offset=0, on_out_of_range="oldest", retry_limit=-1)
    ) as mx:
        assert mx.consume().offset == 2


def test_a_merged_stream_has_all_messages_in_order_by_partition_and_then_closes(blocking_world):
    topics = [blocking_world.make_topic(partitions=3), blocking_world.make_topic()]
    places = [(topics[0], 0), (topics[0], 2), (topics[1], 0)]
    for topic, partition in places:
        blocking_world.produce(topic, *(b"%d" % number for number in range(50)), partition=partition)
    mx = merge(*(blocking_world.consumer(topic, partition) for topic, partition in places))
    seen: dict[tuple[str, int], list[int]] = {}
    for message in mx:
        seen.setdefault((message.topic, message.partition), []).append(message.offset)
    assert seen == {place: list(range(50)) for place in places}
    with pytest.raises(MxClosed):
        mx.consume()


def test_a_merged_stream_of_nothing_is_closed(blocking_world):
    with pytest.raises(MxClosed):
        merge().consume()


def test_closing_a_merged_stream_twice_is_fine_and_does_not_wait(blocking_world):
    topic = blocking_world.make_topic()
    mx = merge(blocking_world.consumer(topic, retry_limit=-1))
    began = time.monotonic()
    mx.close()
    mx.close()
    assert time.monotonic() - began < 20  # the consumer waits for ever
    with pytest.raises(MxClosed):
        mx.consume()


def test_closing_a_merged_stream_ends_a_wait(blocking_world):
    topic = blocking_world.make_topic()
    mx = merge(blocking_world.consumer(topic, retry_limit=-1))
    ended: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: ended.append(list(mx)))
    waiting.start()
    mx.close()
    waiting.join(60)
    assert ended == [[]]


def test_a_merged_stream_waits_no_longer_than_it_was_told(blocking_world):
    topic, other = blocking_world.make_topic(), blocking_world.make_topic()
    with merge(
        blocking_world.consumer(topic, retry_limit=-1), blocking_world.consumer(other, retry_limit=-1)
    ) as mx:
        for call in (lambda: mx.consume(timeout_s=0.05), lambda: mx.consume_batch(timeout_s=0)):
            with pytest.raises(NoDataInTime):
                call()
        blocking_world.produce(topic, b"late")
        assert mx.consume(timeout_s=60).value == b"late"
        blocking_world.produce(topic, b"later")
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


def test_threads_that_share_a_merged_stream_get_each_message_once_however_they_ask(blocking_world):
    topic, count = blocking_world.make_topic(partitions=2), 2_000
    for partition in range(2):
        blocking_world.produce(topic, *(b"%d" % number for number in range(count)), partition=partition)
    mx = merge(*(blocking_world.consumer(topic, partition) for partition in range(2)))
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


def test_a_failing_consumer_is_named_by_the_merged_stream_and_the_others_go_on(blocking_world):
    good, bad = blocking_world.make_topic(), blocking_world.make_topic()
    blocking_world.produce(good, b"fine")
    with merge(
        blocking_world.consumer(good, retry_limit=-1), blocking_world.consumer(bad, start_offset=5)
    ) as mx:
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


def test_a_merged_stream_whose_client_is_closed_says_so_and_closes(blocking_world):
    topic = blocking_world.make_topic()
    mx = merge(blocking_world.consumer(topic, retry_limit=-1))
    blocking_world.client.close()
    with pytest.raises(MxError) as caught:
        mx.consume()
    assert isinstance(caught.value.__cause__, Closed)
    with pytest.raises(MxClosed):
        mx.consume()


@pytest.mark.parametrize("part", ["consumer", "client"])
def test_a_merged_stream_hands_out_no_message_of_a_consumer_that_was_closed(blocking_world, part):
    topic, other = blocking_world.make_topic(), blocking_world.make_topic()
    blocking_world.produce(topic, *(b"%d" % number for number in range(100)))
    blocking_world.produce(other, b"other")
    consumers = [blocking_world.consumer(name, retry_limit=-1) for name in (topic, other)]
    with merge(*consumers) as mx:
        seen = mx.consume()
        while seen.topic != topic:
            seen = mx.consume()
        (consumers[0] if part == "consumer" else blocking_world.client).close()
        errors: list[MxError] = []
        messages: list[Message] = []
        while not errors:
            try:
                messages.append(mx.consume())
            except MxError as error:
                errors.append(error)
    assert {message.topic for message in messages} <= ({other} if part == "consumer" else set())
    assert isinstance(errors[0].__cause__, Closed)
