"""How the partitions of the offsets topic begin, and are completed: saved state, coordinators, history."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.duties.groups import PATIENCE_S, FetchGroups, GroupsFetched
from koff.monitor.duties.history import CommitHistory
from koff.monitor.duties.loading import SavedState
from koff.monitor.duties.retention import TombstoneRetention
from koff.monitor.duties.savings import Savings
from koff.monitor.duties.topics import TopicList
from koff.monitor.followed_log import FollowedLog
from koff.monitor.known_groups import NO_SUCH_GROUP, NOT_COORDINATOR, DeniedGroups, KnownGroups, LeftTopics
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.plan import Plan, Replay, Resume, Seed, Source, Way, plan_start
from koff.monitor.requests import Read, StopReading
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Described
from koff.tracker.commit_columns import CommitColumns, split_by_offsets_partition
from koff.tracker.given_commits import find_left_topics

LONG_DENIAL_S = 30.0
"""After a denial of so long, partitions begin again instead of reading all that was written meanwhile."""
GROUPS_TIMEOUT_S = 30.0
MAY_READ = "the topic may be read again"
NO_GROUP = "the coordinators describe no group: there is none, or koff may not DESCRIBE groups"
LACKS_GROUPS = "the coordinators describe fewer groups than before: may koff DESCRIBE all groups?"
GROWN = "its coordinator may have groups by an earlier partition count: the topic may have grown"
NOWHERE = -1


class OffsetsStart:
    """Begins each partition of the offsets topic as planned, and asks the coordinators where that helps."""

    def __init__(
        self,
        way: Way,
        log: FollowedLog,
        saved: SavedState,
        shared: Shared,
        savings: Savings,
        topics: TopicList,
        tail: int,
    ) -> None:
        self._tracker, self._outbox, self._steady_ms = shared
        self._way, self._tail, self.saved, self._topics = way, tail, saved, topics
        self._log, self._savings = log, savings
        self.retention = TombstoneRetention(log.topic, shared.outbox)
        self._to_seed: set[int] = set()
        self._to_replay: set[int] = set()
        # Partitions that responses have removed groups from while the topic may not be read.
        self._reduced: set[int] = set()
        self.history = CommitHistory(log, shared.tracker, shared.outbox)
        self._has_seen_group = False
        # How many groups the results of the first request have had; None once it has all of them.
        self._described_groups: int | None = 0
        self.is_refused = False
        """Whether the topic may not be read, and the coordinators describe no group either."""
        self.known_groups = KnownGroups(log, shared.tracker)
        self.left_topics, self.denied_groups = LeftTopics(topics), DeniedGroups(shared.outbox)

    def forget(self, partition: int) -> None:
        """The partition is not what it was: neither what was saved of it, nor its history, is of use."""
        self.history.forget(partition)
        self.saved.forget(partition)
        self._to_seed.discard(partition)
        self._to_replay.discard(partition)
        self._reduced.discard(partition)

    def begin_partitions(self, now: Moment) -> None:
        """Requests what plans depend on; begins the partitions whose bounds are known."""
        outbox = self._outbox
        if self._log.is_hidden:
            self._begin_hidden(now)
        if not self._log.exists:
            return
        self.retention.request(now)
        self.saved.request(now)
        bounds, saved = self._log.bounds(), self.saved.partitions
        if not bounds or saved is None:
            return
        if self._way == "resume" and self.retention.is_first_requested:
            return
        plans = plan_start(
            self._way,
            saved,
            bounds,
            # The wall clock may have been set since koff began: the longer pause is the safe one.
            now._replace(wall_ms=max(now.wall_ms, self._steady_ms(now))),
            delete_retention_ms=self.retention.retention_ms,
            may_seed=self._log.topic == OFFSETS_TOPIC,
            tail=self._tail,
        )
        for number in self._to_seed & plans.keys():
            if bounds[number].stable > bounds[number].start:
                plans[number] = Seed(bounds[number].stable, MAY_READ)
        for number in self._to_replay & plans.keys():
            self._tracker.reset_partition(number)
            plans[number] = Replay(bounds[number].start, MAY_READ)
        if self._log.is_never_read and not any(self._log.reading()):
            # At the start, an empty partition does not show that there is no group: brokers may use an
            # earlier partition count.
            why = self._log.denied or ""
            plans = {number: Seed(bounds[number].stable, why) for number in plans}
        self._to_seed -= plans.keys()
        self._to_replay -= plans.keys()
        plans = {number: self._restore(number, plan, now) for number, plan in plans.items()}
        starts = self._log.begin(plans, now)
        if not self._log.is_never_read:
            outbox.command(Read(self._log.topic, starts))
        seeds = frozenset(number for number, plan in plans.items() if isinstance(plan, Seed))
        self.known_groups.forget_dropped(plans.keys() - seeds)
        if seeds:
            self._fetch_groups(seeds, now)
        self._note_ways(plans.values(), now)

    def hide_absent_topic(self, source: Source, only: ChosenPartitions | None, now: Moment) -> None:
        """If the topic is absent, the coordinators are asked: koff may only not be allowed to DESCRIBE it.

        Not if `only` some partitions are wanted: which groups belong to them is not known.
        """
        log = self._log
        may_ask = source != "log" and only is None and log.topic == OFFSETS_TOPIC
        if may_ask and log.exists is False and not log.is_hidden:
            why = f"the list of topics lacks {log.topic}: it does not exist, or koff may not DESCRIBE it"
            log.hide(why)
            self._outbox.note(now, "the coordinators are asked about all groups", why=why)

    def seed_after_denial(self, now: Moment) -> None:
        """The topic may be read again, after a time in which the coordinators were asked.

        After a long time, all records since then would wait in memory until the reader has passed what the
        responses contain. So partitions that have such a response begin again, with a new one. So do those
        that a response has removed groups from: while koff may not describe the topic, the response does not
        say which coordinators it lacks, and what it lacks may be before the position.

        If the topic has grown, responses may have had groups that were in other partitions then. So all
        partitions are read from their start.
        """
        log, again = self._log, set(self._reduced)
        self.denied_groups.clear()
        if log.denied_since_s is not None and now.at_s - log.denied_since_s >= LONG_DENIAL_S:
            again |= {number for number, part in log.reading() if part.is_overtaken}
        self._reduced.clear()
        has_grown = self._tracker.places.has_grown
        if has_grown:
            again = {number for number, _ in log.reading()}
        if again:
            self._outbox.command(StopReading(log.topic, frozenset(again)))
            (self._to_replay if has_grown else self._to_seed).update(again)
            for number in again:
                log.reset(number)

    def _begin_hidden(self, now: Moment) -> None:
        """Begins the one partition that stands for all of a topic that is absent in the list of topics."""
        plans: dict[int, Plan] = {
            number: Seed(0, self._log.denied or "")
            for number, part in self._log.partitions.items()
            if not part.is_reading
        }
        if plans:
            self._log.begin(plans, now)
            self._fetch_groups(frozenset(plans), now)

    def fetch_held_back(self, now: Moment, older_than_s: float) -> None:
        """Asks the coordinators for partitions that cannot be read on.

        That is: an open transaction has held them back since `older_than_s`, or the topic may not be read.
        """
        is_denied = self._log.denied is not None
        being_fetched = self._outbox.list_waiting(FetchGroups)
        held_back = {
            number: part
            for number, part in self._log.reading()
            if is_denied or (part.is_held_back and (part.current is None or part.current.at_s < older_than_s))
            if number not in being_fetched
        }
        if held_back and self._log.topic == OFFSETS_TOPIC:
            for part in held_back.values():
                part.wait()
            self._fetch_groups(frozenset(held_back), now)

    # --- Results -----------------------------------------------------------------------------------------

    def receive(self, given: GroupsFetched, pending: Pending[FetchGroups], now: Moment) -> None:
        """Takes a response of coordinators, for partitions that start with it or are held back."""
        self._tracker.name_topics(given.topic_ids)
        self._report_groups(given, pending, now)
        not_reset = self._find_not_reset(pending)
        concerned = not_reset if given.partitions is None else not_reset & given.partitions
        pending.without_groups &= not_reset
        self._has_seen_group |= bool(given.groups)
        seeds = {p for p in concerned if self._log.partitions[p].is_unseeded}
        unusable = {p: why for p, why in given.incomplete.items() if p in concerned}
        is_denied = self._log.denied is not None
        # Only the log says which partition these groups are in.
        unusable |= dict.fromkeys(self.known_groups.find_earlier_places(given.elsewhere, seeds), GROWN)
        is_refused = is_denied and not self._has_seen_group
        is_suspect = is_refused if is_denied else seeds == concerned
        if not given.groups and is_suspect and not self._log.is_never_read:
            # One coordinator may well have no group: wait for the others.
            pending.without_groups |= concerned - unusable.keys()
            concerned &= unusable.keys()
        if given.final and pending.without_groups:
            concerned |= pending.without_groups
            seeds = {p for p in concerned if self._log.partitions[p].is_unseeded}
            unusable |= {} if self._has_seen_group else dict.fromkeys(pending.without_groups, NO_GROUP)
        self.is_refused = is_refused and given.final
        count, elsewhere = max(self._log.partition_count, 1), self._tracker.find_groups_elsewhere()
        failed: dict[int, set[str]] = {}
        for name, why in given.failed.items():
            if why not in {NO_SUCH_GROUP, NOT_COORDINATOR}:
                failed.setdefault(elsewhere.get(name, group_partition(name, count)), set()).add(name)
        if not is_denied:
            # A partition that can be read from its start needs no response that lacks some of its groups.
            unusable |= dict.fromkeys(seeds & failed.keys() - unusable.keys(), "its coordinator failed")
        for number, missing in self.known_groups.find_missing(
            concerned - unusable.keys(), given, now
        ).items():
            if number not in seeds:
                failed.setdefault(number, set()).update(missing)
            elif not self._log.is_never_read:
                unusable[number] = LACKS_GROUPS  # what the tracker has of these groups is too old to be kept
        good = concerned - unusable.keys()
        elsewhere = self._keep_unplaced(given, pending, good, elsewhere, failed)
        if seeds & good:
            seen_at_ms = self._steady_ms(now)
            self._tracker.seed_partitions(
                given.commits, given.groups, count, seeds & good, seen_at_ms=seen_at_ms
            )
            self.known_groups.forget_dropped(seeds & good)
        if self._log.denied is not None and not self._log.is_never_read:
            kept = given.groups.keys() | set().union(*failed.values())
            self._reduced |= {p for p in good - seeds if self._tracker.group_names(p) - kept}
        if good - seeds:
            self._overwrite(good - seeds, given, pending, failed, elsewhere, now)
        self.denied_groups.note(good if is_denied else (), failed, given.failed, now)
        for number in sorted(good):
            self._log.partitions[number].note_seed(pending.requested, now, sorted(failed.get(number, ())))
        pending.waiting -= concerned
        self._stop_asking(unusable, now)

    def give_up(self, pending: Pending[FetchGroups], why: str, now: Moment) -> None:
        self._stop_asking(dict.fromkeys(self._find_not_reset(pending), why), now)

    def _report_groups(self, given: GroupsFetched, pending: Pending[FetchGroups], now: Moment) -> None:
        """Adds an event once the first request for groups has all its results."""
        if self._described_groups is None:
            return
        self._described_groups += len(given.groups)
        if given.final:
            seconds = round(now.at_s - pending.requested.at_s, 3)
            groups, self._described_groups = self._described_groups, None
            self._outbox.note(now, "the coordinators have responded", groups=groups, seconds=seconds)

    def _keep_unplaced(
        self,
        given: GroupsFetched,
        pending: Pending[FetchGroups],
        good: Collection[int],
        elsewhere: Mapping[str, int],
        failed: dict[int, set[str]],
    ) -> Mapping[str, int]:
        """Adds groups to `failed` that may have moved, or may be in a partition of which nothing is known.

        Returns where groups are that are not in the partition of their hash.
        """
        count = max(self._log.partition_count, 1)
        for name, number in elsewhere.items():  # it may have moved to a partition of which nothing is known
            if group_partition(name, count) not in good and name not in given.groups:
                failed.setdefault(number, set()).add(name)
        if not pending.request.together or self._log.denied is not None:
            return elsewhere
        unplaced = self.known_groups.find_unplaced(given.groups.keys() - elsewhere.keys())
        for name in unplaced:
            failed.setdefault(group_partition(name, count), set()).add(name)
        return {**dict.fromkeys(unplaced, NOWHERE), **elsewhere}

    def _overwrite(
        self,
        partitions: Collection[int],
        given: GroupsFetched,
        pending: Pending[FetchGroups],
        failed: dict[int, set[str]],
        elsewhere: Mapping[str, int],
        now: Moment,
    ) -> None:
        """Makes the state of these partitions equal to the response, but for the groups in `failed`.

        Adds groups to `failed` whose commits to a topic are missing, if koff may not DESCRIBE it, perhaps.
        The groups in `elsewhere` stay in these partitions: where a group is, only the log says. In another
        partition, the records of a group that begins anew there would be added to its earlier ones. For the
        same reason, a group that is hidden stays hidden.
        """
        count = max(self._log.partition_count, 1)
        if self._log.denied is None:
            elsewhere = {**dict.fromkeys(self._tracker.places.find_hidden(), NOWHERE), **elsewhere}
        commits = dict(split_by_offsets_partition(given.commits, count, elsewhere))
        groups: dict[int, dict[str, Described]] = {}
        for name, group in given.groups.items():
            number = elsewhere.get(name, group_partition(name, count))
            groups.setdefault(number, {})[name] = group
        for number in sorted(partitions):
            own = commits.get(number) or CommitColumns.from_offsets({})
            left = find_left_topics(self._tracker.shards[number].rows, own, failed.get(number, ()))
            missing = left.keys() - set(given.commits.topics)
            for topic in self.left_topics.find_unsure(number, missing, pending.requested, now):
                failed.setdefault(number, set()).update(left[topic] & given.groups.keys())
            self._tracker.shards[number].overwrite(
                own,
                groups.get(number, {}),
                failed.get(number, ()),
                seen_at_ms=self._steady_ms(now),
                kept_topics=self._topics.denied,
            )

    def _restore(self, number: int, plan: Plan, now: Moment) -> Plan:
        """Carries out a plan to restore a saved state. Returns the next best plan if that fails."""
        if isinstance(plan, Resume):
            try:
                self.saved.forget(number)
                # All of it was read before this process began. Saved times may be by another clock.
                self._tracker.restore_partition(number, plan.saved.state, seen_at_ms=0)
            except Exception as error:  # any damage that a checksum does not show
                self._tracker.reset_partition(number)
                self._outbox.skip("saved state", error, now)
                return Replay(self._log.partitions[number].start or 0, "its saved state is damaged")
            self._savings.note_resumed(number, plan.saved, self._tracker.version(number))
        return plan

    def _fetch_groups(self, partitions: frozenset[int], now: Moment) -> None:
        together = self._tracker.places.may_be_elsewhere or bool(self._tracker.find_groups_elsewhere())
        log = self._log
        request_id = self._outbox.next_id()
        # A poll must not outlast the limit: then all groups would be withheld because of one coordinator.
        patience_s = PATIENCE_S
        is_start = any(log.partitions[number].is_unseeded for number in partitions)
        if not is_start:
            patience_s = min(patience_s, log.live_s / 2)
        known: set[str] = set()
        if is_start or log.denied is not None:  # else the log says which groups there are
            known.update(*self.known_groups.find_known(partitions).values())
        request = FetchGroups(
            request_id,
            partitions,
            log.partition_count,
            together,
            log.find_empty(),
            frozenset(known),
            patience_s,
        )
        self._outbox.send(request, self, now, GROUPS_TIMEOUT_S, self._log.resets())

    def _find_not_reset(self, pending: Pending[FetchGroups]) -> set[int]:
        """The partitions of the request that wait for it, and were not forgotten since it was sent."""
        return {
            number
            for number in pending.request.partitions
            if (part := self._log.partitions.get(number)) is not None
            and part.is_waiting
            and number in pending.waiting
            and pending.resets.get((self._log.topic, number)) == part.resets
        }

    def _stop_asking(self, reasons: Mapping[int, str], now: Moment) -> None:
        """The coordinators returned nothing about these: those that wait to begin are read from their start.

        `reasons` says why, by partition.
        """
        replays: dict[int, Plan] = {}
        for number, why in sorted(reasons.items()):
            if not self._log.partitions[number].is_unseeded:
                self._log.stop_asking(number)
            elif not self._log.is_never_read:  # else the coordinators are asked again
                self._log.reset(number, keep_bounds=True)
                self._tracker.reset_partition(number)
                replays[number] = Replay(self._log.partitions[number].start or 0, why)
        if replays:
            self.known_groups.forget_dropped(replays)
            self._note_ways(replays.values(), now)
            self._outbox.command(Read(self._log.topic, self._log.begin(replays, now)))

    def _note_ways(self, plans: Iterable[Plan], now: Moment) -> None:
        ways = Counter(
            (type(plan).__name__.lower(), "" if isinstance(plan, Resume) else plan.why) for plan in plans
        )
        for (way, why), count in ways.items():
            self._outbox.note(now, f"partitions start: {way}", partitions=count, why=why)
