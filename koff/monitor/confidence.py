"""Which numbers may be served, and whether koff is ready: functions of facts.

A lag is served if its end offset and its commit were both true at some moment within the limit. Both have a
time of their own: an end offset that of its request, a commit the moment up to which its partition of the
offsets topic (for share groups: of `__share_group_state`) is known to be read.
"""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN, WITHHELD, Reason, is_topic_recreated
from koff.monitor.duties.history import Replayed
from koff.monitor.duties.stored_groups import describe_refused
from koff.monitor.followed_log import FollowedLog
from koff.monitor.known_facts import NEVER_MS, ViewFacts
from koff.monitor.moment import Moment
from koff.records.placement import group_partition
from koff.tracker import ShardSnapshot, Snapshot
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from koff.view.verdicts import attach_verdicts

_NAMELESS = "the list of topics is too old to have the names of their topics"


def find_withheld(
    snapshot: Snapshot,
    shard: ShardSnapshot,
    *,
    commits_at_ms: NDArray[np.int64] | int,
    topics_at_ms: int,
    oldest_ms: int,
    denied_topics: Collection[str] = (),
    reads_log: bool = True,
) -> tuple[NDArray[np.uint8], int]:
    """The reasons (`Reason` bits) why rows of the shard must not be served; 0 where they may be.

    Also returns how many rows have a lag, whether it may be served or not.

    `commits_at_ms` is when the commit of each row was current, `topics_at_ms` when the topics were requested,
    `oldest_ms` the oldest time that counts as current.

    A row without a commit, or of a topic that is gone, has no lag and so nothing to withhold. Neither has a
    row of `denied_topics`: koff may not describe them, so no end offset is to be expected. Only the log has
    commits to them: unless koff `reads_log`, their committed offsets are hidden. A lag that a coordinator
    returned (`share_lag`) has its end offset in it. A commit to a topic that is gone, or with a topic id that
    differs from the one in the list, belongs to an earlier topic of that name, or to one that is newer than
    the list: that is only known from a list that is newer than the commit.
    """
    partitions, rows = snapshot.partitions, shard.partition
    stale = np.less(commits_at_ms, oldest_ms) | np.zeros(len(rows), np.bool_)
    other_id = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=partitions.topic_id[rows])
    is_gone = partitions.gone[rows]
    unsure = (other_id | is_gone) & (shard.seen_at > topics_at_ms)
    has_commit = shard.replace_described(shard.committed, 0) >= 0
    if denied_topics:
        is_denied = np.array([topic in denied_topics for topic in partitions.topic], np.bool_)[rows]
        unsure, has_commit = unsure & ~is_denied, has_commit & ~is_denied
    has_end_side = has_commit & (unsure | ~(other_id | is_gone))
    no_end = (partitions.sampled_at[rows] < oldest_ms) | (partitions.end[rows] == UNKNOWN)
    no_end = shard.replace_described(no_end, 0) | unsure
    found = np.zeros(len(rows), np.uint8)
    found[stale] |= np.uint8(Reason.COMMITS_NOT_CURRENT)
    found[has_end_side & no_end] |= np.uint8(Reason.END_NOT_CURRENT)
    if denied_topics and not reads_log:
        found[is_denied] |= np.uint8(Reason.END_UNKNOWN)
    return found, int(np.count_nonzero(has_end_side | stale))


def build_view(snapshot: Snapshot, facts: ViewFacts) -> ClusterView:
    """The snapshot without what must not be served, and whether koff is ready."""
    withheld: dict[int, NDArray[np.uint8]] = {}
    are_current: dict[int, NDArray[np.bool_] | bool] = {}
    are_whole: dict[int, NDArray[np.bool_] | bool] = {}
    commits_at: dict[int, NDArray[np.int64] | int] = {}
    share_ms = min(
        (facts.current_ms(facts.logs.share, p) for p in facts.logs.share.partitions), default=NEVER_MS
    )
    rows = 0
    for number, shard in snapshot.shards.items():
        groups_ms = facts.groups_ms(number, shard)
        commits_at[number] = facts.commits_ms(shard, groups_ms)
        found, with_lag = find_withheld(
            snapshot,
            shard,
            commits_at_ms=commits_at[number],
            topics_at_ms=facts.time.to_ms(facts.listed.undoubted),
            oldest_ms=facts.time.oldest_ms,
            denied_topics=facts.listed.denied,
            reads_log=facts.logs.source == "log",
        )
        rows += with_lag
        if found.any():
            withheld[number] = found
        are_current[number] = groups_ms >= facts.time.oldest_ms
        are_whole[number] = facts.find_whole(shard, share_ms=share_ms)
    count = sum(int(np.count_nonzero(found & np.uint8(WITHHELD))) for found in withheld.values())
    readiness = assess_readiness(snapshot, facts, rows=rows, withheld=count)
    stats = build_stats(snapshot, facts, rows=rows, withheld=count, up=readiness.ready)
    old_ends = snapshot.partitions.sampled_at < facts.time.oldest_ms
    served = snapshot.withhold(withheld, are_current, old_ends, are_whole, commits_at)
    return ClusterView(
        facts.cluster,
        attach_verdicts(served, facts.activity.current.verdicts),
        readiness,
        stats,
        facts.listed.facts,
        labels=facts.display.labels,
        group_labels=facts.display.group_labels,
        objectives=facts.display.objectives,
        runbook=facts.display.runbook,
        owners=facts.display.owners,
        shown=facts.display.names,
        expected_groups=find_expected(served, facts) if facts.display.expected_groups else {},
        activity=facts.activity,
    )


def find_expected(snapshot: Snapshot, facts: ViewFacts) -> dict[str, bool]:
    """Whether each expected group is present, as far as koff knows.

    A group is absent if its partition of the offsets topic is current and does not have it. Nothing is known
    of a group in a partition that koff does not read (`--shard`).
    """
    expected, log = set(facts.display.expected_groups), facts.logs.offsets
    present = {
        group.name: bool(is_current)
        for shard in snapshot.shards.values()
        for group, is_current in zip(shard.groups, shard.current_groups(), strict=True)
        if group.name in expected
    }

    def is_absent(name: str) -> bool:
        if log.exists is False:
            return True
        number = group_partition(name, log.partition_count) if log.partition_count else -1
        is_read = facts.current_ms(log, number) >= facts.time.oldest_ms
        return is_read and not facts.has_old_stored_groups(snapshot)

    known = {name: True for name, is_current in present.items() if is_current}
    return known | {name: False for name in expected - present.keys() if is_absent(name)}


def build_stats(snapshot: Snapshot, facts: ViewFacts, *, rows: int, withheld: int, up: bool) -> MonitorStats:
    """The numbers for koff's own metrics. While the log is not read, nothing is said of reading it."""
    offsets, reads = facts.logs.offsets, facts.logs.source == "log"
    return MonitorStats(
        records=facts.progress.record_counts,
        undecodable=facts.progress.record_counts.get("Undecodable", 0),
        skipped=facts.progress.skipped,
        behind=offsets.behind if reads and offsets.exists is not None else None,
        held_back_records=offsets.held_back if reads else 0,
        held_back_partitions=frozenset(p for p, part in offsets.reading() if part.is_held_back)
        if reads
        else frozenset(),
        held_back_s=measure_held_back_s(offsets, facts.time.now) if reads else 0.0,
        backfill_remaining=count_unread_history(offsets, facts.logs.history) if reads else 0,
        input_ages_s=measure_ages_s(snapshot, facts),
        requests=facts.progress.requests,
        rows=rows,
        withheld=withheld,
        missing=tuple(_describe_missing(facts)),
        missing_shares_why=_find_missing_shares_why(facts),
        internal_partitions=len(offsets.partitions) + len(facts.logs.share.partitions),
        not_current=sum(len(_find_old_partitions(facts, log)) for log in (offsets, facts.logs.share)),
        source=facts.logs.source,
        up=up,
    )


def _find_old_partitions(facts: ViewFacts, log: FollowedLog) -> list[int]:
    """The partitions of an internal topic that are not current; none of a topic that may not be read."""
    if log is facts.logs.share and log.denied is not None:
        return []
    return [p for p in log.partitions if facts.current_ms(log, p) < facts.time.oldest_ms]


def _find_missing_shares_why(facts: ViewFacts) -> str | None:
    """Why lags of share groups are missing, unless `_describe_missing` says it."""
    if facts.shares.nameless and not _find_old_partitions(facts, facts.logs.share):
        return facts.shares.missing_why or _NAMELESS
    return facts.shares.missing_why


def _describe_missing(facts: ViewFacts) -> Iterator[str]:
    """Yields sentences about groups that may be missing: of partitions that are not read, or of ZooKeeper."""
    for log, what in ((facts.logs.offsets, "groups"), (facts.logs.share, "lags of share groups")):
        old = _find_old_partitions(facts, log)
        if old:
            leaderless = sum(p in log.leaderless for p in old)
            without = f", {leaderless} of them have no leader" if leaderless else ""
            yield f"{len(old)} partitions of {log.topic} are not read{without}: {what} may be missing"
    if denied := _describe_denied(facts):
        yield f"{denied}: they are not shown"
    if facts.stored.refused:
        yield describe_refused(facts.stored.refused)


def _describe_denied(facts: ViewFacts) -> str:
    """A sentence about the groups that koff may not DESCRIBE; "" if there are none."""
    count = facts.logs.denied_groups
    return f"koff may not DESCRIBE {count} {'group' if count == 1 else 'groups'}" if count else ""


def measure_held_back_s(log: FollowedLog, now: Moment) -> float:
    """How long the oldest open transaction has held back commits in the log. 0.0: there is none.

    It counts from when koff saw the transaction, also if the coordinators respond meanwhile for the groups.
    """
    since_s = [part.held_back_since[1] for _, part in log.reading() if part.held_back_since is not None]
    return max(0.0, now.at_s - min(since_s, default=now.at_s))


def count_unread_history(log: FollowedLog, replayed: Replayed | None) -> int:
    """How many offsets of history are to be read, of all partitions that started without their history.

    Those that an open transaction holds back come after it has ended, and do not count.
    """
    count = 0
    for number, part in log.partitions.items():
        if part.needs_history and not part.is_held_back:
            position, until = part.start or 0, part.position
            if replayed is not None and (replayed.partition, replayed.resets) == (number, part.resets):
                position, until = max(position, replayed.position), replayed.until
            count += max(0, until - position)
    return count


def measure_ages_s(snapshot: Snapshot, facts: ViewFacts) -> dict[str, float]:
    """The age of each kind of input that is in use, of the oldest if there are several."""
    logs = (("commits", facts.logs.offsets), ("share_state", facts.logs.share))
    moments: dict[str, Moment | None] = {
        name: min((part.current for _, part in log.reading() if part.current), default=None)
        for name, log in logs
    }
    moments |= {"topics": facts.listed.requested, "zookeeper": facts.stored.requested}
    ages_s = {
        name: facts.time.now.at_s - moment.at_s for name, moment in moments.items() if moment is not None
    }
    if (ends_s := measure_end_age_s(snapshot, facts.time.steady_ms(facts.time.now))) is not None:
        ages_s["end_offsets"] = ends_s
    return {name: round(max(0.0, age_s), 3) for name, age_s in ages_s.items()}


def measure_end_age_s(snapshot: Snapshot, now_ms: int) -> float | None:
    """The age of the oldest end offset of a partition that a row is of; None if there is none."""
    partitions = snapshot.partitions
    in_use = np.zeros(len(partitions.partition), np.bool_)
    for shard in snapshot.shards.values():
        in_use[shard.partition] = True
    sampled = partitions.sampled_at[in_use & ~partitions.gone & (partitions.sampled_at != UNKNOWN)]
    return max(0.0, (now_ms - int(sampled.min())) / 1000) if len(sampled) else None


def assess_readiness(snapshot: Snapshot, facts: ViewFacts, *, rows: int, withheld: int) -> Readiness:
    """Whether koff is ready, and why not.

    At the start: each partition of an internal topic that has a leader was read, and then end offsets were
    known. At any time: unless there are rows and none of them may be served, or there is none because all
    partitions are read again.
    """
    why = (
        None
        if facts.progress.was_ready and (rows or not facts.logs.offsets.unread)
        else _find_unread(snapshot, facts)
    )
    if why is None and rows and rows == withheld:
        cause = _describe_denied(facts) or facts.progress.failure or _find_cause(snapshot, facts)
        why = f"none of {rows} lags is current: {cause}"
    if why is not None:
        return Readiness(False, f"not ready: {why}")
    has_nothing = facts.logs.offsets.exists is False and not rows
    return Readiness(
        True, f"ready: no {facts.logs.offsets.topic} yet, so no groups" if has_nothing else "ready"
    )


def _find_unread(snapshot: Snapshot, facts: ViewFacts) -> str | None:
    """What was not read yet since the start; None if all was."""
    for log in (facts.logs.offsets, facts.logs.share):
        if log is facts.logs.share and log.denied is not None:
            continue
        if log.exists is None:
            return facts.progress.failure or f"looking for {log.topic}"
        if log.unread:
            if log.is_never_read:
                return facts.progress.failure or "the coordinators have not responded yet"
            why = f"{log.behind} offsets of {log.topic} are to be read, of {len(log.unread)} partitions"
            return log.denied or facts.progress.failure or why
    if not facts.stored.are_known:
        return facts.progress.failure or "the groups of ZooKeeper are not known yet"
    if not facts.progress.ends_known:
        return facts.progress.failure or "end offsets are not known yet"
    topic = facts.logs.offsets.topic
    if topic in facts.listed.facts.denied and not any(shard.groups for shard in snapshot.shards.values()):
        return (
            f"koff sees no group, and may not DESCRIBE {topic}: docs/security.md has the rights that it needs"
        )
    return None


def _find_cause(snapshot: Snapshot, facts: ViewFacts) -> str:
    for log in (facts.logs.offsets, facts.logs.share):
        if log.denied is not None and not log.is_never_read:
            return log.denied
        if log.leaderless:
            return f"{len(log.leaderless)} partitions of {log.topic} have no leader"
    if facts.has_old_stored_groups(snapshot):
        return "ZooKeeper does not respond"
    if facts.stored.refused:
        return describe_refused(facts.stored.refused)
    return "the cluster does not respond"
