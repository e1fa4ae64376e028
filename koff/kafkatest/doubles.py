"""A cluster in memory that keeps the protocols of `koff.client`, for tests of code that takes a `Client`.

    broker = MemoryBroker({"orders": 3})
    broker.producer().produce("orders", 0, Message(b"one"))
    broker.fail("commit", ConnectError("the coordinator is away"))

It needs no Kafka and starts no thread; only waits take time. It behaves as a real broker does: the same
contract tests run against both.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from koff.client import (
    START_OFFSET_NEWEST,
    START_OFFSET_OLDEST,
    Batch,
    Closing,
    ConsumerConf,
    Message,
    Metadata,
    NoData,
    Node,
    OffsetCoordinatorConf,
    OffsetOutOfRange,
    OffsetSpec,
    PartitionMetadata,
    ProducerConf,
    RequiredAcks,
    TopicPartition,
    UnknownTopic,
)
from koff.client.message_check import check_messages
from koff.client.topic_names import check_partition
from koff.errors import Closed, ConfigError

CALLS = frozenset({"metadata", "offsets", "produce", "consume", "commit", "offset"})
"""The calls that `MemoryBroker.fail` can make fail."""


class _PartitionLog:
    """The messages of one partition, from the log start offset on."""

    def __init__(self) -> None:
        self.start = 0
        self.messages: list[Message] = []

    @property
    def end(self) -> int:
        return self.start + len(self.messages)


class MemoryBroker(Closing):
    """A `Client` with the given topics (name to partition count). Threads may share it."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self._changed = threading.Condition()
        self._logs: dict[str, list[_PartitionLog]] = {}
        self._committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._errors: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._closed = False
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Creates an empty topic, also in place of an old one, and returns its name."""
        self._logs[name] = [_PartitionLog() for _ in range(partitions)]
        return name

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the messages before the offset, as retention does."""
        with self._changed:
            log = self._find_log(topic, partition)
            offset = min(offset, log.end)
            log.messages = log.messages[max(offset - log.start, 0) :]
            log.start = max(offset, log.start)
            self._changed.notify_all()

    def fail(self, call: str, *errors: Exception) -> None:
        """Makes the next calls of that name (one of `CALLS`), by any caller, raise these errors in turn."""
        if call not in CALLS:
            raise ConfigError(f"{call!r} cannot be made to fail: use one of {', '.join(sorted(CALLS))}")
        with self._changed:
            self._errors[call].extend(errors)
            self._changed.notify_all()

    def close(self) -> None:
        """Makes every call raise `Closed`, also the calls that wait. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def metadata(self) -> Metadata:
        """The metadata of all topics: one broker leads every partition."""
        with self._begin_call("metadata"):
            topics = {
                name: tuple(PartitionMetadata(number, 1, (1,), (1,)) for number in range(len(logs)))
                for name, logs in self._logs.items()
            }
            return Metadata("in memory", 1, (Node(1, "memory", 9092),), topics)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises `UnknownTopic`."""
        with self._begin_call("metadata"):
            check_partition(topic)
            if topic not in self._logs:
                raise UnknownTopic(f"there is no topic {topic}: check its name")
            return len(self._logs[topic])

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The log start offset of the partition."""
        topic_partition = TopicPartition(topic, partition)
        return self.offsets([topic_partition], OffsetSpec.EARLIEST)[topic_partition]

    def offset_latest(self, topic: str, partition: int) -> int:
        """The end offset of the partition: the offset of its next message."""
        topic_partition = TopicPartition(topic, partition)
        return self.offsets([topic_partition])[topic_partition]

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec | int = OffsetSpec.LATEST
    ) -> dict[TopicPartition, int]:
        """The offset of each partition.

        `spec` may be a time in ms since the epoch: then the first offset at or after it, -1 without one.
        """
        if isinstance(spec, int) and not 0 <= spec < 1 << 63:
            raise ConfigError(f"{spec} is no time in ms since the epoch: use 0 or more")
        with self._begin_call("offsets"):
            return {
                TopicPartition(*partition): _find_offset(self._find_log(*partition), spec)
                for partition in partitions
            }

    def producer(self, conf: ProducerConf | None = None) -> MemoryProducer:
        """A producer."""
        with self._begin_call():
            return MemoryProducer(self, conf or ProducerConf())

    def consumer(self, conf: ConsumerConf) -> MemoryConsumer:
        """A consumer of one partition. Raises `UnknownTopic`."""
        with self._begin_call():
            log, start = self._find_log(conf.topic, conf.partition), conf.start_offset
            if not isinstance(start, int) or not START_OFFSET_OLDEST <= start < 1 << 63:
                raise ConfigError(
                    f"start_offset {start!r} is invalid: give an offset, START_OFFSET_OLDEST or "
                    "START_OFFSET_NEWEST"
                )
            return MemoryConsumer(self, conf, log.end if start == START_OFFSET_NEWEST else start)

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> MemoryOffsetCoordinator:
        """The coordinator that keeps the group's offsets."""
        with self._begin_call():
            return MemoryOffsetCoordinator(self, conf)

    def _begin_call(self, call: str = "") -> threading.Condition:
        """The lock, which the caller enters. It is reentrant.

        Raises the next error that `fail` queued for the call, and `Closed` after `close`.
        """
        with self._changed:
            if self._closed:
                raise Closed("the broker in memory is closed")
            if self._errors[call]:
                raise self._errors[call].popleft()
        return self._changed

    def _find_log(self, topic: str, partition: int) -> _PartitionLog:
        check_partition(topic, partition)
        logs = self._logs.get(topic)
        if logs is None or not 0 <= partition < len(logs):
            raise UnknownTopic(f"there is no {topic}/{partition}: check topic and partition")
        return logs[partition]


class MemoryProducer:
    """A `Producer`."""

    def __init__(self, broker: MemoryBroker, conf: ProducerConf) -> None:
        self.conf = conf
        self._broker = broker

    def produce(self, topic: str, partition: int, *messages: Message) -> int | None:
        """The offset of the first message; None with required acks NONE."""
        check_messages(messages)
        acknowledged = self.conf.required_acks is not RequiredAcks.NONE
        with self._broker._begin_call("produce"):
            log = self._broker._find_log(topic, partition)
            now_ms, first = int(time.time() * 1000), log.end
            for offset, message in enumerate(messages, start=first):
                message.topic, message.partition = topic, partition
                timestamp_ms = now_ms if message.timestamp_ms is None else message.timestamp_ms
                # The log keeps a copy: the caller may change and produce its message again.
                log.messages.append(
                    replace(message, offset=offset, timestamp_ms=timestamp_ms, on_ack=None, on_nack=None)
                )
                if acknowledged:
                    message.offset = offset
            self._broker._changed.notify_all()
        return first if acknowledged else None


class MemoryConsumer(Closing):
    """A `Consumer`."""

    def __init__(self, broker: MemoryBroker, conf: ConsumerConf, start: int) -> None:
        self.conf = conf
        self.topic = conf.topic
        self.partition = conf.partition
        self._broker = broker
        self._next = start
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the consumer or its broker was closed."""
        return self._closed or self._broker._closed

    def close(self) -> None:
        """Makes every call raise `Closed`, also the calls that wait. Safe to call twice."""
        with self._broker._changed:
            self._closed = True
            self._broker._changed.notify_all()

    def __iter__(self) -> Iterator[Message]:
        """The messages, until there is `NoData`."""
        try:
            while True:
                yield self.consume()
        except NoData:
            return

    def consume(self) -> Message:
        """The next message."""
        return self.consume_batch(1)[0]

    def consume_batch(self, max_messages: int = 10_000) -> Batch:
        """The next messages, at least one, as soon as there are some."""
        if max_messages < 1:
            raise ConfigError(f"a batch of {max_messages} messages cannot be consumed: use 1 or more")
        timeout_s = None if self.conf.retry_limit < 0 else self.conf.no_data_after_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        broker = self._broker
        with broker._changed:
            self._check_open()
            log = broker._find_log(self.topic, self.partition)
            while True:
                remaining_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                ready = broker._changed.wait_for(lambda: self._is_ready(log), remaining_s)
                self._check_open()
                broker._begin_call("consume")  # raises a queued error; the lock is reentrant
                if not ready:
                    raise NoData(f"{self.topic}/{self.partition} has nothing after offset {log.end - 1} yet")
                # Without a message, an error woke this consumer, and another consumer has taken the error.
                if self._position(log) != log.end:
                    return self._read_batch(log, max_messages)

    def position(self) -> int:
        """The offset of the next message."""
        with self._broker._changed:
            self._check_open()
            return self._position(self._broker._find_log(self.topic, self.partition))

    def seek(self, offset: int) -> None:
        """Continues at that offset. Raises `ConfigError` for a negative one that has no meaning."""
        with self._broker._changed:
            self._check_open()
            log = self._broker._find_log(self.topic, self.partition)
            if offset < START_OFFSET_OLDEST:
                raise ConfigError(f"{offset} is no offset: use 0 or more, or one of START_OFFSET_...")
            self._next = {START_OFFSET_OLDEST: log.start, START_OFFSET_NEWEST: log.end}.get(offset, offset)

    def _read_batch(self, log: _PartitionLog, max_messages: int) -> Batch:
        position = self._position(log)
        if not log.start <= position <= log.end:
            raise OffsetOutOfRange(self.topic, self.partition, position, log.start, log.end)
        messages = log.messages[position - log.start :][:max_messages]
        self._next = position + len(messages)
        return Batch(self.topic, self.partition, [replace(message) for message in messages])

    def _position(self, log: _PartitionLog) -> int:
        """The next offset to read. The oldest offset is looked up again until the first message is read."""
        return log.start if self._next == START_OFFSET_OLDEST else self._next

    def _is_ready(self, log: _PartitionLog) -> bool:
        """Whether a call can end: by a message, a queued error, a close, or an offset out of range."""
        ended = self._closed or self._broker._closed or self._broker._errors["consume"]
        return bool(ended) or self._position(log) != log.end

    def _check_open(self) -> None:
        if self._closed or self._broker._closed:
            raise Closed(f"the consumer of {self.topic}/{self.partition} is closed")


class MemoryOffsetCoordinator:
    """An `OffsetCoordinator`."""

    def __init__(self, broker: MemoryBroker, conf: OffsetCoordinatorConf) -> None:
        self.conf = conf
        self._broker = broker

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commits the group's offset of the partition. Raises `UnknownTopic`, `ConfigError` below 0."""
        self.commit_offsets({TopicPartition(topic, partition): offset}, metadata)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits all of the group's offsets or none. Raises as `commit` does."""
        for (topic, partition), offset in offsets.items():
            if offset < 0:
                raise ConfigError(
                    f"offset {offset} of {topic}/{partition} cannot be committed: use 0 or more"
                )
        with self._broker._begin_call("commit"):
            for topic, partition in offsets:
                self._broker._find_log(topic, partition)
            for (topic, partition), offset in offsets.items():
                self._broker._committed[self.conf.consumer_group, topic, partition] = (offset, metadata)

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """All committed offsets of the group, with their metadata, by partition."""
        with self._broker._begin_call("offset"):
            return {
                TopicPartition(topic, partition): committed
                for (group, topic, partition), committed in self._broker._committed.items()
                if group == self.conf.consumer_group
            }

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The group's committed offset and its metadata; (-1, "") without a committed offset."""
        check_partition(topic, partition)
        with self._broker._begin_call("offset"):
            return self._broker._committed.get((self.conf.consumer_group, topic, partition), (-1, ""))


def _find_offset(log: _PartitionLog, spec: OffsetSpec | int) -> int:
    if isinstance(spec, int):
        return next((m.offset for m in log.messages if (m.timestamp_ms or 0) >= spec), -1)
    return log.start if spec is OffsetSpec.EARLIEST else log.end
