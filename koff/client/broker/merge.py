"""One stream of messages from many consumers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from koff.client.batch import Batch
from koff.client.broker.consumer import PartitionConsumer
from koff.client.broker.interfaces import Consumer
from koff.client.closing import Closing
from koff.client.errors import MxClosed, MxError, NoData
from koff.client.message import Message
from koff.errors import Closed

_BATCH = 10_000
_AHEAD = 4
"""Lists of batches that wait for the caller, at most."""
_LOOK_S = 0.1

Item = Batch | MxError
Read = Callable[[list[Consumer]], list[Item]]


def merge(*consumers: Consumer) -> Mx:
    """One stream of what all of them read, of one broker or of many."""
    return Mx(consumers)


class Mx(Closing):
    """A merged stream: a context manager and an iterator. Threads may share `consume`.

    A consumer that raises `NoData` drops out; when none is left the stream closes. Any other failure comes
    out of `consume` as `MxError` with that failure as its cause, and its consumer is asked again.
    Consumers that share a feed share a thread here, and need none when there are no others. Closing drops
    what was read ahead, and leaves the consumers open.
    """

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._items: deque[list[Item]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._reading = threading.Lock()
        self._left: Iterator[Message] = iter(())
        self._batches: deque[Item] = deque()
        groups = _grouped(consumers)
        self._only = groups[0] if len(groups) == 1 and groups[0][0] is _read_shared else None
        self._working = 0 if self._only else len(groups)
        for number, group in enumerate([] if self._only else groups):
            name = f"koff-mx-{number}"
            threading.Thread(target=self._work, args=group, name=name, daemon=True).start()

    def close(self) -> None:
        """Ends the stream and does not wait for those who are reading for it. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Message]:
        """The messages, until the stream closes."""
        try:
            while True:
                yield self.consume()
        except MxClosed:
            return

    def consume(self) -> Message:
        """The next message of any consumer. Raises `MxClosed` when there will be none, and `MxError`."""
        with self._reading:
            message = None if self._closed else next(self._left, None)
            if message is None:
                self._left = iter(self._next())
                message = next(self._left)
            return message

    def consume_batch(self) -> Batch:
        """The next messages of any one consumer, at least one. Raises as `consume` does."""
        with self._reading:
            left = [] if self._closed else list(self._left)
            return Batch(left[0].topic, left[0].partition, left) if left else self._next()

    def _next(self) -> Batch:
        if not self._batches:
            self._batches.extend(self._read() if self._only else self._taken())
        if self._closed:
            raise MxClosed("the merged stream is closed")
        item = self._batches.popleft()
        if isinstance(item, MxError):
            raise item
        return item

    def _read(self) -> list[Item]:
        """What the one feed has that all consumers share: a thread in between would only cost."""
        assert self._only is not None
        read, consumers = self._only
        items: list[Item] = []
        while not items and not self._closed:
            items = read(consumers)
            self._closed = self._closed or not (items or consumers)
        return items

    def _taken(self) -> list[Item]:
        """What those have read who read for the stream."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed or not self._working)
            self._closed = self._closed or not self._items
            self._changed.notify_all()
            return [] if self._closed else self._items.popleft()

    def _put(self, items: list[Item]) -> bool:
        """Hands them over once there is room; false when the stream is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < _AHEAD)
            if not self._closed:
                self._items.append(items)
                self._changed.notify_all()
            return not self._closed

    def _work(self, read: Read, consumers: list[Consumer]) -> None:
        """Reads for the stream until it is closed, or there is nobody left to read from."""
        try:
            going = True
            while consumers and going:
                items = read(consumers)
                going = self._put(items) if items else not self._closed
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()


def _grouped(consumers: Sequence[Consumer]) -> list[tuple[Read, list[Consumer]]]:
    """How to read, and from whom: together where they share a feed."""
    shared: dict[int, list[Consumer]] = {}
    alone: list[list[Consumer]] = []
    for consumer in dict.fromkeys(consumers):
        if isinstance(consumer, PartitionConsumer):
            consumer.begin()
            shared.setdefault(id(consumer.feed), []).append(consumer)
        else:
            alone.append([consumer])
    return [*((_read_shared, of) for of in shared.values()), *((_read_alone, of) for of in alone)]


def _read_alone(consumers: list[Consumer]) -> list[Item]:
    return _asked(consumers, consumers[0], lambda: consumers[0].consume_batch(_BATCH))


def _read_shared(consumers: list[Consumer]) -> list[Item]:
    """What has come for any of them; nothing after a moment without any."""
    items: list[Item] = []
    for consumer in list(consumers):
        assert isinstance(consumer, PartitionConsumer)
        items += _asked(consumers, consumer, lambda of=consumer: of.ahead(_BATCH))  # type: ignore[misc]
    if not items and consumers:
        lanes = [each.lane for each in consumers if isinstance(each, PartitionConsumer)]
        first = next(each for each in consumers if isinstance(each, PartitionConsumer))
        try:
            first.feed.wait(lanes, _LOOK_S)
        except Exception as failure:
            items.append(_named(first, failure))
            if isinstance(failure, Closed):
                consumers.clear()
    return items


def _asked(consumers: list[Consumer], consumer: Consumer, ask: Callable[[], Batch | None]) -> list[Item]:
    """Its batch or its failure; drops it from `consumers` when that was its last word."""
    try:
        batch = ask()
    except NoData:
        consumers.remove(consumer)
        return []
    except Exception as failure:
        if isinstance(failure, Closed):
            consumers.remove(consumer)
        return [_named(consumer, failure)]
    return [batch] if batch is not None else []


def _named(consumer: Consumer, failure: Exception) -> MxError:
    error = MxError(
        f"{consumer.topic}/{consumer.partition}: {failure}",
        topic=consumer.topic,
        partition=consumer.partition,
    )
    error.__cause__ = failure
    return error
