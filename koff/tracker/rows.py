"""A snapshot as rows for display: the lag of each partition, and the totals of each group."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    NEVER,
    UNKNOWN,
    CatchUps,
    Lags,
    Reason,
    TimeLags,
    lag_to_stable,
    lost,
    published_lag,
    readable,
)
from koff.lag.late_causes import Cause
from koff.lag.verdict import Basis, Verdict
from koff.lag.verdict_sample import Floats
from koff.tracker.groups import Group, Member
from koff.tracker.snapshot_columns import ShardSnapshot, SnapshotColumns

CatchUp = tuple[float | None, bool | None]
"""`Pace.catch_up_s` and `Pace.never`."""


class Pace(NamedTuple):
    """Offsets per second, and when the group will have caught up. None stands for unknown.

    `catch_up_s` is also None where `never` is set: at these rates the group never catches up.
    """

    consume_per_s: float | None = None
    produce_per_s: float | None = None
    catch_up_s: float | None = None
    never: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one group on one partition. None stands for unknown, or not current (`reasons`).

    `lag` is signed; publish `published_lag`. Of the lag, `readable` offsets are still in the log. `lost`
    offsets left the log before the group committed them. A read_committed consumer can read `lag_to_stable`
    offsets now. `time_lag_s` is the age of the oldest uncommitted record; `time_lag_source` is "record" if
    that record was read, "ends" if its age was estimated from the history of end offsets; with `at_least` it
    is a lower bound. `status` is the verdict on the row, `cause` why it is late. `reasons` are why the lag is
    null, or is not what its number suggests. `complete` is the filled share of the window of commits behind
    `pace`, 0 to 1.
    """

    group: str
    state: str | None
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    readable: int | None
    lost: int | None
    lag_to_stable: int | None
    time_lag_s: float | None
    time_lag_source: str | None
    at_least: bool | None
    status: Verdict
    cause: Cause
    reasons: Reason
    pace: Pace
    complete: float | None
    member: Member | None

    @property
    def published_lag(self) -> int | None:
        """The lag to publish, never negative."""
        return published_lag(self.lag)


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The totals of one group over its partitions.

    `lag` is the sum of the known lags, None if none is known; `unknown` is the number of unknown lags. Of
    these, `withheld` are not current: then there are no totals, for a partial sum looks like a recovery.
    Without `current`, members and state of the group are not current either. Without `whole`, rows may be
    missing. There are no totals then either. `reason` is why `lag` is None.
    `time_lag_s` is the longest of its partitions, None unless all are known; `status` is the verdict on the
    group, and `cause` the first cause of its lag. It may be `allowance_s` late (None: nobody has looked
    yet): by its `basis`, that is twice what is usual (`usual_s`, None if unknown), its objective, or the
    least of all groups. Its open incident has lasted for `late_for_s`, None without one.
    `complete` is the share of its committed partitions that have a full window of commits, None without any.
    `pace` has no produce rate.
    """

    group: Group
    lag: int | None
    partitions: int
    unknown: int
    time_lag_s: float | None
    status: Verdict
    pace: Pace
    complete: float | None
    cause: Cause = Cause.NONE
    allowance_s: float | None = None
    basis: Basis = Basis.FLOOR
    usual_s: float | None = None
    late_for_s: float | None = None
    withheld: int = 0
    current: bool = True
    whole: bool = True

    @property
    def member_count(self) -> int | None:
        """How many members are present; None if that is not current."""
        return self.group.member_count if self.current else None

    @property
    def state(self) -> str | None:
        """The state of the group; None if it is not current."""
        return self.group.state if self.current else None

    @property
    def reason(self) -> str:
        """Why `lag` is None, as JSON names it, so the names never change; "" if it is known."""
        if self.lag is not None:
            return ""
        causes = (
            (not self.current, "commits_not_current"),
            (not self.whole, "rows_missing"),
            (self.withheld, "lags_withheld"),
            (self.partitions, "lags_unknown"),
        )
        return next((name for is_so, name in causes if is_so), "no_partitions")


def build_rows(snapshot: SnapshotColumns, shard: ShardSnapshot) -> Iterator[PartitionLag]:
    """The rows of the shard, and the assigned partitions without a commit, in no particular order."""
    # Compute all columns with numpy, and turn each into a Python list at once.
    partitions, rows = snapshot.partitions, shard.partition
    stale_end = shard.is_withheld(Reason.END_NOT_CURRENT)
    if snapshot.old_ends is not None:  # it also knows of rows without a commit
        stale_end |= snapshot.old_ends[rows]
    end = np.where(stale_end, UNKNOWN, partitions.end[rows])
    start = np.where(stale_end, UNKNOWN, partitions.start[rows])
    lag, committed = snapshot.lags(shard), snapshot.committed(shard)
    left = readable(end=end, committed=committed, start=start)
    to_stable = lag_to_stable(stable=partitions.stable[rows], committed=committed)
    is_current = shard.current_groups().tolist()
    states = [group.state if now else None for group, now in zip(shard.groups, is_current, strict=True)]
    groups = shard.group.tolist()
    # Each row takes its member out of `owners`: partitions without a commit are left.
    owners = {group.name: _list_owners(snapshot, group) for group in shard.groups}
    names = [shard.groups[group].name for group in groups]
    topics = [partitions.topic[number] for number in rows.tolist()]
    numbers = [partitions.partition[number] for number in rows.tolist()]
    keys = zip(names, topics, numbers, strict=True)
    yield from map(
        PartitionLag,
        names,
        [states[group] for group in groups],
        topics,
        numbers,
        _list_known(committed, committed >= 0),
        _list_known(end, end >= 0),
        _list_known(lag.signed, lag.known),
        # A value that depends on the lag is None where the lag is unknown.
        _list_known(left, lag.known & (left >= 0)),
        _list_known(missed := lost(start=start, committed=committed), missed >= 0),
        _list_known(to_stable, lag.known & (to_stable >= 0)),
        *_list_time_lags(snapshot.time_lags(shard), len(rows)),
        map(Verdict, snapshot.row_verdicts(shard).tolist()),
        map(Cause, snapshot.find_verdicts(shard).row_cause.tolist()),
        map(Reason, snapshot.reasons(shard).tolist()),
        _build_paces(snapshot, shard),
        _list_completeness(shard),
        [owners[group].pop((topic, number), None) for group, topic, number in keys],
    )
    yield from _build_uncommitted_rows(snapshot, shard, owners)


_Verdict = tuple[Verdict, Cause, Reason, Pace, float | None]
"""`status`, `cause`, `reasons`, `pace` and `complete`."""
_WITHOUT_COMMIT: _Verdict = (Verdict.UNKNOWN, Cause.NONE, Reason.NO_COMMIT, Pace(), 0.0)
_NOT_READ: _Verdict = (Verdict.UNKNOWN, Cause.NONE, Reason.COMMITS_NOT_CURRENT, Pace(), None)
Owners = dict[str, dict[tuple[str, int], Member]]
"""The member of each assigned (topic, partition), by group."""


def _list_owners(snapshot: SnapshotColumns, group: Group) -> dict[tuple[str, int], Member]:
    """The member of each assigned partition. If a share group has several, the last one."""
    return {(topic or "?", partition): member for topic, partition, member in snapshot.assignments(group)}


def _build_uncommitted_rows(
    snapshot: SnapshotColumns, shard: ShardSnapshot, owners: Owners
) -> Iterator[PartitionLag]:
    """The assigned partitions without a commit, which are left in `owners`: their lag is null.

    Where rows of the group may be missing, these are some of them.
    """
    if not any(owners.values()):
        return
    partitions = snapshot.partitions
    keys = zip(partitions.topic, partitions.partition, strict=True)
    current = np.where(snapshot.withheld_ends(), UNKNOWN, partitions.end)
    ends = dict(zip(keys, current.tolist(), strict=True))
    for group, is_whole in zip(shard.groups, shard.summable_groups().tolist(), strict=True):
        verdict = _WITHOUT_COMMIT if is_whole else _NOT_READ
        for (topic, partition), member in owners[group.name].items():
            end = ends.get((topic, partition), UNKNOWN)
            # committed, end, lag, readable, lost, lag_to_stable, time_lag_s, time_lag_source, at_least
            offsets = (None, None if end < 0 else end, None, None, None, None, None, None, None)
            yield PartitionLag(group.name, group.state, topic, partition, *offsets, *verdict, member)


def build_totals(snapshot: SnapshotColumns) -> Iterator[GroupTotal]:
    """The totals of every group, also without any partition, in no particular order."""
    for shard in snapshot.shards.values():
        yield from _total_groups(snapshot, shard)


def _total_groups(snapshot: SnapshotColumns, shard: ShardSnapshot) -> Iterator[GroupTotal]:
    size, groups, lag = len(shard.groups), shard.group, snapshot.lags(shard)
    longest_s, undated = np.zeros(size), lag.known
    if (times := snapshot.time_lags(shard)) is not None:
        np.maximum.at(longest_s, groups[times.known], times.seconds[times.known])
        undated = lag.known & ~times.known
    known, without_time, withheld = (
        np.bincount(groups[mask], minlength=size) for mask in (lag.known, undated, shard.is_withheld())
    )
    # Where rows may be missing, assigned partitions without a commit are withheld (`_NOT_READ`).
    rows = _count_rows(snapshot, shard)
    withheld += np.where(shard.summable_groups(), 0, rows - np.bincount(groups, minlength=size))
    is_served = shard.summable_groups() & (withheld == 0)
    has_lag, found = is_served & (known > 0), snapshot.find_verdicts(shard)
    rates = snapshot.summed_consume_rates(shard, groups, size).hide(~is_served)
    paces = zip(_round_known(*rates), _list_catch_ups(snapshot.group_catch_ups(shard)), strict=True)
    complete, now_s = snapshot.group_completeness(shard), (snapshot.now_ms or 0) / 1000
    return map(
        GroupTotal,
        shard.groups,
        _list_known(_sum_lags(lag, groups, size), has_lag),
        rows.tolist(),
        (rows - known).tolist(),
        _round_known(longest_s, has_lag & (without_time == 0)),
        map(Verdict, found.verdict.tolist()),
        [Pace(rate, None, *caught_up) for rate, caught_up in paces],
        _round_known(complete, ~np.isnan(complete)),
        map(Cause, found.cause.tolist()),
        _round_known(found.allowance_s, ~np.isnan(found.allowance_s)),
        map(Basis, found.basis.tolist()),
        [seconds or None for seconds in found.usual_s.tolist()],
        _round_known(np.maximum(now_s - found.since_s, 0.0), ~np.isnan(found.since_s)),
        withheld.tolist(),
        shard.current_groups().tolist(),
        np.broadcast_to(shard.groups_whole, size).tolist(),
    )


def _sum_lags(lag: Lags, groups: NDArray[np.int32], size: int) -> list[int]:
    """The known lags of each group, in Python's integers: anyone may commit any offset, and a sum in 64 bits
    could overflow.
    """
    sums = [0] * size
    for group, published in zip(groups[lag.known].tolist(), lag.published[lag.known].tolist(), strict=True):
        sums[group] += published
    return sums


def _count_rows(snapshot: SnapshotColumns, shard: ShardSnapshot) -> NDArray[np.int64]:
    """How many rows each group of the shard has, with the assigned partitions that have no commit."""
    counts: list[int] = np.bincount(shard.group, minlength=len(shard.groups)).tolist()
    names, numbers = snapshot.partitions.topic, snapshot.partitions.partition
    without = [set(_list_owners(snapshot, group)) for group in shard.groups]
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        without[group].discard((names[number], numbers[number]))
    more = [count + len(partitions) for count, partitions in zip(counts, without, strict=True)]
    return np.array(more, np.int64)


def _build_paces(snapshot: SnapshotColumns, shard: ShardSnapshot) -> Iterator[Pace]:
    rows = zip(
        _round_known(*snapshot.consume_rates(shard)),
        _round_known(*snapshot.produce_rates(shard)),
        _list_catch_ups(snapshot.catch_ups(shard)),
        strict=True,
    )
    return (Pace(consumed, produced, *caught_up) for consumed, produced, caught_up in rows)


def _list_time_lags(
    times: TimeLags | None, size: int
) -> tuple[list[float | None], list[str | None], list[bool | None]]:
    """`time_lag_s`, `time_lag_source` and `at_least` of each row."""
    if times is None:
        return [None] * size, [None] * size, [None] * size
    exact = np.zeros(size, np.bool_) if times.exact is None else times.exact
    sources = np.where(exact, "record", "ends")
    return (
        _round_known(times.seconds, times.known),
        _list_known(sources, times.known),
        _list_known(times.at_least, times.known),
    )


def _list_completeness(shard: ShardSnapshot) -> list[float | None]:
    unknown = shard.is_withheld(Reason.COMMITS_NOT_CURRENT) | ~shard.current_groups()[shard.group]
    return _list_known(shard.features.completeness(), ~unknown)


def _list_known(column: NDArray[Any] | list[Any], known: NDArray[np.bool_]) -> list[Any]:
    """The values, None where they are not known."""
    values = column if isinstance(column, list) else column.tolist()
    return [value if is_known else None for value, is_known in zip(values, known.tolist(), strict=True)]


def _round_known(column: Floats, known: NDArray[np.bool_]) -> list[float | None]:
    """The seconds, rates or shares, rounded to a thousandth; None where unknown."""
    pairs = zip(column.tolist(), known.tolist(), strict=True)
    return [round(number, 3) if is_known else None for number, is_known in pairs]


def _list_catch_ups(caught_up: CatchUps) -> list[CatchUp]:
    pairs = zip(caught_up.seconds.tolist(), caught_up.known.tolist(), strict=True)
    return [
        (None, None) if not known else (None, True) if seconds == NEVER else (round(seconds, 3), False)
        for seconds, known in pairs
    ]
