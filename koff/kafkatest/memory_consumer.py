"""A consumer of one partition of a cluster in memory."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from koff.client.batch import BATCH_MESSAGES, Batch
from koff.client.broker.conf import ConsumerConf
from koff.client.broker.consumer import check_timeout
from koff.client.closing import Closing
from koff.client.errors import NoData, NoDataInTime, OffsetOutOfRange, TopicRecreated, Woken
from koff.client.message import Message
from koff.client.start_offset import StartOffset, parse_start
from koff.errors import Closed, ConfigError
from koff.kafkatest.memory_log import PartitionLog
from koff.kafkatest.virtual_clock import VirtualClock


class ConsumedBroker(Protocol):
    """The part of a `MemoryBroker` that its consumers use."""

    clock: VirtualClock
    closed: bool
    name: str

    def begin_call(self, call: str = "", **arguments: Any) -> AbstractContextManager[None]: ...

    def find_log(self, topic: str, partition: int) -> PartitionLog: ...

    def has_script(self, call: str) -> bool: ...


class MemoryConsumer(Closing):
    """A `Consumer`. Its waits take no real time, as `VirtualClock` says."""

    def __init__(self, broker: ConsumedBroker, conf: ConsumerConf, start: int) -> None:
        self.conf = conf
        self.topic = conf.topic
        self.partition = conf.partition
        self.skipped = 0
        self._broker = broker
        self._next = start
        self._log = broker.find_log(conf.topic, conf.partition)
        self._closed = self._is_woken = False
        self._waiting_since: float | None = None
        """Since when calls wait in vain, one after another: `NoData` comes after their time together."""

    @property
    def closed(self) -> bool:
        """Whether the consumer or its broker was closed."""
        return self._closed or self._broker.closed

    def wake(self) -> None:
        """Makes a call of another thread that waits for messages raise `Woken`, or else the next wait."""
        with self._broker.clock.changed:
            self._is_woken = True
            self._broker.clock.changed.notify_all()

    def close(self) -> None:
        """Makes every call raise `Closed`, also the calls that wait. Safe to call twice."""
        with self._broker.clock.changed:
            self._closed = True
            self._broker.clock.changed.notify_all()

    def __iter__(self) -> Iterator[Message]:
        """The messages, until there is `NoData`, or the consumer is closed."""
        try:
            while True:
                yield self.consume()
        except (NoData, Closed):
            return

    def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message."""
        return self.consume_batch(1, timeout_s=timeout_s)[0]

    def consume_batch(self, max_messages: int = BATCH_MESSAGES, *, timeout_s: float | None = None) -> Batch:
        """The next messages, at least one, as soon as there are some."""
        if max_messages < 1:
            raise ConfigError(f"a batch of {max_messages} messages cannot be consumed: use 1 or more")
        check_timeout(timeout_s)
        broker, clock = self._broker, self._broker.clock
        with clock.changed:
            self._check_open()
            since = clock.now_s if self._waiting_since is None else self._waiting_since
            self._waiting_since = None
            until = clock.now_s + (float("inf") if timeout_s is None else timeout_s)
            no_data_at = float("inf") if self.conf.retry_limit < 0 else since + self.conf.no_data_after_s
            while True:
                wait_s = max(min(until, no_data_at) - clock.now_s, 0.0)
                ready = clock.wait_for(lambda: self._is_woken or self._is_ready(), wait_s)
                self._check_open()
                if self._is_woken and not self._is_ready():
                    self._is_woken = False
                    raise Woken(f"the wait for messages of {self.topic}/{self.partition} was ended by wake")
                if not ready and until < no_data_at:
                    self._waiting_since = since
                    raise NoDataInTime(
                        f"nothing came from {self.topic}/{self.partition} within {timeout_s} s"
                    )
                with broker.begin_call("consume", topic=self.topic, partition=self.partition):
                    log = broker.find_log(self.topic, self.partition)
                    if not ready:
                        raise NoData(
                            f"{self.topic}/{self.partition} has no message after offset {log.end - 1} yet"
                        )
                    # Without a message, an error or a delay woke this consumer, and another consumer took it.
                    if log is not self._log:
                        self._leave_log(log)
                    elif self._position(log) != log.end and (batch := self._read_batch(log, max_messages)):
                        return batch

    def position(self) -> int:
        """The offset of the next message."""
        with self._broker.clock.changed:
            self._check_open()
            return self._position(self._broker.find_log(self.topic, self.partition))

    def seek(self, offset: int | str) -> None:
        """Continues at that offset. Raises `ConfigError` for a negative one that has no meaning."""
        with self._broker.clock.changed:
            self._check_open()
            log = self._broker.find_log(self.topic, self.partition)
            self._next = log.resolve(parse_start(offset))

    def _read_batch(self, log: PartitionLog, max_messages: int) -> Batch | None:
        """The next messages; None if `on_out_of_range` has changed the position."""
        position, to = self._position(log), self.conf.on_out_of_range
        if not log.start <= position <= log.end:
            if to is None:
                raise OffsetOutOfRange(self.topic, self.partition, position, log.start, log.end)
            self._next = log.start if to is StartOffset.OLDEST else log.end
            self.skipped += max(self._next - position, 0)
            return None
        messages = log.read(position, max_messages)
        self._next = position + len(messages)
        return Batch(
            self.topic, self.partition, [replace(message, cluster=self._broker.name) for message in messages]
        )

    def _leave_log(self, log: PartitionLog) -> None:
        """Continues in the log of a topic that was created again, or raises `TopicRecreated`."""
        self._log, to = log, self.conf.on_out_of_range
        if to is None:
            raise TopicRecreated(self.topic, self.partition, self._next, log.start, log.end)
        self._next = log.start if to is StartOffset.OLDEST else log.end
        self.skipped += self._next - log.start

    def _position(self, log: PartitionLog) -> int:
        """The next offset to read. The oldest offset is looked up again until the first message is read."""
        return log.start if self._next == StartOffset.OLDEST else self._next

    def _is_ready(self) -> bool:
        """Whether a call can end: by a message, a script, a close, or an offset out of range."""
        if self.closed or self._broker.has_script("consume"):
            return True
        log = self._broker.find_log(self.topic, self.partition)
        return log is not self._log or self._position(log) != log.end

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the consumer of {self.topic}/{self.partition} is closed")
