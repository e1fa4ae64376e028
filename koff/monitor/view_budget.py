"""For how long a view is shared, so that views do not keep the owner from its records. Pure."""

from __future__ import annotations

FRESH_S, LONGEST_FRESH_S = 0.05, 1.0
"""For how long a view is shared, at the least and at the most."""
PART = 0.05
"""Views take at most this part of the owner's time in the long run, unless a view is too large for that."""
CREDIT_S = 0.25
"""So much of the owner's time is saved up while nobody asks: each scrape in 15 s gets a view of its own."""


class ViewBudget:
    """The part of the owner's time that views may take. Time that was not used is kept, up to `CREDIT_S`."""

    def __init__(self, now_s: float) -> None:
        self._credit_s, self._at_s = CREDIT_S, now_s

    def spend(self, view_s: float, now_s: float) -> float:
        """For how long, in s, the view is shared that took `view_s` until `now_s`."""
        saved_s = min(self._credit_s + (now_s - self._at_s) * PART, CREDIT_S)
        # A debt is paid within the longest time for which a view is shared.
        self._credit_s, self._at_s = max(saved_s - view_s, -LONGEST_FRESH_S * PART), now_s
        return max(-self._credit_s / PART, FRESH_S)
