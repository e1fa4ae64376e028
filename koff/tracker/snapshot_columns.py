"""The state of all groups at one moment, as columns for computation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    UNKNOWN,
    WITHHELD,
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
    lacks_commit_time,
    lags,
    reasons,
    seconds_until_caught_up,
    status,
    usual_lags,
)
from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.verdict import Verdict
from koff.tracker.groups import Group, Member
from koff.tracker.groups.views import UNKNOWN as UNKNOWN_STATE
from koff.tracker.impossible import possible_partitions
from koff.tracker.shown import ShownNames
from koff.tracker.topic_partitions import PartitionSnapshot

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class ShardSnapshot:
    """The groups and commits of one partition of `__consumer_offsets`.

    The columns have a row for each commit: `group` (an index into `groups`), `partition` (a row of the
    snapshot's `partitions`), `committed` (the offset), `committed_at` (the commit timestamp), `moved_at` (the
    same of the last commit that changed the offset) and `seen_at` (when koff read the commit), all in ms
    since 1970, and `topic_id` (`fold_topic_ids`). A commit without a time has UNKNOWN ones.
    `features` and `time_lag` have the same rows. `time_lag` is None in a snapshot without a time.
    `commit_counts` has for each group how many commits were applied as they were made: without history.

    While `layout` is the same object, the groups and partitions of the rows and the group names are the same.

    `share_partition` is the partition of `__share_group_state` that the commit of each row is from, -1 if it
    is not from there; None if no commit is from there. It is -2 in a row of a share group that has no commit,
    but the lag as its coordinator returned it: in `share_lag`, which is UNKNOWN elsewhere, and None if there
    is no such lag. `seen_at` is then when koff requested it. `withheld` has the `WITHHELD` bits of each row;
    END_UNKNOWN hides the committed offset of a row that is not withheld; None if no row has any. Where
    `groups_current` (one for all groups, or one for each) is False, what the shard knows of the group may be
    half read, or old: its members, its state, its committed offsets and all its other values are unknown.
    Where `groups_whole` (the same) is False, rows of the group may be missing: it has no sums.

    `commits_at_ms` is up to when the commits of the rows are known (one time for all rows, or one for each);
    None: up to the time of the snapshot. Later commits may exist, so a pause in the commits ends there.

    `skew_ms` is how far koff's clock is ahead of that of the broker that set the commit timestamps, below 0
    if it is behind; 0 if it is not known. Rows whose commit has no time have not moved since
    `unmoved_since_ms`, if that is known. Without `has_share_groups`, no group is a share group. `verdicts`
    are those of its groups and rows; None: nobody has looked yet.
    """

    layout: object
    groups: list[Group]
    commit_counts: NDArray[np.int64]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]
    committed: NDArray[np.int64]
    committed_at: NDArray[np.int64]
    moved_at: NDArray[np.int64]
    topic_id: NDArray[np.int64]
    seen_at: NDArray[np.int64]
    features: Features
    time_lag: TimeLags | None
    share_partition: NDArray[np.int32] | None = None
    share_lag: NDArray[np.int64] | None = None
    withheld: NDArray[np.uint8] | None = None
    groups_current: NDArray[np.bool_] | bool = True
    groups_whole: NDArray[np.bool_] | bool = True
    commits_at_ms: NDArray[np.int64] | int | None = None
    skew_ms: int = 0
    unmoved_since_ms: int = UNKNOWN
    has_share_groups: bool = True
    verdicts: GroupVerdicts | None = None

    def withhold(self, **changes: Any) -> "ShardSnapshot":
        """A copy with another `withheld`, `groups_current`, `groups_whole` or `commits_at_ms`.

        Groups that are not current keep nothing but their names.
        """
        shard = replace(self, **changes)
        current = shard.current_groups()
        if current.all():
            return shard
        groups = [
            group if is_current else Group(group.name, "", UNKNOWN_STATE)
            for group, is_current in zip(self.groups, current.tolist(), strict=True)
        ]
        return replace(shard, groups=groups)

    def current_groups(self) -> NDArray[np.bool_]:
        """A mask of the groups that are current."""
        return np.broadcast_to(np.asarray(self.groups_current, np.bool_), (len(self.groups),))

    def summable_groups(self) -> NDArray[np.bool_]:
        """A mask of the groups that are current, and that have no rows besides these."""
        mask: NDArray[np.bool_] = self.current_groups() & self.groups_whole
        return mask

    def lacks_commit_time(self) -> NDArray[np.bool_]:
        """A mask of the rows with a commit, or a lag, from coordinators, which return no commit times."""
        lacks = lacks_commit_time(committed=self.committed, committed_at_ms=self.committed_at)
        return lacks if self.share_lag is None else lacks | (self.share_lag >= 0)

    def replace_described(self, column: NDArray[_Number], by: int) -> NDArray[_Number]:
        """The column with `by` in the rows whose lag was returned by a coordinator."""
        return (
            column if self.share_lag is None else np.where(self.share_lag >= 0, column.dtype.type(by), column)
        )

    def is_withheld(self, bits: Reason = WITHHELD) -> NDArray[np.bool_]:
        """A mask of the rows that have one of these bits."""
        if self.withheld is None:
            return np.zeros(len(self.committed), np.bool_)
        mask: NDArray[np.bool_] = (self.withheld & np.uint8(bits)) != 0
        return mask


@dataclass(frozen=True, slots=True)
class SnapshotColumns:
    """All groups of a cluster: `shards` by partition of the offsets topic, `topic_names` by topic id.

    Without `now_ms` there are no rates, and every status is UNKNOWN. `old_ends` is a mask of the topic
    partitions whose end offset is not current; None if nothing is known of that but what rows say.
    `shown` says which topics are shown: members may be assigned others too.
    `ends_withheld_elsewhere` is a mask of those of which rows say so that are not in this part of a snapshot.
    """

    shards: Mapping[int, ShardSnapshot]
    partitions: PartitionSnapshot
    topic_names: Mapping[str, str]
    now_ms: int | None = None
    old_ends: NDArray[np.bool_] | None = None
    shown: ShownNames = field(default_factory=ShownNames)
    ends_withheld_elsewhere: NDArray[np.bool_] | None = None
    # What several figures need is computed once for each shard. (By the shard itself, and not by its id: a
    # copy may get the id of one that was dropped.)
    _lags: dict[ShardSnapshot, Lags] = field(default_factory=dict, init=False, repr=False, compare=False)
    _statuses: dict[ShardSnapshot, NDArray[np.uint8]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _catch_ups: dict[ShardSnapshot, CatchUps] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def withhold(
        self,
        shards: Mapping[int, NDArray[np.uint8]],
        groups_current: Mapping[int, NDArray[np.bool_] | bool],
        old_ends: NDArray[np.bool_] | None = None,
        groups_whole: Mapping[int, NDArray[np.bool_] | bool] | None = None,
        commits_at_ms: Mapping[int, NDArray[np.int64] | int] | None = None,
    ) -> Self:
        """A copy in which rows are withheld: by shard, what `ShardSnapshot` has under these names.

        A shard that is not in a mapping keeps what it has. So do the end offsets, if `old_ends` is None.
        """
        changes: dict[str, Mapping[int, Any]] = {
            "withheld": shards,
            "groups_current": groups_current,
            "groups_whole": groups_whole or {},
            "commits_at_ms": commits_at_ms or {},
        }
        return replace(
            self,
            old_ends=self.old_ends if old_ends is None else old_ends,
            shards={
                number: shard.withhold(**{name: by[number] for name, by in changes.items() if number in by})
                for number, shard in self.shards.items()
            },
        )

    def withheld_rows(self) -> int:
        """How many rows are withheld."""
        return sum(int(shard.is_withheld().sum()) for shard in self.shards.values())

    def withheld_ends(self) -> NDArray[np.bool_]:
        """A mask of the topic partitions whose end offset is not current, as `old_ends` or a row says."""
        mask = np.zeros(len(self.partitions.partition), np.bool_)
        for also in (self.old_ends, self.ends_withheld_elsewhere):
            if also is not None:
                mask |= also
        for shard in self.shards.values():
            mask[shard.partition[shard.is_withheld(Reason.END_NOT_CURRENT)]] = True
        return mask

    def withheld_groups(self, shard: ShardSnapshot) -> NDArray[np.bool_]:
        """A mask of the groups of the shard that have no sums: a row of them is withheld, or may be."""
        return self._groups_with(shard, shard.is_withheld())

    def _groups_with(self, shard: ShardSnapshot, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        mask = ~shard.summable_groups()
        mask[shard.group[rows]] = True
        return mask

    def groups(self) -> Iterator[Group]:
        """Every group, in no particular order."""
        for shard in self.shards.values():
            yield from shard.groups

    def assignments(self, group: Group) -> Iterator[tuple[str | None, int, Member]]:
        """The assigned partitions: (topic, partition, member). The topic is None if its name is unknown.

        Topics that are not shown are left out.
        """
        for member in group.members:
            for topic, partitions in member.assigned.items():
                name = self.topic_names.get(topic) if group.assigned_by_id else topic
                if name is not None and not self.shown.shows_topic(name):
                    continue
                for partition in possible_partitions(partitions):
                    yield name, partition, member

    def reasons(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Reason` bits of each row of `shard`."""
        partitions, rows = self.partitions, shard.partition
        return reasons(
            # A lag that a coordinator returned depends on no other offset.
            end=shard.replace_described(partitions.end[rows], 0),
            committed=shard.replace_described(shard.committed, 0),
            start=shard.replace_described(partitions.start[rows], UNKNOWN),
            topic_gone=partitions.gone[rows],
            committed_topic_id=shard.topic_id,
            topic_id=partitions.topic_id[rows],
            end_sampled_at_ms=partitions.sampled_at[rows],
            commit_seen_at_ms=shard.seen_at,
            withheld=0 if shard.withheld is None else shard.withheld,
        )

    def committed(self, shard: ShardSnapshot) -> NDArray[np.int64]:
        """The committed offset of each row of `shard`; UNKNOWN where there is none, or it is not current."""
        stale = shard.is_withheld(Reason.COMMITS_NOT_CURRENT | Reason.END_UNKNOWN)
        stale |= ~shard.current_groups()[shard.group]
        return np.where(stale, UNKNOWN, shard.committed)

    def lags(self, shard: ShardSnapshot) -> Lags:
        """The lag of each row of `shard`.

        Unknown where the commit is from an earlier topic of that name, and where the row is withheld.
        """
        computed = self._lags.get(shard)
        if computed is None:
            rows, partitions = shard.partition, self.partitions
            old = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=partitions.topic_id[rows])
            computed = self._lags[shard] = lags(
                end=partitions.end[rows],
                committed=shard.committed,
                hidden=old | shard.is_withheld(),
                returned=shard.share_lag,
                gone=partitions.gone[rows],
            )
        return computed

    def time_lags(self, shard: ShardSnapshot) -> TimeLags | None:
        """The time lag of each row of `shard`, unknown where the lag is; None without `now_ms`."""
        if shard.time_lag is None:
            return None
        known = shard.time_lag.known & self.lags(shard).known
        exact = None if shard.time_lag.exact is None else shard.time_lag.exact & known
        return shard.time_lag._replace(known=known, at_least=shard.time_lag.at_least & known, exact=exact)

    def record_lags(self, shard: ShardSnapshot) -> NDArray[np.int64]:
        """The published lag of each row of `shard`, but 0 where only control records are left to read.

        A consumer that commits the offset after its last record stays below the transaction marker that
        ends the log. Such a row is not late.
        """
        lag, times = self.lags(shard).published, self.time_lags(shard)
        return lag if times is None or times.exact is None else np.where(times.nothing_left, 0, lag)

    def statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Status` of each row of `shard`.

        UNKNOWN if the snapshot has no `now_ms`, and where the row is withheld.
        """
        computed = self._statuses.get(shard)
        if computed is None:
            computed = self._statuses[shard] = self._compute_statuses(shard)
        return computed

    def _compute_statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        before = self.partitions.end_before
        if self.now_ms is None or before is None:  # nothing that depends on time is known
            return np.full(len(shard.committed), Status.UNKNOWN, np.uint8)
        lag = self.lags(shard)
        verdicts = status(
            shard.features,
            current_lag=self.record_lags(shard),
            current_lag_known=lag.known,
            committed=shard.replace_described(shard.committed, 0),
            oldest_end=before[shard.partition],
            now_ms=self.commit_time_ms(shard, self.now_ms),
        )
        return np.where(shard.is_withheld(), np.uint8(Status.UNKNOWN), verdicts)

    def commit_time_ms(self, shard: ShardSnapshot, now_ms: int) -> NDArray[np.int64] | int:
        """Up to when the commits of the rows are known, by the clock of the commit timestamps."""
        known_until = now_ms if shard.commits_at_ms is None else np.minimum(shard.commits_at_ms, now_ms)
        return known_until - shard.skew_ms

    def group_statuses(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Status` of each group of the shard: the worst of its rows (`koff.lag.group_status`).

        UNKNOWN if the group has no sums. UNKNOWN, not OK, if a row is behind and nothing shows whether the
        group keeps up in it.
        """
        rows = self.statuses(shard)
        undecided = (rows == Status.UNKNOWN) & self.lags(shard).known
        verdicts = group_status(rows, shard.group, len(shard.groups), undecided=undecided)
        return np.where(self.withheld_groups(shard), np.uint8(Status.UNKNOWN), verdicts)

    def find_verdicts(self, shard: ShardSnapshot) -> GroupVerdicts:
        """The verdicts on the groups and rows of `shard`: UNKNOWN where nobody has looked yet."""
        return shard.verdicts or GroupVerdicts.build_unknown(len(shard.groups), len(shard.group))

    def row_verdicts(self, shard: ShardSnapshot) -> NDArray[np.uint8]:
        """The `Verdict` of each row of `shard`; UNKNOWN where its lag is, or nobody has looked yet."""
        if shard.verdicts is None:
            return np.full(len(shard.group), Verdict.UNKNOWN, np.uint8)
        return shard.verdicts.judge_rows(self.lags(shard).known)

    def group_completeness(self, shard: ShardSnapshot) -> NDArray[np.float64]:
        """The share of each group's rows that have a full window, 0 to 1; NaN without rows.

        NaN too if a commit of the group is not current, or rows may be missing.
        """
        shares = group_completeness(shard.features, shard.group, len(shard.groups))
        unknown = self._groups_with(shard, shard.is_withheld(Reason.COMMITS_NOT_CURRENT))
        return np.where(unknown, np.nan, shares)

    def consume_rates(self, shard: ShardSnapshot) -> Rates:
        """The consume rate of each row of `shard`; unknown if the snapshot has no `now_ms`, or withheld."""
        if self.now_ms is None:
            return Rates.build_unknown(len(shard.committed))
        rates = consume_rates(shard.features, self.commit_time_ms(shard, self.now_ms))
        return rates if shard.withheld is None else rates.hide(shard.is_withheld())

    def summed_consume_rates(self, shard: ShardSnapshot, sums: NDArray[np.integer[Any]], size: int) -> Rates:
        """The consume rate of `size` sums, as of topics or of groups. `sums` (N,) is the sum of each row.

        It is unknown if a row in it is withheld, or may be missing, and if a commit has no time.
        """
        without = shard.lacks_commit_time() | shard.is_withheld() | ~shard.summable_groups()[shard.group]
        return self.consume_rates(shard).sum(sums, size, incomplete=without)

    def produce_rates(self, shard: ShardSnapshot) -> Rates:
        """The produce rate of each row's partition; unknown if the snapshot has no `now_ms`, or withheld."""
        produce = self.partitions.produce
        if produce is None:
            return Rates.build_unknown(len(shard.committed))
        rates = Rates(produce.per_s[shard.partition], produce.known[shard.partition])
        return rates if shard.withheld is None else rates.hide(shard.is_withheld())

    def catch_ups(self, shard: ShardSnapshot) -> CatchUps:
        """When each row of `shard` will have caught up, which means to its usual lag (`usual_lags`)."""
        computed = self._catch_ups.get(shard)
        if computed is None:
            produce = self.produce_rates(shard)
            computed = self._catch_ups[shard] = seconds_until_caught_up(
                self.record_lags(shard),
                self.lags(shard).known,
                consume=self.consume_rates(shard),
                produce=produce,
                allowed_lag=usual_lags(shard.features, produce),
                stopped=self.statuses(shard) == Status.STOP,
            )
        return computed

    def group_catch_ups(self, shard: ShardSnapshot) -> CatchUps:
        """When each group of the shard will have caught up: when its slowest row has.

        Unknown if the group has no sums.
        """
        size, lag_known = len(shard.groups), self.lags(shard).known
        found = self.catch_ups(shard).find_slowest(shard.group, size, lag_known=lag_known)
        known = found.known & ~self.withheld_groups(shard)
        return CatchUps(np.where(known, found.seconds, 0.0), known)
