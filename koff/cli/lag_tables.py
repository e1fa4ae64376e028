"""The tables of groups and of partitions: of `koff lag`, `koff group`, the demo and the live view."""

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from koff.cli.text_table import Column, format_columns, measure_text, shorten_middle, wrap_text
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal
from koff.view.wording import show_duration

_LEAST_NAME, _NAME_PART = 12, 3
"""The name of a group takes a third of the width at most, if that is more than `_LEAST_NAME` columns."""
_WIDE, _BESIDE_PART = 120, 0.4
"""On a terminal of `_WIDE` columns or more, sentences are beside the numbers, and get such a part of the
width; else they are below."""
TREND_POINTS = 12
BARS = "▁▂▃▄▅▆▇█"

Sentences = Mapping[str, str]
"""By group, what there is to say of it."""
Trends = Mapping[str, Sequence[float]]
"""By group, its last lags, the newest last. NaN: unknown."""


class GroupTable(NamedTuple):
    """The header, and the lines of each group."""

    header: str
    groups: list[list[str]]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for lines in ([self.header], *self.groups) for line in lines)


def draw_trend(lags: Sequence[float]) -> str:
    """The lags as bars, up to the largest of them. Unknown ones are blank."""
    largest = max((lag for lag in lags if not math.isnan(lag)), default=0.0)
    return "".join(
        " " if math.isnan(lag) else BARS[math.ceil(lag / largest * (len(BARS) - 1)) if largest > 0 else 0]
        for lag in lags
    )


def describe_catch_up(total: GroupTotal) -> str | None:
    """When the group will have caught up; None if that is not known."""
    if total.pace.never:
        return "never"
    if total.pace.catch_up_s is None:
        return None
    return show_duration(total.pace.catch_up_s) if total.lag else None


def format_groups(
    totals: Sequence[GroupTotal],
    sentences: Sentences,
    width: int | None,
    *,
    trends: Trends | None = None,
    most_lines: int | None = None,
) -> GroupTable:
    """The table of groups. STATUS is the first column, and is never left out.

    Without a `width`, a line has all of a group. Otherwise a sentence takes at most `most_lines` lines.
    """
    columns = _choose_columns(width, trends)
    if width is None:
        why: Column[GroupTotal] = Column("WHY", lambda total: sentences.get(total.group.name))
        header, *lines = format_columns((*columns, why), totals, None).splitlines()
        return GroupTable(header, [[line] for line in lines])
    beside = int(width * _BESIDE_PART) if width >= _WIDE else 0
    header, *lines = format_columns(columns, totals, width - beside).splitlines()
    indent = max(map(measure_text, (header, *lines))) + 2 if beside else 2
    groups = []
    for total, line in zip(totals, lines, strict=True):
        # Below, it would only repeat the numbers of a group that keeps up.
        is_said = beside or total.status is not Verdict.OK or total.lag is None
        sentence = sentences.get(total.group.name, "") if is_said else ""
        said = wrap_text(sentence, width - indent, most_lines)
        below = [" " * indent + part for part in said if part]
        if beside and below:
            below[0] = _pad(line, indent) + said[0]
        groups.append(below if beside and below else [line, *below])
    return GroupTable(f"{_pad(header, indent)}WHY" if beside else header, groups)


def _pad(line: str, width: int) -> str:
    return line + " " * (width - measure_text(line))


def _choose_columns(width: int | None, trends: Trends | None) -> list[Column[GroupTotal]]:
    most = None if width is None else max(_LEAST_NAME, width // _NAME_PART)

    def show_name(total: GroupTotal) -> str:
        return total.group.name if most is None else shorten_middle(total.group.name, most)

    def show_trend(total: GroupTotal) -> str:
        return draw_trend((trends or {}).get(total.group.name, ())[-TREND_POINTS:]).strip()

    return [
        Column("STATUS", lambda total: total.status.name),
        Column("GROUP", show_name, is_name=True),
        Column("LAG", lambda total: total.lag),
        *([] if trends is None else [Column("TREND", show_trend, left_out=7)]),
        Column("SECONDS", lambda total: _round(total.time_lag_s), left_out=8),
        Column("CATCHES UP", describe_catch_up, left_out=6),
        Column("STATE", lambda total: total.state, left_out=5),
        Column("MEMBERS", lambda total: total.member_count, left_out=4),
        Column("UNKNOWN", lambda total: total.unknown, left_out=3),
        Column("TYPE", lambda total: total.group.type, left_out=2),
        Column("PARTITIONS", lambda total: total.partitions, left_out=1),
    ]


def format_partitions(rows: Sequence[Mapping[str, Any]], width: int | None) -> str:
    """A line for each partition, given as JSON has it. `reasons` are a list."""
    columns: list[Column[Mapping[str, Any]]] = [
        Column("STATUS", itemgetter("status")),
        Column("GROUP", lambda row: row.get("group"), is_name=True),
        Column("TOPIC", itemgetter("topic"), is_name=True),
        Column("PARTITION", itemgetter("partition")),
        Column("LAG", itemgetter("lag")),
        Column("SECONDS", lambda row: _round(row["time_lag_s"]), left_out=5),
        Column("COMMITTED", itemgetter("committed"), left_out=3),
        Column("END", itemgetter("end"), left_out=4),
        Column("LOST", itemgetter("lost"), left_out=1),
        Column("MARGIN", lambda row: row.get("retention_margin"), left_out=2),
        Column("MEMBER", _describe_member, is_name=True),
        Column("WHY", lambda row: " ".join(row["reasons"])),
    ]
    # Rows of one group do not name it, and only these have a margin.
    missing = "MARGIN" if rows and "group" in rows[0] else "GROUP"
    return format_columns([each for each in columns if each.title != missing], rows, width)


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _describe_member(row: Mapping[str, Any]) -> str | None:
    return None if row["client_id"] is None else f"{row['client_id']}@{row['client_host']}"
