"""What the broker side of the client stack promises, whoever keeps it: a real cluster or the test kit.

`Broker` and `koff.kafkatest.doubles.MemoryBroker` are `Client`s; code that takes these protocols runs on
either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self, runtime_checkable

from koff.client.batch import Batch
from koff.client.broker.conf import ConsumerConf, OffsetCoordinatorConf, ProducerConf
from koff.client.cluster import OffsetSpec, TopicPartition
from koff.client.message import Message
from koff.client.metadata import Metadata


@runtime_checkable
class Producer(Protocol):
    """Writes messages to the partitions that it is told. Threads may share it."""

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """The offset of the first message; None when no acknowledgement is required.

        Sets topic, partition and offset of each message. All are written, in order and side by side as long
        as no other producer writes there; else `ProduceError` says which are, are not, or may be.
        """
        ...


@runtime_checkable
class DistributingProducer(Protocol):
    """Writes messages to partitions of its own choice. Threads may share it."""

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """The offset of the first message, or None, as `Producer.produce`; each has its partition set too."""
        ...


@runtime_checkable
class Consumer(Protocol):
    """Reads one partition, in order. A context manager and an iterator, which ends where there is no data.

    A call that raised is no end: the next one goes on at the same place.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    def consume(self) -> Message:
        """The next message. Raises `NoData` when the retry limit is set and used up."""
        ...

    def consume_batch(self, max_messages: int = 10_000) -> Batch:
        """The next messages, at least one, as soon as there are some. Raises as `consume` does."""
        ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[Message]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: Any) -> None: ...


@runtime_checkable
class OffsetCoordinator(Protocol):
    """Keeps the offsets of one consumer group, which need not have members."""

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Has the group's offset, the next one to be read, written down."""
        ...

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The group's committed offset and its metadata; (-1, "") where it has committed none."""
        ...


@runtime_checkable
class Client(Protocol):
    """A cluster. A context manager; once closed, every call on it and what it gave out raises `Closed`."""

    def metadata(self) -> Metadata: ...

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises `UnknownTopic`."""
        ...

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The oldest offset of the partition."""
        ...

    def offset_latest(self, topic: str, partition: int) -> int:
        """The offset that the partition's next message will have."""
        ...

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec | int = OffsetSpec.LATEST
    ) -> dict[TopicPartition, int]:
        """The offset of every partition; `spec` may be a time in ms, -1 then stands for "none since"."""
        ...

    def producer(self, conf: ProducerConf | None = None) -> Producer: ...

    def consumer(self, conf: ConsumerConf) -> Consumer:
        """A reader of one partition. Raises `UnknownTopic`. Close it, or the client."""
        ...

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> OffsetCoordinator: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: Any) -> None: ...
