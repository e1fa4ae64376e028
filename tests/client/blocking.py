"""The objects of `koff.aio` as those of `koff.client`, so that the same tests run on them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from koff.client.aio.async_closing import AsyncClosing


@contextmanager
def run_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def open_in_loop(loop: asyncio.AbstractEventLoop, make: Callable[[], AsyncClosing[Any]]) -> Any:
    """What `make` makes, opened in the loop: each call of it blocks until the loop has made the call."""
    return _call(loop, make)


class _Blocking:
    def __init__(self, loop: asyncio.AbstractEventLoop, inner: AsyncClosing[Any]) -> None:
        self._loop, self._inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return partial(_call, self._loop, value) if callable(value) else value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        _call(self._loop, self._inner.__aexit__, *error)

    def __iter__(self) -> Iterator[Any]:
        return _iterate(self._loop, aiter(self._inner))  # type: ignore[arg-type]  # those that have it


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        made = call(*args, **options)
        return await made if inspect.isawaitable(made) else made

    result = asyncio.run_coroutine_threadsafe(run(), loop).result()
    if isinstance(result, AsyncClosing):
        return _Blocking(loop, result)
    return _iterate(loop, result) if isinstance(result, AsyncIterator) else result


def _iterate(loop: asyncio.AbstractEventLoop, items: AsyncIterator[Any]) -> Iterator[Any]:
    end = object()
    while (item := _call(loop, anext, items, end)) is not end:
        yield item
