"""Where distributing producers put messages; on the cluster in memory."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from koff.client import (
    ConsumerConf,
    DistributingProducer,
    HashProducer,
    Message,
    ProduceError,
    RandomProducer,
    RoundRobinProducer,
)
from koff.client.key_hashes import fnv1a_partition
from koff.errors import ConfigError, ConnectError
from koff.kafkatest.doubles import MemoryBroker

KINDS = [HashProducer, RandomProducer, RoundRobinProducer]


def test_a_message_without_a_key_is_hashed_as_one_with_an_empty_key():
    assert fnv1a_partition(None, 5) == fnv1a_partition(b"", 5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_partition_in_range_is_used_and_none_beyond(kind):
    with MemoryBroker({"t": 5}) as broker:
        distributing = kind(broker.producer(), 4)
        assert isinstance(distributing, DistributingProducer)
        messages = [Message(b"v", b"key-%d" % number) for number in range(200)]
        for message in messages:
            distributing.distribute("t", message)
        used = Counter(message.partition for message in messages)
        assert set(used) == {0, 1, 2, 3}
        if kind is RoundRobinProducer:
            assert [message.partition for message in messages] == [number % 4 for number in range(200)]


@pytest.mark.parametrize("kind", [RandomProducer, RoundRobinProducer])
def test_the_messages_of_a_call_stay_together(kind):
    with MemoryBroker({"t": 4}) as broker:
        distributing = kind(broker.producer(), 4)
        for _ in range(10):
            messages = [Message(b"v") for _ in range(5)]
            assert distributing.distribute("t", *messages) == messages[0].offset
            assert len({message.partition for message in messages}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_partition_at_all_is_a_mistake(kind):
    with MemoryBroker() as broker, pytest.raises(ConfigError, match="at least one"):
        kind(broker.producer(), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_distribute_is_a_mistake(kind):
    with MemoryBroker({"t": 1}) as broker, pytest.raises(ValueError, match="no message"):
        kind(broker.producer(), 1).distribute("t")


def test_round_robin_is_fair_between_threads():
    with MemoryBroker({"t": 4}) as broker:
        distributing = RoundRobinProducer(broker.producer(), 4)

        def write() -> None:
            for _ in range(250):
                distributing.distribute("t", Message(b"x"))

        writers = [threading.Thread(target=write) for _ in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [broker.offset_latest("t", number) for number in range(4)] == [500] * 4


def test_when_one_partition_fails_the_error_speaks_of_the_messages_of_the_call():
    with MemoryBroker({"t": 2}) as broker:
        keys = [b"a", b"b", b"a", b"b"]
        assert fnv1a_partition(b"a", 2) != fnv1a_partition(b"b", 2)
        broker.fail("produce", ConnectError("away"))
        messages = [Message(b"%d" % number, key) for number, key in enumerate(keys)]
        with pytest.raises(ProduceError, match="away") as caught:
            HashProducer(broker.producer(), 2).distribute("t", *messages)
        assert (caught.value.written, caught.value.failed) == ((1, 3), (0, 2))
        written = broker.consumer(ConsumerConf("t", messages[1].partition, retry_limit=0))
        assert [message.value for message in written] == [b"1", b"3"]
