"""The owner of all that is known of one cluster. No I/O, no threads, no clock.

`Core.handle` takes one input, or only the time, and returns the requests that follow. Workers carry them out
and post the results as inputs. Nobody else touches the state, so there is no lock. A request that is not
completed in time is given up and sent again; what depends on it is withheld (`koff.monitor.confidence`).

Times: `Moment.at_s` never steps, and every interval here is measured by it. The tracker gets milliseconds
that count on from the wall clock at the start, and do not step either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from koff.monitor.confidence import build_view
from koff.monitor.core_conf import CoreConf
from koff.monitor.duties.end_offsets import EndOffsets
from koff.monitor.duties.end_times import EndTimes
from koff.monitor.duties.log_sizes import LogSizes
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import RecordAges
from koff.monitor.duties.retention import RecordRetention
from koff.monitor.duties.savings import Savings
from koff.monitor.duties.share_lags import ShareLags
from koff.monitor.duties.stored_groups import StoredGroups
from koff.monitor.duties.topics import RETRY_S, TopicList, TopicLists, TopicsFetched
from koff.monitor.internal_logs import InternalLogs
from koff.monitor.known_facts import (
    CurrentTime,
    ListFacts,
    MonitorProgress,
    ShareFacts,
    StoredFacts,
    ViewFacts,
)
from koff.monitor.moment import Moment
from koff.monitor.offsets_start import NO_GROUP
from koff.monitor.outbox import Duty, Event, Outbox, Pending, Shared
from koff.monitor.requests import Command, Display, Failed, Input, Polled, ReadFailed, Result, Unreachable
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView

PATIENCE_S = 60.0
"""So long, at most, history and ZooKeeper wait until the logs are read: a broker may be out of reach."""
LIST_AGAIN_S, MISSING_INTERVAL_S = 2.0, 10.0
"""The pause between two lists of topics while they contradict each other or there is no offsets topic; and
while there is no topic of share groups' state, or only the coordinators can be asked."""

HOLD_S = 5.0
"""How long one look holds back what is read after the logs were read."""


class Core:
    """Watches one cluster. See the module's docstring; only one thread may call it."""

    def __init__(self, conf: CoreConf, now: Moment) -> None:
        self.conf = conf
        self.tracker = Tracker()
        self.tracker.partitions.expect_samples(conf.end_interval_s)
        self.topics = TopicList()
        self.outbox = Outbox()
        self._began = now
        self.activity = RecentActivity(is_saved=conf.saves)
        shared = Shared(self.tracker, self.outbox, self._steady_ms)
        self._savings = Savings(
            now,
            shared,
            saves=conf.saves,
            read_log=lambda: self.logs.offsets,
            read_verdicts=lambda: self.activity.verdicts,
        )
        self.logs = InternalLogs(conf, shared, self._savings, self.topics, self.activity)
        self._lists = TopicLists(
            conf.topics_interval_s,
            self.outbox,
            self._find_wanted_topics,
            self._receive_topics,
            now,
            has_coordinators=conf.offsets_topic == OFFSETS_TOPIC,
            may_hide=conf.source != "log" and conf.only is None,
        )
        may_ask = conf.source != "log"
        self._share_lags = ShareLags(self.logs.share, self.logs.offsets, shared, may_ask=may_ask)
        self._ends = EndOffsets(shared, self.topics, conf.start_interval_s)
        self._ends.listener = self
        self.end_times = EndTimes(shared, self._ends, gap_ms=round(conf.limit_s * 1000))
        self._stored = StoredGroups(conf.zookeeper_interval_s, shared, limit_s=conf.limit_s)
        self._record_ages = RecordAges(conf.records_per_s, shared, self._ends)
        self._retention = RecordRetention(self.tracker, self.outbox, self._find_read_topics)
        self._log_sizes = LogSizes(conf.log_sizes_interval_s, self.outbox)
        # From the beginning; when the start is over; when the logs are read.
        self._first_duties: tuple[Duty, ...] = (self._lists, self.logs)
        self._further_duties: tuple[Duty, ...] = (self.logs.start.history, self._stored, self.end_times)
        self._last_duties: tuple[Duty, ...] = (self._record_ages, self._retention, self._log_sizes)
        self._sample_due_s = now.at_s
        self._was_read = self._was_ready = False
        # One look finds out how old the uncommitted records are: commits that come meanwhile wait.
        self._held: list[Polled] | None = [] if conf.tail else None
        self._hold_until_s = float("inf")
        self._display = Display()
        self._receive_display(conf.display)
        self._does_more = False  # history and ZooKeeper come after the start

    # --- What the owner's loop calls ---------------------------------------------------------------------

    def handle(self, given: Input | None, now: Moment) -> list[Command]:
        """Takes one input (None: only time has passed). Returns the requests that are due.

        No input raises: one that cannot be used is counted in `skipped`.
        """
        for each in self._select_inputs(given, now):
            try:
                self._receive(each, now)
            except Exception as error:  # no input may end the process
                self.outbox.skip(type(each).__name__, error, now)
        for late in self.outbox.remove_late(now):
            self._give_up(late, "no response in time", now)
        self._send_what_is_due(now)
        self.outbox.report_reach(now)
        return self.outbox.take_requests()

    def next_due_s(self) -> float:
        """When `handle` has to be called at the latest (`Moment.at_s`)."""
        due = [duty.due_s for duty in (*self._first_duties, *self._later_duties())]
        due += [self._sample_due_s, self.outbox.next_deadline_s()]
        due += [] if (new_s := self._ends.new_due_s()) is None else [new_s]
        due += [] if self._does_more else [self._began.at_s + PATIENCE_S]
        return min(due)

    @property
    def skipped(self) -> Mapping[str, int]:
        """How many inputs and records could not be used, by error."""
        return self.outbox.skipped

    @property
    def is_dated(self) -> bool:
        """Whether the ages of all uncommitted records are known, as far as requests for offsets by time tell.

        Requests that failed are sent again later; they do not count.
        """
        return self._does_more and self._ends.has_responses and self.end_times.is_settled

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be expected soon: all was requested, and had a response or failed."""
        has_responses = self._ends.has_responses and self._stored.is_known
        is_known = has_responses and self._share_lags.is_settled
        is_dated = self.is_dated and self._record_ages.is_settled
        return self._was_read and is_known and is_dated and self._retention.is_settled

    @property
    def refusal(self) -> str | None:
        """Why this user gets to know nothing, neither from the log nor from the coordinators; else None."""
        log = self.logs.offsets
        if log.exists is False and log.topic != OFFSETS_TOPIC:
            return f"there is no topic {log.topic}, or koff may not DESCRIBE it: check --offsets-topic"
        if log.denied is None or log.is_never_read or self._was_read:
            return None
        if self.conf.source == "log" or log.topic != OFFSETS_TOPIC:
            return log.denied
        return f"{log.denied}; {NO_GROUP}" if self.logs.start.is_refused else None

    def stop_holding(self) -> None:
        """One look has taken its view: from now on, all is taken as it comes."""
        self._hold_until_s = float("-inf")

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        return self.outbox.take_events()

    def take_view(self, now: Moment) -> ClusterView:
        """What may be served now."""
        now_ms = self._steady_ms(now)
        impossible = {f"impossible {what}": n for what, n in self.tracker.impossible_counts.items()}
        logs = self.logs
        facts = ViewFacts(
            cluster=self.conf.cluster_name or logs.start.saved.cluster_id,
            display=self._display,
            time=CurrentTime(now, now_ms - round(self.conf.limit_s * 1000), self._steady_ms),
            logs=logs.list_facts(self.topics),
            shares=ShareFacts(
                self.tracker.shares.described_ms,
                self.tracker.shares.find_groups_of(
                    self.topics.find_unlisted(self.tracker.shares.unlisted_topics)
                ),
                self._share_lags.find_missing_why(now.at_s - self.conf.limit_s),
            ),
            stored=StoredFacts(self._stored.current, self._stored.is_known, self._stored.refused),
            listed=ListFacts(
                self.topics.undoubted,
                self.topics.requested,
                self.topics.denied,
                replace(self._lists.list_facts(now), log_sizes=self._log_sizes.list_current(now)),
            ),
            progress=MonitorProgress(
                # Once koff was ready, it does not depend on this any more. It takes a look at each partition.
                ends_known=self._was_ready or (self._was_read and self._ends.has_responses),
                was_ready=self._was_ready,
                failure=self.outbox.failure,
                record_counts=self.tracker.record_counts.copy(),
                skipped={**self.outbox.skipped, **impossible},
                requests=dict(self.outbox.sent),
            ),
            activity=self.activity,
        )
        view = build_view(self.tracker.take_snapshot(now_ms), facts)
        self._was_ready = self._was_ready or view.readiness.ready
        return view

    def stop(self, now: Moment) -> list[Command]:
        """The last requests: what has to be saved before the process ends."""
        self.outbox.take_requests()
        self._savings.make_due()
        self._savings.request(now)
        return self.outbox.take_requests()

    # --- Inputs ------------------------------------------------------------------------------------------

    def _select_inputs(self, given: Input | None, now: Moment) -> list[Input]:
        """Returns the inputs to take now. Inputs that were held back come first."""
        given_now = [] if given is None else [given]
        if self._held is None or not self._was_read:
            return given_now
        if now.at_s < self._hold_until_s:
            self._held += [each for each in given_now if isinstance(each, Polled)]
            return [each for each in given_now if not isinstance(each, Polled)]
        held, self._held = self._held, None
        return [*held, *given_now]

    def _receive(self, given: Input, now: Moment) -> None:
        match given:
            case Polled():
                self.logs.receive_polled(given, now)
            case ReadFailed():
                self.logs.receive_failure(given, now)
            case Display():
                self._receive_display(given)
            case Unreachable():
                self.outbox.note_unreachable(given.why, now)
                self._lists.hurry(now.at_s)  # any broker says more of the cause
            case Result() if (
                pending := self.outbox.find(given)
            ) is not None:  # else the request was given up
                self._receive_result(given, pending, now)

    def _receive_result(self, given: Result, pending: Pending[Any], now: Moment) -> None:
        if isinstance(given, Failed):
            self._give_up(pending, given.why, now, denied=given.denied)
            return
        self._note_outcome(pending, given.failure, now)
        try:
            pending.requester.receive(given, pending, now)
        except Exception:  # the request is sent again, as if it had failed
            self.outbox.close(given.id)
            pending.requester.give_up(pending, "its result cannot be used", now)
            raise

    def _give_up(self, pending: Pending[Any], why: str, now: Moment, *, denied: bool = False) -> None:
        if not denied:
            self._note_outcome(pending, why, now)
        pending.requester.give_up(pending, why, now)

    def _note_outcome(self, pending: Pending[Any], failure: str, now: Moment) -> None:
        if self.outbox.note_outcome(pending, failure):
            self._lists.hurry(now.at_s)  # does only this broker not respond? Any broker says it

    def _receive_display(self, display: Display) -> None:
        is_changed = display.names != self._display.names
        self._display = display
        if is_changed:  # else nothing is computed again
            self.tracker.show(display.names)
            self._keep_partitions()
            self._lists.show(display.names)

    def _keep_partitions(self) -> None:
        """Watches all topics that are shown, if koff is to do so."""
        if not self.conf.watches_all:
            return
        own, names = {log.topic for log in self.logs.both}, self._display.names
        self.tracker.keep_partitions(
            (name, partition)
            for name, topic in self.topics.topics.items()
            if topic is not None and name not in own and names.shows_topic(name)
            for partition in range(topic.partitions)
        )

    def _receive_topics(self, given: TopicsFetched, requested: Moment, now: Moment) -> float:
        """Takes a list of topics. Returns in how many seconds the next list is due."""
        logs = self.logs
        logs.start.saved.note_cluster(given.cluster_id, now)
        wanted, denied = self._find_wanted_topics(), given.facts.denied
        changed = self.topics.note(
            given.topics, requested, wanted=wanted, alive=logs.find_alive(), denied=denied
        )
        self.topics.forget_unwanted(wanted)
        if changed:
            known = self.topics.topics.items()
            ids = {name: topic.id for name, topic in known if topic and topic.id}
            self.tracker.identify_topics(ids)
            self.end_times.note_topics(ids)
            self._keep_partitions()
            self._ends.forget_gone()
            self._ends.sample(now, everything=False)
        elif denied:
            self._ends.forget_gone()
        logs.receive_topics(changed, given.topics, self.topics, now)
        self._place_groups()
        if self.topics.is_doubtful or not (logs.offsets.exists or logs.offsets.is_hidden):
            return LIST_AGAIN_S
        if not logs.offsets.exists or not logs.share.exists:
            return min(self.conf.topics_interval_s, MISSING_INTERVAL_S)
        return self.conf.topics_interval_s

    def note_samples(
        self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment, *, new: bool
    ) -> None:
        """The tracker has sampled offsets. `new`: there are new end offsets among them."""
        if new:
            self.end_times.note_samples(now, final=given.final)
            self._record_ages.note_samples()
        self.end_times.receive_bounds(given, pending, now)
        self._place_groups()

    def give_up_samples(self, pending: Pending[FetchOffsets]) -> None:
        """There are no more sampled offsets of that request."""
        self.end_times.give_up_bounds(pending)

    # --- Requests ----------------------------------------------------------------------------------------

    def _later_duties(self) -> Iterator[Duty]:
        """What koff asks for at present besides the first duties."""
        further = self._further_duties if self._does_more else ()
        return chain(further, self._last_duties if self._was_read else (), (self._savings,))

    def _send_what_is_due(self, now: Moment) -> None:
        listed_s = self.topics.requested.at_s if self.topics.requested else now.at_s
        if self.logs.lost_s > listed_s:
            self._lists.hurry(max(listed_s, self._lists.sent_s) + RETRY_S)
        for duty in self._first_duties:
            duty.request(now)
        self._sample(now)
        self._does_more |= self._was_read or now.at_s >= self._began.at_s + PATIENCE_S
        for duty in self._later_duties():
            duty.request(now)

    def _find_wanted_topics(self) -> frozenset[str]:
        """The topics that groups refer to, and those that are read."""
        return frozenset({topic for topic, _ in self._ends.watched} | {log.topic for log in self.logs.both})

    def _find_read_topics(self) -> frozenset[str]:
        """The topics that groups refer to, that exist, and that koff may DESCRIBE."""
        topics, own = self.topics, {log.topic for log in self.logs.both}
        wanted = self._find_wanted_topics() - own - topics.denied
        return frozenset(name for name in wanted if topics.topics.get(name) is not None)

    def _sample(self, now: Moment) -> None:
        """Requests end offsets when they are due, and those of new partitions soon."""
        is_first = not self._was_read and self.logs.is_read
        if is_first:
            self._was_read, self._hold_until_s = True, now.at_s + HOLD_S
            self._sample_due_s = now.at_s  # what was requested before does not make koff ready
            self._ends.forget_responses()
            self.outbox.note(now, "the log is read", seconds=round(now.at_s - self._began.at_s, 3))
        due, new_s = now.at_s >= self._sample_due_s, self._ends.new_due_s()
        if due:
            self._sample_due_s = now.at_s + self.conf.end_interval_s
            self.logs.sample(now, interval_s=self.conf.end_interval_s)
            self._share_lags.request(now)
        if due or (new_s is not None and now.at_s >= new_s):
            self._ends.sample(now, everything=due)
            unknown = self._ends.unknown_topics() | self._find_doubtful_topics()
            again_s = self.topics.list_again_s(unknown, LIST_AGAIN_S, now)
            self._lists.hurry(now.at_s if unknown and is_first else again_s)

    def _find_doubtful_topics(self) -> set[str]:
        """The topics that may have been created since the last list: some commits to them are newer."""
        listed = self.topics.undoubted
        if listed is None:
            return set()
        return self.tracker.find_doubtful_topics(self._steady_ms(listed)) - self.topics.denied

    # --- Small things ------------------------------------------------------------------------------------

    def _place_groups(self) -> None:
        count, last_written = self.logs.offsets.partition_count, self.logs.offsets.last_written
        self.tracker.set_offsets_partitions(count, last_written=last_written)

    def _steady_ms(self, moment: Moment) -> int:
        return self._began.wall_ms + round((moment.at_s - self._began.at_s) * 1000)
