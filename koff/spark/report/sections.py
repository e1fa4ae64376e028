"""The sections of a report, in their order: titles, texts, pictures, tables, and the text without data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koff.spark.report import pictures
from koff.spark.report.charts import Drawing, Numbers, format_count
from koff.spark.report.events import SILENT_H
from koff.spark.report.queries import RETENTION_DAYS


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture's function and its name, which is also the name of its file."""

    name: str
    draw: Drawing


def _describe_no_rest(_numbers: Numbers) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a report.

    `tables` are (name, title, columns). The page shows `empty_text` if there is no data. `describe_rest`
    gives a sentence about the groups that are not shown, or "".
    """

    name: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    tables: tuple[tuple[str, str, tuple[str, ...]], ...]
    empty_text: str
    describe_rest: Callable[[Numbers], str] = _describe_no_rest


def _describe_other_groups(numbers: Numbers) -> str:
    more = (numbers["summary"][0]["groups"] or 0) - len(numbers["worst_by_lag"])
    return f"{more} more groups had less lag, or no lag." if more > 0 and numbers["worst_by_lag"] else ""


def _describe_other_losing_groups(numbers: Numbers) -> str:
    summary, rows = numbers["summary"][0], numbers["lost_by_group"]
    more = (summary["losing_groups"] or 0) - len(rows)
    lost = (summary["lost"] or 0) - sum(row["lost"] for row in rows)
    return f"{more} more groups lost {format_count(lost)} records in total." if more > 0 else ""


def _describe_others(table: str, column: str, noun: str) -> Callable[[Numbers], str]:
    """A function for `describe_rest`, for a table of events with a total."""

    def describe_rest(numbers: Numbers) -> str:
        total, rows = numbers[f"{table}_total"][0], numbers[f"{table}_by_group"]
        more = total["groups"] - len(rows)
        events = total["events"] - sum(row[column] for row in rows)
        return f"{more} more groups had {format_count(events)} {noun} in total." if more > 0 else ""

    return describe_rest


def _describe_other_idle(numbers: Numbers) -> str:
    if not numbers["idle_total"]:
        return ""
    kinds = ", ".join(f"{row['groups']} {row['kind']}" for row in numbers["idle_total"])
    return f"In total: {kinds}."


_GROUP = ("cluster", "group")
_LAGS = (*_GROUP, "largest_lag", "mean_lag", "last_lag", "longest_s", "last_s", "partitions", "unknown")

SECTIONS = (
    Section(
        "worst",
        "Worst groups",
        "The groups with the largest lag, and the groups with the longest time lag (the age of the oldest "
        "uncommitted record). "
        "The column unknown counts the partitions whose lag was not known at the end.",
        (
            Picture("worst-by-lag", pictures.draw_worst_by_lag),
            Picture("worst-by-seconds", pictures.draw_worst_by_seconds),
        ),
        (
            ("worst_by_lag", "worst groups by lag", _LAGS),
            ("worst_by_seconds", "worst groups by time lag", _LAGS),
        ),
        "No group had lag in this period.",
        _describe_other_groups,
    ),
    Section(
        "lag",
        "Lag over time",
        "The worst groups one by one, and the sum of all other groups.",
        (Picture("lag-over-time", pictures.draw_lag_over_time), Picture("lag-heat", pictures.draw_lag_heat)),
        (),
        "No group had lag in this period.",
    ),
    Section(
        "flow",
        "Consumed against produced",
        "How many records the partitions of a group received, and how many records the group committed. "
        "Where the lines differ, the lag grows or shrinks. Records that are read again count again.",
        (Picture("flow", pictures.draw_flow),),
        (),
        "No group committed offsets in this period, or no end offsets were sampled.",
    ),
    Section(
        "changes",
        "Rebalances and members",
        "A rebalance is a new epoch (generation) of the group.",
        (Picture("changes", pictures.draw_changes),),
        (("changes_by_group", "rebalances and members by group", (*_GROUP, "rebalances", "joined", "left")),),
        "No group rebalanced, and no member joined or left, in this period.",
        _describe_others("changes", "changes", "changes"),
    ),
    Section(
        "resets",
        "Rewinds and resets",
        "A rewind is a commit of a lower offset than the commit before it. A skip is a commit of a higher "
        "offset while the group had no members, for example because the group's offsets were reset by hand.",
        (Picture("resets", pictures.draw_resets),),
        (
            (
                "resets_by_group",
                "rewinds and resets by group, in records",
                (*_GROUP, "events", "rewound", "skipped", "recreated", "last_ms"),
            ),
        ),
        "No group was rewound or reset in this period.",
        _describe_others("resets", "events", "rewinds or resets"),
    ),
    Section(
        "lost",
        "Records lost to retention",
        "Records that retention deleted in this period before the group had committed them.",
        (Picture("lost", pictures.draw_lost),),
        (
            (
                "lost_by_group",
                "lost records by group",
                (*_GROUP, "lost", "first_ms", "last_ms", "partitions"),
            ),
        ),
        "Retention overtook no group in this period.",
        _describe_other_losing_groups,
    ),
    Section(
        "retention",
        "Time until retention overtakes a group",
        "The time until the log start offset passes the group's commits, if both continue at the speed of "
        "the last day.",
        (Picture("retention", pictures.draw_retention),),
        (
            (
                "retention",
                "hours left",
                (*_GROUP, "hours", "topic", "partition", "records_left", "partitions"),
            ),
        ),
        f"At the speed of the last day, retention overtakes no group within {RETENTION_DAYS} days.",
    ),
    Section(
        "idle",
        "Groups that are dead or never committed",
        "Groups that were deleted in this period, that have lag and no members, that have lag and made no "
        f"commit for {SILENT_H} hours (silent), or that have no commit at all.",
        (Picture("idle", pictures.draw_idle),),
        (
            (
                "idle",
                "dead and silent groups",
                (*_GROUP, "kind", "type", "state", "members", "lag", "commit_ms", "changed_ms", "silent_h"),
            ),
        ),
        "All groups are alive and commit.",
        _describe_other_idle,
    ),
    Section(
        "hot",
        "Hot partitions",
        "The busiest partition of each topic, compared with the mean of the topic's partitions.",
        (Picture("hot-partitions", pictures.draw_hot_partitions),),
        (
            (
                "hot_partitions",
                "busiest partitions",
                ("cluster", "topic", "partition", "produced", "topic_produced", "partitions", "times_mean"),
            ),
        ),
        "No topic with more than one partition received records in this period.",
    ),
    Section(
        "skew",
        "Skewed lag",
        "Groups in which one partition has more than 1.5 times the mean lag of the topic's partitions. More "
        "consumers do not help there.",
        (Picture("skew", pictures.draw_skew),),
        (
            (
                "skewed_groups",
                "lag in one partition",
                (*_GROUP, "topic", "partition", "lag", "topic_lag", "partitions", "share"),
            ),
        ),
        "No group has much more lag in one partition than in the others.",
    ),
)
