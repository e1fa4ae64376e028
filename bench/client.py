"""The broker side of koff.client against bare confluent-kafka: same broker, same run, same settings.

Prints JSON: messages and megabytes a second of both, the median of `--rounds` taken in turns, and the ratio.
What each side does: `produce` writes batches of `--batch` messages and learns every message's offset from its
report; `consume` reads everything and takes out the values; `merge` does that for eight partitions at once;
`messages` looks at one message at a time (value and offset), which for koff means its own `Message`.

    python -m bench.client --messages 300000 --size 100 --size 1000
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import click
import confluent_kafka

from koff.client import Broker, ConsumerConf, Message, ProducerConf, dial, merge
from koff.client.broker.conf import RequiredAcks
from koff.kafkatest import LocalKafka

PARTITIONS = 8


def bare_producer(bootstrap: str) -> Any:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 1,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
        }
    )


def bare_produce(producer: Any, topic: str, values: list[bytes]) -> list[int]:
    """A call a message, as most do it."""
    offsets: list[int] = []

    def told(error: Any, message: Any) -> None:
        assert error is None
        offsets.append(message.offset())

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=told)
    producer.flush()
    return offsets


def bare_produce_batch(producer: Any, topic: str, values: list[bytes]) -> list[int]:
    """The quickest that confluent-kafka has."""
    offsets: list[int] = []

    def told(error: Any, message: Any) -> None:
        assert error is None
        offsets.append(message.offset())

    producer.produce_batch(topic, [{"value": value} for value in values], partition=0, on_delivery=told)
    producer.flush()
    return offsets


def koff_produce(producer: Any, topic: str, messages: list[Message]) -> list[Message]:
    """The offsets are in the messages, then."""
    producer.produce(topic, 0, *messages)
    return messages


def bare_consumer(bootstrap: str, topic: str, partitions: Iterable[int]) -> Any:
    """With what koff tells librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
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
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer


def bare_consume(bootstrap: str, topic: str, partitions: Iterable[int], count: int) -> None:
    consumer = bare_consumer(bootstrap, topic, partitions)
    while count > 0:
        count -= len([message.value() for message in consumer.consume(10_000, 1.0)])
    consumer.close()


def bare_messages(bootstrap: str, topic: str, partitions: Iterable[int], count: int) -> None:
    consumer = bare_consumer(bootstrap, topic, partitions)
    while count > 0:
        message = consumer.poll(1.0)
        if message is not None:
            _ = message.value(), message.offset()
            count -= 1
    consumer.close()


def koff_consume(broker: Broker, topic: str, count: int) -> None:
    with broker.consumer(ConsumerConf(topic, 0)) as consumer:
        while count > 0:
            count -= len(consumer.consume_batch().values())


def koff_merge(broker: Broker, topic: str, count: int) -> None:
    consumers = [broker.consumer(ConsumerConf(topic, partition)) for partition in range(PARTITIONS)]
    with merge(*consumers) as mx:
        while count > 0:
            count -= len(mx.consume_batch().values())
    for consumer in consumers:
        consumer.close()


def koff_messages(broker: Broker, topic: str, count: int) -> None:
    with broker.consumer(ConsumerConf(topic, 0)) as consumer:
        for message in consumer:
            _ = message.value, message.offset
            count -= 1
            if not count:
                return


def koff_merged_messages(broker: Broker, topic: str, count: int) -> None:
    consumers = [broker.consumer(ConsumerConf(topic, partition)) for partition in range(PARTITIONS)]
    with merge(*consumers) as mx:
        for message in mx:
            _ = message.value, message.offset
            count -= 1
            if not count:
                break
    for consumer in consumers:
        consumer.close()


def compared(
    ours: Callable[[], Any], bare: Callable[[], Any], count: int, size: int, rounds: int
) -> dict[str, float]:
    """Messages and megabytes a second of both, by turns, after one round that does not count."""
    seconds: dict[str, list[float]] = {"koff": [], "bare": []}
    for number in range(rounds + 1):
        for name, work in (("koff", ours), ("bare", bare))[:: 1 if number % 2 else -1]:
            began = time.perf_counter()
            work()
            if number:
                seconds[name].append(time.perf_counter() - began)
    found: dict[str, float] = {}
    for name, times in seconds.items():
        rate = count / statistics.median(times)
        found[f"{name}_messages_s"] = round(rate)
        found[f"{name}_mb_s"] = round(rate * size / 1e6, 1)
    return {**found, "ratio": round(found["koff_messages_s"] / found["bare_messages_s"], 2)}


def measured(kafka: LocalKafka, size: int, messages: int, batch: int, rounds: int) -> dict[str, Any]:
    value = b"v" * size
    one, eight = kafka.create_topic(), kafka.create_topic(partitions=PARTITIONS)
    sink = kafka.create_topic()
    share = messages // PARTITIONS
    with dial(kafka.bootstrap) as broker:
        writer = broker.producer(ProducerConf(required_acks=RequiredAcks.ALL))
        koff_produce(writer, one, [Message(value) for _ in range(messages)])
        for partition in range(PARTITIONS):
            writer.produce(eight, partition, *(Message(value) for _ in range(share)))
        bare = bare_producer(kafka.bootstrap)
        calls = max(messages // batch, 1)
        written, values, own = batch * calls, [value] * batch, [Message(value) for _ in range(batch)]

        def each(produce: Callable[..., list[Any]], producer: Any, batch: list[Any]) -> Callable[[], None]:
            def work() -> None:
                for _ in range(calls):
                    assert len(produce(producer, sink, batch)) == len(batch)

            return work

        ours, all_, at = each(koff_produce, writer, own), range(PARTITIONS), kafka.bootstrap
        return {
            "size": size,
            "produce": compared(ours, each(bare_produce, bare, values), written, size, rounds),
            "produce_against_produce_batch": compared(
                ours, each(bare_produce_batch, bare, values), written, size, rounds
            ),
            "consume": compared(
                lambda: koff_consume(broker, one, messages),
                lambda: bare_consume(at, one, [0], messages),
                messages,
                size,
                rounds,
            ),
            "merge": compared(
                lambda: koff_merge(broker, eight, share * PARTITIONS),
                lambda: bare_consume(at, eight, all_, share * PARTITIONS),
                share * PARTITIONS,
                size,
                rounds,
            ),
            "messages": compared(
                lambda: koff_messages(broker, one, messages),
                lambda: bare_messages(at, one, [0], messages),
                messages,
                size,
                rounds,
            ),
            "merged_messages": compared(
                lambda: koff_merged_messages(broker, eight, share * PARTITIONS),
                lambda: bare_messages(at, eight, all_, share * PARTITIONS),
                share * PARTITIONS,
                size,
                rounds,
            ),
        }


@click.command()
@click.option("--messages", default=300_000, show_default=True)
@click.option("--size", "sizes", multiple=True, default=[100, 1000], show_default=True)
@click.option("--batch", default=10_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(messages: int, sizes: tuple[int, ...], batch: int, rounds: int) -> None:
    """Prints how fast koff.client produces and consumes, and how fast bare confluent-kafka does."""
    with LocalKafka() as kafka:
        found = [measured(kafka, size, messages, batch, rounds) for size in sizes]
    print(json.dumps({"messages": messages, "batch": batch, "rounds": rounds, "sizes": found}, indent=2))


if __name__ == "__main__":
    main()
