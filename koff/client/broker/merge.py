"""`merge` makes one stream of the messages of many consumers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from koff.client.batch import Batch
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.interfaces import Consumer
from koff.client.closing import Closing
from koff.client.errors import MxClosed, MxError, NoData
from koff.client.foreign_errors import make_connect_error, map_foreign_errors
from koff.client.message import Message
from koff.errors import Closed

_BATCH_MESSAGES = 10_000
_MAX_QUEUED = 4
"""How many results of `ReadItems` may wait for the caller."""
_WAIT_S = 0.1
"""How long one read waits for messages: `close` does not end a wait."""
_CHECK_WAIT_S = 0.01
"""The same while a leader is asked for the end of a partition."""


class ReadBatch(NamedTuple):
    """A batch that was read ahead, and the consumer that it came from."""

    consumer: Consumer
    batch: Batch


MergedItem = ReadBatch | MxError
ReadItems = Callable[[list[Consumer]], list[MergedItem]]
"""Reads from the consumers once. Removes from the list each consumer that has ended."""


def merge(*consumers: Consumer) -> Mx:
    """One stream of the messages of all consumers, of one broker or of many. The caller closes it."""
    return Mx(consumers)


class Mx(Closing):
    """A merged stream of several consumers: a context manager and an iterator. Threads may share it.

    A consumer that raises `NoData` leaves the stream; when none is left, the stream closes. `consume` raises
    every other error as `MxError` with that error as its cause; the stream then continues. Closing the
    stream drops messages that were read ahead, and leaves the consumers open. Closing a consumer, or its
    broker, drops the messages that were read ahead from it.
    """

    # Consumers that share a feed are read by one thread. If all consumers share one feed, no thread is made:
    # the caller of `consume` reads, because a thread in between would only cost time.

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._queue: deque[list[MergedItem]] = deque()
        # Guards the queue and `_running_threads`. `_closed` is also read, and set at the end of a single
        # feed, without it.
        self._changed = threading.Condition()
        self._closed = False
        self._consume_lock = threading.Lock()  # taken before `_changed`
        self._unread: Iterator[Message] = iter(())
        self._source: Consumer | None = None  # of `_unread`
        self._items: deque[MergedItem] = deque()
        groups = _group_by_feed(consumers)
        self._single = groups[0] if len(groups) == 1 and groups[0][0] is _read_shared else None
        self._running_threads = 0 if self._single else len(groups)
        for number, group in enumerate([] if self._single else groups):
            name = f"koff-mx-{number}"
            with map_foreign_errors("the streams cannot be merged", partial(make_connect_error, "")):
                threading.Thread(target=self._run_reader, args=group, name=name, daemon=True).start()

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
                yield self.consume()
        except MxClosed:
            return

    def consume(self) -> Message:
        """The next message of any consumer.

        Raises `MxClosed` when the stream is closed, and `MxError` when a consumer failed.
        """
        with self._consume_lock:
            while True:
                message = None if self._closed else next(self._unread, None)
                if message is not None and not _is_closed(self._source):
                    return message
                self._source, batch = self._next_item()
                self._unread = batch.drain()

    def consume_batch(self) -> Batch:
        """The next messages of one of the consumers, at least one. Raises as `consume` does."""
        with self._consume_lock:
            unread = [] if self._closed or _is_closed(self._source) else list(self._unread)
            self._unread = iter(())
            if unread:
                return Batch(unread[0].topic, unread[0].partition, unread)
            return self._next_item().batch

    def _next_item(self) -> ReadBatch:
        while True:
            if not self._items:
                self._items.extend(self._read_single_feed() if self._single else self._pop_queue())
            if self._closed:
                raise MxClosed("the merged stream is closed")
            item = self._items.popleft()
            if isinstance(item, MxError):
                raise item
            if not _is_closed(item.consumer):
                return item

    def _read_single_feed(self) -> list[MergedItem]:
        """Reads the one feed until it has items. Closes the stream when no consumer is left."""
        assert self._single is not None
        read, consumers = self._single
        items: list[MergedItem] = []
        while not items and not self._closed:
            items = read(consumers)
            self._closed = self._closed or not (items or consumers)  # errors are returned before the end
        return items

    def _pop_queue(self) -> list[MergedItem]:
        """Waits for items of the reading threads. Closes the stream when all threads have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed or not self._running_threads)
            self._closed = self._closed or not self._queue
            self._changed.notify_all()
            return [] if self._closed else self._queue.popleft()

    def _put_items(self, items: list[MergedItem]) -> bool:
        """Waits for room in the queue, and adds the items. Returns false if the stream is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._queue) < _MAX_QUEUED)
            if not self._closed:
                self._queue.append(items)
                self._changed.notify_all()
            return not self._closed

    def _run_reader(self, read: ReadItems, consumers: list[Consumer]) -> None:
        """Reads for the stream until it is closed or no consumer is left."""
        try:
            is_open = True
            while consumers and is_open:
                items = read(consumers)
                is_open = self._put_items(items) if items else not self._closed
        finally:
            with self._changed:
                self._running_threads -= 1
                self._changed.notify_all()


def _group_by_feed(consumers: Sequence[Consumer]) -> list[tuple[ReadItems, list[Consumer]]]:
    """Groups of consumers that are read together, with the function that reads each group."""
    by_feed: dict[int, list[Consumer]] = {}  # by identity of the feed
    others: list[list[Consumer]] = []  # consumers of other classes, each read by itself
    for consumer in dict.fromkeys(consumers):  # each consumer once
        if isinstance(consumer, PartitionConsumer):
            consumer.start_waiting()
            by_feed.setdefault(id(consumer.feed), []).append(consumer)
        else:
            others.append([consumer])
    return [
        *((_read_shared, group) for group in by_feed.values()),
        *((_read_alone, group) for group in others),
    ]


def _read_alone(consumers: list[Consumer]) -> list[MergedItem]:
    return _read_consumer(consumers, consumers[0], lambda: consumers[0].consume_batch(_BATCH_MESSAGES))


def _read_shared(consumers: list[Consumer]) -> list[MergedItem]:
    """Batches and errors of the consumers. [] after `_WAIT_S` without messages."""
    items: list[MergedItem] = []
    for consumer in list(consumers):
        assert isinstance(consumer, PartitionConsumer)
        items += _read_consumer(consumers, consumer, partial(consumer.poll_batch, _BATCH_MESSAGES))
    if not items and consumers:
        shared = [consumer for consumer in consumers if isinstance(consumer, PartitionConsumer)]
        first = shared[0]  # all have the same feed
        try:
            wait_s = _CHECK_WAIT_S if any(consumer.is_checking for consumer in shared) else _WAIT_S
            first.feed.wait_for_messages([consumer.buffer for consumer in shared], wait_s)
        except Exception as error:
            items.append(_wrap_error(first, error))
            if isinstance(error, Closed):  # the feed is closed, and with it all of these consumers
                consumers.clear()
    return items


def _read_consumer(
    consumers: list[Consumer], consumer: Consumer, read: Callable[[], Batch | None]
) -> list[MergedItem]:
    """The consumer's batch or error. Removes the consumer from `consumers` if it has ended."""
    try:
        batch = read()
    except NoData:
        consumers.remove(consumer)
        return []
    except Exception as error:
        if isinstance(error, Closed):
            consumers.remove(consumer)
        return [_wrap_error(consumer, error)]
    return [ReadBatch(consumer, batch)] if batch is not None else []


def _is_closed(consumer: Consumer | None) -> bool:
    # Not in the protocol `Consumer`: a consumer of another class raises `Closed` when it is read.
    return getattr(consumer, "closed", False)


def _wrap_error(consumer: Consumer, error: Exception) -> MxError:
    wrapped = MxError(
        f"{consumer.topic}/{consumer.partition}: {error}",
        topic=consumer.topic,
        partition=consumer.partition,
    )
    wrapped.__cause__ = error
    return wrapped
