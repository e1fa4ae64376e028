"""The life of a small cluster, with the same records each time: the tables of old koffs hold it."""

from __future__ import annotations

from koff.kafkatest import KafkaCluster
from tests.unit.builders import Pair, assign, classic_group, commit

PARTITIONS = 2


def name_topics(version: int) -> tuple[str, str]:
    """The names of the offsets topic and of the topic that the groups read."""
    return f"offsets-of-{version}", f"orders-of-{version}"


def create_topics(kafka: KafkaCluster, version: int) -> None:
    """Creates both topics, without records."""
    for name in name_topics(version):
        kafka.create_topic(name, PARTITIONS, config={"retention.ms": "-1"})  # records may be old


def live(kafka: KafkaCluster, version: int, step: int, *, at_ms: int = 0) -> None:
    """Writes the records of a step: 0, 1 or 2. Tables of old koffs have 0 and 1.

    `at_ms` is the time of the records (0: now).
    """
    offsets, orders = name_topics(version)
    members = {"m1": (0,), "m2": (1,)} if step == 0 else {"m1": (0, 1)}
    blobs = {name: assign(orders, *partitions) for name, partitions in members.items()}
    pairs: list[Pair] = [
        *(commit(f"g{number % 3}", orders, number % PARTITIONS, 10 * step + number) for number in range(6)),
        classic_group("members", blobs, generation=step + 1),
        commit("gone", orders, 0, None if step == 1 else 1),
        (b"\0", b"no record"),
    ]
    producer = kafka.producer()
    for number in range(10):
        producer.produce(orders, b"an order", partition=number % PARTITIONS)
    for key, value in pairs:
        producer.produce(offsets, value, key, partition=len(key) % PARTITIONS, timestamp=at_ms)
    assert producer.flush(60) == 0
