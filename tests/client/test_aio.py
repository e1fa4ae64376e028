"""The client for asyncio on a real Kafka. tests/client/test_contract*.py show that it keeps the contracts."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest

from koff import aio
from koff.client import BrokerConf, ClusterConf, ConsumerConf, Message, ProduceError
from koff.client.multicluster import ReaderConf, WriterConf
from koff.client.zookeeper import AlreadyClosing, ConsumerGroupConf
from tests.event_loops import cancel, in_loop, measure_delays, until

pytestmark = pytest.mark.kafka
COUNT = 10_000
BLOCKED_S = 0.05
"""A call that waits for a broker in the loop's thread blocks it for longer."""


@in_loop
async def test_ten_thousand_messages_are_read_once_by_tasks_that_are_cancelled_and_the_loop_is_never_blocked(
    kafka,
):
    topic, dice, seen = kafka.create_topic(), random.Random(3), list[int]()

    async def read(consumer: aio.Consumer) -> None:
        while len(seen) < COUNT:
            if dice.random() < 0.9:
                seen.append((await consumer.consume()).offset)
            else:
                seen.extend((await consumer.consume_batch(100)).offsets())

    async def write(producer: aio.Producer) -> None:
        for start in range(0, COUNT, 100):
            await asyncio.gather(
                *(producer.produce(topic, 0, *(Message(b"x") for _ in range(10))) for _ in range(10))
            )
            assert await broker.offset_latest(topic, 0) >= start + 100

    async with (
        aio.dial(kafka.bootstrap) as broker,
        broker.producer() as producer,
        broker.consumer(ConsumerConf(topic)) as consumer,
        measure_delays() as late_s,
    ):
        writing = asyncio.create_task(write(producer))
        while len(seen) < COUNT:
            reading = asyncio.create_task(read(consumer))
            await asyncio.wait([reading], timeout=dice.random() * 0.05)
            reading.cancel()
            await asyncio.wait([reading])
        await writing
    assert seen == list(range(COUNT))
    late_s.sort()
    assert late_s[int(len(late_s) * 0.98)] < BLOCKED_S


@in_loop
async def test_a_writer_and_a_reader_with_a_group_have_all_messages(kafka):
    topic, clusters = kafka.create_topic(partitions=2), {"east": ClusterConf(kafka.bootstrap)}
    async with aio.Writer(clusters, WriterConf(topic)) as writer:
        calls = [[Message(b"%d" % (10 * n + i)) for i in range(10)] for n in range(100)]
        await asyncio.gather(*(writer.write_messages(*messages) for messages in calls))
    values = set[bytes | None]()
    async with aio.Reader(clusters, ReaderConf(topic, group_id=f"g-{topic}")) as reader:
        async for messages in reader:
            values |= {message.value for message in messages}
            if len(values) == 1000:
                break
        assert reader.stats(0).messages == 1000
    assert values == {b"%d" % number for number in range(1000)}


@in_loop
async def test_two_members_of_a_group_in_one_loop_share_the_partitions(kafka, koff_zookeeper):
    topic, group, seen = kafka.create_topic(partitions=4), f"g-{uuid.uuid4().hex[:8]}", set[tuple[int, int]]()
    conf = ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap))

    def join() -> aio.ConsumerGroup:
        return aio.join_consumer_group(group, topic, koff_zookeeper.hosts, conf)

    async def work(member: aio.ConsumerGroup) -> None:
        async for message in member:
            seen.add((message.partition, message.offset))
            message.ack()

    async with aio.dial(kafka.bootstrap) as broker, broker.producer() as producer:
        one, two = await asyncio.gather(join(), join())
        working = [asyncio.create_task(work(member)) for member in (one, two)]
        await until(lambda: len(one.claims) == len(two.claims) == 2)
        for partition in range(4):
            await producer.produce(topic, partition, *(Message(b"x") for _ in range(50)))
        await until(lambda: len(seen) == 200)
        await two.close()
        await until(lambda: len(one.claims) == 4)
        await producer.produce(topic, 0, Message(b"last"))
        await until(lambda: (0, 50) in seen)
        await one.close()
        await asyncio.gather(*working)


@in_loop
async def test_a_member_that_is_closed_in_its_loop_does_not_wait_for_the_message_it_processes(
    kafka, koff_zookeeper
):
    topic, conf = kafka.create_topic(), ConsumerGroupConf(cluster=ClusterConf(kafka.bootstrap))
    async with (
        aio.dial(kafka.bootstrap) as broker,
        broker.producer() as producer,
        aio.join_consumer_group(f"g-{topic}", topic, koff_zookeeper.hosts, conf) as group,
    ):
        await producer.produce(topic, 0, Message(b"a"), Message(b"b"))
        async for message in group:
            await group.close()
            with pytest.raises(AlreadyClosing):
                await group.close()
            assert not group.closed
            message.ack()
        assert message.value == b"a"
    assert group.closed


@in_loop
async def test_a_broker_that_is_killed_costs_no_acknowledged_message_and_closing_does_not_wait_for_it(
    more_kafka,
):
    kafka = more_kafka()
    topic = kafka.create_topic()
    written, seen = list[int | None](), list[int]()

    async def write(producer: aio.Producer) -> None:
        while True:
            try:
                written.append(await producer.produce(topic, 0, Message(b"x")))
            except ProduceError:
                continue

    async def read(consumer: aio.Consumer) -> None:
        async for message in consumer:
            seen.append(message.offset)

    async with aio.dial(kafka.bootstrap, BrokerConf(dial_timeout_s=3)) as broker:
        producer, consumer = await broker.producer(), await broker.consumer(ConsumerConf(topic))
        writing, reading = asyncio.create_task(write(producer)), asyncio.create_task(read(consumer))
        await until(lambda: len(written) > 20)
        await asyncio.to_thread(kafka.kill)
        before = len(written)
        await asyncio.to_thread(kafka.nodes[0].start)
        await until(lambda: len(written) > before + 20)
        await cancel(writing)
        await until(lambda: written[-1] in seen)
        assert {each for each in written if each is not None} <= set(seen)
        assert seen == sorted(set(seen))
        await asyncio.to_thread(kafka.kill)
        waiting = asyncio.create_task(broker.metadata())
        await until(lambda: broker._under_way)
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], Exception)
    await reading
