"""`merge` makes one stream of the messages of many consumers."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from koff.client.batch import BATCH_MESSAGES, Batch
from koff.client.broker.consumer import LEAST_WAIT_S, PartitionConsumer, check_timeout, read_consumers
from koff.client.broker.interfaces import Consumer
from koff.client.closing import Closing
from koff.client.errors import MxClosed, MxError, NoData, NoDataInTime
from koff.client.foreign_errors import start_thread
from koff.client.message import Message
from koff.errors import Closed, copy_error

_MAX_QUEUED = 4
"""While so many items wait for the caller, the threads read no more."""
_WAIT_S = 0.1
"""How long one read waits for messages: `close` does not end a wait."""
_OPEN = SimpleNamespace(closed=False)
"""For consumers that do not tell whether they are closed: they raise `Closed` when they are read."""


class ReadBatch(NamedTuple):
    """A batch that was read ahead. `source` tells whether it is `closed`: messages of it are dropped then."""

    source: Any
    batch: Batch


MergedItem = ReadBatch | MxError
ReadItems = Callable[[list[Any], float], list[MergedItem]]
"""Reads from the consumers once; waits so many seconds for messages. Removes consumers that have ended."""


def merge(*consumers: Consumer) -> Mx:
    """One stream of the messages of all consumers, of one broker or of many. The caller closes it.

    A consumer of your own needs only a method `consume`.
    """
    return Mx(consumers)


class Mx(Closing):
    """A merged stream of several consumers: a context manager and an iterator. Threads may share it.

    A consumer that raises `NoData` leaves the stream; when none is left, the stream closes. `consume` raises
    every other error as `MxError` with that error as its cause; the stream then continues. Closing the
    stream drops messages that were read ahead, and leaves the consumers open. Closing a consumer, or its
    broker, drops the messages that were read ahead from it; so does `seek` of a `PartitionConsumer`.
    """

    # Consumers that share a feed are read by one thread. If all consumers share one feed, no thread is made:
    # the caller of `consume` reads, because a thread in between would only cost time.

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._queue: deque[MergedItem] = deque()
        self._changed = (
            threading.Condition()
        )  # guards the queue and the next two; they are read without it, too
        self._closed = False
        self._consume_lock = threading.Lock()  # taken before `_changed`; guards changes of the next one
        # A list's iterator gives each message to one thread only, without the lock.
        self._unread: tuple[Any, Iterator[Message]] = (_OPEN, iter(()))
        groups = _group_by_feed(consumers)
        self._single = groups[0] if len(groups) == 1 and groups[0][0] is _read_shared else None
        self._readers = len(groups)  # those that have not ended
        for number, group in enumerate([] if self._single else groups):
            name = f"koff-mx-{number}"
            thread = threading.Thread(target=self._run_reader, args=group, name=name, daemon=True)
            try:
                start_thread(thread, "the streams cannot be merged")
            except BaseException:  # too many threads: those before it end
                self.close()
                raise

    def close(self) -> None:
        """Ends the stream. Does not wait for threads that read. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Message]:
        """The messages, until the stream closes."""
        try:
            while True:
                source, unread = self._unread
                for message in unread:
                    if self._closed or source.closed:
                        break
                    yield message
                yield self.consume()
        except MxClosed:
            return

    def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message of any consumer.

        Raises `MxClosed` when the stream is closed, `MxError` when a consumer failed, and `NoDataInTime` when
        no message comes within `timeout_s`.
        """
        message = self._take_unread()
        if message is not None:
            return message
        with self._hold_turn(timeout_s) as until:
            while (message := self._take_unread()) is None:
                item = self._next_item(until)
                self._unread = item.source, iter(item.batch)
            return message

    def consume_batch(self, *, timeout_s: float | None = None) -> Batch:
        """The next messages of one of the consumers, at least one. Raises as `consume` does."""
        with self._hold_turn(timeout_s) as until:
            source, unread = self._unread
            rest = [] if self._closed or source.closed else list(unread)
            if rest:
                return Batch(rest[0].topic, rest[0].partition, rest)
            return self._next_item(until).batch

    def _take_unread(self) -> Message | None:
        """The next message that is built already. None if there is none, or if it must not be returned."""
        source, unread = self._unread
        for message in unread:
            return None if self._closed or source.closed else message
        return None

    @contextmanager
    def _hold_turn(self, timeout_s: float | None) -> Iterator[float]:
        """Lets one thread at a time read the next batch. Gives the end of the timeout (monotonic)."""
        self.check_process()
        until = check_timeout(timeout_s)
        if not self._consume_lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise NoDataInTime(f"no message came within {timeout_s} s: other threads wait for messages, too")
        try:
            yield until
        finally:
            self._consume_lock.release()

    def _next_item(self, until: float) -> ReadBatch:
        while True:
            if self._single and not self._queue:
                self._read_single_feed(until, *self._single)
            with self._changed:
                self._changed.wait_for(
                    lambda: self._queue or self._closed or not self._readers,
                    None if until == math.inf else until - time.monotonic(),
                )
                self._closed = self._closed or not (self._queue or self._readers)
                if self._closed:
                    raise MxClosed("the merged stream is closed")
                if not self._queue:
                    raise NoDataInTime("no message came within the timeout")
                item = self._queue.popleft()
                self._changed.notify_all()
            if isinstance(item, MxError):
                raise item
            if not item.source.closed:
                return item

    def _read_single_feed(self, until: float, read: ReadItems, consumers: list[Any]) -> None:
        """Reads the one feed, at least once, until it has items or no consumer is left."""
        while consumers and not self._closed:
            left_s = until - time.monotonic()
            items = read(consumers, max(min(left_s, _WAIT_S), LEAST_WAIT_S))
            self._queue.extend(items)
            self._readers = bool(consumers)
            if items or left_s <= 0:
                return

    def _put_items(self, items: list[MergedItem]) -> bool:
        """Waits for room in the queue, and adds the items. Returns false if the stream is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._queue) < _MAX_QUEUED)
            if not self._closed:
                self._queue.extend(items)
                self._changed.notify_all()
            return not self._closed

    def _run_reader(self, read: ReadItems, consumers: list[Any]) -> None:
        """Reads for the stream until it is closed or no consumer is left."""
        try:
            is_open = True
            while consumers and is_open:
                items = read(consumers, _WAIT_S)
                is_open = self._put_items(items) if items else not self._closed
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()


def _group_by_feed(consumers: Sequence[Consumer]) -> list[tuple[ReadItems, list[Any]]]:
    """Groups of consumers that are read together, with the function that reads each group."""
    groups: dict[int, list[Any]] = {}  # by identity of the feed; a consumer of another class is one by itself
    for consumer in dict.fromkeys(consumers):  # each consumer once
        feed: object = consumer
        if isinstance(consumer, PartitionConsumer):
            consumer.start_waiting()
            feed = consumer.feed
        groups.setdefault(id(feed), []).append(consumer)
    return [
        (_read_shared if isinstance(group[0], PartitionConsumer) else _read_alone, group)
        for group in groups.values()
    ]


def _read_alone(consumers: list[Any], wait_s: float) -> list[MergedItem]:
    """Waits until there are messages: the consumer may be a double, whose time is not the clock's."""
    (consumer,) = consumers
    source = consumer if hasattr(consumer, "closed") else _OPEN
    try:
        if hasattr(consumer, "consume_batch"):
            return [ReadBatch(source, consumer.consume_batch())]
        message = consumer.consume()
        return [ReadBatch(source, Batch(message.topic, message.partition, [message]))]
    except Exception as error:
        return _note_error(consumers, consumer, copy_error(error))


def _read_shared(consumers: list[Any], wait_s: float) -> list[MergedItem]:
    """Batches and errors of `PartitionConsumer`s with the same feed. [] after `wait_s` without messages."""
    items: list[MergedItem] = []
    try:
        read = read_consumers(dict.fromkeys(consumers, BATCH_MESSAGES), wait_s)
    except Exception as error:
        items.append(_wrap_error(consumers[0], copy_error(error)))
        if isinstance(error, Closed):  # the feed is closed, and with it all of these consumers
            consumers.clear()
        return items
    for consumer, buffer, result in read:
        if isinstance(result, Batch):
            items.append(ReadBatch(buffer, result))
        else:
            items += _note_error(consumers, consumer, result)
    return items


def _note_error(consumers: list[Any], consumer: Any, error: Exception) -> list[MergedItem]:
    """The error for the caller, none for `NoData`. Removes the consumer from `consumers` if it has ended."""
    if isinstance(error, NoData | Closed):
        consumers.remove(consumer)
    return [] if isinstance(error, NoData) else [_wrap_error(consumer, error)]


def _wrap_error(consumer: Any, error: Exception) -> MxError:
    topic, partition = getattr(consumer, "topic", ""), getattr(consumer, "partition", -1)
    name = f"{topic}/{partition}" if topic else type(consumer).__name__
    wrapped = MxError(f"{name}: {error}", topic=topic, partition=partition)
    wrapped.__cause__ = error
    return wrapped
