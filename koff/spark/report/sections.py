"""What a report consists of, in its order: pictures, tables and words, and what is said without data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koff.spark.report import pictures
from koff.spark.report.charts import Drawing, Numbers, count
from koff.spark.report.events import SILENT_H
from koff.spark.report.queries import RETENTION_DAYS


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing and its name, of files too."""

    name: str
    draw: Drawing


def _no_rest(_numbers: Numbers) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Section:
    """`tables` are (name, what it is, columns); `without` is said without data, `rest` of what is cut."""

    name: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    tables: tuple[tuple[str, str, tuple[str, ...]], ...]
    without: str
    rest: Callable[[Numbers], str] = _no_rest


def _other_groups(numbers: Numbers) -> str:
    more = (numbers["summary"][0]["groups"] or 0) - len(numbers["worst_by_lag"])
    return f"{more} more groups had less lag, or none." if more > 0 and numbers["worst_by_lag"] else ""


def _other_losers(numbers: Numbers) -> str:
    summary, shown = numbers["summary"][0], numbers["lost_by_group"]
    more = (summary["losing_groups"] or 0) - len(shown)
    lost = (summary["lost"] or 0) - sum(row["lost"] for row in shown)
    return f"{more} more groups lost {count(lost)} records together." if more > 0 else ""


def _others(table: str, column: str, what: str) -> Callable[[Numbers], str]:
    def rest(numbers: Numbers) -> str:
        total, shown = numbers[f"{table}_total"][0], numbers[f"{table}_by_group"]
        more = total["groups"] - len(shown)
        events = total["events"] - sum(row[column] for row in shown)
        return f"{more} more groups had {count(events)} {what} together." if more > 0 else ""

    return rest


def _other_idle(numbers: Numbers) -> str:
    if not numbers["idle_total"]:
        return ""
    kinds = ", ".join(f"{row['groups']} {row['kind']}" for row in numbers["idle_total"])
    return f"In all: {kinds}."


_GROUP = ("cluster", "group")
_LAGS = (*_GROUP, "largest_lag", "mean_lag", "last_lag", "longest_s", "last_s", "partitions", "unknown")

SECTIONS = (
    Section(
        "worst",
        "Worst groups",
        "By records that are waiting, and by the age of the oldest of them. Unknown counts partitions whose "
        "lag could not be told at the end.",
        (
            Picture("worst-by-lag", pictures.worst_by_lag),
            Picture("worst-by-seconds", pictures.worst_by_seconds),
        ),
        (
            ("worst_by_lag", "worst groups by lag", _LAGS),
            ("worst_by_seconds", "worst groups by time lag", _LAGS),
        ),
        "No group had any lag in this time.",
        _other_groups,
    ),
    Section(
        "lag",
        "Lag over time",
        "The worst groups one by one, all others as a sum.",
        (Picture("lag-over-time", pictures.lag_over_time), Picture("lag-heat", pictures.lag_heat)),
        (),
        "No group had any lag in this time.",
    ),
    Section(
        "flow",
        "Consumed against produced",
        "What the partitions received that a group reads, and what it committed. Where the lines part, lag "
        "grows or shrinks. What is read again after a rewind counts again.",
        (Picture("flow", pictures.flow),),
        (),
        "No group committed anything in this time, or no ends of partitions were sampled.",
    ),
    Section(
        "changes",
        "Rebalances and members",
        "A rebalance is a new epoch (generation) of the group.",
        (Picture("changes", pictures.changes),),
        (("changes_by_group", "rebalances and members by group", (*_GROUP, "rebalances", "joined", "left")),),
        "No group rebalanced, and no member came or went in this time.",
        _others("changes", "changes", "changes"),
    ),
    Section(
        "resets",
        "Rewinds and resets",
        "A rewind is a commit below the one before. A skip is a commit further on while the group had no "
        "members: somebody moved it by hand.",
        (Picture("resets", pictures.resets),),
        (
            (
                "resets_by_group",
                "rewinds and resets by group, in records",
                (*_GROUP, "events", "rewound", "skipped", "recreated", "last_ms"),
            ),
        ),
        "No group was rewound or reset in this time.",
        _others("resets", "events", "rewinds or resets"),
    ),
    Section(
        "lost",
        "Records lost to retention",
        "Records that left the log in this time before the group had committed them.",
        (Picture("lost", pictures.lost),),
        (
            (
                "lost_by_group",
                "lost records by group",
                (*_GROUP, "lost", "first_ms", "last_ms", "partitions"),
            ),
        ),
        "Retention overtook no group in this time.",
        _other_losers,
    ),
    Section(
        "retention",
        "Time until retention overtakes a group",
        "How long until the log's start passes the group's commits, if both go on as in the last day.",
        (Picture("retention", pictures.retention),),
        (
            (
                "retention",
                "hours left",
                (*_GROUP, "hours", "topic", "partition", "records_left", "partitions"),
            ),
        ),
        f"At the present speed retention overtakes no group within {RETENTION_DAYS} days.",
    ),
    Section(
        "idle",
        "Groups that are dead or never committed",
        f"Deleted in this time; with lag and without members; with lag and without a commit for {SILENT_H} "
        "hours; or never seen to commit at all.",
        (Picture("idle", pictures.idle),),
        (
            (
                "idle",
                "dead and silent groups",
                (*_GROUP, "kind", "type", "state", "members", "lag", "commit_ms", "changed_ms", "silent_h"),
            ),
        ),
        "Every group is alive and commits.",
        _other_idle,
    ),
    Section(
        "hot",
        "Hot partitions",
        "Each topic's busiest partition against the mean of its partitions.",
        (Picture("hot-partitions", pictures.hot_partitions),),
        (
            (
                "hot_partitions",
                "busiest partitions",
                ("cluster", "topic", "partition", "produced", "topic_produced", "partitions", "times_mean"),
            ),
        ),
        "No topic of more than one partition received records in this time.",
    ),
    Section(
        "skew",
        "Skewed lag",
        "Groups with half as much lag again, or more, in one partition than it would have if all had the "
        "same: more consumers do not help there.",
        (Picture("skew", pictures.skew),),
        (
            (
                "skewed_groups",
                "lag in one partition",
                (*_GROUP, "topic", "partition", "lag", "topic_lag", "partitions", "share"),
            ),
        ),
        "No group's lag lies mainly in one partition.",
    ),
)
