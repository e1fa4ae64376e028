"""The tables of `koff lag`: groups, and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from koff.cli.text_table import format_table
from koff.lag.verdict import Verdict
from koff.tracker import GroupTotal, PartitionLag
from koff.view.cause_texts import Finding

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


def format_groups(totals: Sequence[GroupTotal], causes: Causes, width: int | None) -> str:
    """A line for each group. SECONDS and STATUS are there if they are known of a group."""
    has_seconds = any(total.time_lag_s is not None for total in totals)
    has_status = any(total.status is not Verdict.UNKNOWN for total in totals)
    optional = [*(["SECONDS"] if has_seconds else []), *(["STATUS"] if has_status else [])]
    return format_table(
        ("GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", *optional, "UNKNOWN", "WHY"),
        [
            (
                *(total.group.name, total.group.type, total.state, total.member_count),
                *(total.partitions, total.lag),
                *([_round(total.time_lag_s)] if has_seconds else []),
                *([total.status.name] if has_status else []),
                *(total.unknown, explain(total, causes)),
            )
            for total in totals
        ],
        width=width,
        dropped=DROPPED_OF_GROUPS,
        shortened=("GROUP",),
    )


def explain(total: GroupTotal, causes: Causes) -> str:
    """Why the lag is not known, or its likely cause."""
    found = causes.get(total.group.name)
    return total.reason or (found[0].text if found else "")


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
