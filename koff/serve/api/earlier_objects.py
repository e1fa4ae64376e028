"""The JSON objects of what is kept of a group for longer than an hour: other days, and its error budget."""

from typing import Any

from koff.serve.api.group_columns import list_known
from koff.serve.api.shapes import (
    COUNT,
    NUMBER,
    SHARE,
    JsonField,
    JsonObject,
    Schema,
    list_of,
    nullable,
    object_of,
    told,
)
from koff.view.earlier import DAYS_BEFORE, TARGET, Archive, Earlier, LateShare, find_left
from koff.view.lag_history import Course

_DAY_S = 86_400
_VALUES = list_of(nullable(NUMBER))


EARLIER: JsonObject[Earlier] = JsonObject(
    JsonField("days", COUNT, "How many days before."),
    JsonField("lag", _VALUES, "In the steps of `last_hour`.", lambda e: list_known(e.lag)),
    JsonField("time_lag_s", _VALUES, "In the steps of `last_hour`.", lambda e: list_known(e.time_lag_s)),
)
_WINDOW: JsonObject[LateShare] = JsonObject(
    JsonField("window_s", COUNT, "The last so many seconds."),
    JsonField("late", nullable(SHARE), "For which share of what is known it missed its objective."),
    JsonField("known", SHARE, "For which share of the window that is known."),
    JsonField("burn_rate", nullable(NUMBER), "1: at this rate, the budget is used up in 30 days."),
)
BUDGET: Schema = object_of(
    {
        "target": told(SHARE, "The objective is to be kept for this share of 30 days."),
        "left": told(nullable(NUMBER), "The share of the budget that is left; below 0: missed."),
        "windows": list_of(_WINDOW.schema),
    }
)


def build_earlier(archive: Archive | None, group: str, course: Course | None) -> list[dict[str, Any]]:
    """The hour of the course on other days. Days of which nothing is kept are missing."""
    if archive is None or course is None:
        return []
    found = [(days, archive.find_earlier(group, course.end_ms, days * _DAY_S)) for days in DAYS_BEFORE]
    return [EARLIER.build(earlier, days=days) for days, earlier in found if earlier is not None]


def build_budget(archive: Archive | None, group: str, now_ms: int | None) -> dict[str, Any] | None:
    """The error budget of a group; None without an objective, or an archive."""
    shares = [] if archive is None or now_ms is None else archive.find_late(group, now_ms)
    if not shares:
        return None
    return {"target": TARGET, "left": find_left(shares), "windows": [_WINDOW.build(each) for each in shares]}
