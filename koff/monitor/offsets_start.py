"""How the partitions of the offsets topic begin, and are completed: saved state, coordinators, history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from koff.errors import KoffError
from koff.monitor.commit_history import CommitHistory
from koff.monitor.followed_log import FollowedLog
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.plan import Plan, Replay, Resume, Seed, Way, plan_start
from koff.monitor.requests import (
    Failed,
    FetchGroups,
    FetchRetention,
    GroupsFetched,
    HistoryRead,
    Load,
    Loaded,
    Moment,
    Origin,
    Read,
    ReadHistory,
    Saved,
)
from koff.monitor.resume_rules import measure_pause_ms
from koff.monitor.savings import Savings
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Described, State, Tracker
from koff.tracker.seeds import Seed as Commits
from koff.tracker.seeds import split_by_offsets_partition

ASSUMED_RETENTION_MS = 3_600_000
"""What delete.retention.ms is taken for while it is unknown: Kafka's default is a day."""
RETENTION_RETRY_S = 10.0
RETENTION_TIMEOUT_S, LOAD_TIMEOUT_S, GROUPS_TIMEOUT_S, HISTORY_TIMEOUT_S = 10.0, 30.0, 30.0, 60.0


class OffsetsStart:
    """Begins each partition of the offsets topic as planned, and asks the coordinators where that helps."""

    def __init__(
        self, way: Way, cluster_id: str, log: FollowedLog, tracker: Tracker, savings: Savings, outbox: Outbox
    ) -> None:
        self._way, self._cluster_id = way, cluster_id
        self._log, self._tracker, self._savings, self._outbox = log, tracker, savings, outbox
        self._saved: dict[int, Saved | str] | None = None if way == "resume" else {}
        self._retention_ms: int | None = None
        self._retention_due_s = float("-inf")
        self._retention_requests = 0
        self.history = CommitHistory()

    @property
    def retention_s(self) -> float:
        """How long a deletion can be seen in the offsets topic, at the least."""
        return (self._retention_ms or ASSUMED_RETENTION_MS) / 1000

    @property
    def origin(self) -> Origin | None:
        """The topic as it is; None while there is none."""
        log = self._log
        if not log.exists:
            return None
        return Origin(self._cluster_id, log.topic, log.topic_id, log.partition_count)

    def forget(self, partition: int) -> None:
        """The partition is not what it was: neither what was saved of it, nor its history, is of use."""
        self.history.forget(partition)
        if self._saved is not None:
            self._saved.pop(partition, None)

    def begin_partitions(self, now: Moment) -> None:
        """Requests what plans depend on; begins the partitions whose bounds are known."""
        origin, outbox = self.origin, self._outbox
        if origin is None:
            return
        if self._retention_ms is None and now.at_s >= self._retention_due_s:
            self._retention_due_s = now.at_s + RETENTION_RETRY_S
            self._retention_requests += 1
            request = FetchRetention(outbox.next_id(), self._log.topic)
            outbox.send(request, now, RETENTION_TIMEOUT_S)
        if self._saved is None and not outbox.has(Load):
            outbox.send(Load(outbox.next_id(), origin), now, LOAD_TIMEOUT_S)
        bounds = self._log.bounds()
        # A retention that is not known soon is assumed.
        is_asking = self._retention_requests == 1 and outbox.has(FetchRetention)
        if not bounds or self._saved is None or (is_asking and self._way == "resume"):
            return
        plans = plan_start(
            self._way,
            self._saved,
            bounds,
            now,
            delete_retention_ms=round(self.retention_s * 1000),
            may_seed=self._log.topic == OFFSETS_TOPIC,
        )
        plans = {number: self._restore(number, plan, now) for number, plan in plans.items()}
        starts = self._log.begin(plans, now)
        if not self._log.is_never_read:
            outbox.command(Read(self._log.topic, starts))
        seeds = frozenset(number for number, plan in plans.items() if isinstance(plan, Seed))
        if seeds:
            self._fetch_groups(seeds, now)
        for (way, why), count in _count_ways(plans.values()).items():
            outbox.note(now, f"partitions start: {way}", partitions=count, why=why)

    def ask_stuck(self, now: Moment, older_than_s: float) -> None:
        """Asks the coordinators for partitions that cannot be read on.

        That is: an open transaction has held them back since `older_than_s`, or the topic may not be read.
        """
        is_denied = self._log.denied is not None
        stuck = {
            number: part
            for number, part in self._log.reading()
            if is_denied or (part.is_held_back and (part.current is None or part.current.at_s < older_than_s))
        }
        if stuck and self._log.topic == OFFSETS_TOPIC and not self._outbox.has(FetchGroups):
            for part in stuck.values():
                part.wait()
            self._fetch_groups(frozenset(stuck), now)

    def read_history(self, now: Moment) -> None:
        """Reads, one partition after the other, the logs before the coordinators' response."""
        number = self._find_without_history() if self.history.is_free(now) else None
        if number is not None:
            part, shard = self._log.partitions[number], self._tracker.create_shard()
            request = self.history.begin(self._outbox.next_id(), self._log.topic, number, part, shard)
            self._outbox.send(request, now, HISTORY_TIMEOUT_S)

    def _find_without_history(self) -> int | None:
        """A partition whose history can be read, and is needed."""
        if self._log.denied is not None:
            return None
        found = [
            number
            for number, part in self._log.reading()
            if part.needs_history and not part.is_waiting and number not in self._log.leaderless
        ]
        return min(found, key=self.history.failed_s, default=None)

    def next_due_s(self) -> float:
        """When `begin_partitions` or `read_history` has something to do; infinite if that is unknown."""
        due = self._retention_due_s if self._retention_ms is None and self._log.exists else float("inf")
        return due if self._find_without_history() is None else min(due, self.history.due_s)

    # --- Results -----------------------------------------------------------------------------------------

    def take_retention(self, delete_retention_ms: int) -> None:
        """Takes delete.retention.ms of the offsets topic."""
        self._retention_ms = delete_retention_ms

    def take_loaded(self, given: Loaded | Failed, ask: Ask[Load], now: Moment, now_ms: int) -> None:
        """Takes what was saved. `now_ms` is now by the clock of the tracker's end offsets."""
        self._saved = {}
        if isinstance(given, Failed) or ask.request.origin != self.origin:
            useless = given.why if isinstance(given, Failed) else "the offsets topic has changed"
            self._outbox.note(now, "the saved state is not used", warn=True, why=useless)
            return
        self._saved = dict(given.partitions)
        if not isinstance(given.ends, str):
            why = self._restore_ends(given.ends, given.ends_stamp, now, now_ms)
            if why is not None:
                self._outbox.note(now, "saved end offsets are not used", why=why)

    def _restore_ends(self, ends: State, stamp: Moment | None, now: Moment, now_ms: int) -> str | None:
        """Gives saved end offsets to the tracker. Returns why not, or None."""
        pause_ms = None if stamp is None else max(0, round(measure_pause_ms(stamp, now)))
        try:
            return self._tracker.restore_ends(ends, now_ms=now_ms, pause_ms=pause_ms)
        except ValueError as error:  # the state was loaded late: end offsets were sampled before
            return str(error)
        except (KoffError, LookupError, TypeError) as error:
            return f"they are damaged: {error}"

    def take_groups(self, given: GroupsFetched, ask: Ask[FetchGroups], now: Moment) -> list[int]:
        """Takes the coordinators' response: for partitions that start with it, and those that are held back.

        Returns the partitions that use it: their high watermarks have to be requested now.
        """
        self._tracker.identify_topics(given.topic_ids)
        asked_for = self._same_lives(ask)
        seeds = {p for p in asked_for if self._log.partitions[p].is_unseeded}
        unusable = "; ".join(given.incomplete)
        if not unusable and not given.groups and seeds == asked_for and not self._log.is_never_read:
            unusable = "the coordinators describe no group: there is none, or koff may not DESCRIBE groups"
        count = max(self._log.partition_count, 1)
        failed: dict[int, set[str]] = {}
        for name in given.failed:
            failed.setdefault(group_partition(name, count), set()).add(name)
        useless: set[int] = set()
        if self._log.denied is None:
            # A partition that can be read from its start needs no response that lacks some of its groups. In
            # the others, a group that is missing may be one that koff may not DESCRIBE: the log will say.
            useless = seeds & failed.keys()
            for number in asked_for - seeds:
                missing = self._tracker.group_names(number) - given.groups.keys()
                failed.setdefault(number, set()).update(missing)
        good = set() if unusable else asked_for - useless
        if seeds & good:
            self._tracker.seed_partitions(given.commits, given.groups, count, seeds & good)
        if good - seeds:
            self._overwrite(good - seeds, given, failed, count)
        for number in sorted(good):
            self._log.partitions[number].note_seed(ask.asked, now, sorted(failed.get(number, ())))
        self._stop_asking(asked_for - good, unusable or "its coordinator failed", now)
        return sorted(good)

    def _overwrite(
        self,
        partitions: Collection[int],
        given: GroupsFetched,
        failed: Mapping[int, Collection[str]],
        count: int,
    ) -> None:
        """Makes the state of these partitions equal to the response, but for the groups in `failed`."""
        commits = dict(split_by_offsets_partition(given.commits, count))
        groups: dict[int, dict[str, Described]] = {}
        for name, group in given.groups.items():
            groups.setdefault(group_partition(name, count), {})[name] = group
        places = {name: p for p in self._log.partitions for name in self._tracker.group_names(p)}
        for number in sorted(partitions):
            own = commits.get(number) or Commits.from_offsets({})
            described = groups.get(number, {})
            # After the topic has grown, coordinators may still have a group in its earlier partition.
            elsewhere = {name for name in described if places.get(name, number) != number}
            if elsewhere - self._tracker.group_names(number):
                elsewhere -= self._tracker.group_names(number)
                own = _leave_out(own, elsewhere)
                described = {name: group for name, group in described.items() if name not in elsewhere}
            self._tracker.overwrite_commits(number, own, described, failed.get(number, ()))

    def give_up_groups(self, ask: Ask[FetchGroups], why: str, now: Moment) -> None:
        """There is no response of the coordinators."""
        self._stop_asking(self._same_lives(ask), why, now)

    def take_history(self, given: HistoryRead, ask: Ask[ReadHistory], now: Moment) -> bool:
        """Takes a part of a partition's history. Returns whether that was the last."""
        ask.deadline_s = now.at_s + HISTORY_TIMEOUT_S
        done = self.history.take(given)
        if done is None:
            return False
        part = self._log.partitions.get(done.partition)
        if part is not None and part.life == done.life and not part.is_waiting:
            self._tracker.replace_shard(done.partition, done.shard)
            part.needs_history = False
        return True

    def give_up_history(self, request: ReadHistory, now: Moment) -> None:
        """The history of a partition cannot be read at present."""
        if self.history.is_of(request):
            self.history.fail(now)

    def _restore(self, number: int, plan: Plan, now: Moment) -> Plan:
        """Carries out a plan to restore a saved state. Returns the next best plan if that fails."""
        if isinstance(plan, Resume):
            try:
                self._saved = {p: saved for p, saved in (self._saved or {}).items() if p != number}
                self._tracker.restore_partition(number, plan.saved.state)
            except Exception as error:  # any damage that a checksum does not show
                self._tracker.reset_partition(number)
                self._outbox.skip("saved state", error, now)
                return Replay(self._log.partitions[number].start or 0, "its saved state is damaged")
            self._savings.note_resumed(number, plan.saved, self._tracker.version(number))
        return plan

    def _fetch_groups(self, partitions: frozenset[int], now: Moment) -> None:
        request = FetchGroups(self._outbox.next_id(), partitions, self._log.partition_count)
        self._outbox.send(request, now, GROUPS_TIMEOUT_S, self._log.positions())

    def _same_lives(self, ask: Ask[FetchGroups]) -> set[int]:
        """The partitions of the request that wait for it, and were not forgotten since it was sent."""
        return {
            number
            for number in ask.request.partitions
            if (part := self._log.partitions.get(number)) is not None
            and part.is_waiting
            and ask.positions.get((self._log.topic, number), (-1, -1))[0] == part.life
        }

    def _stop_asking(self, partitions: Iterable[int], why: str, now: Moment) -> None:
        """The coordinators did not answer for these: those that wait to begin are read from their start."""
        replays: dict[int, Plan] = {}
        for number in sorted(partitions):
            if not self._log.partitions[number].is_unseeded:
                self._log.stop_asking(number, now)
            elif not self._log.is_never_read:  # else the coordinators are asked again
                self._log.reset(number, keep_bounds=True)
                replays[number] = Replay(self._log.partitions[number].start or 0, why)
        if replays:
            self._outbox.note(now, "partitions start: replay", partitions=len(replays), why=why)
            self._outbox.command(Read(self._log.topic, self._log.begin(replays, now)))


def _leave_out(commits: Commits, groups: Collection[str]) -> Commits:
    kept = np.array([name not in groups for name in commits.groups], np.bool_)
    return commits if kept.all() else Commits.select_rows(commits, np.flatnonzero(kept[commits.group]))


def _count_ways(plans: Iterable[Plan]) -> Mapping[tuple[str, str], int]:
    return Counter(
        (type(plan).__name__.lower(), "" if isinstance(plan, Resume) else plan.why) for plan in plans
    )
