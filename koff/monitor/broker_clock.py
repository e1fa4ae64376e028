"""When to correct what koff takes for the time of the brokers. Pure."""

from __future__ import annotations

TOLERANCE_MS = 3_000
"""A smaller difference is not corrected: a commit may take that long until koff sees it."""
RISE_MS = 60_000
"""So long, commits must arrive later than before until that is taken for a clock that was set."""


class BrokerClock:
    """The clock of the brokers, compared with a steady clock of koff's. All times are in ms.

    Each correction makes what was known of the past useless, so it must not follow each measurement.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        """What to add to a time of koff's clock. 0 if it is unknown, or small."""
        self.is_known = False
        self._later_since_ms: int | None = None

    def note(self, skew_ms: int, now_ms: int) -> bool:
        """Notes how far koff's clock is ahead, as measured now. Returns whether `ahead_ms` changed."""
        was_known, self.is_known = self.is_known, True
        change_ms = skew_ms + self.ahead_ms
        if abs(change_ms) <= TOLERANCE_MS:
            self._later_since_ms = None
            return False
        # Slow reads look like a clock that was set back: wait whether that lasts.
        if change_ms > 0 and was_known:
            if self._later_since_ms is None:
                self._later_since_ms = now_ms
            if now_ms - self._later_since_ms < RISE_MS:
                return False
        self._later_since_ms = None
        self.ahead_ms = -skew_ms
        return True
