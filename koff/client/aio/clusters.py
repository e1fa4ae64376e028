"""A reader of many clusters, and a writer to them, for tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from koff.client import multicluster
from koff.client.aio.async_closing import AsyncClosing, at_once, in_thread, wait_until_done
from koff.client.aio.turns import Items, Turns, iterate_in_thread
from koff.client.cluster_conf import ClusterConf
from koff.client.errors import NoDataInTime
from koff.client.message import Message
from koff.client.multicluster import ReaderConf, WriteError, WriteErrors, WriterConf
from koff.client.multicluster.pending_writes import WriteCall
from koff.client.patience import PATIENCE_S
from koff.errors import Closed, KoffError


class Reader(AsyncClosing[multicluster.Reader]):
    """Reads many clusters as one stream. An async context manager and iterator of lists of messages.

    `make` makes its core: that of `koff.client.multicluster`, or of a test double.
    """

    def __init__(
        self,
        clusters: Mapping[str, ClusterConf],
        confs: ReaderConf | Sequence[ReaderConf],
        make: Callable[..., Any] = multicluster.Reader,
    ) -> None:
        super().__init__(partial(make, clusters, confs))
        self._turns = Turns()

    async def read_message(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages of one cluster; [] after `timeout_s`. A group commits their offsets soon."""
        return await self._take(self.core.read_message, timeout_s)

    async def fetch_message(self, timeout_s: float | None = None) -> list[Message]:
        """As `read_message`, but a group's offsets are committed only by `commit_messages`."""
        return await self._take(self.core.fetch_message, timeout_s)

    commit_messages = in_thread(multicluster.Reader.commit_messages)
    read_lag = in_thread(multicluster.Reader.read_lag)
    set_offset = in_thread(multicluster.Reader.set_offset)
    set_offset_at = in_thread(multicluster.Reader.set_offset_at)
    lag = at_once(multicluster.Reader.lag)
    offset = at_once(multicluster.Reader.offset)
    pause = at_once(multicluster.Reader.pause)
    resume = at_once(multicluster.Reader.resume)
    stats = at_once(multicluster.Reader.stats)

    async def close(self, timeout_s: float = PATIENCE_S) -> None:
        """Stops reading, as `koff.client`'s reader does."""
        await self._close_core(timeout_s)

    def errors(self) -> AsyncIterator[KoffError]:
        """The messages that were passed over, each as a `PartitionError`; ends after `close`."""
        return iterate_in_thread(self, self.core.errors())

    def __aiter__(self) -> AsyncIterator[list[Message]]:
        """The lists that `read_message` returns, until the reader is closed."""
        return Items(self.read_message, Closed)

    async def _take(self, read: Callable[[float], list[Message]], timeout_s: float | None) -> list[Message]:
        try:
            messages = await self._turns.take(
                self, lambda: read(0.0) or None, self.core.wait_for_messages, timeout_s
            )
        except NoDataInTime:
            return []
        for message in messages:
            carry_nack(self, message)
        return messages


class Writer(AsyncClosing[multicluster.Writer]):
    """Writes messages to one of several clusters. Tasks may share it. `make` is as that of `Reader`."""

    def __init__(
        self,
        clusters: Mapping[str, ClusterConf],
        conf: WriterConf,
        make: Callable[..., Any] = multicluster.Writer,
    ) -> None:
        super().__init__(partial(make, clusters, conf))
        self._conf, self._turns = conf, Turns()

    stats = at_once(multicluster.Writer.stats)

    async def close(self, timeout_s: float | None = None) -> None:
        """Refuses new messages, and waits for those in flight, as `koff.client`'s writer does."""
        await self._close_core(timeout_s)

    async def write_messages(self, *messages: Message, timeout_s: float | None = None) -> None:
        """Writes the messages in the order of the calls; returns and raises as `koff.client`'s writer does.

        Messages of a call that is cancelled are taken back as those of one whose `timeout_s` has passed: koff
        sends none of them any more, and those that were in flight may be written.
        """
        if not messages:
            return
        begun: list[WriteCall] = []
        why = ""

        def begin() -> None:
            begun.append(self.core.begin_write(messages, timeout_s))
            if why:
                self.core.give_up(begun[0], why)

        try:
            await self._turns.call(self, begin, timeout_s)
            if not self._conf.asynchronous and not await wait_until_done(begun[0].done, begun[0].left_s()):
                await self.call_in_thread(
                    self.core.give_up, begun[0], f"timeout_s ({timeout_s:g} s) has passed"
                )
        except TimeoutError:
            fault = WriteError(f"not sent: other calls have waited for room for {timeout_s:g} s")
            raise WriteErrors([fault] * len(messages)) from None
        except asyncio.CancelledError:
            why = "the call was cancelled"  # `begin` sees it if it has not returned
            if begun:
                self.begin_call(self.core.give_up, begun[0], why)
            raise
        errors = None if self._conf.asynchronous else begun[0].build_errors()
        if errors is not None:
            raise errors


def carry_nack(owner: AsyncClosing[Any], message: Message) -> None:
    """Lets a thread do what `nack` does if a task calls it: it may wait until a dead letter is written."""
    on_nack = message.on_nack
    if on_nack is None:
        return

    def nack(message: Message, cause: BaseException | None) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a thread calls it
            on_nack(message, cause)
        else:
            owner.begin_call(on_nack, message, cause)

    message.on_nack = nack
