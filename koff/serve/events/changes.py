"""What has changed from one view of a cluster to the next, as events. No I/O, no clock.

Numbers that are withheld are not compared: what was known before stays. So a cluster that koff cannot see for
a while gives no false event, and a change during that time gives one. The first view gives no event but the
incidents of groups that are late already.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.verdict import Verdict
from koff.lag.verdict_sample import sum_rows
from koff.serve.events.event import ClusterEvent, Severity
from koff.serve.events.known import UNKNOWN, KnownShard, restore_verdicts, save_verdicts
from koff.serve.events.known_topics import KnownTopics
from koff.serve.events.sentences import (
    Drafts,
    add_end,
    add_incident,
    describe_group,
    describe_topic,
    name_owner,
)
from koff.serve.events.shard_changes import compare_commits, compare_groups, compare_losses, compare_skips
from koff.tracker import Objective, ShardSnapshot, ShownNames, State
from koff.view.activity import ActivityLog, ClusterActivity, ShardVerdicts
from koff.view.causes import explain_shard
from koff.view.cluster_view import ClusterView
from koff.view.group_sums import find_longest_time_lags, sum_lags
from koff.view.incidents import IncidentLog, build_key
from koff.view.verdict_samples import build_sample, find_objectives
from koff.view.verdicts import attach_verdicts
from koff.view.wording import show, show_duration

SAVE_MS = 300_000
"""So often what the verdicts depend on is handed over to be saved; and when an incident begins or ends."""


def look_at(
    view: ClusterView, changes: "ClusterChanges", now_ms: int
) -> tuple[ClusterView, list[ClusterEvent]]:
    """The view with the verdicts of this look at it, and what has changed since the last one.

    A cluster that was not reached yet has no verdicts.
    """
    if view.cluster is None:
        return view, []
    events = changes.compare(view, now_ms)
    snapshot = attach_verdicts(view.snapshot, view.activity.current.verdicts)
    return replace(view, snapshot=snapshot), events


class ClusterChanges:
    """Compares the views of one cluster. Not thread-safe."""

    def __init__(self, incidents: IncidentLog | None = None) -> None:
        self.incidents = incidents or IncidentLog()
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

    def save(self) -> State:
        """What the verdicts depend on, for `RecentActivity.saved_verdicts` of another process."""
        return save_verdicts(self._shards, self.incidents)

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
        view.activity.unready_since_ms = None if why is None else view.activity.unready_since_ms or now_ms
        self._compare_readiness(view.cluster, why, now_ms, drafts)
        self._compare_expected(view.cluster, view.expected_groups, drafts)
        if view.snapshot.shards and view.shown != self._shown:
            self.restart()
            self._shown = view.shown
        view.activity.incidents = self.incidents
        # A cluster that koff does not reach has an empty view.
        if why is None or (view.snapshot.shards and not self._is_first):
            self._compare_snapshot(view, drafts, now_ms, is_ready=why is None)
            self._is_first = False
        return [name_owner(event, view) for event in drafts.build()]

    # --- The cluster -------------------------------------------------------------------------------------

    def _compare_readiness(self, cluster: str, why: str | None, now_ms: int, drafts: Drafts) -> None:
        """A cluster that was never ready is not blind: koff starts to watch it."""
        key = build_key(cluster, "blind")
        if why is None and self._is_ready is False:
            seconds = max(0, now_ms - self._blind_since_ms) / 1000
            text = f"cluster {show(cluster)}: koff is ready again, after {show_duration(seconds)}"
            fields = {"text": text, "details": {"seconds": seconds}, "key": key, "ends": Severity.ERROR}
            drafts.add("recovered", Severity.INFO, partial(dict, fields))
        elif why is not None and self._is_ready:
            self._blind_since_ms = now_ms
            text = f"cluster {show(cluster)}: koff is not ready: {why}"
            fields = {"text": text, "details": {"why": why}, "key": key}
            drafts.add("blind", Severity.ERROR, partial(dict, fields))
        if why is None or self._is_ready is not None:
            self._is_ready = why is None

    def _compare_expected(self, cluster: str, present: Mapping[str, bool], drafts: Drafts) -> None:
        for name, is_present in present.items():
            if self._expected.get(name, is_present) == is_present:
                continue
            fields: dict[str, Any] = {"key": build_key(cluster, "expected", name)}
            if is_present:
                fields |= describe_group(name, "it is expected, and is back") | {"ends": Severity.ERROR}
                drafts.add("expected_group_back", Severity.INFO, partial(dict, fields))
            else:
                fields |= describe_group(name, "it is expected, and is absent")
                drafts.add("expected_group_absent", Severity.ERROR, partial(dict, fields))
        self._expected |= present

    # --- Groups ------------------------------------------------------------------------------------------

    def _compare_snapshot(self, view: ClusterView, drafts: Drafts, now_ms: int, *, is_ready: bool) -> None:
        self._take_saved(view, now_ms)
        # While history is read, a commit may be an old one, and a group that is found is not new.
        is_history_read = not view.stats.backfill_remaining
        # Which groups and rows there are: then all columns can be compared.
        topics_left = self._compare_layouts(view, drafts, is_ready=is_ready)
        # Topics, before commits: a topic that was created again has other offsets.
        self._compare_topics(view, topics_left, drafts)
        if is_ready and is_history_read and not view.stats.not_current:
            self._end_missing(drafts, now_ms)
        did = (drafts, self._activity) if is_history_read else (Drafts(""), ActivityLog())
        steady_ms = view.snapshot.now_ms or now_ms  # what was lately stays so, whoever sets the clock
        for number, current in view.snapshot.shards.items():
            if _is_current(current):
                known = self._shards[number]
                compare_groups(known, view, number, drafts, self._activity, steady_ms)
                compare_commits(known, view.snapshot, current, *did, steady_ms)
                compare_losses(known, view.snapshot, current, drafts)
        # Set at once, with the verdicts: other threads read it.
        activity = self._activity.build(steady_ms)
        view.activity.current = replace(activity, verdicts=self._judge(view, activity, drafts, now_ms))
        self._save(view, now_ms)
        self._add_to_history(view, now_ms)

    def _compare_layouts(self, view: ClusterView, drafts: Drafts, *, is_ready: bool) -> set[tuple[str, str]]:
        """Finds groups that came and left. Returns topics to which a group has no commits any more."""
        came, left, topics_left = self._follow_layouts(view, is_ready=is_ready)
        for name in came & left.keys():  # groups that have moved to another shard
            came.remove(name)
            del left[name]
        for name in sorted(came):
            drafts.add("group_appeared", Severity.INFO, partial(describe_group, name, "it is new"))
        for name, verdict in left.items():
            build = partial(describe_group, name, "it was deleted", status=verdict.name)
            drafts.add("group_deleted", Severity.INFO, build)
        self._activity.forget(groups=left.keys())
        return topics_left

    def _compare_topics(self, view: ClusterView, topics_left: set[tuple[str, str]], drafts: Drafts) -> None:
        changed = self._topics.compare(view, self._shards, topics_left)
        for group, topic in changed.deleted:
            drafts.add("topic_deleted", Severity.WARNING, partial(describe_topic, group, topic, "deleted"))
        for group, topic in changed.recreated:
            build = partial(describe_topic, group, topic, "created again")
            drafts.add("topic_recreated", Severity.WARNING, build)
        self._activity.forget(topics=set(changed.recreated))
        for known in self._shards.values():
            if self._topics.has_numbers(known):
                known.committed[changed.new_logs[known.partition]] = UNKNOWN

    def _end_missing(self, drafts: Drafts, now_ms: int) -> None:
        """Ends the incidents of groups that are not there any more."""
        if self.incidents.open:
            present = {group.name for known in self._shards.values() for group in known.groups}
            for incident in self.incidents.close_missing(present, now_ms):
                add_end(incident, "it is not there any more", drafts)
                self._saved_ms = 0

    def _take_saved(self, view: ClusterView, now_ms: int) -> None:
        """Takes over what an earlier process has saved of its verdicts, once."""
        saved, view.activity.saved_verdicts = view.activity.saved_verdicts, None
        if saved is None or not self._is_first:
            return
        with suppress(
            LookupError, TypeError, ValueError
        ):  # the saved state is damaged: koff starts without it
            self._earlier = restore_verdicts(saved, self.incidents, now_ms) | self._earlier

    def _save(self, view: ClusterView, now_ms: int) -> None:
        """Hands over what is to be saved, now and then."""
        if view.activity.is_saved and now_ms - self._saved_ms >= SAVE_MS:
            self._saved_ms = now_ms
            view.activity.verdicts = self.save()

    def _judge(
        self, view: ClusterView, did: ClusterActivity, drafts: Drafts, now_ms: int
    ) -> dict[int, ShardVerdicts]:
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
                wants_rates=known.judge.has_new,
                now_s=snapshot.now_ms / 1000,
            )
            judged = known.judge.judge(sample)
            verdicts = GroupVerdicts.build(judged)
            known.verdicts = ShardVerdicts(
                shard.layout, shard.groups, shard.group, shard.partition, sample.at_s, verdicts
            )
            compare_skips(known, snapshot, shard, judged, sample.subscribed, drafts)
            lost = np.where(judged.lost, sample.start - sample.committed, 0)
            sums = sum_lags(snapshot, shard), sum_rows(lost, shard.group, len(shard.groups))
            causes = None
            for told in self.incidents.follow(str(view.cluster), shard.groups, judged, *sums, now_ms):
                causes = causes or explain_shard(snapshot, replace(shard, verdicts=verdicts), did)
                add_incident(causes, told, now_ms, drafts)
                self._saved_ms = 0
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

    def _add_to_history(self, view: ClusterView, now_ms: int) -> None:
        snapshot = view.snapshot
        shards = {number: shard for number, shard in snapshot.shards.items() if _is_current(shard)}
        names = [group.name for shard in shards.values() for group in shard.groups]
        if names:
            lags = np.concatenate([sum_lags(snapshot, shard) for shard in shards.values()])
            time_lags_s = np.concatenate(
                [find_longest_time_lags(snapshot, shard) for shard in shards.values()]
            )
            consumed = np.concatenate([self._shards[number].consumed for number in shards])
            is_whole = view.readiness.ready and not view.stats.withheld and not view.stats.not_current
            view.activity.history.add(names, lags, time_lags_s, consumed, now_ms, is_whole=is_whole)


def _is_current(shard: ShardSnapshot) -> bool:
    """Whether the shard has all its groups. The values of some may be withheld."""
    return not isinstance(shard.groups_current, bool) or shard.groups_current
