"""Members of a group in one loop, and how they leave it."""

from __future__ import annotations

import asyncio
import time

import pytest

from koff import aio
from koff.client import Closed, Message, NoDataInTime
from koff.client.zookeeper import AlreadyClosing, ConsumerGroupConf, PartitionError, Redelivery, UncleanClose
from koff.kafkatest.doubles import MemoryBroker, MemoryZooKeeper
from tests.event_loops import cancel, in_loop, until


class Place:
    def __init__(self, partitions: int = 1) -> None:
        self.memory = MemoryBroker({"t": partitions, "letters": 1})
        self.zookeeper = MemoryZooKeeper(self.memory)

    def write(self, *values: bytes, partition: int = 0) -> None:
        self.memory.producer().produce("t", partition, *map(Message, values))

    def join(self, **conf: object) -> aio.ConsumerGroup:
        options = ConsumerGroupConf(**conf)  # type: ignore[arg-type]  # the tests know
        return aio.join_consumer_group("g", "t", "memory", options, self.zookeeper.join_consumer_group)


@in_loop
async def test_a_read_that_was_cancelled_has_taken_no_message_that_the_close_would_wait_for():
    place = Place()
    async with place.join() as group:
        waiting = asyncio.create_task(group.consume())
        await until(lambda: group._under_way)
        await cancel(waiting)
        place.write(b"a")
        await until(lambda: not group._under_way)
    async with place.join() as group:
        async for message in group:
            assert message.value == b"a"
            message.ack()
            break
    assert place.zookeeper.offsets == {("g", "t", 0): 1}


@in_loop
async def test_close_in_the_loop_ends_it_after_the_message_and_the_block_waits_for_the_shutdown():
    place = Place()
    place.write(b"a", b"b", b"c")
    async with place.join() as group:
        messages = group.messages()
        (await anext(messages)).ack()
        with place.memory.clock.changed:  # the shutdown is held up
            await group.close()
            assert [message async for message in messages] == []
        with pytest.raises(AlreadyClosing):
            await group.close()
    assert group.closed
    assert await group.wait_closed()
    assert place.zookeeper.offsets == {("g", "t", 0): 1}


@in_loop
async def test_close_by_a_task_that_left_its_loop_waits_and_says_what_was_not_processed():
    place = Place()
    place.write(b"a")
    group = await place.join(processing_timeout_s=0.1)
    message = await anext(group.messages())
    with pytest.raises(UncleanClose, match="up to 0 were handed out"):
        await group.close()
    with pytest.raises(Closed):
        await group.consume()
    assert [error async for error in group.errors()]
    assert message.value == b"a"


@in_loop
async def test_a_task_that_is_cancelled_leaves_its_group_without_waiting():
    place, has_joined = Place(), asyncio.Event()
    place.write(b"a")

    async def work() -> None:
        async with place.join() as group:
            async for _ in group:
                has_joined.set()

    working = asyncio.create_task(work())
    await has_joined.wait()
    began_s = time.monotonic()
    await cancel(working)
    assert time.monotonic() - began_s < 30  # not `processing_timeout_s`
    assert place.memory.clock.now_s == 0
    assert place.zookeeper.members["g"] == []


@in_loop
async def test_two_members_share_the_partitions_and_one_gets_all_when_the_other_leaves():
    place = Place(partitions=4)
    seen: dict[str, set[int]] = {}

    async def work(group: aio.ConsumerGroup) -> None:
        async for message in group:
            seen.setdefault(group.id, set()).add(message.partition)
            message.ack()

    async with place.join() as one, await place.join() as two:
        working = [asyncio.create_task(work(group)) for group in (one, two)]
        await until(lambda: len(one.claims) == len(two.claims) == 2)
        for partition in range(4):
            place.write(b"x", partition=partition)
        await until(lambda: sum(map(len, seen.values())) == 4)
        assert {len(partitions) for partitions in seen.values()} == {2}
        assert await one.owns("t", 0) != await two.owns("t", 0)
        await two.close()
        await until(lambda: len(one.claims) == 4)
        await one.flush_offsets()
        assert await one.instance_registered()
        await one.close()
        await asyncio.gather(*working)


@in_loop
async def test_a_dead_letter_is_written_by_a_thread_and_a_late_read_says_so():
    place = Place()
    place.write(b"bad")
    redelivery = Redelivery(dead_letter_topic="letters")
    async with place.join(max_redeliveries=0, redelivery=redelivery) as group:
        message = await group.consume(timeout_s=60)
        with place.memory.clock.changed:  # the write is held up
            message.nack(RuntimeError("of the test"))
            assert len(place.memory.produced) == 1
        assert isinstance(await anext(group.errors()), PartitionError)
        with pytest.raises(NoDataInTime):
            await group.consume(timeout_s=5)
        again = Message()
        again.nack()  # of no source
        assert group.redelivery_counts.dead_letters == 1
        assert (group.name, group.topics) == ("g", ("t",))


@in_loop
async def test_a_message_may_be_acknowledged_by_a_thread_too():
    place = Place()
    place.write(b"a", b"b")
    async with place.join() as group:
        first, second = await group.consume(), await group.consume()
        await asyncio.to_thread(first.nack)
        group.commit_up_to(second)
    assert place.zookeeper.offsets == {("g", "t", 0): 2}
