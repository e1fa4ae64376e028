"""A snapshot as rows for display: the lag of each partition, and the totals of each group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    NEVER,
    UNKNOWN,
    CatchUps,
    Rates,
    Reason,
    TimeLags,
    lag_to_stable,
    lost,
    published_lag,
    readable,
)
from koff.lag.late_causes import Cause
from koff.lag.verdict import Basis, Verdict
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
    least of all groups. `since_s` is when the open incident began, None without one.
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
    since_s: float | None = None
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
    owners = {group.name: _list_owners(snapshot, group) for group in shard.groups}
    names, numbers, rows = snapshot.partitions.topic, snapshot.partitions.partition, shard.partition
    stale_end = shard.is_withheld(Reason.END_NOT_CURRENT)
    if snapshot.old_ends is not None:  # it also knows of rows without a commit
        stale_end |= snapshot.old_ends[rows]
    is_current = shard.current_groups().tolist()
    end = np.where(stale_end, UNKNOWN, snapshot.partitions.end[rows])
    start = np.where(stale_end, UNKNOWN, snapshot.partitions.start[rows])
    lag, committed = snapshot.lags(shard), snapshot.committed(shard)
    columns = (
        committed,
        end,
        np.where(lag.known, lag.signed, 0),
        readable(end=end, committed=committed, start=start),
        lost(start=start, committed=committed),
        lag_to_stable(stable=snapshot.partitions.stable[rows], committed=committed),
    )
    known = lag.known.tolist()
    reason_bits, verdicts = snapshot.reasons(shard).tolist(), snapshot.row_verdicts(shard).tolist()
    causes = snapshot.find_verdicts(shard).row_cause.tolist()
    times = _list_time_lags(snapshot.time_lags(shard), len(rows))
    paces, complete = _build_paces(snapshot, shard), _list_completeness(shard)
    # A value that depends on the lag is None where the lag is unknown. Each row takes its member out of
    # `owners`: partitions without a commit are left.
    for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        commit, end_, signed, still_readable, lost_offsets, stable = values
        group, number = shard.groups[shard.group[row]], int(rows[row])
        yield PartitionLag(
            group.name,
            group.state if is_current[shard.group[row]] else None,
            names[number],
            numbers[number],
            _none_if_unknown(commit),
            _none_if_unknown(end_),
            signed if known[row] else None,
            _none_if_unknown(still_readable) if known[row] else None,
            _none_if_unknown(lost_offsets),
            _none_if_unknown(stable) if known[row] else None,
            *times[row],
            Verdict(verdicts[row]),
            Cause(causes[row]),
            Reason(reason_bits[row]),
            next(paces),
            complete[row],
            owners[group.name].pop((names[number], numbers[number]), None),
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
            end = _none_if_unknown(ends.get((topic, partition), UNKNOWN))
            # committed, end, lag, readable, lost, lag_to_stable, time_lag_s, time_lag_source, at_least
            offsets = (None, end, None, None, None, None, None, None, None)
            yield PartitionLag(group.name, group.state, topic, partition, *offsets, *verdict, member)


def build_totals(snapshot: SnapshotColumns) -> Iterator[GroupTotal]:
    """The totals of every group, in no particular order."""
    for shard in snapshot.shards.values():
        # Every group has a total, also without any partition.
        sums = _sum_rows(snapshot, shard)
        found = snapshot.find_verdicts(shard)
        verdicts = zip(
            map(Verdict, found.verdict.tolist()),
            map(Cause, found.cause.tolist()),
            map(_none_if_nan, found.allowance_s.tolist()),
            map(Basis, found.basis.tolist()),
            (seconds or None for seconds in found.usual_s.tolist()),
            map(_none_if_nan, found.since_s.tolist()),
            _list_catch_ups(snapshot.group_catch_ups(shard)),
            (None if np.isnan(s) else round(s, 3) for s in snapshot.group_completeness(shard).tolist()),
            _round_known(snapshot.summed_consume_rates(shard, shard.group, len(shard.groups))),
            strict=True,
        )
        are_whole = np.broadcast_to(shard.groups_whole, len(shard.groups)).tolist()
        flags = zip(shard.current_groups().tolist(), are_whole, strict=True)
        groups = zip(shard.groups, sums, verdicts, flags, strict=True)
        for group, own, verdict, (is_current, is_whole) in groups:
            yield _total_group(group, own, *verdict, current=is_current, whole=is_whole)


class _Sums(NamedTuple):
    """The sums over all rows of a group: the known lags and how many, the longest time lag in seconds.

    `undated` lags are known, but not their time lags. `rows` counts those without a commit too.
    """

    lag: int
    time_lag_s: float
    rows: int
    known: int
    undated: int
    withheld: int


def _sum_rows(snapshot: SnapshotColumns, shard: ShardSnapshot) -> Iterator[_Sums]:
    """The sums of each group of the shard."""
    size, groups, lag = len(shard.groups), shard.group, snapshot.lags(shard)
    # Python's integers: anyone may commit any offset, and a sum in 64 bits could overflow.
    lags = [0] * size
    for group, published in zip(groups[lag.known].tolist(), lag.published[lag.known].tolist(), strict=True):
        lags[group] += published
    longest_s, undated = np.zeros(size), lag.known
    if (times := snapshot.time_lags(shard)) is not None:
        np.maximum.at(longest_s, groups[times.known], times.seconds[times.known])
        undated = lag.known & ~times.known
    known, undated_, withheld = (
        np.bincount(groups[mask], minlength=size) for mask in (lag.known, undated, shard.is_withheld())
    )
    # Where rows may be missing, assigned partitions without a commit are withheld (`_NOT_READ`).
    rows = _count_rows(snapshot, shard)
    withheld += np.where(shard.summable_groups(), 0, rows - np.bincount(groups, minlength=size))
    columns = (column.tolist() for column in (longest_s, rows, known, undated_, withheld))
    return map(_Sums, lags, *columns)


def _count_rows(snapshot: SnapshotColumns, shard: ShardSnapshot) -> NDArray[np.int64]:
    """How many rows each group of the shard has, with the assigned partitions that have no commit."""
    counts: list[int] = np.bincount(shard.group, minlength=len(shard.groups)).tolist()
    names, numbers = snapshot.partitions.topic, snapshot.partitions.partition
    without = [set(_list_owners(snapshot, group)) for group in shard.groups]
    for group, number in zip(shard.group.tolist(), shard.partition.tolist(), strict=True):
        without[group].discard((names[number], numbers[number]))
    more = [count + len(partitions) for count, partitions in zip(counts, without, strict=True)]
    return np.array(more, np.int64)


def _total_group(
    group: Group,
    own: _Sums,
    verdict: Verdict,
    cause: Cause,
    allowance_s: float | None,
    basis: Basis,
    usual_s: float | None,
    since_s: float | None,
    caught_up: CatchUp,
    complete: float | None,
    consume_per_s: float | None,
    *,
    current: bool,
    whole: bool,
) -> GroupTotal:
    served = current and whole and not own.withheld
    return GroupTotal(
        group,
        own.lag if own.known and served else None,
        own.rows,
        own.rows - own.known,
        round(own.time_lag_s, 3) if own.known and served and not own.undated else None,
        verdict,
        Pace(consume_per_s if served else None, None, *caught_up),
        complete,
        cause,
        allowance_s,
        basis,
        usual_s,
        since_s,
        own.withheld,
        current,
        whole,
    )


def _build_paces(snapshot: SnapshotColumns, shard: ShardSnapshot) -> Iterator[Pace]:
    rows = zip(
        _round_known(snapshot.consume_rates(shard)),
        _round_known(snapshot.produce_rates(shard)),
        _list_catch_ups(snapshot.catch_ups(shard)),
        strict=True,
    )
    return (Pace(consumed, produced, *caught_up) for consumed, produced, caught_up in rows)


def _list_time_lags(lags_: TimeLags | None, size: int) -> list[tuple[float | None, str | None, bool | None]]:
    """`time_lag_s`, `time_lag_source` and `at_least` of each row."""
    if lags_ is None:
        return [(None, None, None)] * size
    exact = np.zeros(size, np.bool_) if lags_.exact is None else lags_.exact
    rows = zip(_round_known(lags_), exact.tolist(), lags_.at_least.tolist(), strict=True)
    return [
        (None, None, None) if seconds is None else (seconds, "record" if is_exact else "ends", at_least)
        for seconds, is_exact, at_least in rows
    ]


def _list_completeness(shard: ShardSnapshot) -> list[float | None]:
    unknown = shard.is_withheld(Reason.COMMITS_NOT_CURRENT) | ~shard.current_groups()[shard.group]
    shares = zip(shard.features.completeness().tolist(), unknown.tolist(), strict=True)
    return [None if is_unknown else share for share, is_unknown in shares]


def _none_if_nan(seconds: float) -> float | None:
    return None if seconds != seconds else round(seconds, 3)  # noqa: PLR0124 - NaN


def _none_if_unknown(offset: int) -> int | None:
    return None if offset < 0 else offset


def _round_known(column: TimeLags | Rates) -> list[float | None]:
    """The seconds or rates, rounded to a thousandth; None where unknown."""
    pairs = zip(column[0].tolist(), column.known.tolist(), strict=True)
    return [round(number, 3) if known else None for number, known in pairs]


def _list_catch_ups(caught_up: CatchUps) -> list[CatchUp]:
    pairs = zip(caught_up.seconds.tolist(), caught_up.known.tolist(), strict=True)
    return [
        (None, None) if not known else (None, True) if seconds == NEVER else (round(seconds, 3), False)
        for seconds, known in pairs
    ]
