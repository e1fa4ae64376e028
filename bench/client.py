"""koff.client and koff.aio beside confluent-kafka, aiokafka and kafka-python: same broker, same run.

Prints JSON: messages and megabytes a second of each, the median of `--rounds` taken in turns, and the ratio
to confluent-kafka used plainly. What each does:

- `produce`: writes batches of `--batch` messages with all acknowledgements, and learns each message's offset.
  Plainly, that is a call a message; `confluent_batch` is the quickest that confluent-kafka has.
- `consume`: reads a partition in batches, and takes out the values. Plainly, these have 10,000 messages;
  `confluent_small` has as few as koff. `merge`: eight partitions at once.
- `messages`: looks at one message at a time, at its value and its offset.

aiokafka and kafka-python are left out where they are not installed.

    python -m bench.client --messages 300000 --size 100 --size 1000
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
import confluent_kafka

from koff import aio
from koff.client import Broker, ConsumerConf, Message, dial, merge
from koff.client.batch import BATCH_MESSAGES
from koff.kafkatest import LocalKafka

PARTITIONS = 8
AT_ONCE = 10_000
PLAIN = "confluent"
PAUSE_S = 0.1
"""The pause before each measurement. koff's consumers share a connection, on which the broker holds the last
fetch of the consumer before, at the end of the partition, for 50 ms. The other clients connect anew."""


@dataclass
class Work:
    """What each side has to do: write `count` messages to partition 0 of `sink`, or read as many."""

    bootstrap: str
    broker: Broker
    one: str
    eight: str
    sink: str
    count: int
    value: bytes
    batch: int

    def batches(self) -> range:
        return range(0, self.count, self.batch)


def produce_koff(work: Work) -> None:
    producer, messages = work.broker.producer(), [Message(work.value) for _ in range(work.batch)]
    for _ in work.batches():
        producer.produce(work.sink, 0, *messages)
        assert messages[-1].offset >= 0


async def produce_aio(work: Work) -> None:
    messages = [Message(work.value) for _ in range(work.batch)]
    broker = await aio.Broker(lambda: work.broker)
    producer = await broker.producer()
    for _ in work.batches():
        await producer.produce(work.sink, 0, *messages)
        assert messages[-1].offset >= 0


def new_producer(work: Work) -> Any:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 1,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
        }
    )


def produce_confluent(work: Work) -> None:
    producer, offsets = new_producer(work), list[int]()
    for _ in work.batches():
        for _ in range(work.batch):
            producer.produce(
                work.sink,
                work.value,
                partition=0,
                on_delivery=lambda error, message: offsets.append(message.offset()),
            )
            producer.poll(0)
        producer.flush()
    assert len(offsets) >= work.count


def produce_confluent_batch(work: Work) -> None:
    producer, offsets = new_producer(work), list[int]()
    for _ in work.batches():
        values = [{"value": work.value} for _ in range(work.batch)]
        producer.produce_batch(
            work.sink,
            values,
            partition=0,
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
        producer.flush()
    assert len(offsets) >= work.count


async def produce_aiokafka(work: Work) -> None:
    from aiokafka import AIOKafkaProducer

    options = {"acks": "all", "enable_idempotence": True, "linger_ms": 5}
    async with AIOKafkaProducer(bootstrap_servers=work.bootstrap, **options) as producer:
        for _ in work.batches():
            calls = [await producer.send(work.sink, work.value, partition=0) for _ in range(work.batch)]
            for call in calls:
                assert (await call).offset >= 0


def produce_kafka_python(work: Work) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=work.bootstrap, acks="all", linger_ms=5)
    for _ in work.batches():
        calls = [producer.send(work.sink, work.value, partition=0) for _ in range(work.batch)]
        for call in calls:
            assert call.get(60).offset >= 0
    producer.close()


def consume_koff(work: Work) -> None:
    count = work.count
    with work.broker.consumer(ConsumerConf(work.one)) as consumer:
        while count > 0:
            count -= len(consumer.consume_batch().values())


async def consume_aio(work: Work) -> None:
    count = work.count
    broker = await aio.Broker(lambda: work.broker)
    async with broker.consumer(ConsumerConf(work.one)) as consumer:
        while count > 0:
            count -= len((await consumer.consume_batch()).values())


def new_consumer(work: Work, topic: str, partitions: int) -> Any:
    """With what koff tells librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "max.partition.fetch.bytes": 2_000_000,
            "fetch.max.bytes": 16 << 20,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 50_000,
            "queued.max.messages.kbytes": 16_384,
            "check.crcs": False,
            "allow.auto.create.topics": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return consumer


def consume_confluent(work: Work, topic: str = "", partitions: int = 1, at_once: int = AT_ONCE) -> None:
    consumer, count = new_consumer(work, topic or work.one, partitions), work.count
    while count > 0:
        count -= len([message.value() for message in consumer.consume(min(at_once, count), 1.0)])
    consumer.close()


def consume_confluent_small(work: Work) -> None:
    consume_confluent(work, at_once=BATCH_MESSAGES)


async def consume_aiokafka(work: Work) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    count = work.count
    async with AIOKafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.one, 0)])
        while count > 0:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)).values():
                count -= len([message.value for message in messages])


def consume_kafka_python(work: Work) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer, count = (
        KafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest"),
        work.count,
    )
    consumer.assign([TopicPartition(work.one, 0)])
    while count > 0:
        for messages in consumer.poll(timeout_ms=1000, max_records=AT_ONCE).values():
            count -= len([message.value for message in messages])
    consumer.close()


def merge_koff(work: Work) -> None:
    consumers = [work.broker.consumer(ConsumerConf(work.eight, number)) for number in range(PARTITIONS)]
    count = work.count
    with merge(*consumers) as mx:
        while count > 0:
            count -= len(mx.consume_batch().values())
    for consumer in consumers:
        consumer.close()


def merge_confluent(work: Work) -> None:
    consume_confluent(work, work.eight, PARTITIONS)


def look_at_koff(work: Work) -> None:
    with work.broker.consumer(ConsumerConf(work.one)) as consumer:
        for count, message in enumerate(consumer, start=1):
            _ = message.value, message.offset
            if count == work.count:
                return


async def look_at_aio(work: Work) -> None:
    count = 0
    broker = await aio.Broker(lambda: work.broker)
    async with broker.consumer(ConsumerConf(work.one)) as consumer:
        async for message in consumer:
            _ = message.value, message.offset
            count += 1
            if count == work.count:
                return


def look_at_confluent(work: Work) -> None:
    consumer, count = new_consumer(work, work.one, 1), 0
    while count < work.count:
        message = consumer.poll(1.0)
        if message is not None:
            _ = message.value(), message.offset()
            count += 1
    consumer.close()


async def look_at_aiokafka(work: Work) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    count = 0
    async with AIOKafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(work.one, 0)])
        async for message in consumer:
            _ = message.value, message.offset
            count += 1
            if count == work.count:
                return


def look_at_kafka_python(work: Work) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(work.one, 0)])
    for count, message in enumerate(consumer, start=1):
        _ = message.value, message.offset
        if count == work.count:
            break
    consumer.close()


Side = Callable[[Work], Coroutine[Any, Any, None] | None]
SIDES: dict[str, dict[str, Side]] = {
    "produce": {
        "koff": produce_koff,
        "koff.aio": produce_aio,
        PLAIN: produce_confluent,
        "confluent_batch": produce_confluent_batch,
        "aiokafka": produce_aiokafka,
        "kafka-python": produce_kafka_python,
    },
    "consume": {
        "koff": consume_koff,
        "koff.aio": consume_aio,
        PLAIN: consume_confluent,
        "confluent_small": consume_confluent_small,
        "aiokafka": consume_aiokafka,
        "kafka-python": consume_kafka_python,
    },
    "merge": {"koff": merge_koff, PLAIN: merge_confluent},
    "messages": {
        "koff": look_at_koff,
        "koff.aio": look_at_aio,
        PLAIN: look_at_confluent,
        "aiokafka": look_at_aiokafka,
        "kafka-python": look_at_kafka_python,
    },
}
"""By what is measured, the function of each client."""
OPTIONAL = {"aiokafka": "aiokafka", "kafka-python": "kafka"}
"""The sides whose package need not be installed."""


def measure(sides: dict[str, Side], work: Work, rounds: int) -> dict[str, dict[str, float]]:
    """The rates of all sides, in turns, after one round that does not count."""
    present = {name: side for name, side in sides.items() if find_spec(OPTIONAL.get(name, "koff"))}
    seconds: dict[str, list[float]] = {name: [] for name in present}
    for number in range(rounds + 1):
        for name, side in list(present.items())[:: 1 if number % 2 else -1]:
            time.sleep(PAUSE_S)
            began_s = time.perf_counter()
            if (running := side(work)) is not None:
                asyncio.run(running)
            if number:
                seconds[name].append(time.perf_counter() - began_s)
    rates = {name: work.count / statistics.median(times) for name, times in seconds.items()}
    return {
        name: {
            "messages_s": round(rate),
            "mb_s": round(rate * len(work.value) / 1e6, 1),
            "ratio": round(rate / rates[PLAIN], 2),
        }
        for name, rate in rates.items()
    }


def measure_size(kafka: LocalKafka, size: int, count: int, batch: int, rounds: int) -> dict[str, Any]:
    one, eight = kafka.create_topic(), kafka.create_topic(partitions=PARTITIONS)
    count = max(count // batch, 1) * batch
    with dial(kafka.bootstrap) as broker:
        work = Work(kafka.bootstrap, broker, one, eight, kafka.create_topic(), count, b"v" * size, batch)
        producer = broker.producer()
        producer.produce(one, 0, *(Message(work.value) for _ in range(count)))
        for partition in range(PARTITIONS):
            producer.produce(eight, partition, *(Message(work.value) for _ in range(-(-count // PARTITIONS))))
        return {"size": size, **{name: measure(sides, work, rounds) for name, sides in SIDES.items()}}


@click.command()
@click.option("--messages", default=320_000, show_default=True)
@click.option("--size", "sizes", multiple=True, default=[100, 1000], show_default=True)
@click.option("--batch", default=10_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(messages: int, sizes: tuple[int, ...], batch: int, rounds: int) -> None:
    """Prints how fast koff.client, koff.aio and three other clients produce and consume."""
    with LocalKafka() as kafka:
        found = [measure_size(kafka, size, messages, batch, rounds) for size in sizes]
    print(json.dumps({"messages": messages, "batch": batch, "rounds": rounds, "sizes": found}, indent=2))


if __name__ == "__main__":
    main()
