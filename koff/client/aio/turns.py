"""`Turns`: one thread at a time uses an object, for all tasks."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from koff.client.aio.async_closing import AsyncClosing, wait_until_done
from koff.client.calls import get_result
from koff.client.errors import NoDataInTime, Woken
from koff.errors import Closed

T = TypeVar("T")
_LONGEST_S = 0.001
"""How long tasks take what is there until another task has its turn."""


class Turns:
    """The calls of an object that must not run at the same time, and its wait for something to read.

    The tasks that read share one wait in one thread. When they are cancelled, the wait goes on, for the next
    one that reads. What it has found is taken in the thread of the loop, so a cancelled task has taken
    nothing.
    """

    # It does not keep its owner: in a cycle, only the garbage collector would close what nobody closed.

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._last: Future[Any] | None = None
        """The thread that uses the object, until somebody has seen its result."""
        self._is_wait = False
        self._since_s = 0.0

    async def call(
        self, owner: AsyncClosing[Any], call: Callable[[], T], timeout_s: float | None = None
    ) -> T:
        """The result of the call, after all calls before it. Ends a wait, which begins again after it.

        Raises `TimeoutError` if it has not begun after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            await self._turn.acquire()
        try:
            previous, self._is_wait = self._last, False
            self._last = running = owner.begin_call(partial(_call_after, previous, call))
            if previous is not None and not previous.done():
                owner.end_wait()
            await wait_until_done(running)
            if self._last is running:
                self._last = None
            return get_result(running)
        finally:
            self._turn.release()

    async def take(
        self,
        owner: AsyncClosing[Any],
        poll: Callable[[], T | None],
        wait: Callable[[float | None], object],
        timeout_s: float | None,
    ) -> T:
        """What `poll` returns, as soon as it is not None. Until then, `wait` runs in a thread.

        `wait` gets the seconds that are left. After them, it returns False or raises `NoDataInTime`, and this
        method raises `NoDataInTime`. It raises every other error of `wait`, too.
        """
        # Not after `poll`: a task may be cancelled here, and has taken nothing.
        if self.is_over:
            await asyncio.sleep(0)
            self._since_s = time.monotonic()
        began_s, left_s = time.monotonic(), timeout_s
        while (found := poll()) is None:
            is_own = self._last is None
            if self._last is None:
                self._last, self._is_wait = owner.begin_call(wait, left_s), True
            last, is_wait = self._last, self._is_wait
            is_in_time = await wait_until_done(last, None if is_own else left_s)
            if is_in_time and self._last is last:
                self._last = None
            if is_in_time and is_wait:
                is_in_time = _read_wait(last, is_own=is_own)
            if not is_in_time:
                raise NoDataInTime(f"nothing came within {timeout_s} s")
            if timeout_s is not None:
                left_s = max(timeout_s - (time.monotonic() - began_s), 0.0)
        return found

    @property
    def is_over(self) -> bool:
        """Whether the tasks have taken what is there for so long that other tasks must run."""
        return time.monotonic() - self._since_s > _LONGEST_S


def _read_wait(waited: Future[Any], *, is_own: bool) -> bool:
    """Whether the wait has ended in time for its task; any wait of another task has. Raises its error."""
    try:
        return get_result(waited) is not False or not is_own
    except Woken:
        return True
    except NoDataInTime:
        if is_own:
            raise
        return True


def _call_after(previous: Future[Any] | None, call: Callable[[], T]) -> T:
    futures.wait([previous] if previous else [])
    return call()


class Items(AsyncIterator[T], Generic[T]):
    """What `take` returns, until it raises an error of `ends`; first what `poll` has without a wait.

    Unlike a generator, it can be used after a task that waited for an item was cancelled.
    """

    def __init__(
        self,
        take: Callable[[], Awaitable[T]],
        *ends: type[Exception],
        poll: Callable[[], T | None] = lambda: None,
    ) -> None:
        self._take, self._ends, self._poll = take, ends, poll

    async def __anext__(self) -> T:
        found = self._poll()
        if found is not None:
            return found
        try:
            return await self._take()
        except self._ends:
            raise StopAsyncIteration from None


def iterate_in_thread(owner: AsyncClosing[Any], iterator: Iterator[T]) -> Items[T]:
    """The items of an iterator that blocks, and ends when its source is closed."""
    turns, found = Turns(), list[T | None]()

    def poll() -> list[T | None] | None:
        return [found.pop()] if found else None

    async def take() -> T:
        (item,) = await turns.take(owner, poll, lambda _: found.append(next(iterator, None)), None)
        if item is None:
            raise Closed("the source of the items is closed")
        return item

    return Items(take, Closed)
