"""Doubles in memory for tests of programs that use `koff.client`: they need no Kafka and take no time.

They record calls and messages, and raise errors and let time pass as a test tells them.
"""

from koff.kafkatest.memory_broker import CALLS, Call, MemoryBroker, MemoryOffsetCoordinator, MemoryProducer
from koff.kafkatest.memory_clusters import MemoryClusters
from koff.kafkatest.memory_consumer import MemoryConsumer
from koff.kafkatest.memory_groups import MemoryConsumerGroup, MemoryZooKeeper
from koff.kafkatest.memory_reader import MemoryReader
from koff.kafkatest.memory_writer import MemoryWriter
from koff.kafkatest.virtual_clock import VirtualClock

__all__ = [
    "CALLS",
    "Call",
    "MemoryBroker",
    "MemoryClusters",
    "MemoryConsumer",
    "MemoryConsumerGroup",
    "MemoryOffsetCoordinator",
    "MemoryProducer",
    "MemoryReader",
    "MemoryWriter",
    "MemoryZooKeeper",
    "VirtualClock",
]
