"""Time for doubles: it passes only when a call waits, and then at once."""

import heapq
import itertools
import threading
from collections.abc import Callable

_FIRST_MS = 1_700_000_000_000


class VirtualClock:
    """The time of one or more doubles. Threads may share it; `changed` is the lock of all of them.

    A wait with a limit takes no real time: the clock jumps to the next action of `call_later`, or to the
    limit. A wait without a limit and without an action waits for another thread.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.now_s = 0.0
        self._actions: list[tuple[float, int, Callable[[], object]]] = []  # a heap
        self._sequence = itertools.count()

    @property
    def now_ms(self) -> int:
        """The time in ms since the epoch, as in timestamps of messages."""
        return _FIRST_MS + round(self.now_s * 1000)

    def call_later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Calls `action` once the time has come, in the thread that waits or advances the clock then."""
        with self.changed:
            heapq.heappush(self._actions, (self.now_s + delay_s, next(self._sequence), action))
            self.changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Lets the time pass."""
        self.wait_for(lambda: False, seconds)

    def wait_for(self, condition: Callable[[], object], timeout_s: float = float("inf")) -> bool:
        """Waits until the condition is true. Returns false after `timeout_s` of this clock."""
        with self.changed:
            until = self.now_s + timeout_s
            while not condition():
                next_at = self._actions[0][0] if self._actions else float("inf")
                if next_at <= until and self._actions:
                    self.now_s = max(self.now_s, next_at)
                    heapq.heappop(self._actions)[2]()
                elif until == float("inf"):
                    self.changed.wait()
                    continue
                else:
                    self.now_s = max(self.now_s, until)
                    return bool(condition())
                self.changed.notify_all()
            return True
