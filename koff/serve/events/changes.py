"""What has changed from one view of a cluster to the next, as events. No I/O, no clock.

Numbers that are withheld are not compared: what was known before stays. So a cluster that koff cannot see for
a while gives no false event, and a change during that time gives one. The first view gives no event but the
incidents of groups that are late already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import is_topic_recreated
from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.verdict import Change, Verdict
from koff.serve.activity import MOST_RESETS, ActivityLog, ClusterActivity, ShardVerdicts
from koff.serve.causes import ShardCauses, explain_shard
from koff.serve.events.event import ClusterEvent, Kind, Severity
from koff.serve.events.known import UNKNOWN, Ints, KnownShard
from koff.serve.events.known_topics import KnownTopics
from koff.serve.events.saved_verdicts import restore_verdicts, save_verdicts
from koff.serve.events.sentences import (
    INCIDENTS,
    Drafts,
    describe_group,
    describe_incident,
    describe_loss,
    describe_rebalance,
    describe_reset,
    describe_row,
    describe_topic,
    find_severity,
    has_other_members,
)
from koff.serve.group_sums import find_longest_time_lags, sum_lags
from koff.serve.verdict_samples import build_sample, find_objectives
from koff.serve.verdicts import attach_verdicts
from koff.serve.view import ClusterView
from koff.serve.wording import show, show_duration
from koff.tracker import Objective, ShardSnapshot, ShownNames, Snapshot
from koff.tracker.groups.views import UNKNOWN as UNKNOWN_STATE

SAVE_MS = 20_000
"""So often what the verdicts depend on is handed over to be saved."""


def look_at(
    view: ClusterView, changes: ClusterChanges, now_ms: int
) -> tuple[ClusterView, list[ClusterEvent]]:
    """The view with the verdicts of this look at it, and what has changed since the last one."""
    events = changes.compare(view, now_ms)
    snapshot = attach_verdicts(view.snapshot, view.activity.current.verdicts)
    return replace(view, snapshot=snapshot), events


class ClusterChanges:
    """Compares the views of one cluster. Not thread-safe."""

    def __init__(self) -> None:
        self._is_ready: bool | None = None
        self._blind_since_ms = 0
        self._expected: dict[str, bool] = {}
        self._shown = ShownNames()
        self._objectives: Sequence[Objective] = ()
        self._earlier: dict[int, KnownShard] = {}
        self._activity = ActivityLog()
        self._saved_ms = 0
        self._begin()

    def _begin(self) -> None:
        self._is_first = True
        self._is_complete = False
        self._shards: dict[int, KnownShard] = {}
        self._topics = KnownTopics()

    def restart(self) -> None:
        """Begins again: the monitor of the cluster was started again, or it shows other groups.

        Incidents, the presence of expected groups and the readiness stay known: people were told of them.
        """
        self._earlier |= self._shards
        self._begin()

    def note_no_view(self, cluster: str, why: str, now_ms: int) -> list[ClusterEvent]:
        """The event that koff gets no view of the cluster, unless that is known."""
        drafts = Drafts(cluster)
        self._compare_readiness(cluster, why, now_ms, drafts)
        return drafts.build()

    def compare(self, view: ClusterView, now_ms: int) -> list[ClusterEvent]:
        """What has changed since the last view: the worst first. `now_ms` is the present time."""
        assert view.cluster is not None
        drafts = Drafts(view.cluster)
        why = None if view.readiness.ready else view.readiness.text.removeprefix("not ready: ")
        self._compare_readiness(view.cluster, why, now_ms, drafts)
        self._compare_expected(view.expected_groups, drafts)
        if view.snapshot.shards and view.shown != self._shown:
            self.restart()
            self._shown = view.shown
        # A cluster that koff does not reach has an empty view.
        if why is None or (view.snapshot.shards and not self._is_first):
            self._compare_snapshot(view, drafts, now_ms, is_ready=why is None)
            self._is_first = False
        return drafts.build()

    # --- The cluster -------------------------------------------------------------------------------------

    def _compare_readiness(self, cluster: str, why: str | None, now_ms: int, drafts: Drafts) -> None:
        """A cluster that was never ready is not blind: koff starts to watch it."""
        if why is None and self._is_ready is False:
            seconds = max(0, now_ms - self._blind_since_ms) / 1000
            text = f"cluster {show(cluster)}: koff is ready again, after {show_duration(seconds)}"
            details = {"seconds": seconds}
            drafts.add("recovered", Severity.INFO, lambda: {"text": text, "details": details})
        elif why is not None and self._is_ready:
            self._blind_since_ms = now_ms
            text = f"cluster {show(cluster)}: koff is not ready: {why}"
            drafts.add("blind", Severity.ERROR, lambda: {"text": text, "details": {"why": why}})
        if why is None or self._is_ready is not None:
            self._is_ready = why is None

    def _compare_expected(self, present: Mapping[str, bool], drafts: Drafts) -> None:
        for name, is_present in present.items():
            if self._expected.get(name, is_present) == is_present:
                continue
            kind: Kind = "expected_group_back" if is_present else "expected_group_absent"
            severity = Severity.INFO if is_present else Severity.ERROR
            text = "it is expected, and is back" if is_present else "it is expected, and is absent"
            drafts.add(kind, severity, partial(describe_group, name, text))
        self._expected |= present

    # --- Groups ------------------------------------------------------------------------------------------

    def _compare_snapshot(self, view: ClusterView, drafts: Drafts, now_ms: int, *, is_ready: bool) -> None:
        snapshot = view.snapshot
        self._take_saved(view, now_ms)
        # Which groups and rows there are: then all columns can be compared.
        came, left, topics_left = self._follow_layouts(view, is_ready=is_ready)
        for name in came & left.keys():  # groups that have moved to another shard
            came.remove(name)
            del left[name]
        for name in sorted(came):
            drafts.add("group_appeared", Severity.INFO, partial(describe_group, name, "it is new"))
        for name, verdict in left.items():
            build = partial(describe_group, name, "it was deleted", status=verdict.name)
            drafts.add("group_deleted", Severity.INFO, build)
        # Topics, before commits: a topic that was created again has other offsets.
        # While history is read, a commit may be an old one.
        is_history_read = not view.stats.backfill_remaining
        changed = self._topics.compare(view, self._shards, topics_left)
        for group, topic in changed.deleted:
            drafts.add("topic_deleted", Severity.WARNING, partial(describe_topic, group, topic, "deleted"))
        for group, topic in changed.recreated:
            build = partial(describe_topic, group, topic, "created again")
            drafts.add("topic_recreated", Severity.WARNING, build)
        self._activity.forget(left.keys(), set(changed.recreated))
        for known in self._shards.values():
            if self._topics.has_numbers(known):
                known.committed[changed.new_logs[known.partition]] = UNKNOWN
        for number, current in snapshot.shards.items():
            if _is_current(current):
                known = self._shards[number]
                _compare_groups(known, view, number, drafts, self._activity, now_ms)
                if is_history_read:
                    _compare_commits(known, snapshot, current, drafts, self._activity, now_ms)
                else:
                    _compare_commits(known, snapshot, current, Drafts(""), ActivityLog(), now_ms)
                _compare_losses(known, snapshot, current, drafts)
        # Set at once, with the verdicts: other threads read it.
        did = self._activity.build(now_ms)
        view.activity.current = replace(did, verdicts=self._judge(view, did, drafts))
        self._save(view, now_ms)
        shards = [shard for shard in snapshot.shards.values() if _is_current(shard)]
        names = [group.name for shard in shards for group in shard.groups]
        if names:
            lags = np.concatenate([sum_lags(snapshot, shard) for shard in shards])
            time_lags_s = np.concatenate([find_longest_time_lags(snapshot, shard) for shard in shards])
            is_whole = view.readiness.ready and not view.stats.withheld and not view.stats.not_current
            view.activity.history.add(names, lags, time_lags_s, now_ms, is_whole=is_whole)

    def _take_saved(self, view: ClusterView, now_ms: int) -> None:
        """Takes over what an earlier process has saved of its verdicts, once."""
        saved, view.activity.saved_verdicts = view.activity.saved_verdicts, None
        if saved is None or not self._is_first:
            return
        with suppress(LookupError, TypeError, ValueError):  # it is damaged: all begins anew
            self._earlier = restore_verdicts(saved, now_ms) | self._earlier

    def _save(self, view: ClusterView, now_ms: int) -> None:
        """Hands over what is to be saved, now and then."""
        if now_ms - self._saved_ms >= SAVE_MS:
            self._saved_ms = now_ms
            view.activity.verdicts = save_verdicts(self._shards)

    def _judge(self, view: ClusterView, did: ClusterActivity, drafts: Drafts) -> dict[int, ShardVerdicts]:
        """The verdicts of the shards that are current. Those of the others stay as they were."""
        snapshot = view.snapshot
        if snapshot.now_ms is None:
            return {}
        for number, shard in snapshot.shards.items():
            known = self._shards.get(number)
            if known is None or known.layout is not shard.layout:
                continue
            if known.objective_s is None or self._objectives is not view.objectives:
                known.objective_s = find_objectives(snapshot, shard, view.objectives)
            is_held_back = number in view.stats.held_back_partitions
            sample = build_sample(
                snapshot,
                shard,
                did,
                known.objective_s,
                is_held_back=is_held_back,
                now_s=snapshot.now_ms / 1000,
            )
            judged = known.judge.judge(sample)
            verdicts = GroupVerdicts.build(judged)
            known.verdicts = ShardVerdicts(
                shard.layout, shard.groups, shard.group, shard.partition, sample.at_s, verdicts
            )
            if judged.change.any():
                causes = explain_shard(snapshot, replace(shard, verdicts=verdicts), did)
                _add_incidents(causes, judged.change, drafts)
        self._objectives = view.objectives
        return {number: known.verdicts for number, known in self._shards.items() if known.verdicts}

    def _follow_layouts(
        self, view: ClusterView, *, is_ready: bool
    ) -> tuple[set[str], dict[str, Verdict], set[tuple[str, str]]]:
        """Takes over the groups and rows of the view's shards that are current.

        Returns new groups, deleted groups (with the last verdicts), and topics to which a group has no
        commits any more.
        """
        came: set[str] = set()
        left: dict[str, Verdict] = {}
        topics_left: set[tuple[str, str]] = set()
        shards, places = view.snapshot.shards, self._topics.follow_places(view.snapshot.partitions)
        # While history is read, koff finds groups that coordinators did not describe: these are not new.
        is_history_read = not view.stats.backfill_remaining
        for number, shard in shards.items():
            before = self._shards.get(number)
            if not _is_current(shard):
                continue
            if before is not None and before.layout is shard.layout:
                before.places = places
                continue
            known = self._shards[number] = KnownShard.create(shard, places)
            added: Iterable[int] = range(len(known.groups))
            if before is not None:
                difference = known.carry_over(before, self._topics.match_places(before.places))
                added = difference.added
                left |= difference.removed
                topics_left |= difference.left_topics
            elif (earlier := self._earlier.pop(number, None)) is not None:
                known.carry_judge(earlier, earlier.places.match(places))
            if (before is not None or self._is_complete) and is_history_read:
                came |= {known.groups[index].name for index in added}
        if is_ready and not view.stats.not_current:
            # All that there is was read: a shard that is not there has no groups.
            self._is_complete = True
            for number in self._shards.keys() - shards.keys():
                known = self._shards.pop(number)
                left |= {group.name: known.find_verdict(n) for n, group in enumerate(known.groups)}
            if is_history_read:
                self._earlier.clear()
        return came, left, topics_left


def _add_incidents(causes: ShardCauses, change: NDArray[np.uint8], drafts: Drafts) -> None:
    """Adds an event for each incident that was opened, raised or closed."""
    for number in np.flatnonzero(change).tolist():
        what = Change(change[number])
        severity = find_severity(what, Verdict(causes.verdicts.verdict[number]))
        drafts.add(INCIDENTS[what], severity, partial(describe_incident, causes, number, what))


def _is_current(shard: ShardSnapshot) -> bool:
    """Whether the shard has all its groups. The values of some may be withheld."""
    return not isinstance(shard.groups_current, bool) or shard.groups_current


def _compare_groups(
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
        elif has_other_members(before_group, group):
            drafts.add("members_changed", Severity.INFO, partial(describe_rebalance, before_group, group))


def _compare_commits(
    known: KnownShard,
    snapshot: Snapshot,
    shard: ShardSnapshot,
    drafts: Drafts,
    activity: ActivityLog,
    now_ms: int,
) -> None:
    """Finds committed offsets that have gone back."""
    committed, before = snapshot.committed(shard), known.committed
    # A commit to an earlier topic of that name is not compared, and neither is the next one with it.
    topic_id = snapshot.partitions.topic_id[shard.partition]
    is_old = is_topic_recreated(committed_topic_id=shard.topic_id, topic_id=topic_id)
    back = (committed >= 0) & (committed < before)
    if back.any():
        back &= ~is_old
        _add_by_group(
            "offsets_reset", Severity.WARNING, describe_reset, snapshot, shard, back, before, drafts
        )
        for row in np.flatnonzero(back)[:MOST_RESETS].tolist():
            place = describe_row(snapshot, shard, row)
            activity.note_reset(
                (place["group"], place["topic"], place["partition"]), int(before[row]), now_ms
            )
    known.committed = np.where(is_old, UNKNOWN, np.where(committed >= 0, committed, before))


def _compare_losses(known: KnownShard, snapshot: Snapshot, shard: ShardSnapshot, drafts: Drafts) -> None:
    """Finds partitions that have begun to lose records of which the commit is missing."""
    start = snapshot.partitions.start[shard.partition]
    is_known = snapshot.lags(shard).known & (start >= 0) & (shard.committed >= 0)
    lost = start > shard.committed
    new = is_known & lost & (known.lost == 0)
    if new.any():
        _add_by_group("records_lost", Severity.ERROR, describe_loss, snapshot, shard, new, start, drafts)
    known.lost = np.where(is_known, lost, known.lost).astype(np.int8)


def _add_by_group(
    kind: Kind,
    severity: Severity,
    describe: Callable[..., dict[str, Any]],
    snapshot: Snapshot,
    shard: ShardSnapshot,
    mask: NDArray[np.bool_],
    column: Ints,
    drafts: Drafts,
) -> None:
    """Adds an event for each group with rows in the mask. `describe` gets these rows, and the `column`."""
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(shard.group[rows], kind="stable")]
    firsts = np.flatnonzero(np.diff(shard.group[rows], prepend=-1)).tolist()
    for first, end in pairwise([*firsts, len(rows)]):
        drafts.add(kind, severity, partial(describe, snapshot, shard, rows[first:end], column))
