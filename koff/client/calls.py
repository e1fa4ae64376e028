"""Calls in daemon threads, for which the end of the process does not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from koff.errors import ConnectError, copy_error

T = TypeVar("T")


def call_in_thread(call: Callable[..., T], *args: Any) -> futures.Future[T]:
    """The future result of a call in a daemon thread, for which the end of the process does not wait."""
    future: futures.Future[T] = futures.Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(copy_error(error))

    try:
        threading.Thread(target=run, name="koff-call", daemon=True).start()
    except RuntimeError as error:  # the operating system gives no more threads
        future.set_exception(ConnectError(f"no thread for the request: {error}"))
    return future


def get_result(future: futures.Future[T], timeout_s: float | None = None) -> T:
    """The future's result, as `future.result`, for a caller that has the future in a variable.

    Raises a copy of the future's error: `copy_error` says why.
    """
    error = future.exception(timeout_s)
    if error is not None:
        raise copy_error(error)
    return future.result()
