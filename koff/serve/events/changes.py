"""What has changed from one view of a cluster to the next, as events. No I/O, no clock.

Numbers that are withheld are not compared: what was known before stays. So a cluster that koff cannot see for
a while gives no false event, and a change during that time gives one. A status that koff does not know
(UNKNOWN) counts as withheld. The first view gives no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import Status, is_topic_recreated
from koff.serve.activity import MOST_RESETS, ActivityLog, UsualRates
from koff.serve.cause_texts import ADVICE, describe_causes
from koff.serve.causes import find_shard_causes, sum_produce_rates
from koff.serve.events.event import ClusterEvent, Kind, Severity
from koff.serve.events.known import UNKNOWN, Ints, KnownShard
from koff.serve.events.known_topics import KnownTopics
from koff.serve.events.sentences import (
    Drafts,
    describe_group,
    describe_loss,
    describe_rebalance,
    describe_reset,
    describe_row,
    describe_status,
    describe_topic,
    find_severity,
    has_other_members,
)
from koff.serve.group_sums import find_longest_time_lags, sum_lags
from koff.serve.view import ClusterView
from koff.serve.wording import show, show_duration
from koff.tracker import ShardSnapshot, ShownNames, Snapshot
from koff.tracker.groups.views import UNKNOWN as UNKNOWN_STATE


class ClusterChanges:
    """Compares the views of one cluster. Not thread-safe."""

    def __init__(self) -> None:
        self._is_ready: bool | None = None
        self._blind_since_ms = 0
        self._expected: dict[str, bool] = {}
        self._shown = ShownNames()
        self._statuses: dict[str, int] = {}
        self._activity = ActivityLog()
        self._begin()

    def _begin(self) -> None:
        self._is_first = True
        self._is_complete = False
        self._shards: dict[int, KnownShard] = {}
        self._topics = KnownTopics()

    def restart(self) -> None:
        """Begins again: the monitor of the cluster was started again, or it shows other groups.

        Statuses, the presence of expected groups and the readiness stay known: people were told of them.
        """
        for shard in self._shards.values():
            self._statuses |= zip((group.name for group in shard.groups), shard.status.tolist(), strict=True)
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
        # Which groups and rows there are: then all columns can be compared.
        came, left, topics_left = self._follow_layouts(view, is_ready=is_ready)
        for name in came.keys() & left.keys():  # groups that have moved to another shard
            shard, number = came.pop(name)
            shard.status[number] = left.pop(name)
        for name in came:
            drafts.add("group_appeared", Severity.INFO, partial(describe_group, name, "it is new"))
        for name, status in left.items():
            build = partial(describe_group, name, "it was deleted", status=Status(status).name)
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
                known.usual_rate.add(sum_produce_rates(snapshot, current), now_ms)
        usual_rates = {
            number: UsualRates(known.layout, known.usual_rate.known())
            for number, known in self._shards.items()
        }
        view.activity.current = self._activity.build(usual_rates, now_ms)
        shards = [shard for shard in snapshot.shards.values() if _is_current(shard)]
        names = [group.name for shard in shards for group in shard.groups]
        if names:
            lags = np.concatenate([sum_lags(snapshot, shard) for shard in shards])
            time_lags_s = np.concatenate([find_longest_time_lags(snapshot, shard) for shard in shards])
            is_whole = view.readiness.ready and not view.stats.withheld and not view.stats.not_current
            view.activity.history.add(names, lags, time_lags_s, now_ms, is_whole=is_whole)

    def _follow_layouts(
        self, view: ClusterView, *, is_ready: bool
    ) -> tuple[dict[str, tuple[KnownShard, int]], dict[str, int], set[tuple[str, str]]]:
        """Takes over the groups and rows of the view's shards that are current.

        Returns new groups (with their places), deleted groups (with their last statuses), and topics to which
        a group has no commits any more.
        """
        came: dict[str, tuple[KnownShard, int]] = {}
        left: dict[str, int] = {}
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
            is_known = (before is not None or self._is_complete) and is_history_read
            for index in added:
                name = known.groups[index].name
                if (status := self._statuses.pop(name, None)) is not None:
                    known.status[index] = status
                elif is_known:
                    known.status[index] = Status.NOTFOUND
                    came[name] = known, index
        if is_ready and not view.stats.not_current:
            # All that there is was read: a shard that is not there has no groups.
            self._is_complete = True
            for number in self._shards.keys() - shards.keys():
                known = self._shards.pop(number)
                names = (group.name for group in known.groups)
                left |= zip(names, known.status.tolist(), strict=True)
            if is_history_read:
                self._statuses.clear()
        return came, left, topics_left


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
    """Compares statuses, epochs and members of the groups in the shard `place`."""
    snapshot, shard = view.snapshot, view.snapshot.shards[place]
    statuses = snapshot.group_statuses(shard)
    is_known = statuses != Status.UNKNOWN
    changed = is_known & (known.status != Status.UNKNOWN) & (statuses != known.status)
    for number in np.flatnonzero(changed).tolist():
        before, now = int(known.status[number]), int(statuses[number])
        build = partial(_describe_status, view, place, number, before, now)
        drafts.add("status_changed", find_severity(now), build)
    known.status = np.where(is_known, statuses, known.status)
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


def _describe_status(view: ClusterView, place: int, number: int, before: int, now: int) -> dict[str, Any]:
    """The fields of a status that has changed, with the likely causes of the lag."""
    fields = describe_status(view.snapshot, view.snapshot.shards[place], number, before, now)
    found = describe_causes(find_shard_causes(view, place), number) or ()
    causes = [{"cause": each.cause.label, "text": each.text, "advice": ADVICE[each.cause]} for each in found]
    return {**fields, "details": {**fields["details"], "causes": causes}}


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
