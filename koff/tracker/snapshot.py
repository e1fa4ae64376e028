"""The state of all groups at one moment, as columns for machines and as rows for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    NEVER,
    UNKNOWN,
    CatchUps,
    Features,
    Lags,
    Rates,
    Reason,
    Status,
    TimeLags,
    consume_rates,
    group_completeness,
    group_status,
    lag_to_stable,
    lags,
    lost,
    published,
    readable,
    reasons,
    recreated,
    seconds_until_caught_up,
    status,
    usual_lags,
)
from koff.tracker.groups import Group, Member
from koff.tracker.topic_partitions import PartitionSnapshot

CatchUp = tuple[float | None, bool | None]
"""Seconds, and whether never; see `Pace`."""


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """The groups and commits of one partition of `__consumer_offsets`.

    `groups` by the numbers in `group`. The columns, one row a commit: `group`,
    `partition` (a row of `Snapshot.partitions`), `committed` offset, `committed_at` in ms since the epoch.
    While `layout` is the same object, the rows' groups and partitions and the groups' names are the same.
    """

    layout: object
    groups: list[Group]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]
    committed: NDArray[np.int64]
    committed_at: NDArray[np.int64]
    topic_id: NDArray[np.int64]
    seen_at: NDArray[np.int64]
    features: Features
    time_lag: TimeLags | None


class Pace(NamedTuple):
    """Offsets a second, and when the group will have caught up. None: not known.

    `catch_up_s` is None too where `never`: as things are, the group never catches up.
    """

    consume_per_s: float | None = None
    produce_per_s: float | None = None
    catch_up_s: float | None = None
    never: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One group on one partition. None: not known. `lag` is signed; publish `published_lag`.

    `readable` of the lag is still in the log, `lost` left it unread; `lag_to_stable` can be read by a
    read_committed consumer now. `time_lag_s` is how old the oldest record is that was not committed,
    by the `time_lag_source`: "record" (it was read) or "ends" (it came when the end passed there).
    `status` is Burrow's verdict. `reasons` say why the lag is null, or strange. `complete` is how much is
    known of the last commits that the verdict and the rates are of, 0 to 1.
    """

    group: str
    state: str
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
    status: Status
    reasons: Reason
    pace: Pace
    complete: float
    member: Member | None

    @property
    def published_lag(self) -> int | None:
        """The lag to show, never negative."""
        return published(self.lag)


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """One group: the sum of its known lags (None when none is known) and how many are unknown.

    `time_lag_s` is the longest of its partitions', `status` the worst; `complete` is the share of its
    partitions of which enough commits are known (None without one); `pace` has no produce rate.
    """

    group: Group
    lag: int | None
    partitions: int
    unknown: int
    time_lag_s: float | None
    status: Status
    pace: Pace
    complete: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All groups: shards by partition of the offsets topic; topic names by topic id where known."""

    shards: Mapping[int, ShardSnapshot]
    partitions: PartitionSnapshot
    topic_names: Mapping[str, str]
    now_ms: int | None = None

    def groups(self) -> Iterator[Group]:
        """Every group, in no particular order."""
        for shard in self.shards.values():
            yield from shard.groups

    def assignments(self, group: Group) -> Iterator[tuple[str | None, int, Member]]:
        """Who reads what now: (topic, partition, member); topic None where only an unknown topic id is."""
        for member in group.members:
            for topic, partitions in member.assigned.items():
                name = self.topic_names.get(topic) if group.assigned_by_id else topic
                for partition in partitions:
                    yield name, partition, member

    def reasons(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """`Reason` of each row of `shard`."""
        at, rows = self.partitions, shard.partition
        return reasons(
            end=at.end[rows],
            committed=shard.committed,
            start=at.start[rows],
            topic_gone=at.gone[rows],
            committed_topic_id=shard.topic_id,
            topic_id=at.topic_id[rows],
            end_sampled_at_ms=at.sampled_at[rows],
            commit_seen_at_ms=shard.seen_at,
        )

    def lags(self, shard: ShardSnapshot) -> Lags:
        """Lag of each row of `shard`; not known where the commit was to an earlier topic of that name."""
        end = self.partitions.end[shard.partition]
        topic_id = self.partitions.topic_id[shard.partition]
        old = recreated(committed_topic_id=shard.topic_id, topic_id=topic_id)
        return lags(end=np.where(old, UNKNOWN, end), committed=shard.committed)

    def statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """`Status` of each row of `shard`; UNKNOWN when the snapshot was taken without a time."""
        before = self.partitions.end_before
        if self.now_ms is None or before is None:
            return np.full(len(shard.committed), Status.UNKNOWN, np.uint8)
        lag = self.lags(shard)
        return status(
            shard.features,
            current_lag=lag.published,
            current_lag_known=lag.known,
            committed=shard.committed,
            oldest_end=before[shard.partition],
            now_ms=self.now_ms,
        )

    def group_statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """`Status` of each of the shard's groups: their worst row's."""
        return group_status(self.statuses(shard), shard.group, len(shard.groups))

    def group_completeness(self, shard: ShardSnapshot) -> NDArray[np.float64]:
        """How many of each group's rows have a full window, 0 to 1; NaN without rows."""
        return group_completeness(shard.features, shard.group, len(shard.groups))

    def consume_rates(self, shard: ShardSnapshot) -> Rates:
        """How fast each row's commits advance; not known when the snapshot was taken without a time."""
        if self.now_ms is None:
            return _no_rates(len(shard.committed))
        return consume_rates(shard.features, self.now_ms)

    def produce_rates(self, shard: ShardSnapshot) -> Rates:
        """How fast the end of each row's partition grows; not known likewise."""
        produce = self.partitions.produce
        if produce is None:
            return _no_rates(len(shard.committed))
        return Rates(produce.per_s[shard.partition], produce.known[shard.partition])

    def catch_ups(self, shard: ShardSnapshot) -> CatchUps:
        """When each row will have caught up to the lag that is usual for it."""
        lag, produce = self.lags(shard), self.produce_rates(shard)
        return seconds_until_caught_up(
            lag.signed,
            lag.known,
            consume=self.consume_rates(shard),
            produce=produce,
            allowed_lag=usual_lags(shard.features, produce),
            stopped=self.statuses(shard) == Status.STOP,
        )

    def group_catch_ups(self, shard: ShardSnapshot) -> CatchUps:
        """When each group will have caught up: when its slowest row has, not known where one's is not.

        Rows whose lag is not known are left out.
        """
        rows, lag_known = self.catch_ups(shard), self.lags(shard).known
        seconds = np.zeros(len(shard.groups))
        np.maximum.at(seconds, shard.group[rows.known], rows.seconds[rows.known])
        counts = (
            np.bincount(shard.group[where], minlength=len(seconds)) for where in (rows.known, lag_known)
        )
        decided, behind = counts
        known = (decided > 0) & (decided == behind)
        return CatchUps(np.where(known, seconds, 0.0), known)

    def rows(self) -> Iterator[PartitionLag]:
        """Every partition that a group committed to or is assigned, worst lag first, unknown last."""
        rows = [row for shard in self.shards.values() for row in self._rows(shard)]
        rows.sort(key=lambda r: (r.lag is None, -(r.lag or 0), r.group, r.topic, r.partition))
        yield from rows

    def totals(self) -> list[GroupTotal]:
        """Every group with its total lag, worst first, unknown last."""
        rows: dict[str, list[PartitionLag]] = {group.name: [] for group in self.groups()}
        for row in self.rows():
            rows[row.group].append(row)
        totals = [
            _total(group, rows[group.name], *verdict)
            for shard in self.shards.values()
            for group, verdict in zip(shard.groups, self._of_groups(shard), strict=True)
        ]
        return sorted(totals, key=lambda t: (t.lag is None, -(t.lag or 0), t.group.name))

    def _of_groups(self, shard: ShardSnapshot) -> Iterator[tuple[Status, CatchUp, float | None]]:
        caught_up, complete = self.group_catch_ups(shard), self.group_completeness(shard)
        return zip(
            map(Status, self.group_statuses(shard).tolist()),
            _catch_ups(caught_up),
            (None if np.isnan(share) else round(share, 3) for share in complete.tolist()),
            strict=True,
        )

    def _paces(self, shard: ShardSnapshot) -> Iterator[Pace]:
        consume, produce = self.consume_rates(shard), self.produce_rates(shard)
        rows = zip(_numbers(consume), _numbers(produce), _catch_ups(self.catch_ups(shard)), strict=True)
        return (Pace(consumed, produced, *caught_up) for consumed, produced, caught_up in rows)

    def _rows(self, shard: ShardSnapshot) -> Iterator[PartitionLag]:
        owners = {group.name: self._owners(group) for group in shard.groups}
        names, numbers, rows = self.partitions.topic, self.partitions.partition, shard.partition
        end, start = self.partitions.end[rows], self.partitions.start[rows]
        numbers_of_lag = self.lags(shard)
        columns = (
            shard.committed,
            end,
            np.where(numbers_of_lag.known, numbers_of_lag.signed, 0),
            readable(end=end, committed=shard.committed, start=start),
            lost(start=start, committed=shard.committed),
            lag_to_stable(stable=self.partitions.stable[rows], committed=shard.committed),
        )
        known = numbers_of_lag.known.tolist()
        why, verdicts = self.reasons(shard).tolist(), self.statuses(shard).tolist()
        times = [None] * len(rows) if shard.time_lag is None else _numbers(shard.time_lag)
        sources = [None] * len(rows) if shard.time_lag is None else _sources(shard.time_lag)
        paces, complete = list(self._paces(shard)), shard.features.completeness().tolist()
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            committed, end_, signed, left, missed, stable = values
            group, at = shard.groups[shard.group[row]], int(rows[row])
            yield PartitionLag(
                group.name,
                group.state,
                names[at],
                numbers[at],
                _known(committed),
                _known(end_),
                signed if known[row] else None,
                _known(left) if known[row] else None,
                _known(missed),
                _known(stable) if known[row] else None,
                *((times[row], sources[row]) if known[row] else (None, None)),
                Status(verdicts[row]),
                Reason(why[row]),
                paces[row],
                complete[row],
                owners[group.name].pop((names[at], numbers[at]), None),
            )
        yield from self._uncommitted(shard, owners)

    def _uncommitted(
        self, shard: ShardSnapshot, owners: dict[str, dict[tuple[str, int], Member]]
    ) -> Iterator[PartitionLag]:
        """What members are assigned and the group never committed: listed, its lag null."""
        if not any(owners.values()):
            return
        at = self.partitions
        ends = dict(zip(zip(at.topic, at.partition, strict=True), at.end.tolist(), strict=True))
        for group in shard.groups:
            for (topic, partition), member in owners[group.name].items():
                end = _known(ends.get((topic, partition), UNKNOWN))
                nothing = (None, end, None, None, None, None, None, None)
                why = (Status.NOTFOUND, Reason.NO_COMMIT, Pace(), 0.0)
                yield PartitionLag(group.name, group.state, topic, partition, *nothing, *why, member)

    def _owners(self, group: Group) -> dict[tuple[str, int], Member]:
        return {(topic or "?", partition): member for topic, partition, member in self.assignments(group)}


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def _numbers(column: TimeLags | Rates) -> list[float | None]:
    """Seconds, or offsets a second, to a thousandth."""
    pairs = zip(column[0].tolist(), column.known.tolist(), strict=True)
    return [round(number, 3) if known else None for number, known in pairs]


def _sources(lags_: TimeLags) -> list[str | None]:
    exact = np.zeros(len(lags_.known), np.bool_) if lags_.exact is None else lags_.exact
    pairs = zip(lags_.known.tolist(), exact.tolist(), strict=True)
    return [("record" if read else "ends") if known else None for known, read in pairs]


def _catch_ups(caught_up: CatchUps) -> list[CatchUp]:
    pairs = zip(caught_up.seconds.tolist(), caught_up.known.tolist(), strict=True)
    return [
        (None, None) if not known else (None, True) if seconds == NEVER else (round(seconds, 3), False)
        for seconds, known in pairs
    ]


def _no_rates(size: int) -> Rates:
    return Rates(np.zeros(size), np.zeros(size, np.bool_))


def _total(
    group: Group, rows: list[PartitionLag], verdict: Status, caught_up: CatchUp, complete: float | None
) -> GroupTotal:
    known = [row.published_lag for row in rows if row.published_lag is not None]
    times = [row.time_lag_s for row in rows if row.time_lag_s is not None]
    rates = [row.pace.consume_per_s for row in rows if row.pace.consume_per_s is not None]
    return GroupTotal(
        group,
        sum(known) if known else None,
        len(rows),
        len(rows) - len(known),
        max(times, default=None),
        verdict,
        Pace(round(sum(rates), 3) if rates else None, None, *caught_up),
        complete,
    )
