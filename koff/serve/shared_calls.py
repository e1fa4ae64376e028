"""Blocking calls for an event loop: in one thread, one at a time, and shared by all who wait for the same."""

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCalls(Generic[K, V]):
    """Calls `function` in a thread of its own, one call at a time.

    All who ask for a key before its call begins share the call. So no result is older than the request for
    it, and at most one call of each key waits. The thread is a daemon: a call that hangs does not keep the
    process from ending. It starts with the first call.
    """

    def __init__(self, function: Callable[[K], V], name: str) -> None:
        self._function = function
        self._lock = threading.Lock()  # guards `_waiting`
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._queue: SimpleQueue[K | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        """Lets the thread end after the present call. Does not wait for that."""
        with self._lock:
            self._waiting.clear()
        self._queue.put(None)

    async def get(self, key: K) -> V:
        """The result of a call that begins after this request, or its exception."""
        with self._lock:
            if key not in self._waiting:
                if self._thread.ident is None:
                    self._thread.start()
                self._waiting[key] = asyncio.get_running_loop().create_future()
                self._queue.put(key)
            future = self._waiting[key]
        # One request that is cancelled must not cancel the call for the others.
        return await asyncio.shield(future)

    def _run(self) -> None:
        while (key := self._queue.get()) is not None:
            with self._lock:
                future = self._waiting.pop(key, None)
            if future is None:  # stopped meanwhile
                continue
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                try:
                    result = self._function(key)
                except Exception as error:
                    future.get_loop().call_soon_threadsafe(_set_exception, future, error)
                else:
                    future.get_loop().call_soon_threadsafe(_set_result, future, result)
                    del result  # a body is large
            del future


def _set_result(future: asyncio.Future[V], result: V) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[V], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
