"""What happened in the period, in a few sentences: which group was worst, how bad, and how it ended."""

from koff.spark.report.history import Row
from koff.spark.report.words import Numbers, clean_name, format_count, name_group
from koff.view.wording import show_duration

TREND_PART = 8
"""The trend compares the end with the time before it that is this part of the sampled time: an eighth."""
STEADY = 0.1
"""A change of lag by less than this share is steady."""


def describe_period(numbers: Numbers) -> list[str]:
    """The sentences, the most important first."""
    summary = numbers["summary"][0]
    if not summary["groups"]:
        return ["There are no samples of lag in this period."]
    sentences = [_describe_worst(numbers)]
    if (unknown := sum(row["unknown"] or 0 for row in numbers["worst_by_lag"])) > 0:
        sentences.append(f"At the end, the lag of {format_count(unknown)} of their partitions was not known.")
    if summary["lost"]:
        sentences.append(
            f"Retention deleted {format_count(summary['lost'])} records that groups had not committed."
        )
    if numbers["retention"]:
        row = numbers["retention"][0]
        if row["hours"]:
            when = f"in {row['hours']:,.0f} h, at the speed of the last day"
            sentences.append(f"Retention will overtake {name_group(row, numbers)} {when}.")
        else:
            sentences.append(f"Retention has already overtaken {name_group(row, numbers)}.")
    return sentences


def _describe_worst(numbers: Numbers) -> str:
    if not numbers["worst_by_lag"]:
        return f"None of {format_count(numbers['summary'][0]['groups'])} groups had lag."
    row = numbers["worst_by_lag"][0]
    text = f"{name_group(row, numbers)} had the largest lag: {format_count(row['largest_lag'])} records"
    if row["last_lag"] is None:
        return f"{text}. At the end its lag was not known."
    trend = describe_trend(row, numbers)
    text = f"{text}. At the end its lag was {format_count(row['last_lag'])}" + (
        f", and {trend}" if trend else ""
    )
    if row["longest_s"] is None:
        return f"{text}. Its time lag is not known."
    return f"{text}. Its longest time lag was {show_duration(row['longest_s'])}."


def describe_trend(row: Row, numbers: Numbers) -> str:
    """Whether the lag of a group grows, falls or is steady at the end; "" with too few samples to say."""
    samples = [
        (each["step_ms"], each["lag"])
        for each in numbers["lag_over_time"]
        if (each["cluster"], each["group"]) == (row["cluster"], row["group"]) and each["lag"] is not None
    ]
    if len(samples) < 3 or row["last_lag"] is None:
        return ""
    begin_ms, end_ms = samples[0][0], samples[-1][0]
    before_ms = end_ms - (end_ms - begin_ms) / TREND_PART
    before = next(lag for step_ms, lag in reversed(samples[:-1]) if step_ms <= before_ms)
    change = row["last_lag"] - before
    if abs(change) <= STEADY * max(before, row["last_lag"]):
        return "steady"
    return "growing" if change > 0 else "falling"


def name_clusters(numbers: Numbers) -> str:
    """The clusters of the groups, for people; at most three by name."""
    summary = numbers["summary"][0]
    if not summary["clusters"]:
        return ""
    more = f" and {summary['clusters'] - 3} more" if summary["clusters"] > 3 else ""
    return f"Cluster{'s' * (summary['clusters'] > 1)} {clean_name(summary['cluster_names'])}{more}"
