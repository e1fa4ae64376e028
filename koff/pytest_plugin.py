"""Fixtures for pytest (`koff[kafkatest]`): a real Kafka, a real ZooKeeper, and doubles of both in memory.

pytest finds them by itself. docs/client.md has an example. The servers need `koff[kafkatest]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pytest imports this module at each start, so it must be quick
    from koff.kafkatest import KafkaCluster, LocalZooKeeper
    from koff.kafkatest.doubles import MemoryBroker, MemoryClusters, MemoryZooKeeper


@pytest.fixture(scope="session")
def koff_kafka() -> Iterator[KafkaCluster]:
    """A Kafka for the whole session: a local one, or the cluster that the variable KOFF_TEST_BROKERS names.

    `koff_kafka.bootstrap` is its address. Tests share it, so each uses topics and groups of its own. With
    pytest-xdist, each worker starts a Kafka. Raises `KafkaTestError`, with what to install.
    """
    from koff.kafkatest import KafkaCluster, LocalKafka

    if existing := os.environ.get("KOFF_TEST_BROKERS"):
        yield KafkaCluster(existing)
        return
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def koff_topic(koff_kafka: KafkaCluster) -> Callable[..., str]:
    """Creates a topic in `koff_kafka`: `koff_topic(name=None, partitions=1)` returns its name."""
    return koff_kafka.create_topic


@pytest.fixture(scope="session")
def koff_zookeeper() -> Iterator[LocalZooKeeper]:
    """A ZooKeeper for the whole session; `koff_zookeeper.hosts` is its address. Raises `KafkaTestError`."""
    from koff.kafkatest import LocalZooKeeper

    with LocalZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture
def koff_memory_broker() -> Iterator[MemoryBroker]:
    """An in-memory cluster without topics, with the protocols of `koff.client`; new for each test."""
    from koff.kafkatest.doubles import MemoryBroker

    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def koff_memory_zookeeper(koff_memory_broker: MemoryBroker) -> MemoryZooKeeper:
    """Its `join_consumer_group` makes members of groups, which read from `koff_memory_broker`."""
    from koff.kafkatest.doubles import MemoryZooKeeper

    return MemoryZooKeeper(koff_memory_broker)


@pytest.fixture
def koff_memory_clusters() -> MemoryClusters:
    """In-memory clusters at "east:9092" and "west:9092"; `reader` and `writer` make those of them."""
    from koff.kafkatest.doubles import MemoryClusters

    return MemoryClusters("east:9092", "west:9092")
