"""A client in memory and one of a real Kafka, blocking and for asyncio, for the tests of what each keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from koff import aio
from koff.client import (
    Client,
    Consumer,
    ConsumerConf,
    Message,
    dial,
)
from koff.kafkatest.doubles import MemoryBroker
from tests.client.blocking import open_in_loop, run_loop

SIDES = ["memory", pytest.param("kafka", marks=pytest.mark.kafka)]
ALL_SIDES = [*SIDES, "aio-memory", pytest.param("aio-kafka", marks=pytest.mark.kafka)]
"""A double and a real cluster, each by the blocking client, and by that for asyncio."""


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


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("kafka"):
        request.getfixturevalue("kafka")  # the cluster stays
    request.getfixturevalue("nothing_left")


@contextmanager
def make_world(side: str, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world of one of `ALL_SIDES`."""
    with ExitStack() as opened:
        if side.endswith("memory"):
            memory, names = MemoryBroker(), iter(range(1000))
            place = (
                "memory:9092",
                lambda partitions=1: memory.create_topic(f"t-{next(names)}", partitions),
                lambda topic, offset: memory.delete_before(topic, 0, offset),
                memory.create_topic,
            )
        else:
            kafka = request.getfixturevalue("kafka")
            place = (
                kafka.bootstrap,
                lambda partitions=1: kafka.create_topic(partitions=partitions),
                lambda topic, offset: kafka.delete_before(topic, 0, offset),
                kafka.create_topic_again,
            )

        def make() -> Any:
            return memory if side.endswith("memory") else dial(kafka.bootstrap)

        if side.startswith("aio"):
            loop = opened.enter_context(run_loop())
            client = open_in_loop(loop, lambda: aio.Broker(make))
        else:
            client = make()
        yield World(opened.enter_context(client), *place)


@pytest.fixture(params=ALL_SIDES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with make_world(request.param, request) as made:
        yield made


@pytest.fixture(params=SIDES)
def blocking_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """For what the client for asyncio does not have: merged streams, and `produce_async`."""
    with make_world(request.param, request) as made:
        yield made
