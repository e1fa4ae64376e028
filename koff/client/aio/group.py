"""A member of a consumer group on ZooKeeper, for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from koff.client.aio.async_closing import AsyncClosing, Attribute
from koff.client.aio.clusters import carry_nack
from koff.client.aio.turns import Items, Turns, iterate_in_thread
from koff.client.cluster_conf import TopicPartition
from koff.client.message import Message
from koff.client.redelivery.conf import RedeliveryCounts
from koff.errors import Closed, KoffError

if TYPE_CHECKING:  # it needs kazoo, which is imported when a member joins
    from koff.client.zookeeper import ConsumerGroup as Member
    from koff.client.zookeeper import ConsumerGroupConf


def join_consumer_group(
    name: str,
    topics: str | Sequence[str],
    zookeeper: str | Sequence[str],
    config: ConsumerGroupConf | None = None,
    join: Callable[..., Any] | None = None,
) -> ConsumerGroup:
    """A member of the group. It joins when `async with` or `await` opens it.

    Opening raises as `koff.client.zookeeper.join_consumer_group` does. `join` is that of a test double.
    """

    def make() -> Member:
        from koff.client.zookeeper import join_consumer_group as join_real

        member: Member = (join or join_real)(name, topics, zookeeper, config)
        return member

    return ConsumerGroup(make)


class ConsumerGroup(AsyncClosing["Member"]):
    """One member of a group, made by `join_consumer_group`. An async context manager and iterator.

    When the `async with` block ends by an exception, a cancellation too, the member leaves without waiting
    until handed-out messages are processed. `ack` and `nack` of a message do not block the loop.
    """

    name = Attribute[str]()
    topics = Attribute[tuple[str, ...]]()
    id = Attribute[str]()
    closed = Attribute[bool]()
    claims = Attribute[dict[TopicPartition, int]]()
    redelivery_counts = Attribute[RedeliveryCounts]()

    def __init__(self, make: Callable[[], Member]) -> None:
        super().__init__(make)
        self._turns = Turns()
        self._is_closing = False
        self._iterating: WeakKeyDictionary[object, asyncio.Task[Any] | None] = WeakKeyDictionary()
        """The task of each iterator that is in use."""

    async def __aexit__(self, *error: Any) -> None:
        self._is_closing = True
        await super().__aexit__(*error)

    async def close(self) -> None:
        """Leaves the group, as `koff.client.zookeeper.ConsumerGroup.close` does, and raises as it does.

        A task that iterates over the messages cannot wait for the message that it is processing itself. So
        there `close` returns at once: the iterator ends after that message, and the end of the `async with`
        block waits for the shutdown and raises its errors.
        """
        is_first, self._is_closing = not self._is_closing, True
        if not is_first:
            from koff.client.zookeeper.errors import AlreadyClosing

            # Not asked of the core: the thread of the first call may not have reached it yet.
            raise AlreadyClosing(f"the consumer group {self.name} is already shutting down")
        if asyncio.current_task() in self._iterating.values():
            self.begin_call(self.core.close)
        else:
            await super().close()

    async def wait_closed(self, timeout_s: float | None = None) -> bool:
        """Waits until the shutdown is completed; returns whether it is."""
        return await self.call_in_thread(self.core.wait_closed, timeout_s)

    async def consume(self, *, timeout_s: float | None = None) -> Message:
        """The next message, which the program acknowledges.

        Raises `NoDataInTime` after `timeout_s`, and `Closed` once the shutdown has begun.
        """
        message = await self._turns.take(self, self._poll, self.core.wait_for_message, timeout_s)
        carry_nack(self, message)
        return message

    def messages(self) -> AsyncIterator[Message]:
        """The messages of this member's partitions, as they arrive; ends when `close` is called."""
        iterator = _Iterator()

        async def take() -> Message:
            self._iterating[iterator] = asyncio.current_task()
            return await self.consume()

        return Items(take, Closed)

    __aiter__ = messages

    def errors(self) -> AsyncIterator[KoffError]:
        """The errors of this member, as they occur; ends when the shutdown is completed."""
        return iterate_in_thread(self, self.core.errors())

    def commit_up_to(self, message: Message) -> None:
        """Marks the message, and all before it in its partition, as processed. Raises `ClaimLost`."""
        self.core.commit_up_to(message)

    async def flush_offsets(self) -> None:
        """Commits the offsets of all processed messages now. Raises `KoffError` when that fails."""
        await self.call_in_thread(self.core.flush_offsets)

    async def instance_registered(self) -> bool:
        """Whether this member is registered, as ZooKeeper says now. Raises `ConnectError`."""
        return await self.call_in_thread(self.core.instance_registered)

    async def owns(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition, as ZooKeeper says now. Raises `ConnectError`."""
        return await self.call_in_thread(self.core.owns, topic, partition)

    def _poll(self) -> Message | None:
        if self._is_closing:
            raise Closed("the consumer group is closed")
        return self.core.poll_message()


class _Iterator:
    """Stands for an iterator in `_iterating` as long as it is used."""
