"""What the verdicts on the groups of a view follow from: gathers a `VerdictSample` for each shard."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, Reason
from koff.lag.verdict_sample import Floats, Ints, Mask, VerdictSample
from koff.tracker import Group, Objective, ShardSnapshot, Snapshot
from koff.view.activity import ClusterActivity

_MEMBERLESS_TYPES = frozenset({"simple", "zookeeper", ""})
"""The types of groups that have no members: they only commit. Without a type, the group is not current."""
_LOOK_S = 30.0
"""Only of groups that are later than this, koff looks up who reads what."""
_NO_LAG = Reason.NO_COMMIT | Reason.TOPIC_GONE | Reason.TOPIC_RECREATED


def build_sample(
    snapshot: Snapshot,
    shard: ShardSnapshot,
    activity: ClusterActivity,
    objective_s: Floats,
    *,
    is_held_back: bool,
    now_s: float,
    wants_rates: bool = True,
) -> VerdictSample:
    """The sample of a shard. `objective_s` (N,) is of each row, NaN without one. `now_s` is the present time.

    Rates of consumption are unknown unless it `wants_rates`: they take time.

    Commit times are moved to the clock of `now_s`.
    """
    partitions, rows, groups = snapshot.partitions, shard.partition, shard.groups
    times, produce = snapshot.time_lags(shard), snapshot.produce_rates(shard)
    consume = snapshot.consume_rates(shard) if wants_rates else None
    has_lag = (snapshot.reasons(shard) & np.uint8(_NO_LAG)) == 0
    late_s, at_least = np.full(len(rows), np.nan), np.zeros(len(rows), np.bool_)
    if times is not None:
        late_s, at_least = np.where(times.known & has_lag, times.seconds, np.nan), times.at_least
    counts = _count_members(shard)
    owners = _Owners(snapshot, shard, counts, has_lag & ~(late_s <= _LOOK_S))
    moved_at = np.where(shard.moved_at < 0, shard.unmoved_since_ms, shard.moved_at)
    age_s = ((snapshot.now_ms or 0) - shard.skew_ms - moved_at) / 1000
    did = [activity.groups.get(group.name) for group in groups]
    return VerdictSample(
        at_s=now_s,
        group=shard.group,
        counts=has_lag & (owners.subscribed | (counts <= 0)[shard.group]),
        # The lag of a share group that its coordinator returned depends on no offset.
        committed=np.where(has_lag, np.maximum(shard.committed, 0), UNKNOWN),
        start=shard.replace_described(partitions.start[rows], UNKNOWN),
        end=partitions.end[rows],
        stable=partitions.stable[rows],
        held_s=np.maximum(partitions.held_ms[rows], 0) / 1000,
        member=owners.member,
        subscribed=owners.subscribed,
        assigned=owners.assigned,
        produce_per_s=np.where(produce.known, produce.per_s, np.nan),
        consume_per_s=np.full(len(rows), np.nan)
        if consume is None
        else np.where(consume.known, consume.per_s, np.nan),
        late_s=late_s,
        at_least=at_least,
        moved_at_s=np.where(moved_at < 0, np.nan, now_s - age_s),
        objective_s=objective_s,
        retention_s=partitions.retention_s[rows],
        members=counts,
        epoch=np.array([group.epoch for group in groups], np.int64),
        rebalances=np.array([each.rebalances if each else 0 for each in did], np.int64),
        commits_held_back=np.full(len(groups), is_held_back),
    )


def find_objectives(snapshot: Snapshot, shard: ShardSnapshot, objectives: Sequence[Objective]) -> Floats:
    """The objective of each row (N,), in seconds: that of the first that fits. NaN without one."""
    found = np.full(len(shard.group), np.nan)
    topics = snapshot.partitions.topic
    fitting = [
        [each for each in objectives if each.groups.search(group.name)] if objectives else []
        for group in shard.groups
    ]
    for row, group in enumerate(shard.group.tolist()) if any(fitting) else ():
        topic = topics[shard.partition[row]]
        seconds = (each.seconds for each in fitting[group] if each.fits(shard.groups[group].name, topic))
        found[row] = next(seconds, np.nan)
    return found


def _count_members(shard: ShardSnapshot) -> Ints:
    """How many members each group (G,) has; UNKNOWN if it needs none.

    So do applications that only commit, also under a name that had members once: the group is empty since
    before the first commit of a window.
    """
    groups, window = shard.groups, shard.features
    counts = np.array(
        [UNKNOWN if group.type in _MEMBERLESS_TYPES else group.member_count for group in groups], np.int64
    )
    if (is_empty := counts == 0).any():
        since_ms = np.array([group.state_timestamp_ms for group in groups], np.int64)
        alone = (window.commits >= 2) & (window.first_ms > since_ms[shard.group])
        commits_alone = np.bincount(shard.group[alone], minlength=len(groups)) > 0
        counts[is_empty & (since_ms >= 0) & commits_alone] = UNKNOWN
    return counts


class _Owners:
    """Of each row: whether a live member subscribes to its topic, and which member has it.

    Only of groups with members that have a row in `wanted`: elsewhere nothing depends on it. Partitions of
    share groups have several members each, so their rows have none.
    """

    def __init__(self, snapshot: Snapshot, shard: ShardSnapshot, counts: Ints, wanted: Mask) -> None:
        size = len(shard.group)
        self.member = np.full(size, UNKNOWN, np.int64)
        self.subscribed, self.assigned = np.ones(size, np.bool_), np.ones(size, np.bool_)
        self._snapshot, self._shard = snapshot, shard
        chosen = np.zeros(len(shard.groups), np.bool_)
        chosen[shard.group[wanted]] = True
        chosen &= counts > 0
        rows = np.flatnonzero(chosen[shard.group])
        rows = rows[np.argsort(shard.group[rows], kind="stable")]
        firsts = np.flatnonzero(np.diff(shard.group[rows], prepend=-1))
        first_number = 0
        for own in np.split(rows, firsts[1:]) if len(rows) else ():
            group = shard.groups[shard.group[own[0]]]
            if group.type != "share":
                self._look_up(group, own, first_number)
            first_number += len(group.members)

    def _look_up(self, group: Group, rows: NDArray[np.int64], first_number: int) -> None:
        numbers = {member.id: first_number + at for at, member in enumerate(group.members)}
        owners = {
            (topic, partition): numbers[member.id]
            for topic, partition, member in self._snapshot.assignments(group)
        }
        subscribed = list_subscribed_topics(group)
        # What no member has is known if the group is stable, and the names of all that is assigned are known.
        is_stable = bool(owners) and group.state == "Stable"
        is_complete = is_stable and all(topic is not None for topic, _ in owners)
        partitions = self._snapshot.partitions
        for row in rows.tolist():
            number = int(self._shard.partition[row])
            topic = partitions.topic[number]
            owner = owners.get((topic, partitions.partition[number]))
            self.member[row] = UNKNOWN if owner is None else owner
            self.subscribed[row] = subscribed is None or owner is not None or topic in subscribed
            self.assigned[row] = not is_complete or owner is not None


def list_subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics to which present members subscribe; None if that is not known."""
    topics: set[str] = set()
    if group.topology is not None:
        patterns = any(part.source_patterns for part in group.topology.subtopologies.values())
        return None if patterns else frozenset(group.topology.topics)
    for member in group.members:
        subscription = member.subscription
        if subscription.regex is not None and subscription.regex not in group.patterns:
            return None
        topics.update(subscription.topics, group.patterns.get(subscription.regex or "", ()))
    return frozenset(topics) or None
