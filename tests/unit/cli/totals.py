"""Totals of groups, for tests of what the terminal shows of them."""

from typing import Any

from koff.lag.verdict import Verdict
from koff.tracker import Group, GroupTotal
from koff.tracker.rows import Pace

UNPACED = Pace(None, None, None, None)


def total(name: str, **values: Any) -> GroupTotal:
    """A group that is all right, unless `values` say otherwise."""
    facts: dict[str, Any] = {
        "lag": 5,
        "partitions": 1,
        "unknown": 0,
        "time_lag_s": 1.5,
        "status": Verdict.OK,
        "pace": UNPACED,
    }
    return GroupTotal(group=Group(name), complete=1.0, **(facts | values))
