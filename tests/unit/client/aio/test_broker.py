"""Producers keep the order of calls, and say what became of messages; commits never overtake each other."""

from __future__ import annotations

import asyncio

import pytest

from koff import aio
from koff.client import Message, OffsetCoordinatorConf, ProduceError, TopicPartition
from koff.kafkatest.doubles import MemoryBroker
from tests.event_loops import cancel, in_loop, until


@in_loop
async def test_calls_that_are_made_together_are_written_in_their_order():
    async with aio.Broker(lambda: MemoryBroker({"t": 1})) as broker, broker.producer() as producer:
        messages = [Message(b"%d" % number) for number in range(300)]
        offsets = await asyncio.gather(*(producer.produce("t", 0, message) for message in messages))
        assert offsets == list(range(300))


@in_loop
async def test_a_call_that_is_late_says_which_messages_may_still_be_written():
    memory = MemoryBroker({"t": 1})
    async with aio.Broker(lambda: memory) as broker, broker.producer() as producer:
        memory.delay("produce", 5.0)
        with pytest.raises(ProduceError, match=r"not acknowledged within 0.01 s") as caught:
            await producer.produce("t", 0, Message(b"a"), Message(b"b"), timeout_s=0.01)
        assert (caught.value.written, caught.value.failed, caught.value.unknown) == ((), (), (0, 1))
        memory.clock.advance(5.0)
        assert [message.value for message in memory.produced] == [b"a", b"b"]


@in_loop
async def test_a_call_that_was_late_before_it_was_sent_has_failed():
    memory = MemoryBroker({"t": 1})
    async with aio.Broker(lambda: memory) as broker, broker.producer() as producer:
        with memory.clock.changed:  # holds up the first call
            first = asyncio.create_task(producer.produce("t", 0, Message(b"first")))
            await until(lambda: producer._under_way)
            with pytest.raises(ProduceError) as caught:
                await producer.produce("t", 0, Message(b"late"), timeout_s=0.01)
        assert await first == 0
        assert (caught.value.failed, caught.value.unknown) == ((0,), ())
        assert len(memory.produced) == 1


@in_loop
async def test_the_messages_of_a_call_that_is_cancelled_may_be_written_and_the_next_call_comes_after_it():
    memory = MemoryBroker({"t": 1})
    async with aio.Broker(lambda: memory) as broker, broker.producer() as producer:
        with memory.clock.changed:
            first = asyncio.create_task(producer.produce("t", 0, Message(b"first")))
            await until(lambda: producer._under_way)
            await cancel(first)
            second = asyncio.create_task(producer.produce("t", 0, Message(b"second")))
            await asyncio.sleep(0)
        assert await second == 1
        assert [message.value for message in memory.produced] == [b"first", b"second"]


@in_loop
async def test_a_commit_that_was_cancelled_does_not_overwrite_a_later_one():
    memory = MemoryBroker({"t": 1})
    async with (
        aio.Broker(lambda: memory) as broker,
        broker.offset_coordinator(OffsetCoordinatorConf("g")) as coordinator,
    ):
        with memory.clock.changed:
            first = asyncio.create_task(coordinator.commit("t", 0, 5))
            await until(lambda: coordinator._under_way)
            await cancel(first)
            second = asyncio.create_task(coordinator.commit_offsets({TopicPartition("t", 0): 9}, "last"))
            await asyncio.sleep(0)
        await second
        assert await coordinator.offset("t", 0) == (9, "last")
        assert [call.arguments["offsets"] for call in memory.calls if call.name == "commit"] == [
            {("t", 0): 5},
            {("t", 0): 9},
        ]
