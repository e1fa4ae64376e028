"""Objects for tasks are opened and closed once, and leave no thread behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from koff import aio
from koff.client import Closed, ConsumerConf, KoffError, Message
from koff.client.aio.async_closing import AsyncClosing, at_once, in_thread
from koff.client.calls import _idle
from koff.client.closing import Closing
from koff.errors import ConfigError
from koff.kafkatest.doubles import MemoryBroker
from tests.event_loops import cancel, in_loop, until


class Core(Closing):
    """An object of which a call can be held up."""

    def __init__(self) -> None:
        self.is_closed = threading.Event()
        self.held, self.released = threading.Event(), threading.Event()

    def close(self) -> None:
        self.released.set()
        self.is_closed.set()

    def hold(self) -> str:
        """Waits until it is released."""
        self.held.set()
        self.released.wait(60)
        return threading.current_thread().name

    def fail(self, text: str) -> None:
        raise KoffError(text) from OSError("the cause")

    def where(self) -> str:
        return threading.current_thread().name


class Tasks(AsyncClosing[Core]):
    hold = in_thread(Core.hold)
    fail = in_thread(Core.fail)
    where = at_once(Core.where)


def count_calls() -> int:
    """How many calls are under way; other threads wait for the next ones."""
    return sum(thread.name == "koff-call" for thread in threading.enumerate()) - len(_idle)


@in_loop
async def test_it_is_opened_by_await_and_by_async_with_and_only_once():
    made = []

    def make() -> Core:
        made.append(threading.current_thread().name)
        return Core()

    tasks = await Tasks(make)
    async with tasks as same:
        assert same is tasks
    assert made == ["koff-call"]
    assert tasks.core.is_closed.is_set()
    closed = Tasks(make)
    await asyncio.gather(closed, closed)
    assert len(made) == 2


@in_loop
async def test_what_is_not_open_says_how_to_open_it_and_can_be_closed():
    tasks = Tasks(Core)
    with pytest.raises(ConfigError, match=r"this Tasks is not open: use `async with`"):
        await tasks.hold()
    await tasks.close()


@in_loop
async def test_a_call_that_waits_runs_in_a_thread_and_one_that_does_not_runs_at_once():
    async with Tasks(Core) as tasks:
        holding = asyncio.create_task(tasks.hold())
        await until(tasks.core.held.is_set)
        assert tasks.where() == threading.current_thread().name
        tasks.core.released.set()
        assert await holding == "koff-call"
        with pytest.raises(KoffError, match="of the test") as caught:
            await tasks.fail("of the test")
        assert repr(caught.value.__cause__) == "OSError('the cause')"
    assert Tasks.hold.__doc__ == Core.hold.__doc__


@in_loop
async def test_a_call_that_is_cancelled_returns_at_once_and_close_waits_for_its_thread(caplog):
    tasks = await Tasks(Core)
    await cancel(asyncio.create_task(tasks.fail("nobody waits for it")))
    holding = asyncio.create_task(tasks.hold())
    await until(tasks.core.held.is_set)
    await cancel(holding)
    assert not tasks.core.released.is_set()
    await asyncio.gather(tasks.close(), tasks.close())
    assert not tasks._under_way
    await until(lambda: count_calls() == 0)
    assert caplog.text == ""


@in_loop
async def test_what_was_made_for_a_task_that_was_cancelled_is_closed():
    core = Core()

    def make() -> Core:
        core.hold()
        return core

    opening = asyncio.create_task(Tasks(make)._open())
    await until(core.held.is_set)
    await cancel(opening)
    core.released.set()
    await until(core.is_closed.is_set)


@in_loop
async def test_closing_a_connection_closes_what_it_made_and_ends_its_calls():
    broker = await aio.Broker(lambda: MemoryBroker({"t": 1}))
    consumer = await broker.consumer(ConsumerConf("t"))
    waiting = asyncio.create_task(consumer.consume())
    await until(lambda: count_calls() == 1)
    await broker.close()
    with pytest.raises(Closed):
        await waiting
    calls: list[Callable[[], object]] = [consumer.consume, consumer.position, broker.metadata]
    for call in calls:
        with pytest.raises(Closed):
            await call()  # type: ignore[misc]  # a coroutine
    await consumer.close()
    await until(lambda: count_calls() == 0)


@in_loop
async def test_the_error_in_the_block_is_the_one_that_is_raised():
    async def fail() -> None:
        async with aio.Broker(lambda: MemoryBroker({"t": 1})) as broker, broker.producer() as producer:
            await producer.produce("t", 0, Message(b"a"))
            raise KoffError("mine")

    with pytest.raises(KoffError, match="mine"):
        await fail()
