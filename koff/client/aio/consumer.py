"""A consumer of one partition, for tasks."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from koff.client.aio.async_closing import AsyncClosing, Attribute
from koff.client.aio.turns import Items, Turns
from koff.client.batch import BATCH_MESSAGES, Batch
from koff.client.broker import interfaces
from koff.client.broker.conf import ConsumerConf
from koff.client.errors import NoData
from koff.client.message import Message
from koff.errors import Closed

_READ_AHEAD = 2_400
"""How many messages the thread reads at once, at least: a turn of it costs as much as some hundred."""


class Consumer(AsyncClosing[interfaces.Consumer]):
    """Reads one partition in order. An async context manager, and an async iterator as `koff.client`'s is.

    The thread that reads takes some thousand messages at once, and only while a task waits. What it has when
    the task is cancelled is returned by the next call.
    """

    skipped = Attribute[int]()

    def __init__(
        self, make: Callable[[], interfaces.Consumer], conf: ConsumerConf, parent: AsyncClosing[Any]
    ) -> None:
        super().__init__(make, parent)
        self.conf, self.topic, self.partition = conf, conf.topic, conf.partition
        self._turns = Turns()
        # What was read and not returned: messages, and batches after them.
        self._unread: deque[Message] = deque()
        self._batches: deque[Batch] = deque()

    async def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message. Raises as `koff.client.Consumer.consume` does."""
        return await self._turns.take(self, self._poll_message, self._read, timeout_s)

    async def consume_batch(
        self, max_messages: int = BATCH_MESSAGES, *, timeout_s: float | None = None
    ) -> Batch:
        """The next messages, at least one, as soon as there are any. Raises as `consume` does."""
        poll = partial(self._poll_batch, max_messages)
        return await self._turns.take(self, poll, partial(self._read, max_messages=max_messages), timeout_s)

    async def position(self) -> int:
        """The offset of the next message, as far as it is known: there may be none at that offset."""
        position = await self._turns.call(self, self.core.position)
        unread = self._fill_unread()
        return unread[0].offset if unread else position

    async def seek(self, offset: int | str) -> None:
        """Continues at that offset, or at a `StartOffset`, also as text. Drops what was read ahead."""
        await self._turns.call(self, partial(self._seek, offset))

    def __aiter__(self) -> AsyncIterator[Message]:
        """The messages. Ends where `consume` would raise `NoData`, and when the consumer is closed."""
        return Items(self.consume, NoData, Closed, poll=self._poll_in_turn)

    def end_wait(self) -> None:
        """Ends the wait for messages."""
        self.core.wake()

    # In the loop's thread.

    def _poll_in_turn(self) -> Message | None:
        return None if self._turns.is_over else self._poll_message()

    def _poll_message(self) -> Message | None:
        unread = self._unread or self._fill_unread()
        return unread.popleft() if unread and not self._is_closed else None

    def _poll_batch(self, max_messages: int) -> Batch | None:
        if max_messages < 1 or self._is_closed:
            return None
        if not self._unread:
            return self._take_batch(max_messages)
        messages = [self._unread.popleft() for _ in range(min(max_messages, len(self._unread)))]
        return Batch(self.topic, self.partition, messages)

    def _take_batch(self, max_messages: int) -> Batch | None:
        if not self._batches:
            return None
        batch = self._batches.popleft()
        if len(batch) > max_messages:
            batch, rest = batch.split(max_messages)
            self._batches.appendleft(rest)
        return batch

    def _fill_unread(self) -> deque[Message]:
        """The messages that come next, at least one if there is one. None of a consumer that is closed."""
        if self._is_closed:
            return deque()
        if not self._unread:
            self._unread.extend(self._take_batch(BATCH_MESSAGES) or ())
        return self._unread

    @property
    def _is_closed(self) -> bool:
        core: Any = self._core  # not `core`: this is asked for each message
        return bool(core.closed)

    # In a thread, one at a time.

    def _read(self, timeout_s: float | None, max_messages: int = 1) -> None:
        # The core raises the error for less than one message.
        count = max(max_messages, _READ_AHEAD) if max_messages > 0 else max_messages
        self._batches.append(self.core.consume_batch(count, timeout_s=timeout_s))

    def _seek(self, offset: int | str) -> None:
        self.core.seek(offset)
        self._batches.clear()
        self._unread.clear()
