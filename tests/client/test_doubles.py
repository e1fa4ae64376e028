"""What the cluster in memory can be told to do, beyond what every client does."""

from __future__ import annotations

import pytest

from koff.client import (
    ConsumerConf,
    Message,
    MxError,
    NoDataInTime,
    OffsetCoordinatorConf,
    OffsetOutOfRange,
    ProduceError,
    merge,
)
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


def test_a_broker_that_is_down_is_waited_for_as_long_as_a_real_one():
    with MemoryBroker({"t": 1}) as broker:
        producer, consumer = broker.producer(), broker.consumer(ConsumerConf("t"))
        broker.go_down()
        broker.clock.call_later(20, broker.come_back)
        producer.produce("t", 0, Message(b"late"))
        assert broker.clock.now_s == 20
        broker.go_down()
        with pytest.raises(ProduceError) as caught:
            producer.produce("t", 0, Message(b"lost"), Message(b"too"))
        assert (caught.value.written, caught.value.unknown) == ((), (0, 1))
        for call in (consumer.consume, broker.metadata, lambda: broker.offset_latest("t", 0)):
            began_s = broker.clock.now_s
            with pytest.raises(ConnectError):
                call()
            assert broker.clock.now_s == began_s + 30
        broker.come_back()
        assert consumer.consume().value == b"late"


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


def test_waits_take_the_time_of_the_clock_only():
    with MemoryBroker({"t": 1}) as broker:
        consumer = broker.consumer(ConsumerConf("t", retry_limit=-1))
        with pytest.raises(NoDataInTime):
            consumer.consume(timeout_s=3600)
        assert broker.clock.now_s == 3600
        broker.clock.call_later(60, lambda: broker.producer().produce("t", 0, Message(b"later")))
        assert consumer.consume(timeout_s=3600).value == b"later"
        assert broker.clock.now_s == 3660


def test_messages_have_the_time_of_the_clock():
    with MemoryBroker({"t": 1}) as broker:
        before_ms = broker.clock.now_ms
        broker.clock.advance(5)
        broker.producer().produce("t", 0, Message(b"a"))
        assert broker.produced[0].timestamp_ms == before_ms + 5000


def test_a_call_takes_as_long_as_it_is_told():
    with MemoryBroker({"t": 1}) as broker:
        broker.delay("produce", 2.0, 3.0)
        broker.producer().produce("t", 0, Message(b"a"))
        assert broker.clock.now_s == 2
        future = broker.producer().produce_async("t", 0, Message(b"b"))
        assert not future.done()
        broker.clock.advance(2.5)
        assert not future.done()
        broker.clock.advance(0.5)
        assert future.result(0) == 1


def test_a_scripted_error_of_produce_async_is_a_produce_error_and_close_fails_what_is_left():
    broker = MemoryBroker({"t": 1})
    broker.fail("produce", ConnectError("away"))
    error = broker.producer().produce_async("t", 0, Message(b"a")).exception(0)
    assert isinstance(error, ProduceError)
    assert error.failed == (0,)
    broker.delay("produce", 9.0)
    late = broker.producer().produce_async("t", 0, Message(b"a"), Message(b"b"))
    broker.close()
    assert isinstance(late.exception(0), ProduceError)


def test_calls_and_messages_are_recorded():
    with MemoryBroker({"t": 1}) as broker:
        broker.producer().produce("t", 0, Message(b"a", b"k"))
        broker.fail("commit", ConnectError("away"))
        with pytest.raises(ConnectError):
            broker.offset_coordinator(OffsetCoordinatorConf("g")).commit("t", 0, 1)
        assert [call.name for call in broker.calls] == ["produce", "commit"]
        assert broker.calls[0].arguments["topic"] == "t"
        assert broker.calls[0].error is None
        assert broker.calls[1].arguments["offsets"] == {("t", 0): 1}
        assert str(broker.calls[1].error) == "away"
        assert [(each.key, each.value, each.offset) for each in broker.produced] == [(b"k", b"a", 0)]
