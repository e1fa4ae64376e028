"""How long a call is tried again while the cluster does not respond: one rule and one loop for all calls."""

import time
from collections.abc import Callable
from typing import TypeVar

from koff.errors import ConnectError, Denied, KoffError

T = TypeVar("T")
PATIENCE_S = 30.0
"""By default a call gives up after this time. Leaders and coordinators have moved before that."""


class Patience:
    """Whether a call that began when this was made is tried once more.

    It is for `patience_s`; or, with a `limit`, so many times, however long that takes.
    """

    def __init__(self, patience_s: float, limit: int | None = None) -> None:
        self.until = time.monotonic() + patience_s if limit is None else float("inf")
        self._left = limit

    def allows_retry(self, wait_s: float) -> bool:
        """Whether the call may be made again after a pause of `wait_s`. Counts as a retry."""
        if self._left is None:
            return time.monotonic() + wait_s < self.until
        self._left -= 1
        return self._left >= 0

    def retry(
        self,
        call: Callable[[], T],
        wait_s: float,
        wait: Callable[[float], object] = time.sleep,
        errors: tuple[type[KoffError], ...] = (ConnectError,),
    ) -> T:
        """The result of `call`, which is made again after these errors, but not after `Denied`.

        Raises the last error when the patience is over. `wait` makes the pause, and may raise an error.
        """
        while True:
            try:
                return call()
            except Denied:
                raise
            except errors:
                if not self.allows_retry(wait_s):
                    raise
            wait(wait_s)
