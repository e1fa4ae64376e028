"""A client in memory and one of a real Kafka, for the tests of what every client keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from koff.client import (
    Client,
    Consumer,
    ConsumerConf,
    Message,
    dial,
)
from koff.kafkatest.doubles import MemoryBroker


@dataclass
class World:
    """A client, the name of its cluster, and how to come by a topic for it."""

    client: Client
    cluster: str
    make_topic: Callable[..., str]
    delete_before: Callable[[str, int], None]
    """Deletes the messages of partition 0 before the offset."""
    create_again: Callable[[str], object]
    """Deletes the topic, and creates it again with one partition."""
    consumers: list[Consumer] = field(default_factory=list)
    """Keeps the consumers: the client's `close` closes them."""

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int | None:
        return self.client.producer().produce(topic, partition, *map(Message, values))

    def consumer(self, topic: str, partition: int = 0, **conf: Any) -> Consumer:
        """One that gives up soon."""
        consumer = self.client.consumer(ConsumerConf(topic, partition, **{"retry_limit": 2, **conf}))
        self.consumers.append(consumer)
        return consumer


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        with MemoryBroker() as memory:
            names = iter(range(1000))
            yield World(
                memory,
                "memory:9092",
                lambda partitions=1: memory.create_topic(f"t-{next(names)}", partitions),
                lambda topic, offset: memory.delete_before(topic, 0, offset),
                memory.create_topic,
            )
    else:
        kafka = request.getfixturevalue("kafka")
        with dial(kafka.bootstrap) as broker:
            yield World(
                broker,
                kafka.bootstrap,
                lambda partitions=1: kafka.create_topic(partitions=partitions),
                lambda topic, offset: kafka.delete_before(topic, 0, offset),
                kafka.create_topic_again,
            )
