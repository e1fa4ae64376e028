"""`AsyncClosing`: how blocking calls get from an event loop to threads, and their results back.

All classes of `koff.client.aio` hold an object of `koff.client`, their core, which does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from koff.client.calls import call_in_thread, get_result
from koff.errors import ConfigError

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class AsyncClosing(Generic[C]):
    """An object whose blocking calls run in threads: none of them blocks the event loop.

    It is opened by `async with`, or by `await`. A call that is cancelled returns at once; its thread ends
    with the call of the core. `make` makes the core; `close` of the `parent` ends its calls, too.
    """

    def __init__(self, make: Callable[[], C], parent: AsyncClosing[Any] | None = None) -> None:
        self._make, self._parent = make, parent
        self._core: C | None = None
        self._opening = asyncio.Lock()
        self._under_way: set[asyncio.Future[Any]] = set()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *error: Any) -> None:
        core: Any = self.core
        await self._finish(partial(core.__exit__, *error))

    async def close(self) -> None:
        """Closes it, which ends the calls under way, and waits for their threads. Any task may call it."""
        await self._close_core()

    async def _close_core(self, *args: Any) -> None:
        core: Any = self._core
        if core is not None:
            await self._finish(partial(core.close, *args))

    @property
    def core(self) -> C:
        """The object of `koff.client`. Raises `ConfigError` if it is not open yet."""
        if self._core is None:
            raise ConfigError(f"this {type(self).__name__} is not open: use `async with`, or `await` it")
        return self._core

    def begin_call(self, call: Callable[..., T], *args: Any, **options: Any) -> Future[T]:
        """The future result of the call in a thread. `close` waits for it."""
        future = call_in_thread(partial(call, *args, **options))
        watched = _watch(future)
        owner: AsyncClosing[Any] | None = self
        while owner is not None:
            owner._under_way.add(watched)
            watched.add_done_callback(owner._under_way.discard)
            owner = owner._parent
        return future

    async def call_in_thread(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """The result of the call in a thread."""
        return await wait_for_result(self.begin_call(call, *args, **options))

    def end_wait(self) -> None:
        """Makes a wait of the core raise `Woken`, if it must end before another call."""

    async def _open(self) -> Self:
        async with self._opening:
            if self._core is None:
                made = self.begin_call(self._make)
                try:
                    self._core = await wait_for_result(made)
                except asyncio.CancelledError:
                    _watch(made).add_done_callback(lambda _: self._close_unwanted(made))
                    raise
        return self

    def _close_unwanted(self, made: Future[Any]) -> None:
        if made.exception() is None:
            self.begin_call(made.result().close)

    async def _finish(self, close: Callable[[], object]) -> None:
        closing = self.begin_call(close)
        while self._under_way:
            await asyncio.wait(self._under_way)
        get_result(closing)


def in_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of the core as a coroutine, with its parameters and docstring."""

    @wraps(method)
    async def call(self: AsyncClosing[Any], /, *args: P.args, **options: P.kwargs) -> T:
        return await self.call_in_thread(getattr(self.core, method.__name__), *args, **options)

    return call


def at_once(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method of the core, which does not wait, with its parameters and docstring."""

    @wraps(method)
    def call(self: AsyncClosing[Any], /, *args: P.args, **options: P.kwargs) -> T:
        result: T = getattr(self.core, method.__name__)(*args, **options)
        return result

    return call


class Attribute(Generic[T]):
    """The attribute of the core that has this name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: AsyncClosing[Any], owner: type) -> T:
        value: T = getattr(instance.core, self._name)
        return value


async def wait_until_done(future: Future[Any], timeout_s: float | None = None) -> bool:
    """Whether the future of a thread is done after `timeout_s`. Does not cancel it when it is cancelled."""
    return bool((await asyncio.wait([_watch(future)], timeout=timeout_s))[0])


async def wait_for_result(future: Future[T]) -> T:
    """The result of the future of a thread. Does not cancel it when it is cancelled."""
    await wait_until_done(future)
    return get_result(future)


def _watch(future: Future[T]) -> asyncio.Future[T]:
    watched = asyncio.wrap_future(future)
    # Otherwise asyncio logs the error of a call for which nobody waits.
    watched.add_done_callback(lambda each: each.cancelled() or each.exception())
    return watched
