"""How many members a group should have, by what a view knows of it."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koff.errors import KoffError
from koff.lag.late_causes import Cause
from koff.lag.scaling import Load, Scale, ScaleReason, Span, choose_members, find_spans
from koff.tracker import ShardSnapshot, Snapshot
from koff.view.activity import GroupActivity
from koff.view.causes import find_shard_causes
from koff.view.cluster_view import ClusterView
from koff.view.lag_history import STEP_S
from koff.view.verdict_samples import list_subscribed_topics
from koff.view.wording import count, show_duration

NOT_CURABLE = (
    Cause.OPEN_TRANSACTION,
    Cause.NOT_ASSIGNED,
    Cause.HELD_BACK_COMMITS,
    Cause.NOT_COMMITTING,
    Cause.SLOW_MEMBER,
    Cause.STUCK_PARTITION,
)
"""More members cure no lag with these causes: it stands with any member, or no member may have it."""
_CHANGES = -1
"""The number of members in a step in which it changed."""


class NoScale(KoffError):
    """What a number of members would follow from is withheld, or not known. The text says what."""


@dataclass(frozen=True, slots=True)
class GroupScale:
    """How many members a group should have, and what that follows from.

    `causes` are those of the lag that more members do not cure.
    """

    scale: Scale
    load: Load
    members: int
    seconds: float
    causes: tuple[str, ...]

    @property
    def text(self) -> str:
        """A sentence for people."""
        return _TEXTS[self.scale.reason](self)


def scale_group(
    view: ClusterView,
    number: int,
    place: int,
    *,
    seconds: float,
    topics: Collection[str] = (),
    member_per_s: float | None = None,
) -> GroupScale:
    """How many members the group at this place of a shard should have, for these topics or for all.

    Raises `NoScale`.
    """
    shard, snapshot = view.snapshot.shards[number], view.snapshot
    group, verdicts = shard.groups[place], snapshot.find_verdicts(shard)
    allowance_s = float(verdicts.allowance_s[place])
    if snapshot.withheld_groups(shard)[place]:
        raise NoScale("lags of the group are withheld")
    if group.type in ("simple", "zookeeper"):
        raise NoScale(f"Kafka knows no members of the group: its type is {group.type}")
    if math.isnan(allowance_s):
        raise NoScale("koff has not judged the group yet")
    places = _list_places(snapshot, shard, place, topics)
    rows = np.array(sorted(row for row in places.values() if row >= 0), np.intp)
    rows = rows[snapshot.lags(shard).known[rows]]
    if not len(rows):
        raise NoScale("no lag of the group is known: it has committed nothing that its members read")
    row_causes = verdicts.row_cause[rows]
    is_curable = ~np.isin(row_causes, NOT_CURABLE)
    curable, lags = rows[is_curable], find_shard_causes(view, number).lag
    load = Load(
        lag=sum(lags[rows].tolist()),
        curable=sum(_find_readable(snapshot, shard, lags)[curable].tolist()),
        produce_per_s=_sum_rates(snapshot, shard, rows),
        allowance_s=allowance_s,
        partitions=None if group.type == "share" else len(places),
        is_late=bool(verdicts.late[curable].any()),
        is_rebalancing=bool((row_causes == Cause.REBALANCING).any()),
    )
    spans = _list_spans(view, group.name, group.member_count, allowance_s)
    scale = choose_members(load, group.member_count, spans, seconds=seconds, member_per_s=member_per_s)
    causes = tuple(Cause(each).label for each in np.unique(row_causes[~is_curable]).tolist())
    return GroupScale(scale, load, group.member_count, seconds, causes)


def _list_places(
    snapshot: Snapshot, shard: ShardSnapshot, place: int, topics: Collection[str]
) -> dict[tuple[str, int], int]:
    """The partitions that the group reads, each with its row; -1 for one that it has not committed.

    Commits for topics to which no member subscribes any more are of none of them.
    """
    group, partitions = shard.groups[place], snapshot.partitions
    assigned = {(topic or "", partition): -1 for topic, partition, _ in snapshot.assignments(group)}
    subscribed = list_subscribed_topics(group) if group.member_count else None
    found = dict(assigned)
    for row in np.flatnonzero(shard.group == place).tolist():
        at = shard.partition[row]
        key = partitions.topic[at], partitions.partition[at]
        if subscribed is None or key[0] in subscribed or key in assigned:
            found[key] = row
    return {key: row for key, row in found.items() if not topics or key[0] in topics}


def _find_readable(snapshot: Snapshot, shard: ShardSnapshot, lags: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lag of each row, without what has left the log."""
    start = shard.replace_described(snapshot.partitions.start[shard.partition], 0)
    left = snapshot.partitions.end[shard.partition] - np.maximum(start, shard.committed)
    return np.where(shard.committed >= 0, np.clip(left, 0, lags), lags)


def _sum_rates(snapshot: Snapshot, shard: ShardSnapshot, rows: NDArray[np.intp]) -> float:
    rates = snapshot.produce_rates(shard)
    if not rates.known[rows].all():
        raise NoScale("it is not known yet how fast records come")
    return round(float(rates.per_s[rows].sum()), 3)


def _list_spans(view: ClusterView, name: str, members: int, allowance_s: float) -> list[Span]:
    course = view.activity.history.find(name)
    if course is None or view.snapshot.now_ms is None:
        return []
    did = view.activity.current.groups.get(name, GroupActivity())
    ages_s = [((view.snapshot.now_ms - until_ms) / 1000, number) for until_ms, number in did.members]
    present = list_members(ages_s, members, len(course.lag))
    return find_spans(course.lag, course.consumed_per_s, present, allowance_s)


def list_members(changes: Sequence[tuple[float, int]], members: int, steps: int) -> list[int]:
    """How many members a group had in each of the last steps, the newest last; below 0: it changed then.

    `changes` are until how many seconds ago it had another number, and which: the oldest first. When within
    the newest step that was is not known, so a change is in one of two steps: it counts as in both.
    """
    present = [members] * steps
    for age_s, number in reversed(changes):
        at = steps - 1 - int(age_s // STEP_S)
        for step in range(min(at, steps)):
            present[step] = number
        for step in (at - 1, at):
            if 0 <= step < steps:
                present[step] = _CHANGES
    return present


def _describe_pace(found: GroupScale) -> str:
    rate = found.scale.member_per_s or 0.0
    return f"{found.load.produce_per_s:,.1f} records a second come, and a member does {rate:,.1f}"


def _describe_needed(found: GroupScale) -> str:
    behind = f"{count(found.load.curable, 'record')} wait; {_describe_pace(found)}"
    allowed, in_time = show_duration(found.load.allowance_s), show_duration(found.seconds)
    return f"{behind}: to be {allowed} late at most in {in_time}"


_TEXTS: dict[ScaleReason, Callable[[GroupScale], str]] = {
    ScaleReason.NEEDED: _describe_needed,
    ScaleReason.KEEPS_UP: lambda found: f"it keeps up: {_describe_pace(found)}",
    ScaleReason.IDLE: lambda found: "nothing waits, and nothing has come for five minutes",
    ScaleReason.NOT_CURABLE: lambda found: f"more members do not cure its lag: {', '.join(found.causes)}",
    ScaleReason.REBALANCING: lambda found: (
        "it rebalances too often: another member would make it do so again"
    ),
    ScaleReason.CAPACITY_UNKNOWN: lambda found: (
        "what a member can do is not known: none was seen for two minutes"
    ),
    ScaleReason.NO_GAIN: lambda found: "it is behind, and more members brought too little in the last hour",
    ScaleReason.ALL_PARTITIONS: lambda found: (
        f"it has {count(found.load.partitions or 0, 'partition')}: more members would get none"
    ),
}
