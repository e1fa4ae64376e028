"""Which numbers may be served, and whether koff is ready: functions of facts.

A lag is served if its end offset and its commit were both true at some moment within the limit. Both have a
time of their own: an end offset that of its request, a commit the moment up to which its partition of the
offsets topic (for share groups: of `__share_group_state`) is known to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, Reason, is_topic_recreated
from koff.monitor.followed_log import FollowedLog
from koff.monitor.requests import Moment
from koff.monitor.stored_groups import SHARD as STORED_GROUPS_SHARD
from koff.serve.view import MonitorStats, Readiness
from koff.tracker import ShardSnapshot, Snapshot

NEVER_MS = -(1 << 62)
"""Stands for "never": before every time that counts as current."""


def find_withheld(
    snapshot: Snapshot,
    shard: ShardSnapshot,
    *,
    commits_at_ms: NDArray[np.int64] | int,
    topics_at_ms: int,
    oldest_ms: int,
) -> tuple[NDArray[np.uint8], int]:
    """The reasons (`Reason` bits) why rows of the shard must not be served; 0 where they may be.

    Also returns how many rows have a lag, whether it may be served or not.

    `commits_at_ms` is when the commit of each row was current, `topics_at_ms` when the topics were requested,
    `oldest_ms` the oldest time that counts as current.

    A row without a commit, or of a topic that is gone, has no lag and so nothing to withhold. A commit with a
    topic id that differs from the one in the list belongs to an earlier topic of that name, or to one that is
    newer than the list: that is only known from a list that is newer than the commit.
    """
    partitions, rows = snapshot.partitions, shard.partition
    stale = np.less(commits_at_ms, oldest_ms) | np.zeros(len(rows), np.bool_)
    other_id = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=partitions.topic_id[rows])
    unsure = other_id & (shard.seen_at > topics_at_ms)
    has_end_side = (shard.committed >= 0) & ~partitions.gone[rows] & (~other_id | unsure)
    no_end = (partitions.sampled_at[rows] < oldest_ms) | (partitions.end[rows] == UNKNOWN) | unsure
    found = np.zeros(len(rows), np.uint8)
    found[stale] |= np.uint8(Reason.COMMITS_NOT_CURRENT)
    found[has_end_side & no_end] |= np.uint8(Reason.END_NOT_CURRENT)
    return found, int(np.count_nonzero(has_end_side | stale))


@dataclass(frozen=True, slots=True)
class CoreView:
    """What may be served at one moment. Immutable. Of `rows` lags, `withheld` are not served.

    Rows whose lag is unknown, because there is no commit or no such topic, do not count.
    """

    snapshot: Snapshot
    readiness: Readiness
    stats: MonitorStats
    rows: int
    withheld: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a view depends on, besides the snapshot.

    `doubtful` are internal topics that may be others than what was read. `stored` is when ZooKeeper's groups
    were requested. `oldest_ms` is the oldest time that counts as current, and `steady_ms` converts to such
    times. `failure` is the newest error while nothing is answered.
    """

    offsets: FollowedLog
    share: FollowedLog
    doubtful: Collection[str]
    stored: Moment | None
    steady_ms: Callable[[Moment], int]
    oldest_ms: int
    topics_asked: Moment | None
    failure: str | None
    ends_answered: bool
    was_ready: bool
    record_counts: Mapping[str, int]

    def shard_ms(self, number: int) -> int:
        """When the groups of a shard were current, and the commits that are not of share groups."""
        if number == STORED_GROUPS_SHARD:
            return self._to_ms(self.stored)
        return self._current_ms(self.offsets, number)

    def _current_ms(self, log: FollowedLog, number: int) -> int:
        part = log.partitions.get(number)
        if part is None or log.topic in self.doubtful:
            return NEVER_MS
        return self._to_ms(part.current)

    def _to_ms(self, moment: Moment | None) -> int:
        return NEVER_MS if moment is None else self.steady_ms(moment)

    def commits_ms(self, number: int, shard: ShardSnapshot) -> NDArray[np.int64] | int:
        """When the commits of a shard were current: one time for all rows, or one for each."""
        at_ms: NDArray[np.int64] | int = self.shard_ms(number)
        part, sources = self.offsets.partitions.get(number), shard.share_partition
        if part is not None and part.stale_groups and at_ms != NEVER_MS:
            stale = {name: self._to_ms(moment) for name, moment in part.stale_groups.items()}
            by_group = [stale.get(group.name, at_ms) for group in shard.groups]
            at_ms = np.array(by_group, np.int64)[shard.group]
        if sources is None:
            return at_ms
        by_partition = {p: self._current_ms(self.share, p) for p in self.share.partitions}
        times = np.array([by_partition.get(p, NEVER_MS) for p in sources.tolist()], np.int64)
        return np.where(sources < 0, at_ms, np.minimum(at_ms, times))


def build_view(snapshot: Snapshot, facts: Facts) -> CoreView:
    """The snapshot without what must not be served, and whether koff is ready."""
    topics_ms = facts.steady_ms(facts.topics_asked) if facts.topics_asked else NEVER_MS
    withheld: dict[int, NDArray[np.uint8]] = {}
    are_current: dict[int, bool] = {}
    rows = 0
    for number, shard in snapshot.shards.items():
        found, with_lag = find_withheld(
            snapshot,
            shard,
            commits_at_ms=facts.commits_ms(number, shard),
            topics_at_ms=topics_ms,
            oldest_ms=facts.oldest_ms,
        )
        rows += with_lag
        if found.any():
            withheld[number] = found
        are_current[number] = facts.shard_ms(number) >= facts.oldest_ms
    count = sum(int(np.count_nonzero(found)) for found in withheld.values())
    readiness = assess_readiness(facts, rows=rows, withheld=count)
    stats = MonitorStats(
        records=facts.record_counts,
        undecodable=facts.record_counts.get("Undecodable", 0),
        behind=facts.offsets.behind if facts.offsets.exists is not None else None,
        held_back_records=facts.offsets.held_back,
        up=(facts.was_ready or readiness.ready) and (not rows or count < rows),
    )
    return CoreView(snapshot.withhold(withheld, are_current), readiness, stats, rows, count)


def assess_readiness(facts: Facts, *, rows: int, withheld: int) -> Readiness:
    """Whether koff is ready, and why not.

    At the start: each partition of an internal topic that has a leader was read, and then end offsets were
    answered. Later: unless there are rows and none of them may be served.
    """
    logs = (facts.offsets, facts.share)
    if facts.was_ready:
        if rows and rows == withheld:
            why = facts.failure or _find_cause(logs)
            return Readiness(False, f"not ready: none of {rows} lags is current: {why}")
        return Readiness(True, "ready")
    for log in logs:
        if log is facts.share and log.denied is not None:
            continue
        if log.exists is None:
            return Readiness(False, f"not ready: {facts.failure or f'looking for {log.topic}'}")
        if log.unread:
            why = f"{log.behind} offsets of {log.topic} are to be read, of {len(log.unread)} partitions"
            return Readiness(False, f"not ready: {log.denied or facts.failure or why}")
    if not facts.ends_answered:
        return Readiness(False, f"not ready: {facts.failure or 'end offsets are not known yet'}")
    return Readiness(True, "ready")


def _find_cause(logs: Iterable[FollowedLog]) -> str:
    for log in logs:
        if log.denied is not None:
            return log.denied
        if log.leaderless:
            return f"{len(log.leaderless)} partitions of {log.topic} have no leader"
    return "the cluster does not answer"
