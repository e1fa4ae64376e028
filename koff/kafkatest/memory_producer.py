"""What writes to a cluster in memory: its producers, and the coordinators of groups' offsets."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Protocol

from koff.client.broker.async_calls import add_callback
from koff.client.broker.conf import OffsetCoordinatorConf, ProducerConf, RequiredAcks
from koff.client.closing import Closing
from koff.client.cluster_conf import TopicPartition
from koff.client.errors import ProduceError
from koff.client.message import Message
from koff.client.message_check import check_messages
from koff.client.multicluster.balancers import payload_bytes
from koff.client.topic_names import check_commit, check_partition
from koff.errors import Closed, ConnectError, KoffError
from koff.kafkatest.memory_log import PartitionLog
from koff.kafkatest.virtual_clock import VirtualClock

MAX_MESSAGE_BYTES = 1_000_000
"""librdkafka's message.max.bytes: the most that key and value may have together."""
TOO_LARGE = "Broker: Message size too large"


class BrokerDown(ConnectError):
    """The double was told to be down."""


class WrittenBroker(Protocol):
    """The part of a `MemoryBroker` that its producers and coordinators use."""

    clock: VirtualClock
    committed: dict[tuple[str, str, int], tuple[int, str]]

    def begin_call(self, call: str = "", **arguments: Any) -> AbstractContextManager[None]: ...

    def check_open(self) -> None: ...

    def find_log(self, topic: str, partition: int) -> PartitionLog: ...

    def append(self, topic: str, partition: int, messages: Iterable[Message]) -> int: ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None: ...

    def take_delay(self, call: str) -> float: ...

    def add_unfinished(self, future: Future[int | None], place: str, count: int) -> None: ...


class _UntilClosed(Closing):
    """What is open until `close`. `name` is for the error."""

    def __init__(self, name: str) -> None:
        self._name, self._closed = name, False

    def close(self) -> None:
        """Makes every call raise `Closed`. Safe to call twice."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._name} is closed")


class MemoryProducer(_UntilClosed):
    """A `Producer`."""

    def __init__(self, broker: WrittenBroker, conf: ProducerConf) -> None:
        super().__init__("the producer")
        self.conf = conf
        self._broker = broker

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """The offset of the first message; None with required acks NONE."""
        check_messages(messages)
        self._check_open()
        acknowledged = self.conf.required_acks is not RequiredAcks.NONE
        place, count = f"{topic}/{partition}", len(messages)
        refused = {i: TOO_LARGE for i, each in enumerate(messages) if payload_bytes(each) > MAX_MESSAGE_BYTES}
        written = [each for i, each in enumerate(messages) if i not in refused]
        try:
            with self._broker.begin_call("produce", topic=topic, partition=partition, messages=messages):
                first = self._broker.append(topic, partition, written)
        except BrokerDown as error:
            raise ProduceError(place, count, dict.fromkeys(range(count), str(error)), range(count)) from error
        for offset, message in enumerate(written, start=first):
            message.topic, message.partition = topic, partition
            if acknowledged:
                message.offset = offset
        if refused:
            raise ProduceError(place, count, refused)
        return first if acknowledged else None

    def produce_async(
        self,
        topic: str,
        partition: int,
        *messages: Message,
        on_done: Callable[[Future[int | None]], object] | None = None,
    ) -> Future[int | None]:
        """The future result of `produce`. It is done at once, or by the clock after a `delay`."""
        check_messages(messages)
        self._check_open()
        broker, future = self._broker, Future[int | None]()
        with broker.clock.changed:
            broker.check_open()
            broker.find_log(topic, partition)
        add_callback(future, on_done)
        place = f"{topic}/{partition}"

        def write() -> None:
            if future.done():  # `close` has failed it
                return
            try:
                future.set_result(self.produce(topic, partition, *messages))
            except KoffError as error:
                future.set_exception(make_produce_error(place, len(messages), error))

        delay_s = broker.take_delay("produce")
        if delay_s:
            broker.add_unfinished(future, place, len(messages))
            broker.clock.call_later(delay_s, write)
        else:
            write()
        return future


class MemoryOffsetCoordinator(_UntilClosed):
    """An `OffsetCoordinator`."""

    def __init__(self, broker: WrittenBroker, conf: OffsetCoordinatorConf) -> None:
        super().__init__(f"the coordinator of {conf.consumer_group}")
        self.conf = conf
        self._broker = broker

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commits the group's offset of the partition. Raises `UnknownTopic`, `ConfigError` below 0."""
        self.commit_offsets({TopicPartition(topic, partition): offset}, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits all of the group's offsets or none. Raises as `commit` does."""
        self._check_open()
        for (topic, partition), offset in offsets.items():
            check_commit(topic, partition, offset)
        self._broker.commit(self.conf.consumer_group, offsets, metadata)

    def delete_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the commits of these partitions in one request."""
        self._check_open()
        with self._broker.begin_call("commit", group=self.conf.consumer_group):
            for topic, partition in partitions:
                self._broker.committed.pop((self.conf.consumer_group, topic, partition), None)

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """All committed offsets of the group, with their metadata, by partition."""
        self._check_open()
        with self._broker.begin_call("offset", group=self.conf.consumer_group):
            return {
                TopicPartition(topic, partition): committed
                for (group, topic, partition), committed in self._broker.committed.items()
                if group == self.conf.consumer_group
            }

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The group's committed offset and its metadata; (-1, "") without a committed offset."""
        check_partition(topic, partition)
        self._check_open()
        group = self.conf.consumer_group
        with self._broker.begin_call("offset", group=group, topic=topic, partition=partition):
            return self._broker.committed.get((group, topic, partition), (-1, ""))


def make_produce_error(place: str, count: int, error: KoffError) -> ProduceError:
    if isinstance(error, ProduceError):
        return error
    made = ProduceError(place, count, dict.fromkeys(range(count), str(error)))
    made.__cause__ = error
    return made
