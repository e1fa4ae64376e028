"""The sections of a report, in their order: titles, texts, charts, tables, and the text without data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from koff.spark.report import charts
from koff.spark.report.period import Period
from koff.spark.report.queries import RETENTION_DAYS, SILENT_H
from koff.spark.report.words import Numbers, format_count

DrawCharts = Callable[[Numbers, Period], Iterator[charts.Chart]]
DescribeRest = Callable[[Numbers], str]


def _draw_nothing(_: Numbers, __: Period) -> Iterator[charts.Chart]:
    return iter(())


def _describe_no_rest(_numbers: Numbers) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a report.

    `columns` are those of the table with the section's name ("": it has none); the first number in them is
    drawn as a bar. The page shows `empty_text` if there is no data. `describe_rest` gives a sentence about
    the groups that are not shown, or "".
    """

    table: str
    title: str
    text: str
    columns: tuple[str, ...]
    empty_text: str
    draw_charts: DrawCharts = _draw_nothing
    describe_rest: DescribeRest = _describe_no_rest


def _describe_other_groups(numbers: Numbers) -> str:
    more = (numbers["summary"][0]["groups"] or 0) - len(numbers["worst_by_lag"])
    return f"{more} more groups had less lag, or no lag." if more > 0 and numbers["worst_by_lag"] else ""


def _describe_other_losing_groups(numbers: Numbers) -> str:
    summary, rows = numbers["summary"][0], numbers["lost_by_group"]
    more = (summary["losing_groups"] or 0) - len(rows)
    lost = (summary["lost"] or 0) - sum(row["lost"] for row in rows)
    return f"{more} more groups lost {format_count(lost)} records in total." if more > 0 else ""


def _describe_others(table: str, column: str, noun: str) -> DescribeRest:
    """A function for `describe_rest`, for a table of events with a total."""

    def describe_rest(numbers: Numbers) -> str:
        total, rows = numbers[f"{table}_total"][0], numbers[f"{table}_by_group"]
        more = total["groups"] - len(rows)
        events = total["events"] - sum(row[column] for row in rows)
        return f"{more} more groups had {format_count(events)} {noun} in total." if more > 0 else ""

    return describe_rest


def _describe_other_idle(numbers: Numbers) -> str:
    kinds = ", ".join(f"{row['groups']} {row['kind']}" for row in numbers["idle_total"])
    return f"In total: {kinds}." if kinds else ""


_GROUP = ("cluster", "group")
_LAGS = ("mean_lag", "last_lag", "last_s", "unknown")

SECTIONS = (
    Section(
        "worst_by_lag",
        "Worst groups by lag",
        "The groups with the largest lag of the period. The column unknown counts the partitions whose lag "
        "was not known at the end.",
        (*_GROUP, "largest_lag", "longest_s", *_LAGS),
        "No group had lag in this period.",
        charts.chart_lag,
        _describe_other_groups,
    ),
    Section(
        "worst_by_seconds",
        "Worst groups by time lag",
        "The groups with the longest time lag: the age of the oldest uncommitted record.",
        (*_GROUP, "longest_s", "largest_lag", *_LAGS),
        "No group had a time lag in this period.",
    ),
    Section(
        "budget",
        "Error budgets",
        "For how long a partition of the group was later than its allowance, and what is left of a budget of "
        "one in a thousand. Below zero: the budget is used up.",
        (*_GROUP, "over_s", "kept", "budget_left"),
        "No group was later than its allowance.",
    ),
    Section(
        "causes",
        "Incidents by cause",
        "Times in which a group was WARN or ERR. In a period of more than four days: of its last day.",
        ("cause", "incidents", "errors", "group_count", "worst_s"),
        "There were no incidents.",
    ),
    Section(
        "deployment",
        "Before and after the deployment",
        "The longest time lag of each group, and how long it was WARN or ERR.",
        (*_GROUP, "after_s", "before_s", "after_late_s", "before_late_s"),
        "No time of a deployment was given (--deployed).",
    ),
    Section(
        "",
        "Consumed against produced",
        "How many records the partitions of a group received, and how many records the group committed. "
        "Where the lines differ, the lag grows or shrinks. Records that are read again count again.",
        (),
        "No group committed offsets in this period, or no end offsets were sampled.",
        charts.chart_flow,
    ),
    Section(
        "capacity",
        "Capacity",
        "By week: the busiest time, the most that a member consumed a second, and the head-room of all "
        "members at that speed. Below zero: the group cannot keep up at the peak. The next week is expected "
        "to grow as this one did.",
        (*_GROUP, "peak_per_s", "week_ms", "per_member_per_s", "members", "headroom", "next_per_s"),
        "No group with members received records.",
    ),
    Section(
        "changes_by_group",
        "Rebalances and members",
        "A rebalance is a new epoch (generation) of the group.",
        (*_GROUP, "rebalances", "joined", "left"),
        "No group rebalanced, and no member joined or left, in this period.",
        charts.chart_changes,
        _describe_others("changes", "changes", "changes"),
    ),
    Section(
        "resets_by_group",
        "Rewinds and resets",
        "A rewind is a commit of a lower offset than the commit before it. A skip is a commit of a higher "
        "offset while the group had no members, for example because the group's offsets were reset by hand.",
        (*_GROUP, "rewound", "skipped", "events", "recreated", "last_ms"),
        "No group was rewound or reset in this period.",
        charts.chart_resets,
        _describe_others("resets", "events", "rewinds or resets"),
    ),
    Section(
        "lost_by_group",
        "Records lost to retention",
        "Records that retention deleted in this period before the group had committed them.",
        (*_GROUP, "lost", "first_ms", "last_ms", "partitions"),
        "Retention overtook no group in this period.",
        charts.chart_lost,
        _describe_other_losing_groups,
    ),
    Section(
        "retention",
        "Time until retention overtakes a group",
        "The time until the log start offset passes the group's commits, if both continue at the speed of "
        "the last day.",
        (*_GROUP, "hours", "topic", "partition", "records_left", "partitions"),
        f"At the speed of the last day, retention overtakes no group within {RETENTION_DAYS} days.",
    ),
    Section(
        "idle",
        "Groups that are dead or never committed",
        "Groups that were deleted in this period, that have lag and no members, that have lag and made no "
        f"commit for {SILENT_H} hours (silent), or that have no commit at all.",
        (*_GROUP, "silent_h", "kind", "type", "state", "members", "lag", "commit_ms", "changed_ms"),
        "All groups are alive and commit.",
        describe_rest=_describe_other_idle,
    ),
    Section(
        "hot_partitions",
        "Hot partitions",
        "The busiest partition of each topic, as a multiple of the mean of the topic's partitions.",
        ("cluster", "topic", "partition", "times_mean", "produced", "topic_produced", "partitions"),
        "No topic with more than one partition received records in this period.",
    ),
    Section(
        "skewed_groups",
        "Skewed lag",
        "Groups in which one partition has more than 1.5 times the mean lag of the topic's partitions. More "
        "consumers do not help there.",
        (*_GROUP, "topic", "partition", "share", "lag", "topic_lag", "partitions"),
        "No group has much more lag in one partition than in the others.",
    ),
)
