"""Waiting for a condition with a deadline: the tests' and the demo's replacement for sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    *,
    timeout_s: float = 30.0,
    what: str = "the condition",
    every_s: float = 0.05,
) -> T:
    """The first truthy value of `condition()`, asked every `every_s`.

    Raises `TimeoutError` that names `what` when there was none within `timeout_s`. Whatever the
    condition raises goes through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}; the last answer was {value!r}")
        time.sleep(every_s)
