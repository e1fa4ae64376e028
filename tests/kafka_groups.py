"""Real consumer groups for tests to look at: of librdkafka, classic and KIP-848, and of Kafka's own Java."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from koff.kafkatest import Cluster, reap, wait_until

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def produce(kafka: Cluster, topic: str, count: int, *, partition: int = 0) -> None:
    """Writes `count` messages and waits until they are there."""
    producer = kafka.producer()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


@contextmanager
def consuming(
    kafka: Cluster,
    group: str,
    *topics: str,
    count: int,
    protocol: str = "classic",
    client_id: str = "koff-test",
) -> Iterator[Consumer]:
    """A live member of `group` that has read and committed at least `count` messages; leaves at the end.

    `protocol` is librdkafka's group.protocol: `classic`, or `consumer` (KIP-848).
    """
    consumer = kafka.consumer(
        group, {"group.protocol": protocol, "client.id": client_id, "enable.auto.commit": False}
    )
    consumer.subscribe(list(topics))
    read = 0

    def enough() -> bool:
        nonlocal read
        messages = consumer.consume(max(count - read, 1), 0.2) if read < count else []
        read += sum(message.error() is None for message in messages)
        return read >= count

    try:
        wait_until(enough, timeout_s=60, what=f"{group} to read {count} messages")
        consumer.commit(asynchronous=False)
        with _polled(consumer):
            yield consumer
    finally:
        consumer.close()


@contextmanager
def _polled(consumer: Consumer) -> Iterator[None]:
    """Keeps a paused `consumer` in its group: membership, and rebalances with others, need polling."""
    consumer.pause(consumer.assignment())
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            consumer.poll(0.1)

    poller = threading.Thread(target=poll, name="kafka-groups-poll")
    poller.start()
    try:
        yield
    finally:
        done.set()
        poller.join()


@contextmanager
def java_consuming(
    kafka: Cluster, group: str, topic: str, *, count: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Kafka's Java console consumer, live in `group` after it printed `count` messages of `topic`.

    It commits on its own, once a second.
    """
    java = kafka.popen_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--command-property", "auto.commit.interval.ms=1000"),
        stderr=subprocess.DEVNULL,
    )
    try:
        assert java.stdout is not None
        for _ in range(count):
            assert java.stdout.readline(), "the console consumer ended early"
        yield java
    finally:
        reap(java)
