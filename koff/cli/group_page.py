"""The page of `koff group`: everything about one group, as text."""

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from koff.cli.lag_tables import format_partitions
from koff.cli.text_table import Column, format_columns
from koff.serve.api.commands import list_commands, quote_word
from koff.view.wording import count, show, show_duration

_KNOWN = 0.5
"""A burn rate is shown if so much of its window is known."""
_AGO = {1: "day ago", 7: "week ago"}
Json = dict[str, Any]
"""What the API says of the group (`/api/v1/clusters/{cluster}/groups/{group}`), and its `history`."""


def format_page(group: Json, brokers: str, width: int | None) -> str:
    """The page. `brokers` are for the commands that may help."""
    parts = (
        _format_head(group),
        _format_causes(group["group"]["causes"]),
        _format_members(group, width),
        f"Partitions\n{format_partitions(group['partitions'], width)}" if group["partitions"] else "",
        _format_history(group["history"]),
        _format_commands(group, brokers),
    )
    return "\n".join(part for part in parts if part)


def _format_head(group: Json) -> str:
    about = group["group"]
    facts = [about["type"] or "unknown type", about["state"] or "state unknown"]
    facts += [count(about["members"], "member")] if about["members"] is not None else []
    facts += [f"assignor {show(about['protocol'])}"] if about["protocol"] else []
    word = "generation" if about["type"] == "classic" else "epoch"
    facts += [f"{word} {about['epoch']}"] if about["epoch"] is not None else []
    facts += [f"coordinator {about['coordinator']}"] if about["coordinator"] is not None else []
    lines = [
        f"group     {show(about['group'])}",
        f"cluster   {group['cluster']}",
        f"state     {', '.join(facts)}",
        f"status    {_describe_status(about)}",
        f"why       {about['sentence']}",
        f"lag       {_describe_lag(about)}",
        f"pace      {_describe_pace(about)}",
    ]
    lines += [f"{_AGO[each['days']]:9} {_describe_earlier(each)}" for each in group["earlier"]]
    if group["budget"]:
        lines.append(f"budget    {_describe_budget(group['budget'])}")
    if about["commits_held_back"]:
        lines.append("          an open transaction may hold back commits of this group")
    if owner := about["owner"]:
        contact = f" ({show(owner['contact'])})" if owner["contact"] else ""
        lines.append(f"owner     {show(owner['team'])}{contact}")
    if group["runbook_url"]:
        lines.append(f"runbook   {group['runbook_url']}")
    return "\n".join(lines) + "\n"


def _describe_status(about: Json) -> str:
    if about["allowance_s"] is None:
        return str(about["status"])
    sources = {
        "floor": "as for any group",
        "usual": "twice what is usual for it",
        "objective": "its objective",
        "retention": "half of the time for which a topic keeps its records",
    }
    allowed = f"{show_duration(about['allowance_s'])} is allowed, {sources[about['allowance_from']]}"
    return f"{about['status']} ({allowed})"


def _describe_lag(about: Json) -> str:
    if about["lag"] is None:
        return f"unknown: {about['reason']}"
    text = f"{about['lag']:,} offsets in {count(about['partitions'], 'partition')}"
    if about["time_lag_s"] is not None and about["lag"]:
        text += f", the oldest {show_duration(about['time_lag_s'])} old"
    return text + (f"; {about['unknown']} without a known lag" if about["unknown"] else "")


def _describe_earlier(earlier: Json) -> str:
    """The lag at this time on an earlier day."""
    lag, time_lag_s = earlier["lag"][-1], earlier["time_lag_s"][-1]
    if lag is None:
        return "unknown"
    return f"{lag:,.0f} offsets" + (f", the oldest {show_duration(time_lag_s)} old" if time_lag_s else "")


def _describe_budget(budget: Json) -> str:
    rates = [
        f"burn rate {each['burn_rate']:.1f} over {show_duration(each['window_s'])}"
        for each in budget["windows"]
        if each["known"] >= _KNOWN
    ]
    return "; ".join([f"{budget['left']:.0%} is left of 30 days", *rates])


def _describe_pace(about: Json) -> str:
    if about["consume_per_s"] is None:
        return "unknown"
    text = f"commits {about['consume_per_s']:,.1f} offsets a second"
    if about["never_catches_up"]:
        return f"{text}: at these rates it never catches up"
    if about["catch_up_s"]:
        return f"{text}: caught up in {show_duration(about['catch_up_s'])}"
    return text


def _format_causes(causes: Sequence[Json] | None) -> str:
    if causes is None:
        return "Why it lags: unknown, because its lag is not known\n"
    if not causes:
        return ""
    return "Why it lags\n" + "".join(
        f"  {cause['cause']} ({cause['share']:.0%} of the lag): {cause['text']}\n"
        f"    What helps: {cause['advice']}\n"
        for cause in causes
    )


def _format_members(group: Json, width: int | None) -> str:
    if not group["members"]:
        return ""
    lags: dict[str, int] = {}
    for row in group["partitions"]:
        if row["member_id"] is not None and row["lag"] is not None:
            lags[row["member_id"]] = lags.get(row["member_id"], 0) + row["lag"]
    columns: list[Column[Json]] = [
        Column("MEMBER", itemgetter("member_id"), is_name=True),
        Column("CLIENT", itemgetter("client_id"), is_name=True),
        Column("HOST", itemgetter("client_host"), is_name=True),
        Column("STATE", lambda each: each["state"] if each["present"] else "left for a while", left_out=1),
        Column("LAG", lambda each: lags.get(each["member_id"])),
        Column("ASSIGNED", lambda each: " ".join(map(_describe_assigned, each["assigned"]))),
    ]
    return f"Members\n{format_columns(columns, group['members'], width)}"


def _describe_assigned(assigned: Json) -> str:
    """Ranges of partitions: `orders 0-3,7`."""
    partitions = sorted(assigned["partitions"])
    ranges: list[list[int]] = []
    for partition in partitions:
        if ranges and ranges[-1][1] == partition - 1:
            ranges[-1][1] = partition
        else:
            ranges.append([partition, partition])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return f"{assigned['topic'] or assigned['topic_id']} {','.join(texts)}"


def _format_history(history: Json | None) -> str:
    if history is None:
        return ""
    lines = [f"The last {show_duration(history['seconds'])}"]
    if history["commits"]:
        first, last = _show_time(history["first_commit_ms"]), _show_time(history["last_commit_ms"])
        lines.append(f"  {count(history['commits'], 'commit')} in the log, from {first} to {last}")
    else:
        lines.append("  no commits in the log")
    lines += [f"  {_show_time(event['timestamp_ms'])}  {event['text']}" for event in history["events"]]
    return "\n".join(lines) + "\n"


def _show_time(timestamp_ms: int) -> str:
    """The time; the number if it is in no year that can be shown, as clients may make it up."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _format_commands(group: Json, brokers: str) -> str:
    """Commands of Kafka's own tools. They change nothing: resets are dry runs."""
    commands = list_commands(group, quote_word(brokers))
    if not commands:
        return ""
    return "Commands of Kafka (resets are dry runs: --execute does them)\n" + "".join(
        f"  {command}\n" for command in commands
    )
