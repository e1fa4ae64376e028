"""The tables of `koff lag`: groups, and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from koff.cli.text_table import Cell, format_table
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal, PartitionLag
from koff.view.cause_texts import Finding
from koff.view.sentences import describe_verdict

Sort = Literal["lag", "time", "status", "name"]
SORTS: tuple[Sort, ...] = ("lag", "time", "status", "name")
DROPPED_OF_GROUPS = ("PARTITIONS", "TYPE", "UNKNOWN", "MEMBERS", "STATE", "SECONDS")
DROPPED_OF_PARTITIONS = ("STATE", "COMMITTED", "END", "SECONDS")
"""On a terminal that is too narrow, these columns are left out in this order."""
Causes = Mapping[str, list[Finding] | None]
"""By group, why it lags."""


def select_totals(
    totals: Sequence[GroupTotal], *, sort: Sort = "lag", is_lagging: bool = False, top: int | None = None
) -> list[GroupTotal]:
    """The totals in order: names ascending, all else from the worst on, unknown numbers last.

    `is_lagging` leaves out groups without a lag, but not those whose lag is not known.
    """
    chosen = [total for total in totals if total.lag != 0 or not is_lagging]
    return sorted(chosen, key=_ORDERS[sort])[:top]


def _by_number(number: float | None, total: GroupTotal) -> tuple[bool, float, str]:
    return number is None, -(number or 0), total.group.name


_ORDERS: dict[Sort, Callable[[GroupTotal], tuple[bool, float, str]]] = {
    "lag": lambda total: _by_number(total.lag, total),
    "time": lambda total: _by_number(total.time_lag_s, total),
    "status": lambda total: _by_number(total.status, total),
    "name": lambda total: _by_number(0, total),
}


GROUP_COLUMNS: Mapping[str, Callable[[GroupTotal], Cell]] = {
    "GROUP": lambda total: total.group.name,
    "TYPE": lambda total: total.group.type,
    "STATE": lambda total: total.state,
    "MEMBERS": lambda total: total.member_count,
    "PARTITIONS": lambda total: total.partitions,
    "LAG": lambda total: total.lag,
    "SECONDS": lambda total: _round(total.time_lag_s),
    "STATUS": lambda total: total.status.name,
    "UNKNOWN": lambda total: total.unknown,
}
"""By title, the function that gives the cell of a group. The column WHY is not here: it needs the causes."""


def format_groups(totals: Sequence[GroupTotal], causes: Causes, width: int | None) -> str:
    """A line for each group. SECONDS and STATUS are there if they are known of a group."""
    has_seconds = any(total.time_lag_s is not None for total in totals)
    has_status = any(total.status is not Verdict.UNKNOWN for total in totals)
    left_out = {*([] if has_seconds else ["SECONDS"]), *([] if has_status else ["STATUS"])}
    titles = [title for title in GROUP_COLUMNS if title not in left_out]

    def list_cells(total: GroupTotal) -> list[Cell]:
        sentence = describe_verdict(total, causes.get(total.group.name))
        return [*(GROUP_COLUMNS[title](total) for title in titles), sentence]

    rows = [list_cells(total) for total in totals]
    return format_table([*titles, "WHY"], rows, width=width, dropped=DROPPED_OF_GROUPS, shortened=("GROUP",))


def format_partitions(rows: Sequence[PartitionLag], width: int | None) -> str:
    """A line for each partition."""
    return format_table(
        ("GROUP", "STATE", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER", "WHY"),
        [
            (
                *(row.group, row.state, row.topic, row.partition, row.committed, row.end, row.published_lag),
                *(_round(row.time_lag_s), _format_member(row), " ".join(row.reasons.names)),
            )
            for row in rows
        ],
        width=width,
        dropped=DROPPED_OF_PARTITIONS,
        shortened=("GROUP", "TOPIC", "MEMBER"),
    )


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _format_member(row: PartitionLag) -> str | None:
    return f"{row.member.client_id}@{row.member.client_host}" if row.member else None
