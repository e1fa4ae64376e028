"""What the cluster in memory can be told to do, beyond what every client does."""

from __future__ import annotations

import pytest

from koff.client import ConsumerConf, Message, MxError, OffsetCoordinatorConf, OffsetOutOfRange, merge
from koff.errors import ConfigError, ConnectError
from koff.kafkatest.doubles import MemoryBroker


def test_calls_fail_in_turn_as_they_are_told_and_then_no_more():
    first, second = ConnectError("first"), ConnectError("second")
    with MemoryBroker({"t": 1}) as broker:
        coordinator = broker.offset_coordinator(OffsetCoordinatorConf("g"))
        broker.fail("commit", first, second)
        for error in (first, second):
            with pytest.raises(ConnectError) as caught:
                coordinator.commit("t", 0, 1)
            assert caught.value is error
        assert coordinator.offset("t", 0) == (-1, "")
        coordinator.commit("t", 0, 1)
        assert coordinator.offset("t", 0) == (1, "")


def test_a_failure_reaches_a_consumer_that_waits_and_it_goes_on_after_that():
    with MemoryBroker({"t": 1}) as broker, merge(broker.consumer(ConsumerConf("t"))) as mx:
        broker.fail("consume", ConnectError("away"))
        with pytest.raises(MxError, match="away"):
            mx.consume()
        broker.producer().produce("t", 0, Message(b"after"))
        assert mx.consume().value == b"after"


def test_a_call_that_nobody_makes_cannot_fail():
    with MemoryBroker() as broker, pytest.raises(ConfigError, match="produce"):
        broker.fail("produced", ConnectError("x"))


def test_what_is_deleted_is_out_of_range():
    with MemoryBroker({"t": 1}) as broker:
        broker.producer().produce("t", 0, *(Message(b"%d" % number) for number in range(5)))
        behind, ahead, oldest = (
            broker.consumer(ConsumerConf("t", start_offset=start, retry_limit=0)) for start in (1, 4, -2)
        )
        broker.delete_before("t", 0, 3)
        with pytest.raises(OffsetOutOfRange) as caught:
            behind.consume()
        assert (caught.value.earliest, caught.value.latest) == (3, 5)
        assert [message.offset for message in ahead] == [4]
        assert [message.offset for message in oldest] == [3, 4]
