"""What every `Consumer` keeps, in memory and on a real Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from koff.client import (
    Closed,
    Consumer,
    ConsumerConf,
    Message,
    NoData,
    NoDataInTime,
    OffsetOutOfRange,
    StartOffset,
    TopicRecreated,
    UnknownTopic,
    Woken,
)
from koff.errors import ConfigError, KoffError
from koff.kafkatest import wait_until


def test_a_message_has_the_name_of_its_cluster(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    consumer = world.consumer(topic)
    assert consumer.consume().cluster == world.cluster
    assert consumer.consume_batch()[0].cluster == world.cluster


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
            assert [part.offsets() for part in batch.split(1)] == [batch.offsets()[:1], batch.offsets()[1:]]
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
        consumer.seek("oldest")
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


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_of_no_messages_is_refused(world, count):
    topic = world.make_topic()
    world.produce(topic, b"x")
    consumer = world.consumer(topic)
    with pytest.raises(ConfigError, match=f"a batch of {count} messages"):
        consumer.consume_batch(count)
    assert consumer.consume().value == b"x"


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


def test_a_wait_is_ended_by_wake_and_the_next_one_goes_on(blocking_world):
    topic = blocking_world.make_topic()
    with blocking_world.consumer(topic, retry_limit=-1) as consumer:
        ended: list[BaseException | None] = []
        waiting = threading.Thread(target=lambda: ended.append(raised_by(consumer.consume)))
        waiting.start()
        consumer.wake()
        waiting.join(60)
        assert isinstance(ended[0], Woken)
        consumer.wake()  # nobody waits: it is for the next one who does
        with pytest.raises(Woken, match=topic):
            consumer.consume_batch()
        blocking_world.produce(topic, b"a")
        assert consumer.consume().value == b"a"


def raised_by(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except KoffError as error:
        return error
    return None


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
