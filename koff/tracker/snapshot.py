"""The state of all groups at one moment, as columns for computation and as rows for display."""

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
    is_topic_recreated,
    lag_to_stable,
    lags,
    lost,
    published_lag,
    readable,
    reasons,
    seconds_until_caught_up,
    status,
    usual_lags,
)
from koff.tracker.groups import Group, Member
from koff.tracker.topic_partitions import PartitionSnapshot

CatchUp = tuple[float | None, bool | None]
"""`Pace.catch_up_s` and `Pace.never`."""


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """The groups and commits of one partition of `__consumer_offsets`.

    The columns have a row for each commit: `group` (an index into `groups`), `partition` (a row of
    `Snapshot.partitions`), `committed` (the offset), `committed_at` (the commit timestamp) and `seen_at`
    (when koff read the commit), both in ms since 1970, and `topic_id` (`fold_topic_ids`). `features` and
    `time_lag` have the same rows. `time_lag` is None in a snapshot without a time.

    While `layout` is the same object, the groups and partitions of the rows and the group names are the same.
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
    """Offsets per second, and when the group will have caught up. None stands for unknown.

    `catch_up_s` is also None where `never` is set: at these rates the group never catches up.
    """

    consume_per_s: float | None = None
    produce_per_s: float | None = None
    catch_up_s: float | None = None
    never: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one group on one partition. None stands for unknown.

    `lag` is signed; publish `published_lag`. Of the lag, `readable` offsets are still in the log. `lost`
    offsets left the log before the group committed them. A read_committed consumer can read `lag_to_stable`
    offsets now. `time_lag_s` is the age of the oldest uncommitted record; `time_lag_source` is "record" if
    that record was read, "ends" if its age was estimated from the history of end offsets. `status` is
    Burrow's verdict. `reasons` are why the lag is null, or is not what its number suggests. `complete` is the
    filled share of the window of commits behind `status` and `pace`, 0 to 1.
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
        """The lag to publish, never negative."""
        return published_lag(self.lag)


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The totals of one group over its partitions.

    `lag` is the sum of the known lags, None if none is known; `unknown` is the number of unknown lags.
    `time_lag_s` is the longest and `status` the worst of its partitions. `complete` is the share of its
    committed partitions that have a full window of commits, None without any. `pace` has no produce rate.
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
    """All groups of a cluster: `shards` by partition of the offsets topic, `topic_names` by topic id.

    Without `now_ms` there are no rates, and every status is UNKNOWN.
    """

    shards: Mapping[int, ShardSnapshot]
    partitions: PartitionSnapshot
    topic_names: Mapping[str, str]
    now_ms: int | None = None

    def groups(self) -> Iterator[Group]:
        """Every group, in no particular order."""
        for shard in self.shards.values():
            yield from shard.groups

    def assignments(self, group: Group) -> Iterator[tuple[str | None, int, Member]]:
        """The assigned partitions: (topic, partition, member). The topic is None if its name is unknown."""
        for member in group.members:
            for topic, partitions in member.assigned.items():
                name = self.topic_names.get(topic) if group.assigned_by_id else topic
                for partition in partitions:
                    yield name, partition, member

    def reasons(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Reason` bits of each row of `shard`."""
        partitions, rows = self.partitions, shard.partition
        return reasons(
            end=partitions.end[rows],
            committed=shard.committed,
            start=partitions.start[rows],
            topic_gone=partitions.gone[rows],
            committed_topic_id=shard.topic_id,
            topic_id=partitions.topic_id[rows],
            end_sampled_at_ms=partitions.sampled_at[rows],
            commit_seen_at_ms=shard.seen_at,
        )

    def lags(self, shard: ShardSnapshot) -> Lags:
        """The lag of each row of `shard`; unknown where the commit is from an earlier topic of that name."""
        end = self.partitions.end[shard.partition]
        topic_id = self.partitions.topic_id[shard.partition]
        # The offsets of an earlier topic of that name cannot be compared with those of the present log.
        old = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=topic_id)
        return lags(end=np.where(old, UNKNOWN, end), committed=shard.committed)

    def statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Status` of each row of `shard`; UNKNOWN if the snapshot has no `now_ms`."""
        before = self.partitions.end_before
        if self.now_ms is None or before is None:  # nothing that depends on time is known
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
        """The `Status` of each group of the shard: the worst of its rows (`koff.lag.group_status`)."""
        return group_status(self.statuses(shard), shard.group, len(shard.groups))

    def group_completeness(self, shard: ShardSnapshot) -> NDArray[np.float64]:
        """The share of each group's rows that have a full window, 0 to 1; NaN without rows."""
        return group_completeness(shard.features, shard.group, len(shard.groups))

    def consume_rates(self, shard: ShardSnapshot) -> Rates:
        """The consume rate of each row of `shard`; unknown if the snapshot has no `now_ms`."""
        if self.now_ms is None:
            return _no_rates(len(shard.committed))
        return consume_rates(shard.features, self.now_ms)

    def produce_rates(self, shard: ShardSnapshot) -> Rates:
        """The produce rate of each row's partition; unknown if the snapshot has no `now_ms`."""
        produce = self.partitions.produce
        if produce is None:
            return _no_rates(len(shard.committed))
        return Rates(produce.per_s[shard.partition], produce.known[shard.partition])

    def catch_ups(self, shard: ShardSnapshot) -> CatchUps:
        """When each row of `shard` will have caught up, which means to its usual lag (`usual_lags`)."""
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
        """When each group of the shard will have caught up: when its slowest row has.

        Rows with an unknown lag are left out. Unknown if the result of any other row is unknown, or if no row
        has a known lag.
        """
        rows, lag_known = self.catch_ups(shard), self.lags(shard).known
        # The slowest of the rows with a known result.
        seconds = np.zeros(len(shard.groups))
        np.maximum.at(seconds, shard.group[rows.known], rows.seconds[rows.known])
        # In each group, as many rows must have a known result as have a known lag.
        with_result, with_lag = (
            np.bincount(shard.group[where], minlength=len(seconds)) for where in (rows.known, lag_known)
        )
        known = (with_result > 0) & (with_result == with_lag)
        return CatchUps(np.where(known, seconds, 0.0), known)

    def rows(self) -> Iterator[PartitionLag]:
        """Every partition that a group committed to or is assigned: highest lag first, unknown last."""
        rows = [row for shard in self.shards.values() for row in self._rows(shard)]
        # `r.lag or 0`: None cannot be compared with a number. The first element puts unknown lags last.
        rows.sort(key=lambda r: (r.lag is None, -(r.lag or 0), r.group, r.topic, r.partition))
        yield from rows

    def totals(self) -> list[GroupTotal]:
        """Every group with its totals: the highest lag first, unknown lags last."""
        # Every group has a total, also without any partition.
        rows: dict[str, list[PartitionLag]] = {group.name: [] for group in self.groups()}
        for row in self.rows():
            rows[row.group].append(row)
        totals = [
            _total_group(group, rows[group.name], *verdict)
            for shard in self.shards.values()
            for group, verdict in zip(shard.groups, self._group_verdicts(shard), strict=True)
        ]
        return sorted(totals, key=lambda t: (t.lag is None, -(t.lag or 0), t.group.name))

    def _group_verdicts(self, shard: ShardSnapshot) -> Iterator[tuple[Status, CatchUp, float | None]]:
        """The status, the catch-up time and the completeness of each group of the shard."""
        caught_up, complete = self.group_catch_ups(shard), self.group_completeness(shard)
        return zip(
            map(Status, self.group_statuses(shard).tolist()),
            _list_catch_ups(caught_up),
            (None if np.isnan(share) else round(share, 3) for share in complete.tolist()),
            strict=True,
        )

    def _paces(self, shard: ShardSnapshot) -> Iterator[Pace]:
        consume, produce = self.consume_rates(shard), self.produce_rates(shard)
        rows = zip(
            _round_known(consume), _round_known(produce), _list_catch_ups(self.catch_ups(shard)), strict=True
        )
        return (Pace(consumed, produced, *caught_up) for consumed, produced, caught_up in rows)

    def _rows(self, shard: ShardSnapshot) -> Iterator[PartitionLag]:
        # Compute all columns with numpy, and turn each into a Python list at once.
        owners = {group.name: self._owners(group) for group in shard.groups}
        names, numbers, rows = self.partitions.topic, self.partitions.partition, shard.partition
        end, start = self.partitions.end[rows], self.partitions.start[rows]
        lag = self.lags(shard)
        columns = (
            shard.committed,
            end,
            np.where(lag.known, lag.signed, 0),
            readable(end=end, committed=shard.committed, start=start),
            lost(start=start, committed=shard.committed),
            lag_to_stable(stable=self.partitions.stable[rows], committed=shard.committed),
        )
        known = lag.known.tolist()
        reason_bits, verdicts = self.reasons(shard).tolist(), self.statuses(shard).tolist()
        times = [None] * len(rows) if shard.time_lag is None else _round_known(shard.time_lag)
        sources = [None] * len(rows) if shard.time_lag is None else _time_lag_sources(shard.time_lag)
        paces, complete = list(self._paces(shard)), shard.features.completeness().tolist()
        # A value that depends on the lag is None where the lag is unknown. Each row takes its member out of
        # `owners`: partitions without a commit are left.
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            committed, end_, signed, still_readable, lost_offsets, stable = values
            group, number = shard.groups[shard.group[row]], int(rows[row])
            yield PartitionLag(
                group.name,
                group.state,
                names[number],
                numbers[number],
                _none_if_unknown(committed),
                _none_if_unknown(end_),
                signed if known[row] else None,
                _none_if_unknown(still_readable) if known[row] else None,
                _none_if_unknown(lost_offsets),
                _none_if_unknown(stable) if known[row] else None,
                *((times[row], sources[row]) if known[row] else (None, None)),
                Status(verdicts[row]),
                Reason(reason_bits[row]),
                paces[row],
                complete[row],
                owners[group.name].pop((names[number], numbers[number]), None),
            )
        yield from self._uncommitted_rows(shard, owners)

    def _uncommitted_rows(
        self, shard: ShardSnapshot, owners: dict[str, dict[tuple[str, int], Member]]
    ) -> Iterator[PartitionLag]:
        """The assigned partitions without a commit, which are left in `owners`: their lag is null."""
        if not any(owners.values()):
            return
        partitions = self.partitions
        keys = zip(partitions.topic, partitions.partition, strict=True)
        ends = dict(zip(keys, partitions.end.tolist(), strict=True))
        for group in shard.groups:
            for (topic, partition), member in owners[group.name].items():
                end = _none_if_unknown(ends.get((topic, partition), UNKNOWN))
                # committed, end, lag, readable, lost, lag_to_stable, time_lag_s, time_lag_source
                offsets = (None, end, None, None, None, None, None, None)
                verdict = (Status.NOTFOUND, Reason.NO_COMMIT, Pace(), 0.0)
                yield PartitionLag(group.name, group.state, topic, partition, *offsets, *verdict, member)

    def _owners(self, group: Group) -> dict[tuple[str, int], Member]:
        """The member of each assigned partition. If a share group has several, the last one."""
        return {(topic or "?", partition): member for topic, partition, member in self.assignments(group)}


def _none_if_unknown(offset: int) -> int | None:
    return None if offset < 0 else offset


def _round_known(column: TimeLags | Rates) -> list[float | None]:
    """The seconds or rates, rounded to a thousandth; None where unknown."""
    pairs = zip(column[0].tolist(), column.known.tolist(), strict=True)
    return [round(number, 3) if known else None for number, known in pairs]


def _time_lag_sources(lags_: TimeLags) -> list[str | None]:
    exact = np.zeros(len(lags_.known), np.bool_) if lags_.exact is None else lags_.exact
    pairs = zip(lags_.known.tolist(), exact.tolist(), strict=True)
    return [("record" if is_exact else "ends") if known else None for known, is_exact in pairs]


def _list_catch_ups(caught_up: CatchUps) -> list[CatchUp]:
    pairs = zip(caught_up.seconds.tolist(), caught_up.known.tolist(), strict=True)
    return [
        (None, None) if not known else (None, True) if seconds == NEVER else (round(seconds, 3), False)
        for seconds, known in pairs
    ]


def _no_rates(size: int) -> Rates:
    return Rates(np.zeros(size), np.zeros(size, np.bool_))


def _total_group(
    group: Group, rows: list[PartitionLag], verdict: Status, caught_up: CatchUp, complete: float | None
) -> GroupTotal:
    # A negative lag counts as 0 in the sum.
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
