"""Tests that are coroutines, and waits in them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE_S = 60.0


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs the test in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **options), 2 * PATIENCE_S))

    return run


async def until(condition: Callable[[], object]) -> None:
    """Returns when the condition is true, while the other tasks run."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancels the task, and returns when it has ended by that."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@asynccontextmanager
async def measure_delays() -> AsyncIterator[list[float]]:
    """How late the loop ran a task, again and again: what blocked it, in seconds."""
    loop, late_s = asyncio.get_running_loop(), list[float]()

    async def run() -> None:
        while True:
            before_s = loop.time()
            await asyncio.sleep(0.001)
            late_s.append(loop.time() - before_s - 0.001)

    task = asyncio.create_task(run())
    try:
        yield late_s
    finally:
        await cancel(task)
