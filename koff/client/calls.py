"""Calls in daemon threads, for which the end of the process does not wait."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from koff.errors import ConnectError, copy_error

T = TypeVar("T")
_IDLE_S = 0.1
"""So long a thread waits for its next call. To start one takes ten times as long as to wake one."""


def call_in_thread(call: Callable[..., T], *args: Any) -> futures.Future[T]:
    """The future result of a call in a daemon thread, for which the end of the process does not wait."""
    future: futures.Future[T] = futures.Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(copy_error(error))

    try:
        _idle.pop().put(run)
    except IndexError:  # all threads are busy
        calls: _Calls = queue.SimpleQueue()
        calls.put(run)
        try:
            threading.Thread(target=_run_calls, args=(calls,), name="koff-call", daemon=True).start()
        except RuntimeError as error:  # the operating system gives no more threads
            future.set_exception(ConnectError(f"no thread for the request: {error}"))
    return future


_Calls = queue.SimpleQueue[Callable[[], None]]
_idle: deque[_Calls] = deque()
"""The next calls of threads that have none now. Each operation on a deque is atomic."""
os.register_at_fork(after_in_child=_idle.clear)


def _run_calls(calls: _Calls) -> None:
    """Runs the calls as they come, until there was none for `_IDLE_S`."""
    while True:
        try:
            run = calls.get(timeout=_IDLE_S)
        except queue.Empty:
            try:
                _idle.remove(calls)
            except ValueError:  # a call comes at this moment
                continue
            return
        run()
        del run  # it keeps what the call used
        _idle.append(calls)


def get_result(future: futures.Future[T], timeout_s: float | None = None) -> T:
    """The future's result, as `future.result`, for a caller that has the future in a variable.

    Raises a copy of the future's error: `copy_error` says why.
    """
    error = future.exception(timeout_s)
    if error is not None:
        raise copy_error(error)
    return future.result()
