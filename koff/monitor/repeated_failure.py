"""A failure that repeats: when to try again, and when to log it."""

from __future__ import annotations

RETRY_S, MOST_RETRY_S = 1.0, 10.0
LOG_S, SELDOM_LOG_S = 60.0, 600.0
SELDOM_AFTER_S = 600.0
"""After so long, a line every ten minutes suffices."""


class RepeatedFailure:
    """Counts failures. The first is logged at once, then one line a minute, then one in ten minutes."""

    def __init__(self) -> None:
        self.count = 0
        self._first_s = self._logged_s = float("-inf")

    @property
    def retry_s(self) -> float:
        """The pause before the next try. It grows from try to try."""
        return min(RETRY_S * 1.5 ** min(self.count - 1, 10), MOST_RETRY_S)

    def note(self, now_s: float) -> bool:
        """Counts a failure. Returns whether it is to be logged."""
        self.count += 1
        if self.count == 1:
            self._first_s = now_s
        pause_s = LOG_S if now_s < self._first_s + SELDOM_AFTER_S else SELDOM_LOG_S
        if now_s < self._logged_s + pause_s:
            return False
        self._logged_s = now_s
        return True
