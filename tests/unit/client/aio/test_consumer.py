"""A cancelled read loses nothing, whatever comes after it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from koff import aio
from koff.client import ConsumerConf, Message, NoData, NoDataInTime
from koff.errors import ConfigError, ConnectError
from koff.kafkatest.doubles import MemoryBroker
from tests.event_loops import cancel, in_loop, until

COUNT = 2000


class Place:
    """A topic in memory, with a consumer of it."""

    async def __aenter__(self) -> Place:
        self.memory = MemoryBroker({"t": 1})
        self.broker = await aio.Broker(lambda: self.memory)
        self.consumer = await self.broker.consumer(ConsumerConf("t"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.close()

    def write(self, *values: bytes) -> None:
        self.memory.producer().produce("t", 0, *map(Message, values))

    async def begin_wait(self) -> asyncio.Task[Message]:
        """A task that waits for a message, in a thread."""
        task = asyncio.create_task(self.consumer.consume())
        await until(lambda: self.consumer._under_way)
        return task


@in_loop
async def test_the_message_that_a_cancelled_task_waited_for_is_the_next():
    async with Place() as place:
        await cancel(await place.begin_wait())
        place.write(b"a", b"b")
        assert (await place.consumer.consume()).value == b"a"
        assert (await place.consumer.consume_batch()).values() == [b"b"]


@in_loop
async def test_the_error_that_a_cancelled_task_waited_for_is_raised_by_the_next_read():
    async with Place() as place:
        await cancel(await place.begin_wait())
        place.memory.fail("consume", ConnectError("of the test"))
        await until(lambda: not place.consumer._under_way)
        with pytest.raises(ConnectError, match="of the test"):
            await place.consumer.consume()
        place.write(b"a")
        assert (await place.consumer.consume()).value == b"a"


@in_loop
async def test_reads_that_are_cancelled_at_any_moment_lose_and_repeat_nothing(monkeypatch):
    monkeypatch.setattr("koff.client.aio.turns._LONGEST_S", -1.0)  # each read lets other tasks run
    dice, seen = random.Random(1), list[int]()

    async def read(place: Place) -> None:
        while len(seen) < COUNT:
            if dice.random() < 0.5:
                seen.append((await place.consumer.consume()).offset)
            else:
                seen.extend((await place.consumer.consume_batch(7)).offsets())

    async with Place() as place:
        for start in range(0, COUNT, 20):
            place.write(*(b"%d" % number for number in range(start, start + 20)))
            with suppress(TimeoutError):
                async with asyncio.timeout(dice.random() * 0.002):
                    await read(place)
        await read(place)
    assert seen == list(range(COUNT))


@in_loop
async def test_a_seek_ends_the_read_of_a_cancelled_task_and_drops_what_it_read():
    async with Place() as place:
        place.write(b"0", b"1", b"2")
        assert (await place.consumer.consume()).offset == 0
        assert await place.consumer.position() == 1
        await place.consumer.consume_batch()
        await cancel(await place.begin_wait())
        assert await place.consumer.position() == 3
        await cancel(await place.begin_wait())
        place.write(b"3")
        await until(lambda: not place.consumer._under_way)
        await place.consumer.seek(1)
        assert [(await place.consumer.consume()).offset for _ in range(3)] == [1, 2, 3]


@in_loop
async def test_a_task_that_waits_goes_on_where_another_one_has_sought():
    async with Place() as place:
        place.write(b"0", b"1")
        await place.consumer.consume_batch()
        waiting = await place.begin_wait()
        with pytest.raises(ConfigError, match="-9 is no offset"):
            await place.consumer.seek(-9)
        await place.consumer.seek(1)
        assert (await waiting).offset == 1


@in_loop
async def test_a_read_that_is_late_leaves_the_wait_of_another_task_alone():
    async with Place() as place:
        waiting = await place.begin_wait()
        for call in (place.consumer.consume, place.consumer.consume_batch):
            with pytest.raises(NoDataInTime):
                await call(timeout_s=0.01)
        another = asyncio.create_task(place.consumer.consume())
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(place.consumer._under_way) == 1, "one thread waits for all tasks"
        place.write(b"a", b"b")
        assert {message.value for message in await asyncio.gather(waiting, another)} == {b"a", b"b"}
        with pytest.raises(ConfigError, match="a batch of 0 messages"):
            await place.consumer.consume_batch(0)


@in_loop
async def test_an_iteration_goes_on_after_it_was_cancelled_and_ends_with_the_data():
    async with Place() as place:
        messages = aiter(await place.broker.consumer(ConsumerConf("t", retry_limit=0)))
        place.write(b"a")
        assert (await anext(messages)).value == b"a"
        assert [message async for message in messages] == []
        endless = aiter(place.consumer)
        await anext(endless)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(endless), 0.01)
        place.write(b"b")
        assert (await anext(endless)).value == b"b"
        await place.consumer.close()
        assert [message async for message in endless] == []


@in_loop
async def test_other_tasks_have_their_turn_while_messages_are_there():
    async with Place() as place:
        place.write(*(b"x" for _ in range(20_000)))
        turns, seen = 0, 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        async for _ in place.consumer:
            seen += 1
            if seen == 20_000:
                break
        await cancel(counting)
        assert turns > 10


@in_loop
async def test_no_data_comes_as_of_the_blocking_client():
    async with Place() as place, place.broker.consumer(ConsumerConf("t", retry_limit=1)) as consumer:
        with pytest.raises(NoData):
            await consumer.consume()
        assert consumer.skipped == 0
