"""Doubles in memory for tests of programs that use `koff.client`: they need no Kafka and take no time.

They record calls and messages, and raise errors and let time pass as a test tells them. `as` tells type
checkers that a name is public.
"""

from koff.kafkatest.memory_broker import CALLS as CALLS
from koff.kafkatest.memory_broker import Call as Call
from koff.kafkatest.memory_broker import MemoryBroker as MemoryBroker
from koff.kafkatest.memory_clusters import MemoryClusters as MemoryClusters
from koff.kafkatest.memory_consumer import MemoryConsumer as MemoryConsumer
from koff.kafkatest.memory_groups import MemoryConsumerGroup as MemoryConsumerGroup
from koff.kafkatest.memory_groups import MemoryZooKeeper as MemoryZooKeeper
from koff.kafkatest.memory_producer import MemoryOffsetCoordinator as MemoryOffsetCoordinator
from koff.kafkatest.memory_producer import MemoryProducer as MemoryProducer
from koff.kafkatest.memory_reader import MemoryReader as MemoryReader
from koff.kafkatest.memory_writer import MemoryWriter as MemoryWriter
from koff.kafkatest.virtual_clock import VirtualClock as VirtualClock
