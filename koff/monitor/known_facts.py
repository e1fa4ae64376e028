"""The facts that a view depends on, besides the snapshot, as a few values that belong together."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from koff.monitor.duties.history import Replayed
from koff.monitor.duties.stored_groups import SHARD as STORED_GROUPS_SHARD
from koff.monitor.followed_log import FollowedLog
from koff.monitor.moment import Moment
from koff.monitor.requests import Display
from koff.records.placement import group_partition
from koff.tracker import ShardSnapshot, Snapshot
from koff.tracker.commit_rows import DESCRIBED, NOT_SHARED
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterFacts

NEVER_MS = -(1 << 62)
"""Stands for "never": before every time that counts as current."""


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """The present time, and the limit: what is older than `oldest_ms` is not current.

    `steady_ms` converts to such times.
    """

    now: Moment
    oldest_ms: int
    steady_ms: Callable[[Moment], int]

    def to_ms(self, moment: Moment | None) -> int:
        """The moment as such a time; NEVER_MS for None."""
        return NEVER_MS if moment is None else self.steady_ms(moment)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The internal topics. Commits come from the log, or with another `source` from coordinators.

    `doubtful_topics` are the internal topics that may have been created again since koff read them.
    `elsewhere` maps each group that is not shown by the partition of its hash to the partition that shows it.
    `history` is the partition whose history is being read. `denied_groups` counts the groups that koff may
    not describe any more.
    """

    offsets: FollowedLog
    share: FollowedLog
    source: Literal["log", "coordinators"] = "log"
    doubtful_topics: Collection[str] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    history: Replayed | None = None
    denied_groups: int = 0


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """Share groups. `described_ms` has those whose lags coordinators returned: when all of each were
    requested, None if never. `nameless` are share groups with state of topics that no list has had yet.
    `missing_why` is why lags of share groups may be missing, while the log is not their source.
    """

    described_ms: Mapping[str, int | None] = field(default_factory=dict)
    nameless: Collection[str] = ()
    missing_why: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The groups of ZooKeeper. `requested` is when they were requested; unless they `are_known`, ZooKeeper
    has not responded yet. `refused` are left out of its response.
    """

    requested: Moment | None = None
    are_known: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListFacts:
    """The list of topics and brokers. `requested` is when the newest list was requested, and `undoubted` the
    newest list that is believed. `denied` are topics that koff may not describe. `facts` is what the cluster
    lists, if the list is new enough.
    """

    undoubted: Moment | None
    requested: Moment | None = None
    denied: Collection[str] = ()
    facts: ClusterFacts = field(default_factory=ClusterFacts)


@dataclass(frozen=True, slots=True)
class MonitorProgress:
    """What the monitor has done. `failure` is the newest error while there is no response.

    `skipped` counts what could not be used, `record_counts` records, `requests` the requests to the cluster.
    """

    ends_known: bool
    was_ready: bool
    failure: str | None = None
    record_counts: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewFacts:
    """The facts that a view depends on, besides the snapshot.

    `cluster` is the name of the cluster, and `display` what is shown of it. All views share `activity`.
    """

    cluster: str
    display: Display
    time: CurrentTime
    logs: LogFacts
    shares: ShareFacts
    stored: StoredFacts
    listed: ListFacts
    progress: MonitorProgress
    activity: RecentActivity = field(default_factory=RecentActivity)

    def groups_ms(self, number: int, shard: ShardSnapshot) -> NDArray[np.int64] | int:
        """When the groups of a shard were current: one time for all, or one for each.

        Commits of share groups have a time of their own besides (`commits_ms`).
        """
        if number == STORED_GROUPS_SHARD:
            return self._stored_groups_ms(shard)
        at_ms, part = self.current_ms(self.logs.offsets, number), self.logs.offsets.partitions.get(number)
        if part is None or at_ms == NEVER_MS:
            return at_ms
        times = {name: self.time.to_ms(moment) for name, moment in part.stale_groups.items()}
        for name, place in self.logs.elsewhere.items():
            if place == number:  # it may have moved to its other partition meanwhile
                other_ms = self.current_ms(
                    self.logs.offsets, group_partition(name, self.logs.offsets.partition_count)
                )
                times[name] = min(times.get(name, at_ms), other_ms)
        if not times:
            return at_ms
        return np.array([times.get(group.name, at_ms) for group in shard.groups], np.int64)

    def _stored_groups_ms(self, shard: ShardSnapshot) -> NDArray[np.int64] | int:
        """When the groups of ZooKeeper were current. A group that is in Kafka too is shown as Kafka has it.

        So nothing is known of a group while the partition is not read in which Kafka would have it, nor while
        koff may not read the group.
        """
        at_ms, count = self.time.to_ms(self.stored.requested), self.logs.offsets.partition_count
        unread = {p for p, part in self.logs.offsets.partitions.items() if part.current is None}
        if not unread and not self.stored.refused:
            return at_ms
        hidden = [
            group.name in self.stored.refused
            or (bool(unread) and group_partition(group.name, count) in unread)
            for group in shard.groups
        ]
        return np.where(np.array(hidden, np.bool_), NEVER_MS, at_ms)

    def commits_ms(self, shard: ShardSnapshot, groups_ms: NDArray[np.int64] | int) -> NDArray[np.int64] | int:
        """When the commits of a shard were current, of which `groups_ms` is known: one time for all rows, or
        one for each.
        """
        at_ms, sources = groups_ms, shard.share_partition
        if isinstance(at_ms, np.ndarray):
            at_ms = at_ms[shard.group]
        if sources is None:
            return at_ms
        by_partition = {p: self.current_ms(self.logs.share, p) for p in self.logs.share.partitions}
        times = np.array([by_partition.get(p, NEVER_MS) for p in sources.tolist()], np.int64)
        times = np.where(sources == DESCRIBED, shard.seen_at, times)
        return np.where(sources == NOT_SHARED, at_ms, np.minimum(at_ms, times))

    def find_whole(self, shard: ShardSnapshot, *, share_ms: int) -> NDArray[np.bool_] | bool:
        """Which groups of a shard have no rows besides those that are known: True for all, or a mask.

        The rows of a share group are in any partitions of `__share_group_state`, all of which were current at
        `share_ms`, or its coordinator returned them. State has no names of topics, only their ids.
        """

        def is_whole(name: str) -> bool:
            if name in self.shares.described_ms:
                at_ms = self.shares.described_ms[name]
                return at_ms is not None and at_ms >= self.time.oldest_ms
            return share_ms >= self.time.oldest_ms and name not in self.shares.nameless

        if not shard.has_share_groups:
            return shard.groups_whole
        return shard.groups_whole & np.array(
            [g.type != "share" or is_whole(g.name) for g in shard.groups], np.bool_
        )

    def has_old_stored_groups(self, snapshot: Snapshot) -> bool:
        """Whether there are groups of ZooKeeper that are not current."""
        return (
            STORED_GROUPS_SHARD in snapshot.shards
            and self.time.to_ms(self.stored.requested) < self.time.oldest_ms
        )

    def current_ms(self, log: FollowedLog, number: int) -> int:
        """When that partition of an internal topic was current."""
        part = log.partitions.get(number)
        if part is None or log.topic in self.logs.doubtful_topics:
            return NEVER_MS
        return self.time.to_ms(part.current)
