"""The protocols of the broker client: the contract of a `Client` and of the objects that it makes.

`Broker` (a real cluster) and `koff.kafkatest.doubles.MemoryBroker` (a test double) are `Client`s. Code that
takes these protocols runs on both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, Self, runtime_checkable

from koff.client.batch import BATCH_MESSAGES, Batch
from koff.client.broker.conf import ConsumerConf, OffsetCoordinatorConf, ProducerConf
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.message import Message
from koff.client.metadata import Metadata


@runtime_checkable
class Producer(Protocol):
    """Writes messages to the partition that the caller names. Threads may share it."""

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """Writes the messages and returns the offset of the first. None without acknowledgements.

        Sets topic, partition and offset of each message. The messages are written in order, and next to each
        other if no other producer writes to the partition. Raises `ProduceError` unless all were written.
        """

    def produce_async(
        self,
        topic: str,
        partition: int,
        *messages: Message,
        on_done: Callable[[Future[int | None]], object] | None = None,
    ) -> Future[int | None]:
        """The future result of `produce`: does not wait until the messages are written.

        Raises at once for messages that cannot be written. `on_done` is called with the future when it is
        done; an error that it raises is logged. Closing the client fails the futures that are not done.
        """


@runtime_checkable
class DistributingProducer(Protocol):
    """Writes messages to partitions that it chooses. Threads may share it."""

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """Writes the messages; returns and raises as `Producer.produce` does.

        Sets topic, partition and offset of each message.
        """


@runtime_checkable
class Consumer(Protocol):
    """Reads one partition, in order. A context manager, and an iterator.

    The iteration ends where `consume` would raise `NoData`, and when the consumer or the client is closed.
    An error does not end the consumer: the next call resumes at the same offset.
    """

    @property
    def topic(self) -> str:
        """The topic that is read."""

    @property
    def partition(self) -> int:
        """The partition that is read."""

    @property
    def skipped(self) -> int:
        """How many offsets `ConsumerConf.on_out_of_range` has skipped."""

    def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message.

        Raises `NoData` when the retry limit is set and used up, and `NoDataInTime` after `timeout_s`.
        """

    def consume_batch(self, max_messages: int = BATCH_MESSAGES, *, timeout_s: float | None = None) -> Batch:
        """The next messages, at least one, as soon as there are any.

        Raises as `consume` does, and `ConfigError` if `max_messages` is less than 1.
        """

    def position(self) -> int:
        """The offset of the next message, as far as it is known: there may be none at that offset."""

    def seek(self, offset: int | str) -> None:
        """Continues at that offset, StartOffset.OLDEST or NEWEST."""

    def wake(self) -> None:
        """Makes a call of another thread that waits for messages raise `Woken`, or else the next wait."""

    def close(self) -> None:
        """Stops reading. Safe to call twice."""

    def __iter__(self) -> Iterator[Message]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: Any) -> None: ...


@runtime_checkable
class OffsetCoordinator(Protocol):
    """Keeps the committed offsets of one consumer group. The group need not have members."""

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commits `offset`, the offset of the next message that the group has to read."""

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the offsets of many partitions."""

    def delete_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the committed offsets of many partitions."""

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The committed offset and its metadata. (-1, "") if the group has committed none."""

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """All committed offsets of the group, with their metadata, by partition."""


@runtime_checkable
class Client(Protocol):
    """A connection to a cluster. A context manager.

    After `close`, every call on it and on the objects that it made raises `Closed`.
    """

    def metadata(self) -> Metadata:
        """The brokers and topics of the cluster as they are now."""

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises `UnknownTopic`."""

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The log start offset: the oldest offset that the partition still has."""

    def offset_latest(self, topic: str, partition: int) -> int:
        """The end offset: the offset of the next message of the partition."""

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offset of every partition.

        `spec` may be a time in ms since the epoch: then the first offset at or after that time, -1 if there
        is none.
        """

    def producer(self, conf: ProducerConf | None = None) -> Producer:
        """A producer. The client closes it."""

    def consumer(self, conf: ConsumerConf) -> Consumer:
        """A consumer of one partition. Raises `UnknownTopic`. The caller or the client closes it."""

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> OffsetCoordinator:
        """The committed offsets of one group. The client closes it."""

    def close(self) -> None:
        """Closes the connection and all objects that it made. Safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: Any) -> None: ...
