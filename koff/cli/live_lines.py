"""The lines of the live view of `koff lag --watch`, as text. No I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koff.cli.lag_tables import GROUP_COLUMNS, Causes
from koff.cli.text_table import Cell, format_table, shorten_middle
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal
from koff.view.sentences import describe_verdict
from koff.view.wording import count, show_duration

DROPPED = ("MEMBERS", "STATE", "CATCHES UP", "TREND", "SECONDS")
"""On a terminal that is too narrow, these columns are left out in this order."""
TREND_POINTS = 12
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN = str.maketrans({"…": "~", **dict(zip(_BARS, "_.-=+*#@", strict=True))})
_LEAST_NAME, _NAME_PART = 12, 3
"""The name of a group takes a third of the width at most, if that is more than `_LEAST_NAME` columns."""
_WORST_FIRST = (Verdict.ERR, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK)

Trends = Mapping[str, Sequence[float]]
"""By group, its last lags, the newest last. NaN: unknown."""


class Happening(NamedTuple):
    """What koff saw at a time (UTC): of a group, or (None) of the cluster."""

    time: str
    group: str | None
    text: str


def filter_totals(totals: Sequence[GroupTotal], text: str) -> list[GroupTotal]:
    """The groups whose name contains all words of the text, whatever the case."""
    words = text.casefold().split()
    return [total for total in totals if all(word in total.group.name.casefold() for word in words)]


def draw_trend(lags: Sequence[float]) -> str:
    """The lags as bars, up to the largest of them. Unknown ones are blank."""
    largest = max((lag for lag in lags if not math.isnan(lag)), default=0.0)
    return "".join(
        " " if math.isnan(lag) else _BARS[math.ceil(lag / largest * (len(_BARS) - 1)) if largest > 0 else 0]
        for lag in lags
    )


def fit_encoding(text: str, encoding: str) -> str:
    """The text with characters that a terminal with this encoding has: other bars, and escapes in names."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def describe_catch_up(total: GroupTotal) -> str | None:
    """When the group will have caught up; None if that is not known."""
    if total.pace.never:
        return "never"
    if total.pace.catch_up_s is None:
        return None
    return show_duration(total.pace.catch_up_s) if total.lag else None


def format_live_groups(
    totals: Sequence[GroupTotal], causes: Causes, trends: Trends, width: int
) -> tuple[str, list[str]]:
    """The header and a line for each group. A line begins with the status."""
    name_width = max(_LEAST_NAME, width // _NAME_PART)
    columns: Mapping[str, Callable[[GroupTotal], Cell]] = {
        **GROUP_COLUMNS,
        "GROUP": lambda total: shorten_middle(total.group.name, name_width),
        "TREND": lambda total: draw_trend(trends.get(total.group.name, ())[-TREND_POINTS:]).strip(),
        "CATCHES UP": describe_catch_up,
        "WHY": lambda total: describe_verdict(total, causes.get(total.group.name)),
    }
    titles = ("STATUS", "GROUP", "LAG", "TREND", "SECONDS", "CATCHES UP", "STATE", "MEMBERS", "WHY")
    rows = [[columns[title](total) for title in titles] for total in totals]
    text = format_table(titles, rows, width=width, dropped=DROPPED, shortened=("GROUP",))
    header, *lines = text.splitlines()
    return header, lines


def describe_cluster(cluster: str, totals: Sequence[GroupTotal], age_s: float | None, width: int) -> str:
    """The summary: how many groups have which status, and how old that is (None: nothing is known yet)."""
    cluster = shorten_middle(cluster, max(_LEAST_NAME, width // _NAME_PART))
    if age_s is None:
        return f"koff  {cluster}  connecting ..."
    counts = Counter(total.status for total in totals)
    statuses = ", ".join(f"{counts[each]} {each.name}" for each in _WORST_FIRST if counts[each])
    age = "now" if age_s < 2 else f"{show_duration(age_s)} old"
    return f"koff  {age}  {cluster}  {count(len(totals), 'group')}{': ' if statuses else ''}{statuses}"
