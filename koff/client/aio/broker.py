"""A connection to a cluster, its producers and its offset coordinators, for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from koff.client.aio.async_closing import AsyncClosing, in_thread, wait_for_result
from koff.client.aio.consumer import Consumer
from koff.client.aio.turns import Turns
from koff.client.broker import broker, interfaces
from koff.client.broker.conf import BrokerConf, ConsumerConf, OffsetCoordinatorConf, ProducerConf
from koff.client.errors import ProduceError
from koff.client.message import Message

T = TypeVar("T")


def dial(addresses: str | Sequence[str], conf: BrokerConf | None = None) -> Broker:
    """A connection to a cluster. `async with` or `await` opens it, and raises as `koff.client.dial` does."""
    return Broker(partial(broker.dial, addresses, conf))


class Broker(AsyncClosing[interfaces.Client]):
    """A connection to one cluster, for tasks. `make` makes its core: `dial`, or that of a test double.

    What it makes is opened by `async with` or `await`, too. `close` closes all of it.
    """

    metadata = in_thread(interfaces.Client.metadata)
    partition_count = in_thread(interfaces.Client.partition_count)
    offset_earliest = in_thread(interfaces.Client.offset_earliest)
    offset_latest = in_thread(interfaces.Client.offset_latest)
    offsets = in_thread(interfaces.Client.offsets)

    def producer(self, conf: ProducerConf | None = None) -> Producer:
        """A producer."""
        return Producer(lambda: self.core.producer(conf), self)

    def consumer(self, conf: ConsumerConf) -> Consumer:
        """A consumer of one partition. Opening it raises as `koff.client.Broker.consumer` does."""
        return Consumer(lambda: self.core.consumer(conf), conf, self)

    def offset_coordinator(self, conf: OffsetCoordinatorConf) -> OffsetCoordinator:
        """The committed offsets of one group."""
        return OffsetCoordinator(lambda: self.core.offset_coordinator(conf), self)


class Producer(AsyncClosing[interfaces.Producer]):
    """Writes messages to the partition that the caller names. Tasks may share it.

    The messages of different calls are written in the order of the calls. While a million messages are on
    their way, calls wait.
    """

    def __init__(self, make: Callable[[], interfaces.Producer], parent: AsyncClosing[Any]) -> None:
        super().__init__(make, parent)
        self._turns = Turns()

    async def produce(
        self, topic: str, partition: int, *messages: Message, timeout_s: float | None = None
    ) -> int | None:
        """Writes the messages and returns the offset of the first, as `koff.client.Producer.produce` does.

        Raises `ProduceError` after `timeout_s`. The messages that were sent by then are `unknown`: they may
        be written later, and so may those of a call that is cancelled.
        """
        is_sent = False

        def send() -> Any:
            nonlocal is_sent
            is_sent = True
            return self.core.produce_async(topic, partition, *messages)

        try:
            async with asyncio.timeout(timeout_s):
                return await wait_for_result(await self._turns.call(self, send))
        except TimeoutError:
            reasons = dict.fromkeys(range(len(messages)), f"not acknowledged within {timeout_s} s")
            unknown = list(reasons) if is_sent else ()
            raise ProduceError(f"{topic}/{partition}", len(messages), reasons, unknown) from None


class OffsetCoordinator(AsyncClosing[interfaces.OffsetCoordinator]):
    """The committed offsets of one group. Calls are made in turn, also after one that was cancelled.

    So an offset whose commit was cancelled is either committed before the next call, or not at all.
    """

    def __init__(self, make: Callable[[], interfaces.OffsetCoordinator], parent: AsyncClosing[Any]) -> None:
        super().__init__(make, parent)
        self._turns = Turns()

    async def call_in_thread(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """The result of the call, after those before it."""
        return await self._turns.call(self, partial(call, *args, **options))

    commit = in_thread(interfaces.OffsetCoordinator.commit)
    commit_offsets = in_thread(interfaces.OffsetCoordinator.commit_offsets)
    delete_offsets = in_thread(interfaces.OffsetCoordinator.delete_offsets)
    offset = in_thread(interfaces.OffsetCoordinator.offset)
    offsets = in_thread(interfaces.OffsetCoordinator.offsets)
