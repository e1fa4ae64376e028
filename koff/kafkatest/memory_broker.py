"""A cluster in memory: a `Client` of `koff.client` that needs no Kafka, starts no thread and takes no time.

    broker = MemoryBroker({"orders": 3})
    broker.producer().produce("orders", 0, Message(b"one"))
    broker.fail("commit", ConnectError("the coordinator is away"))
    broker.delay("produce", 2.0)
    broker.clock.call_later(5.0, lambda: broker.producer().produce("orders", 0, Message(b"later")))

It behaves as a real broker does: the same contract tests run against both.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from koff.client.broker.conf import ConsumerConf, OffsetCoordinatorConf, ProducerConf
from koff.client.closing import Closing
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.message import Message
from koff.client.message_check import choose_timestamp
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset
from koff.client.topic_names import check_partition
from koff.errors import Closed, ConfigError, copy_error
from koff.kafkatest.memory_consumer import MemoryConsumer
from koff.kafkatest.memory_log import PartitionLog
from koff.kafkatest.memory_producer import (
    BrokerDown,
    MemoryOffsetCoordinator,
    MemoryProducer,
    make_produce_error,
)
from koff.kafkatest.virtual_clock import VirtualClock

CALLS = frozenset({"metadata", "offsets", "produce", "consume", "commit", "offset"})
"""The calls that are recorded, and that `fail` and `delay` know."""


@dataclass(slots=True)
class Call:
    """A call that a program made: its name, when it began (`clock.now_s`), and its arguments.

    `error` is what it raised, None if it succeeded or has not ended.
    """

    name: str
    at_s: float
    arguments: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None


class MemoryBroker(Closing):
    """A `Client` with the given topics (name to partition count). Threads may share it.

    `clock` is its time: several doubles may share one. `name` and `patience_s` are as in `BrokerConf`.
    `calls` has the calls so far, and `produced` the messages that were written, in order.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        clock: VirtualClock | None = None,
        name: str = "memory:9092",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.name = name
        self._patience_s = patience_s
        self.calls: list[Call] = []
        self.produced: list[Message] = []
        self.closed = self.is_down = False
        self.committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        """The offset and the metadata that groups have committed, by group, topic and partition."""
        self._logs: dict[str, list[PartitionLog]] = {}
        self._errors: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._delays: defaultdict[str, deque[float]] = defaultdict(deque)
        self._unfinished: list[tuple[Future[int | None], str, int]] = []
        for topic, partitions in (topics or {}).items():
            self.create_topic(topic, partitions)

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Creates an empty topic, also in place of an old one, and returns its name."""
        with self.clock.changed:
            self._logs[name] = [PartitionLog() for _ in range(partitions)]
            self.clock.changed.notify_all()
        return name

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the messages before the offset, as retention does."""
        with self.clock.changed:
            self.find_log(topic, partition).delete_before(offset)
            self.clock.changed.notify_all()

    def fail(self, call: str, *errors: Exception) -> None:
        """Makes the next calls of that name (one of `CALLS`), by any caller, raise these errors in turn."""
        self._script(self._errors[_check_call(call)], errors)

    def delay(self, call: str, *seconds: float) -> None:
        """Makes the next calls of that name, by any caller, take so long in turn, in the time of `clock`."""
        self._script(self._delays[_check_call(call)], seconds)

    def go_down(self) -> None:
        """Makes each call wait for `come_back`, and raise an error after `patience_s` in the time of `clock`.

        The error is `ConnectError`, that of `produce` a `ProduceError` (which is in doubt, as of a real one).
        """
        self._set_down(True)

    def come_back(self) -> None:
        """Ends what `go_down` began."""
        self._set_down(False)

    def has_script(self, call: str) -> bool:
        """Whether `fail`, `delay` or `go_down` has something for the next call of that name."""
        return bool(self.is_down or self._errors[call] or self._delays[call])

    def close(self) -> None:
        """Makes every call raise `Closed`, also the calls that wait. Safe to call twice."""
        with self.clock.changed:
            self.closed = True
            self.clock.changed.notify_all()
            unfinished, self._unfinished = self._unfinished, []
        for future, place, count in unfinished:
            if not future.done():
                future.set_exception(make_produce_error(place, count, Closed("the producer is closed")))

    def metadata(self) -> Metadata:
        """The metadata of all topics: one broker leads every partition."""
        with self.begin_call("metadata"):
            topics = {
                name: tuple(PartitionMetadata(number, 1, (1,), (1,)) for number in range(len(logs)))
                for name, logs in self._logs.items()
            }
            return Metadata("in memory", 1, (Node(1, "memory", 9092),), topics)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has. Raises `UnknownTopic`."""
        with self.begin_call("metadata", topic=topic):
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
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec | int = OffsetSpec.LATEST,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offset of each partition. There are no transactions here: `isolation` changes nothing.

        `spec` may be a time in ms since the epoch: then the first offset at or after it, -1 without one.
        """
        if isinstance(spec, int) and not 0 <= spec < 1 << 63:
            raise ConfigError(f"{spec} is no time in ms since the epoch: use 0 or more")
        requested = [TopicPartition(*partition) for partition in partitions]
        with self.begin_call("offsets", partitions=requested, spec=spec):
            return {partition: self.find_log(*partition).find_offset(spec) for partition in requested}

    def producer(self, conf: ProducerConf | None = None) -> MemoryProducer:
        """A producer."""
        with self.begin_call():
            return MemoryProducer(self, conf or ProducerConf())

    def consumer(self, conf: ConsumerConf) -> MemoryConsumer:
        """A consumer of one partition. Raises `UnknownTopic`."""
        with self.begin_call():
            log, start = self.find_log(conf.topic, conf.partition), conf.start_offset
            return MemoryConsumer(self, conf, log.end if start == StartOffset.NEWEST else start)

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> MemoryOffsetCoordinator:
        """The coordinator that keeps the group's offsets."""
        with self.begin_call():
            return MemoryOffsetCoordinator(self, conf)

    @contextmanager
    def begin_call(self, call: str = "", **arguments: Any) -> Iterator[None]:
        """Records the call, lets its delay pass, and holds the lock of the clock.

        Raises the next error of `fail`, and `Closed` after `close`.
        """
        with self.clock.changed:
            made = Call(call, self.clock.now_s, arguments)
            try:
                self.check_open()
                if call:
                    self.calls.append(made)
                    if self._delays[call]:
                        self.clock.wait_for(lambda: self.closed, self._delays[call].popleft())
                        self.check_open()
                    self._wait_while_down()
                    if self._errors[call]:
                        raise self._errors[call].popleft()
                yield
            except Exception as error:
                made.error = copy_error(error)
                raise

    def _wait_while_down(self) -> None:
        self.clock.wait_for(lambda: self.closed or not self.is_down, self._patience_s)
        self.check_open()
        if self.is_down:
            raise BrokerDown("the broker in memory is down: see `come_back`")

    def find_log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition. Raises `UnknownTopic`."""
        check_partition(topic, partition)
        logs = self._logs.get(topic)
        if logs is None or not 0 <= partition < len(logs):
            raise UnknownTopic(f"there is no {topic}/{partition}: check topic and partition")
        return logs[partition]

    def count_partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if there is no such topic."""
        return len(self._logs.get(topic, ()))

    def append(self, topic: str, partition: int, messages: Iterable[Message]) -> int:
        """Appends copies of the messages to the log. Returns the offset of the first."""
        log = self.find_log(topic, partition)
        first = log.end
        for offset, message in enumerate(messages, start=first):
            timestamp_ms = choose_timestamp(message) or self.clock.now_ms
            # A copy: the caller may change and produce its message again.
            written = replace(message, offset=offset, timestamp_ms=timestamp_ms, on_ack=None, on_nack=None)
            written.topic, written.partition = topic, partition
            log.messages.append(written)
            self.produced.append(written)
        self.clock.changed.notify_all()
        return first

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits all of the group's offsets or none. Raises `UnknownTopic`, and what `fail` says."""
        with self.begin_call("commit", group=group, offsets=dict(offsets), metadata=metadata):
            for topic, partition in offsets:
                self.find_log(topic, partition)
            for (topic, partition), offset in offsets.items():
                self.committed[group, topic, partition] = (offset, metadata)

    def take_delay(self, call: str) -> float:
        """The delay of the next call of that name, which the caller applies in place of `begin_call`."""
        with self.clock.changed:
            return self._delays[call].popleft() if self._delays[call] else 0.0

    def add_unfinished(self, future: Future[int | None], place: str, count: int) -> None:
        """Makes `close` fail this future of `count` messages, unless it is done before."""
        with self.clock.changed:
            self._unfinished = [each for each in self._unfinished if not each[0].done()]
            self._unfinished.append((future, place, count))

    def _script(self, script: deque[Any], added: Iterable[Any]) -> None:
        with self.clock.changed:
            script.extend(added)
            self.clock.changed.notify_all()

    def _set_down(self, is_down: bool) -> None:
        with self.clock.changed:
            self.is_down = is_down
            self.clock.changed.notify_all()

    def check_open(self) -> None:
        """Raises `Closed` after `close`."""
        if self.closed:
            raise Closed("the broker in memory is closed")


def _check_call(call: str) -> str:
    if call not in CALLS:
        raise ConfigError(f"{call!r} cannot be scripted: use one of {', '.join(sorted(CALLS))}")
    return call
