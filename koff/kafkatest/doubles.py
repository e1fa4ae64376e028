"""A cluster in memory that keeps the protocols of `koff.client`, for tests of code that takes a `Client`.

    broker = MemoryBroker({"orders": 3})
    broker.producer().produce("orders", 0, Message(b"one"))
    broker.fail("commit", ConnectError("the coordinator is away"))

No Kafka, no thread, no clock but that of the waits. What holds for a real broker holds here; the same tests
say so of both.
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
from koff.errors import Closed, ConfigError

CALLS = frozenset({"metadata", "offsets", "produce", "consume", "commit", "offset"})
"""What can be made to fail."""


class _Log:
    """A partition."""

    def __init__(self) -> None:
        self.start = 0
        self.messages: list[Message] = []

    @property
    def end(self) -> int:
        return self.start + len(self.messages)


class MemoryBroker(Closing):
    """A `Client` whose topics are given by name and partition count. Threads may share it."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self._changed = threading.Condition()
        self._logs: dict[str, list[_Log]] = {}
        self._committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._failures: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._closed = False
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """The name of a new topic."""
        self._logs[name] = [_Log() for _ in range(partitions)]
        return name

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Takes the messages before the offset away, as retention does."""
        with self._changed:
            log = self._log(topic, partition)
            offset = min(offset, log.end)
            log.messages = log.messages[max(offset - log.start, 0) :]
            log.start = max(offset, log.start)

    def fail(self, call: str, *errors: Exception) -> None:
        """The next calls of that name (one of `CALLS`), by whomever, raise these errors in turn."""
        if call not in CALLS:
            raise ConfigError(f"{call!r} cannot be made to fail: say one of {', '.join(sorted(CALLS))}")
        with self._changed:
            self._failures[call].extend(errors)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all calls, also those that wait. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def metadata(self) -> Metadata:
        """One broker that leads everything."""
        with self._called("metadata"):
            topics = {
                name: tuple(PartitionMetadata(number, 1, (1,), (1,)) for number in range(len(logs)))
                for name, logs in self._logs.items()
            }
            return Metadata("in memory", 1, (Node(1, "memory", 9092),), topics)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises `UnknownTopic`."""
        with self._called("metadata"):
            if topic not in self._logs:
                raise UnknownTopic(f"there is no topic {topic}: check its name")
            return len(self._logs[topic])

    def offset_earliest(self, topic: str, partition: int) -> int:
        """The oldest offset of the partition."""
        at = TopicPartition(topic, partition)
        return self.offsets([at], OffsetSpec.EARLIEST)[at]

    def offset_latest(self, topic: str, partition: int) -> int:
        """The offset that the partition's next message will have."""
        at = TopicPartition(topic, partition)
        return self.offsets([at])[at]

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec | int = OffsetSpec.LATEST
    ) -> dict[TopicPartition, int]:
        """The offset of every partition; for a time in ms the first one since, -1 for none."""
        with self._called("offsets"):
            return {TopicPartition(*at): _offset(self._log(*at), spec) for at in partitions}

    def producer(self, conf: ProducerConf | None = None) -> MemoryProducer:
        """A producer."""
        with self._called():
            return MemoryProducer(self, conf or ProducerConf())

    def consumer(self, conf: ConsumerConf) -> MemoryConsumer:
        """A reader of one partition. Raises `UnknownTopic`."""
        with self._called():
            log, start = self._log(conf.topic, conf.partition), conf.start_offset
            if start < START_OFFSET_OLDEST:
                raise ConfigError(f"start_offset {start}: say an offset, or oldest or newest")
            newest = log.end if start == START_OFFSET_NEWEST else None
            return MemoryConsumer(self, conf, start if newest is None else newest)

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> MemoryOffsetCoordinator:
        """Whoever keeps the offsets of the group."""
        with self._called():
            return MemoryOffsetCoordinator(self, conf)

    def _called(self, call: str = "") -> threading.Condition:
        """The lock, for a call that is not made to fail."""
        with self._changed:
            if self._closed:
                raise Closed("the broker in memory is closed")
            if self._failures[call]:
                raise self._failures[call].popleft()
        return self._changed

    def _log(self, topic: str, partition: int) -> _Log:
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
        if not messages:
            raise ValueError("there is no message to produce")
        told = self.conf.required_acks is not RequiredAcks.NONE
        with self._broker._called("produce"):
            log = self._broker._log(topic, partition)
            now_ms, first = int(time.time() * 1000), log.end
            for offset, message in enumerate(messages, start=first):
                message.topic, message.partition = topic, partition
                timestamp_ms = now_ms if message.timestamp_ms is None else message.timestamp_ms
                log.messages.append(
                    replace(message, offset=offset, timestamp_ms=timestamp_ms, on_ack=None, on_nack=None)
                )
                if told:
                    message.offset = offset
            self._broker._changed.notify_all()
        return first if told else None


class MemoryConsumer(Closing):
    """A `Consumer`."""

    def __init__(self, broker: MemoryBroker, conf: ConsumerConf, start: int) -> None:
        self.conf = conf
        self.topic = conf.topic
        self.partition = conf.partition
        self._broker = broker
        self._next = start
        self._over = False

    def close(self) -> None:
        """Reads no more. Safe to call twice."""
        with self._broker._changed:
            self._over = True
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
        patience_s = None if self.conf.retry_limit < 0 else self.conf.no_data_after_s
        until = None if patience_s is None else time.monotonic() + patience_s
        broker = self._broker
        with broker._changed:
            self._check_open()
            log = broker._log(self.topic, self.partition)
            while True:
                left = None if until is None else max(until - time.monotonic(), 0.0)
                came = broker._changed.wait_for(lambda: self._news(log), left)
                self._check_open()
                broker._called("consume")
                if not came:
                    raise NoData(f"{self.topic}/{self.partition} has nothing after offset {log.end - 1} yet")
                if self._start(log) != log.end:  # else the news was an error, and another consumer's
                    return self._read(log, max_messages)

    def _read(self, log: _Log, max_messages: int) -> Batch:
        start = self._start(log)
        if not log.start <= start <= log.end:
            raise OffsetOutOfRange(self.topic, self.partition, start, log.start, log.end)
        found = log.messages[start - log.start :][:max_messages]
        self._next = start + len(found)
        return Batch(self.topic, self.partition, [replace(message) for message in found])

    def _start(self, log: _Log) -> int:
        return log.start if self._next == START_OFFSET_OLDEST else self._next

    def _news(self, log: _Log) -> bool:
        """Whether there is something to say: a message, an error, that it is over, or a place that is not."""
        over = self._over or self._broker._closed or self._broker._failures["consume"]
        return bool(over) or self._start(log) != log.end

    def _check_open(self) -> None:
        if self._over or self._broker._closed:
            raise Closed(f"the consumer of {self.topic}/{self.partition} is closed")


class MemoryOffsetCoordinator:
    """An `OffsetCoordinator`."""

    def __init__(self, broker: MemoryBroker, conf: OffsetCoordinatorConf) -> None:
        self.conf = conf
        self._broker = broker

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Has the group's offset written down."""
        with self._broker._called("commit"):
            self._broker._log(topic, partition)
            self._broker._committed[self.conf.consumer_group, topic, partition] = (offset, metadata)

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        """The group's committed offset and its metadata; (-1, "") where it has committed none."""
        with self._broker._called("offset"):
            return self._broker._committed.get((self.conf.consumer_group, topic, partition), (-1, ""))


def _offset(log: _Log, spec: OffsetSpec | int) -> int:
    if isinstance(spec, int):
        return next((each.offset for each in log.messages if (each.timestamp_ms or 0) >= spec), -1)
    return log.start if spec is OffsetSpec.EARLIEST else log.end
