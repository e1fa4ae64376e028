"""What a member of a group on ZooKeeper keeps: the same tests for the double and for a real ZooKeeper."""

from __future__ import annotations

import inspect
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from koff import aio
from koff.client import Client, ClusterConf, ConsumerConf, Message, dial
from koff.client.zookeeper import (
    AlreadyClosing,
    ClaimLost,
    ConsumerGroup,
    ConsumerGroupConf,
    PartitionError,
    Redelivery,
    UncleanClose,
    join_consumer_group,
)
from koff.errors import ConfigError, KoffError
from koff.kafkatest import wait_until
from koff.kafkatest.doubles import MemoryBroker, MemoryConsumerGroup, MemoryZooKeeper
from tests.client.blocking import open_in_loop, run_loop
from tests.client.conftest import ALL_SIDES, SIDES


@dataclass
class World:
    """A cluster, and how to join a group there."""

    client: Client
    cluster: str
    make_topic: Callable[..., str]
    join: Callable[..., Any]
    group: str
    create_again: Callable[[str], object]
    """Deletes the topic, and creates it again with one partition."""

    def join_group(self, *topics: str, **conf: Any) -> Any:
        return self.join(self.group, topics, conf)

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        self.client.producer().produce(topic, partition, *map(Message, values))


@contextmanager
def make_world(side: str, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world of one of `ALL_SIDES`."""
    with ExitStack() as opened:
        if side.endswith("memory"):
            memory, names = MemoryBroker(), iter(range(1000))
            client: Any = memory
            cluster, hosts, create_again = "memory:9092", "memory", memory.create_topic
            join: Callable[..., Any] = MemoryZooKeeper(memory).join_consumer_group

            def make_topic(partitions: int = 1) -> str:
                return memory.create_topic(f"t-{next(names)}", partitions)

        else:
            kafka, hosts = request.getfixturevalue("kafka"), request.getfixturevalue("koff_zookeeper").hosts
            client, join = dial(kafka.bootstrap), join_consumer_group
            cluster, create_again = kafka.bootstrap, kafka.create_topic_again

            def make_topic(partitions: int = 1) -> str:
                return str(kafka.create_topic(partitions=partitions))

        loop = opened.enter_context(run_loop()) if side.startswith("aio") else None

        def join_group(name: str, topics: Sequence[str], options: Mapping[str, Any]) -> Any:
            conf = ConsumerGroupConf(cluster=ClusterConf(cluster), **options)
            if loop is None:
                return join(name, topics, hosts, conf)
            return open_in_loop(loop, lambda: aio.join_consumer_group(name, topics, hosts, conf, join))

        opened.enter_context(client)
        yield World(client, cluster, make_topic, join_group, f"g-{uuid.uuid4().hex[:8]}", create_again)


@pytest.fixture(params=ALL_SIDES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with make_world(request.param, request) as made:
        yield made


@pytest.fixture(params=SIDES)
def blocking_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """For what has another rule for tasks: see tests/client/test_aio.py."""
    with make_world(request.param, request) as made:
        yield made


def take(group: Any, count: int) -> list[Message]:
    """The next messages, acknowledged."""
    messages = []
    for message in islice(group.messages(), count):
        message.ack()
        messages.append(message)
    return messages


def test_the_double_has_every_public_method_of_a_member():
    internal = {"join", "abandon", "cluster", "commit_interval_s"}
    for name, method in vars(ConsumerGroup).items():
        if name.startswith("_") or name in internal:
            continue
        double = inspect.getattr_static(MemoryConsumerGroup, name)
        if inspect.isfunction(method):
            ours, theirs = inspect.signature(double), inspect.signature(method)
            assert list(ours.parameters) == list(theirs.parameters), name


def test_a_member_gets_all_messages_and_the_next_one_what_was_not_acknowledged(world):
    topic = world.make_topic(partitions=2)
    for partition in (0, 1):
        world.produce(topic, b"a", b"b", b"c", partition=partition)
    with world.join_group(topic) as group:
        messages = take(group, 4)
        assert {message.topic for message in messages} == {topic}
        assert group.instance_registered()
        assert set(group.claims) == {(topic, 0), (topic, 1)}
    assert group.closed
    assert not group.owns(topic, 0)
    with world.join_group(topic) as group:
        rest = take(group, 2)
    places = [(message.partition, message.offset) for message in messages + rest]
    assert sorted(places) == [(partition, offset) for partition in (0, 1) for offset in (0, 1, 2)]


def test_a_dead_letter_says_where_it_came_from_and_why_it_failed(world):
    topic, letters = world.make_topic(), world.make_topic()
    sent = Message(b"v", b"k", headers=(("h", b"1"),), timestamp_ms=1_700_000_000_000)
    world.client.producer().produce(topic, 0, sent)
    redelivery = Redelivery(first_s=0.0, dead_letter_topic=letters)
    with world.join_group(topic, redelivery=redelivery, max_redeliveries=0) as group:
        message = next(group.messages())
        assert message.cluster == world.cluster
        message.nack(ValueError("bad"))
    with world.client.consumer(ConsumerConf(letters)) as consumer:
        letter = consumer.consume()
    assert (letter.value, letter.key, letter.timestamp_ms) == (b"v", b"k", sent.timestamp_ms)
    assert letter.headers == (
        ("h", b"1"),
        ("koff-group", world.group.encode()),
        ("koff-topic", topic.encode()),
        ("koff-partition", b"0"),
        ("koff-offset", b"0"),
        ("koff-deliveries", b"1"),
        ("koff-cause", b"ValueError('bad')"),
    )


def test_a_text_is_one_topic(world):
    topic = world.make_topic()
    world.produce(topic, b"a")
    with world.join(world.group, topic, {}) as group:
        assert group.topics == (topic,)
        assert take(group, 1)[0].value == b"a"


def test_a_group_that_starts_at_the_newest_offset_gets_what_is_written_after_joining(world):
    topic = world.make_topic(partitions=2)
    for partition in (0, 1):
        world.produce(topic, b"old", partition=partition)
    with world.join_group(topic, initial_offset="newest") as group:
        for partition in (0, 1):
            world.produce(topic, b"new", partition=partition)
        assert [message.value for message in take(group, 2)] == [b"new", b"new"]


def test_a_topic_that_is_created_again_is_read_from_its_start(world):
    topic = world.make_topic()
    world.produce(topic, *(b"old" for _ in range(50)))
    with world.join_group(topic, commit_interval_s=0.1) as group:
        old = take(group, 50)
        group.flush_offsets()
        world.create_again(topic)
        world.produce(topic, *(b"%d" % number for number in range(100)))
        seen: set[bytes | None] = set()
        for message in group.messages():
            message.ack()
            seen.add(message.value)
            if len(seen) >= 100 and message.offset == 99:
                break
        assert {b"%d" % number for number in range(100)} <= seen
        assert "created again" in str(next(group.errors()))
    world.produce(topic, b"next")
    with world.join_group(topic) as group:  # the offsets of the new log were committed
        assert [message.offset for message in take(group, 1)] == [100]
    assert len(old) == 50


def test_close_in_the_loop_ends_it_and_the_last_offset_is_committed(blocking_world):
    topic = blocking_world.make_topic()
    blocking_world.produce(topic, b"a", b"b")
    with blocking_world.join_group(topic) as group:
        for message in group.messages():
            group.commit_up_to(message)
            if message.offset == 1:
                group.close()
    assert group.wait_closed(60)
    with pytest.raises(AlreadyClosing):
        group.close()
    blocking_world.produce(topic, b"c")
    with blocking_world.join_group(topic) as group:
        assert [message.value for message in take(group, 1)] == [b"c"]


def test_close_from_another_thread_ends_a_wait(world):
    topic = world.make_topic()
    group = world.join_group(topic)
    seen: list[object] = []
    waiting = [
        threading.Thread(target=lambda each=each: seen.extend(each))
        for each in (group.messages(), group.errors())
    ]
    for thread in waiting:
        thread.start()
    group.close()
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()
    assert seen == []


def test_a_message_that_is_not_acknowledged_makes_the_close_unclean_and_comes_again(world):
    topic = world.make_topic()
    world.produce(topic, b"a", b"b")
    group = world.join_group(topic, processing_timeout_s=0.1)
    first, second = list(islice(group.messages(), 2))
    first.ack()
    with pytest.raises(UncleanClose, match="up to 1 were handed out"):
        group.close()
    with pytest.raises(ClaimLost):
        group.commit_up_to(second)
    with world.join_group(topic) as group:
        assert [message.value for message in take(group, 1)] == [b"b"]


def test_a_message_that_failed_comes_again_and_is_passed_over_in_the_end(world):
    topic = world.make_topic()
    world.produce(topic, b"bad", b"good")
    redelivery = Redelivery(first_s=0.1, factor=1, longest_s=0.1)
    with world.join_group(topic, max_redeliveries=2, redelivery=redelivery) as group:
        seen = []
        for message in group.messages():
            seen.append(message.value)
            if message.value == b"bad":
                message.value = b"spoilt"  # the next delivery is as it was in the log
                message.nack(RuntimeError(f"attempt {seen.count(b'bad')}"))
            else:
                message.ack()
            if len(seen) == 4:
                break
        assert sorted(seen) == [b"bad", b"bad", b"bad", b"good"]
        error = next(group.errors())
        assert isinstance(error, PartitionError)
        assert (error.topic, error.partition, error.message.offset) == (topic, 0, 0)
        assert isinstance(error.__cause__, RuntimeError)
        assert "attempt 3" in str(error)
        assert (group.redelivery_counts.redelivered, group.redelivery_counts.passed_over) == (2, 1)
    world.produce(topic, b"next")
    with world.join_group(topic) as group:
        assert [message.value for message in take(group, 1)] == [b"next"]


def test_two_members_share_the_partitions_and_the_last_one_gets_all(world):
    topic = world.make_topic(partitions=4)
    first, second = world.join_group(topic), world.join_group(topic)
    stop = threading.Event()

    def work(group: Any) -> None:
        with suppress(KoffError):
            for message in group.messages():
                message.ack()

    threads = [threading.Thread(target=work, args=(group,), daemon=True) for group in (first, second)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(first.claims) == len(second.claims) == 2, what="two partitions each")
    assert not set(first.claims) & set(second.claims)
    second.close()
    wait_until(lambda: len(first.claims) == 4, what="all partitions")
    first.close()
    stop.set()
    for thread in threads:
        thread.join(60)


def test_a_new_group_starts_at_the_newest_message_if_it_is_told(world):
    topic = world.make_topic()
    world.produce(topic, b"before")
    seen: list[Message] = []
    with world.join_group(topic, initial_offset="newest") as group:
        reading = threading.Thread(target=lambda: seen.extend(take(group, 1)))
        reading.start()

        def has_read() -> bool:  # where the member starts is not known: it is soon after it has joined
            world.produce(topic, b"after")
            return bool(seen)

        wait_until(has_read, what="a message")
        reading.join(60)
    assert seen[0].value == b"after"


def test_a_group_without_a_name_or_topics_is_refused(world):
    for name, topics in (("", ["t"]), ("a/b", ["t"]), ("g", [])):
        with pytest.raises(ConfigError, match="a group needs a name"):
            world.join(name, topics, {})


def test_a_lost_session_of_the_double_ends_its_claims_and_its_messages_come_again():
    broker = MemoryBroker({"t": 1})
    zookeeper = MemoryZooKeeper(broker)
    broker.producer().produce("t", 0, Message(b"a"))
    with zookeeper.join_consumer_group("g", ["t"]) as group:
        message = next(group.messages())
        zookeeper.expire_session(group)
        message.ack()
        assert take(group, 1)[0].value == b"a"
    assert zookeeper.offsets == {("g", "t", 0): 1}


def test_a_commit_of_the_double_fails_as_it_is_told():
    broker = MemoryBroker({"t": 1})
    broker.producer().produce("t", 0, Message(b"a"))
    group = MemoryZooKeeper(broker).join_consumer_group("g", ["t"])
    take(group, 1)
    broker.fail("commit", KoffError("of the test"), KoffError("of the test"))
    with pytest.raises(KoffError, match="of the test"):
        group.flush_offsets()
    with pytest.raises(UncleanClose, match="of the test"):
        group.close()
