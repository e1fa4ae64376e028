"""Waits for a condition with a deadline: tests and the demo use it instead of a sleep of a fixed length."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    *,
    timeout_s: float = 60.0,
    what: str = "the condition",
    every_s: float = 0.05,
) -> T:
    """The first truthy value of `condition()`, which is called every `every_s` seconds.

    Raises `TimeoutError` that names `what` when there was none within `timeout_s`. An exception of the
    condition is raised unchanged.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}; the last value was {value!r}")
        time.sleep(every_s)
