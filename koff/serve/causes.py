"""Why the groups of a view lag: gathers the facts that `koff.lag.find_causes` needs, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    UNKNOWN,
    Cause,
    CauseFacts,
    Explanation,
    Status,
    find_causes,
    usual_lags,
)
from koff.lag.causes import NOT_ASSIGNED
from koff.serve.activity import ClusterActivity
from koff.serve.view import ClusterView
from koff.tracker import ShardSnapshot, Snapshot

_MEMBERLESS_TYPES = frozenset({"simple", ""})
"""The types of groups that have no members: they only commit. Without a type, the group is not current."""


MOST_OFFSETS = 2**62
"""A sum of offsets that is larger is given as this."""


@dataclass(frozen=True)
class ShardCauses:
    """The causes of the groups of one shard. `facts` are what they follow from.

    `whole` is a mask of the groups (G,) of which koff may say something: no row of them is withheld.
    """

    snapshot: Snapshot
    shard: ShardSnapshot
    activity: ClusterActivity
    facts: CauseFacts
    explanations: Mapping[Cause, Explanation]
    whole: NDArray[np.bool_]

    @cached_property
    def sums(self) -> dict[Cause, NDArray[np.int64]]:
        """By cause, how many offsets of the lag of each group (G,) it explains. 0: the group has it not.

        At most `MOST_OFFSETS`: offsets that a client made up may have a larger sum.
        """
        sums = {}
        for cause, explained in self.explanations.items():
            of_rows, offsets = self.shard.group[explained.rows], explained.offsets[explained.rows]
            sums[cause] = of_groups = np.zeros(len(self.whole), np.int64)
            np.add.at(of_groups, of_rows, offsets)
            rough = np.bincount(of_rows, weights=offsets, minlength=len(self.whole))
            of_groups[rough > MOST_OFFSETS] = MOST_OFFSETS  # the exact sum may have overflowed
            of_groups[~self.whole] = 0
        return sums

    def list_causes(self, group: int) -> list[tuple[Cause, int]] | None:
        """The causes of a group, each with the offsets that it explains: the most first.

        None if the lag of the group is withheld.
        """
        if not self.whole[group]:
            return None
        found = [(cause, int(offsets[group])) for cause, offsets in self.sums.items() if offsets[group]]
        return sorted(found, key=lambda each: (-each[1], each[0]))


def find_shard_causes(view: ClusterView, number: int) -> ShardCauses:
    """The causes of the groups of a shard. Computed once for each view."""
    known = view.causes.get(number)
    if not isinstance(known, ShardCauses):
        shard = view.snapshot.shards[number]
        is_held_back = number in view.stats.held_back_partitions
        known = explain_shard(view.snapshot, shard, view.activity.current, number, is_held_back=is_held_back)
        view.causes[number] = known
    return known


def explain_shard(
    snapshot: Snapshot, shard: ShardSnapshot, activity: ClusterActivity, number: int, *, is_held_back: bool
) -> ShardCauses:
    """The causes of the groups of a shard. `is_held_back`: an open transaction may hold back its commits."""
    facts = _gather_facts(snapshot, shard, activity, number, is_held_back=is_held_back)
    whole = ~snapshot.withheld_groups(shard)
    return ShardCauses(snapshot, shard, activity, facts, find_causes(facts), whole)


def _gather_facts(
    snapshot: Snapshot, shard: ShardSnapshot, activity: ClusterActivity, number: int, *, is_held_back: bool
) -> CauseFacts:
    partitions, rows = snapshot.partitions, shard.partition
    lag, statuses = snapshot.record_lags(shard), snapshot.statuses(shard)
    produce, consume = snapshot.produce_rates(shard), snapshot.consume_rates(shard)
    never = snapshot.catch_ups(shard).never
    groups, names = shard.groups, [group.name for group in shard.groups]
    did = [activity.groups.get(name) for name in names]
    members = _count_members(shard)
    end_before = partitions.end_before
    usual_rates = activity.usual_rates.get(number)
    is_usual_known = usual_rates is not None and usual_rates.layout is shard.layout
    return CauseFacts(
        group=shard.group,
        member=_number_members(snapshot, shard, members, (lag > 0) & ((statuses != Status.OK) | never)),
        lag=lag,
        status=statuses,
        usual_lag=usual_lags(shard.features, produce),
        never=never,
        is_silent=_find_silent(snapshot, shard),
        consume_per_s=np.where(consume.known, consume.per_s, 0.0),
        produce_per_s=np.where(produce.known, produce.per_s, 0.0),
        # The lag of a share group that its coordinator returned depends on no offset.
        committed=shard.replace_described(snapshot.committed(shard), UNKNOWN),
        start=partitions.start[rows],
        stable=partitions.stable[rows],
        held_ms=partitions.held_ms[rows],
        end_before=np.full(len(rows), UNKNOWN, np.int64) if end_before is None else end_before[rows],
        went_back_from=_find_resets(snapshot, shard, activity, names, lag > 0),
        members=members,
        most_members=np.array([each.most_members if each else UNKNOWN for each in did], np.int64),
        rebalances=np.array([each.rebalances if each else 0 for each in did], np.int64),
        commits_held_back=np.full(len(groups), is_held_back),
        produced_before=usual_rates.per_s
        if usual_rates is not None and is_usual_known
        else np.full(len(groups), np.nan),
    )


def sum_produce_rates(snapshot: Snapshot, shard: ShardSnapshot) -> NDArray[np.float64]:
    """The produce rate of all rows of each group (G,). NaN if a row is withheld, or no rate is known."""
    produce, size = snapshot.produce_rates(shard), len(shard.groups)
    sums = np.bincount(shard.group, weights=produce.per_s, minlength=size).astype(np.float64)
    is_known = np.bincount(shard.group[produce.known], minlength=size) > 0
    known: NDArray[np.float64] = np.where(is_known & ~snapshot.withheld_groups(shard), sums, np.nan)
    return known


def _find_silent(snapshot: Snapshot, shard: ShardSnapshot) -> NDArray[np.bool_]:
    window = shard.features
    if snapshot.now_ms is None:
        return np.ones(len(shard.group), np.bool_)
    pause_ms = snapshot.commit_time_ms(shard, snapshot.now_ms) - window.last_ms
    silent: NDArray[np.bool_] = pause_ms > np.maximum(window.last_ms - window.first_ms, 0)
    return silent


def _count_members(shard: ShardSnapshot) -> NDArray[np.int64]:
    """How many members each group (G,) has; UNKNOWN if it has none because it needs none.

    So do groups of applications that only commit, also under a name that had members once: the group is empty
    since before the first commit of a window.
    """
    groups, window = shard.groups, shard.features
    counts = np.array(
        [UNKNOWN if group.type in _MEMBERLESS_TYPES else group.member_count for group in groups], np.int64
    )
    is_empty = counts == 0
    if is_empty.any():
        since_ms = np.array([group.state_timestamp_ms for group in groups], np.int64)
        rows = (window.commits >= 2) & (window.first_ms > since_ms[shard.group])
        commits_alone = np.bincount(shard.group[rows], minlength=len(groups)) > 0
        counts[is_empty & (since_ms >= 0) & commits_alone] = UNKNOWN
    return counts


def _find_resets(
    snapshot: Snapshot,
    shard: ShardSnapshot,
    activity: ClusterActivity,
    names: list[str],
    behind: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """From where the committed offset of each row that is `behind` went back; UNKNOWN for most."""
    offsets = np.full(len(shard.group), UNKNOWN, np.int64)
    groups = {name for name, _, _ in activity.resets}
    numbers = [number for number, name in enumerate(names) if name in groups] if groups else []
    for row in np.flatnonzero(behind & np.isin(shard.group, numbers)).tolist() if numbers else ():
        partition = int(shard.partition[row])
        topic, index = snapshot.partitions.topic[partition], snapshot.partitions.partition[partition]
        reset = activity.resets.get((names[shard.group[row]], topic, index))
        if reset is not None:
            offsets[row] = reset.offset
    return offsets


def _number_members(
    snapshot: Snapshot, shard: ShardSnapshot, members: NDArray[np.int64], slow: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """A number for the member of each row, of groups with `slow` rows and members; else UNKNOWN.

    NOT_ASSIGNED: no member has the row, as of a topic that the group reads no more. That is known if the
    group is stable, and koff knows the names of all that is assigned. (Not of groups of the type streams:
    their topics may follow a pattern. Not of those in ZooKeeper: their state does not say that they
    rebalance.) The partitions of share groups have several members each, so their rows have none.
    """
    numbers = np.full(len(shard.group), UNKNOWN, np.int64)
    first = 0
    for number, rows in _list_rows(shard, np.unique(shard.group[slow])):
        group = shard.groups[number]
        if members[number] < 1 or group.type == "share":
            continue
        of_members = {member.id: first + at for at, member in enumerate(group.members)}
        owners = {
            (topic, partition): of_members[member.id]
            for topic, partition, member in snapshot.assignments(group)
        }
        first += len(of_members)
        is_stable = bool(owners) and group.state == "Stable" and group.type not in ("streams", "zookeeper")
        is_complete = is_stable and all(topic is not None for topic, _ in owners)
        otherwise = NOT_ASSIGNED if is_complete else UNKNOWN
        for row in rows.tolist():
            partition = int(shard.partition[row])
            place = snapshot.partitions.topic[partition], snapshot.partitions.partition[partition]
            numbers[row] = owners.get(place, otherwise)
    return numbers


def _list_rows(shard: ShardSnapshot, groups: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The rows of each of these groups."""
    rows = np.flatnonzero(np.isin(shard.group, groups))
    rows = rows[np.argsort(shard.group[rows], kind="stable")]
    ends = np.searchsorted(shard.group[rows], groups, side="right").tolist()
    for group, begin, end in zip(groups.tolist(), [0, *ends], ends, strict=False):
        yield group, rows[begin:end]
