"""Compares one shard of a view with the view before, and adds an event for each change."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from koff.lag import Reason, is_topic_recreated
from koff.lag.group_verdicts import Judgement
from koff.lag.verdict_sample import Mask, sum_rows
from koff.serve.events.event import Kind, Severity
from koff.serve.events.known import UNKNOWN, KnownShard
from koff.serve.events.sentences import (
    Drafts,
    GroupRows,
    describe_ahead,
    describe_jump,
    describe_left_topic,
    describe_loss,
    describe_rebalance,
)
from koff.tracker import ShardSnapshot, Snapshot
from koff.tracker.groups.views import UNKNOWN as UNKNOWN_STATE
from koff.view.activity import MOST_RESETS, ActivityLog, list_new
from koff.view.cluster_view import ClusterView


def compare_groups(
    known: KnownShard,
    view: ClusterView,
    place: int,
    drafts: Drafts,
    activity: ActivityLog,
    now_ms: int,
) -> None:
    """Compares epochs and members of the groups in the shard `place`."""
    shard = view.snapshot.shards[place]
    # A group is the same object until it changes.
    current = shard.current_groups().tolist()
    for number, group in enumerate(shard.groups):
        before_group = known.groups[number]
        if group is before_group or not current[number]:
            continue
        known.groups[number] = group
        if before_group.state == UNKNOWN_STATE:  # of a group that was not current yet, only the name is known
            continue
        activity.note_group(before_group, group, now_ms)
        if group.epoch != before_group.epoch and min(group.epoch, before_group.epoch) >= 0:
            drafts.add("rebalanced", Severity.INFO, partial(describe_rebalance, before_group, group))
        elif list_new(before_group, group) or list_new(group, before_group):
            drafts.add("members_changed", Severity.INFO, partial(describe_rebalance, before_group, group))


def compare_commits(
    known: KnownShard,
    snapshot: Snapshot,
    shard: ShardSnapshot,
    drafts: Drafts,
    activity: ActivityLog,
    now_ms: int,
) -> None:
    """Finds committed offsets that have gone back, and how many records each group has consumed."""
    committed, before = snapshot.committed(shard), known.committed
    # A commit to an earlier topic of that name is not compared, and neither is the next one with it.
    topic_id = snapshot.partitions.topic_id[shard.partition]
    is_old = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=topic_id)
    back = (committed >= 0) & (committed < before)
    found = GroupRows(snapshot, shard, np.flatnonzero(back & ~is_old), before)
    _add_by_group(drafts, "offsets_reset", Severity.WARNING, partial(describe_jump, "went back"), found)
    for row in found.rows[:MOST_RESETS].tolist():
        group, topic, partition = found.find_place(row).values()
        activity.note_reset((group, topic, partition), int(before[row]), now_ms)
    is_grown = (before >= 0) & (committed > before) & ~is_old
    known.consumed = sum_rows(np.where(is_grown, committed - before, 0), shard.group, len(shard.groups))
    known.committed = np.where(is_old, UNKNOWN, np.where(committed >= 0, committed, before))


def compare_losses(known: KnownShard, snapshot: Snapshot, shard: ShardSnapshot, drafts: Drafts) -> None:
    """Finds partitions that lose records before they are committed, and commits beyond the end of the log."""
    partitions, place = snapshot.partitions, shard.partition
    start, end = partitions.start[place], partitions.end[place]
    is_known = snapshot.lags(shard).known & (start >= 0) & (shard.committed >= 0)
    lost = start > shard.committed
    new = GroupRows(snapshot, shard, np.flatnonzero(is_known & lost & (known.lost == 0)), start)
    _add_by_group(drafts, "records_lost", Severity.ERROR, describe_loss, new)
    known.lost = np.where(is_known, lost, known.lost).astype(np.int8)
    ahead = (snapshot.reasons(shard) & np.uint8(Reason.AHEAD_OF_LOG)) != 0
    new = GroupRows(snapshot, shard, np.flatnonzero(is_known & ahead & (known.ahead == 0)), end)
    _add_by_group(drafts, "ahead_of_log", Severity.INFO, describe_ahead, new)
    # Once: the commits that tools mirror may be ahead again and again.
    known.ahead = np.where(is_known, np.maximum(ahead, known.ahead), known.ahead).astype(np.int8)


def compare_skips(
    known: KnownShard,
    snapshot: Snapshot,
    shard: ShardSnapshot,
    judged: Judgement,
    subscribed: Mask,
    drafts: Drafts,
) -> None:
    """Finds records that were skipped, and topics to which no member subscribes any more."""
    jumped = partial(describe_jump, "jumped forward, without members,")
    skipped = GroupRows(snapshot, shard, np.flatnonzero(judged.skipped_from >= 0), judged.skipped_from)
    _add_by_group(drafts, "records_skipped", Severity.WARNING, jumped, skipped)
    left = GroupRows(snapshot, shard, np.flatnonzero(~subscribed & (known.left == 0)), known.committed)
    _add_by_group(drafts, "topic_left", Severity.INFO, describe_left_topic, left)
    known.left = (~subscribed).astype(np.int8)


def _add_by_group(
    drafts: Drafts,
    kind: Kind,
    severity: Severity,
    describe: Callable[[GroupRows], dict[str, Any]],
    found: GroupRows,
) -> None:
    """Adds an event for each group with rows that were found."""
    if len(found.rows):
        for rows in found.split():
            drafts.add(kind, severity, partial(describe, rows))
