"""The owner of all that is known of one cluster. No I/O, no threads, no clock.

`Core.handle` takes one input, or only the time, and returns the requests that follow. Workers carry them out
and post the results as inputs. Nobody else touches the state, so there is no lock. A request that is not
answered in time is given up and sent again; what depends on it is withheld (`koff.monitor.confidence`).

Times: `Moment.at_s` never steps, and every interval here is measured by it. The tracker gets milliseconds
that count on from the wall clock at the start, and do not step either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from koff.monitor.confidence import build_view
from koff.monitor.core_conf import CoreConf
from koff.monitor.end_offsets import EndOffsets
from koff.monitor.end_times import EndTimes
from koff.monitor.internal_logs import InternalLogs
from koff.monitor.known_facts import (
    CurrentTime,
    ListFacts,
    LogFacts,
    MonitorProgress,
    ShareFacts,
    StoredFacts,
    ViewFacts,
)
from koff.monitor.log_sizes import LogSizes
from koff.monitor.offsets_start import NO_GROUP
from koff.monitor.outbox import Ask, Event, Outbox
from koff.monitor.record_ages import RecordAges
from koff.monitor.record_retention import SETTINGS, RecordRetention
from koff.monitor.requests import (
    Display,
    Done,
    Failed,
    FetchGroups,
    FetchLogSizes,
    FetchOffsets,
    FetchShareLags,
    FetchStoredGroups,
    FetchTopicConfigs,
    FetchTopics,
    FirstRecordsRead,
    ForgetSaved,
    GroupsFetched,
    HistoryRead,
    Input,
    Load,
    Loaded,
    LogSizesFetched,
    Moment,
    OffsetsFetched,
    Polled,
    ReadFailed,
    ReadFirstRecords,
    ReadHistory,
    Request,
    Save,
    SaveFile,
    SaveIndex,
    ShareLagsFetched,
    StoredGroupsFetched,
    TopicConfigsFetched,
    TopicsFetched,
    Unreachable,
)
from koff.monitor.savings import Savings
from koff.monitor.share_lags import ShareLags
from koff.monitor.stored_groups import StoredGroups
from koff.monitor.topic_list import TopicList
from koff.records.topics import OFFSETS_TOPIC
from koff.tracker import Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterFacts, ClusterView

TIMEOUT_S, DISK_TIMEOUT_S = 10.0, 120.0
RETRY_S = 1.0
"""The pause before a failed request is sent again."""
PATIENCE_S = 60.0
"""So long, at most, history and ZooKeeper wait until the logs are read: a broker may be out of reach."""
LIST_AGAIN_S, MISSING_INTERVAL_S = 2.0, 10.0
"""The pause between two lists of topics while they contradict each other or there is no offsets topic; and
while there is no topic of share groups' state, or only the coordinators can be asked."""

HOLD_S = 5.0
"""How long one look holds back what is read after the logs were read."""
LISTS = 3
"""What a list says of brokers and topics is shown for so many intervals: a list may fail."""

_TO_THE_CLUSTER: Mapping[type[Request], str] = {
    FetchTopics: "topics",
    FetchOffsets: "offsets",
    FetchGroups: "groups",
    FetchShareLags: "share_lags",
    FetchTopicConfigs: "topic_configs",
    FetchLogSizes: "log_sizes",
    ReadHistory: "history",
}
"""The requests to the cluster, and what metrics call them."""


class Core:
    """Watches one cluster. See the module's docstring; only one thread may call it."""

    def __init__(self, conf: CoreConf, now: Moment) -> None:
        self.conf = conf
        self.tracker = Tracker()
        self.tracker.partitions.expect_samples(conf.end_interval_s)
        self.topics = TopicList()
        self.outbox = Outbox()
        self._began = now
        self._savings = Savings(now)
        self.logs = InternalLogs(conf, self.tracker, self._savings, self.outbox, self._steady_ms, self.topics)
        self._share_lags = ShareLags(
            self.logs.share, self.logs.offsets, self.tracker, self.outbox, asks=conf.source != "log"
        )
        self._ends = EndOffsets(self.tracker, self.topics, self.outbox, conf.start_interval_s)
        self.end_times = EndTimes(self.tracker, self.outbox, gap_ms=round(conf.limit_s * 1000))
        self._stored = StoredGroups(
            conf.zookeeper_interval_s, self.tracker, self.outbox, limit_s=conf.limit_s
        )
        self._record_ages = RecordAges(
            conf.records_per_s, self.tracker, self._ends, self.outbox, self._steady_ms
        )
        self._retention = RecordRetention(self.tracker, self.outbox, self._find_read_topics)
        self._log_sizes = LogSizes(conf.log_sizes_interval_s, self.outbox)
        self._topics_due_s = self._sample_due_s = now.at_s
        self._topics_sent_s = float("-inf")
        self._facts = self._shown_facts = ClusterFacts()
        self._facts_asked_s = float("-inf")
        self._was_read = self._was_ready = False
        # One look finds out how old the uncommitted records are: commits that come meanwhile wait.
        self._held: list[Polled] | None = [] if conf.tail else None
        self._hold_until_s = float("inf")
        self._activity = RecentActivity(is_saved=conf.saves)
        self._display = Display()
        self._receive_display(conf.display)
        self._does_more = False  # history and ZooKeeper come after the start

    # --- What the owner's loop calls ---------------------------------------------------------------------

    def handle(self, given: Input | None, now: Moment) -> list[Request]:
        """Takes one input (None: only time has passed). Returns the requests that are due.

        No input raises: one that cannot be used is counted in `skipped`.
        """
        for each in self._select_inputs(given, now):
            try:
                self._receive(each, now)
            except Exception as error:  # no input may end the process
                self.outbox.skip(type(each).__name__, error, now)
        for late in self.outbox.remove_late(now):
            self._note_failure(late, "no answer in time")
            self._give_up(late, "no answer in time", now)
        self._ask_for_what_is_due(now)
        self.outbox.report_reach(now)
        return self.outbox.take_requests()

    def next_due_s(self) -> float:
        """When `handle` has to be called at the latest (`Moment.at_s`)."""
        due = [self._sample_due_s, self.outbox.next_deadline_s()]
        due += [] if self.outbox.has(FetchTopics) else [self._topics_due_s]
        due += [self._savings.due_s] if self.conf.saves else []
        due += [] if (new_s := self._ends.new_due_s()) is None else [new_s]
        more = [self.logs.start.next_due_s(), self._stored.due_s, self.end_times.due_s]
        due += more if self._does_more else [self._began.at_s + PATIENCE_S]
        later = [self._record_ages.due_s, self._retention.due_s, self._log_sizes.due_s]
        due += later if self._was_read else []
        return min(*due, self.logs.next_due_s())

    @property
    def skipped(self) -> Mapping[str, int]:
        """How many inputs and records could not be used, by error."""
        return self.outbox.skipped

    @property
    def is_dated(self) -> bool:
        """Whether the ages of all uncommitted records are known, as far as requests for offsets by time tell.

        Requests that failed are sent again later; they do not count.
        """
        return self._does_more and self._ends.is_answered and self.end_times.is_settled

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be expected soon: all was requested, and was answered or failed."""
        is_answered = self._ends.is_answered and self._stored.is_known
        is_known = is_answered and self._share_lags.is_settled
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
        polls = logs.offsets.denied is not None and self.conf.source != "log"
        facts = ViewFacts(
            cluster=self.conf.cluster_name or self.conf.cluster_id,
            display=self._display,
            time=CurrentTime(now, now_ms - round(self.conf.limit_s * 1000), self._steady_ms),
            logs=LogFacts(
                logs.offsets,
                logs.share,
                source="coordinators" if polls else "log",
                doubtful_topics=logs.find_doubtful(self.topics),
                elsewhere=self.tracker.find_groups_elsewhere(),
                history=logs.start.history.replayed,
                denied_groups=logs.start.denied_groups.count,
            ),
            shares=ShareFacts(
                self.tracker.shares.described_ms,
                self.tracker.shares.find_groups_of(
                    self.topics.find_unanswered(self.tracker.shares.unlisted_topics)
                ),
                self._share_lags.find_missing_why(now.at_s - self.conf.limit_s),
            ),
            stored=StoredFacts(self._stored.current, self._stored.is_known, self._stored.refused),
            listed=ListFacts(
                self.topics.undoubted, self.topics.asked, self.topics.denied, self._list_facts(now)
            ),
            progress=MonitorProgress(
                # Once koff was ready, it does not depend on this any more. It takes a look at each partition.
                ends_answered=self._was_ready or (self._was_read and self._ends.is_answered),
                was_ready=self._was_ready,
                failure=self.outbox.failure,
                record_counts=self.tracker.record_counts.copy(),
                skipped={**self.outbox.skipped, **impossible},
                requests=self._count_requests(),
            ),
            activity=self._activity,
        )
        view = build_view(self.tracker.take_snapshot(now_ms), facts)
        self._was_ready = self._was_ready or view.readiness.ready
        return view

    def stop(self, now: Moment) -> list[Request]:
        """The last requests: what has to be saved before the process ends."""
        self.outbox.take_requests()
        self._savings.make_due()
        self._save(now)
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
                return
            case ReadFailed():
                self.logs.receive_failure(given, now)
                return
            case Display():
                self._receive_display(given)
                return
            case Unreachable():
                self.outbox.note_unreachable(given.why, now)
                self._topics_due_s = min(self._topics_due_s, now.at_s)  # any broker says more of the cause
                return
            case (
                OffsetsFetched(final=False)
                | GroupsFetched(final=False)
                | ShareLagsFetched(final=False)
                | LogSizesFetched(final=False)
                | HistoryRead(final=False)
            ):
                ask = self.outbox.get(given.id)
            case _:
                ask = self.outbox.close(given.id)
        if ask is None:
            return  # the request was given up
        if isinstance(given, Failed):
            if not given.denied:
                self._note_failure(ask, given.why)
            self._give_up(ask, given.why, now)
            return
        try:
            self._receive_result(given, ask, now)
        except Exception:  # the request is sent again, as if it had failed
            self.outbox.close(ask.request.id)
            self._give_up(ask, "its result cannot be used", now)
            raise

    def _receive_display(self, display: Display) -> None:
        is_changed = display.names != self._display.names
        self._display = display
        if is_changed:  # else nothing is computed again
            self.tracker.show(display.names)
            self._keep_partitions()
        self._show_facts()

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

    def _show_facts(self) -> None:
        """Selects what is shown of the listed topics."""
        names, facts = self._display.names, self._facts
        if names.topics:
            shown = {topic: each for topic, each in facts.topics.items() if names.shows_topic(topic)}
            facts = replace(facts, topics=shown)
        self._shown_facts = facts

    def _receive_result(self, given: Input, ask: Ask[Any], now: Moment) -> None:
        match given, ask.request:
            case TopicsFetched(), FetchTopics():
                self.outbox.note_answer(ask.asked)
                self._receive_topics(given, ask.asked, now)
            case OffsetsFetched(), FetchOffsets():
                self._receive_offsets(given, ask, now)
            case LogSizesFetched(), FetchLogSizes():
                self._log_sizes.receive(given, ask.asked, now)
            case TopicConfigsFetched(), FetchTopicConfigs():
                self._receive_configs(given, ask, now)
            case GroupsFetched(), FetchGroups():
                if len(given.incomplete) < len(given.partitions or ask.request.partitions):
                    self.outbox.note_answer(ask.asked)
                self.logs.receive_groups(given, ask, now)
            case ShareLagsFetched(), FetchShareLags():
                self._share_lags.receive(given, ask, self._steady_ms(ask.asked), now)
            case Loaded(), Load():
                self.logs.start.receive_loaded(given, ask, now)
                self._activity.saved_verdicts = given.verdicts
            case HistoryRead(), _:
                self.logs.start.receive_history(given, ask, now)
            case StoredGroupsFetched(), _:
                self._stored.receive(given, ask.asked, now, self._steady_ms(now))
            case FirstRecordsRead(), ReadFirstRecords():
                self._record_ages.receive(given, ask, now)
            case Done(), _:
                self._note_saved(given, ask.request, now)

    def _note_saved(self, given: Done, request: Request, now: Moment) -> None:
        if self._savings.note_done(request, is_emptied=given.is_emptied):
            self.outbox.note(now, "state is saved again")

    def _note_failure(self, ask: Ask[Any], why: str) -> None:
        """Notes that the cluster did not answer, if the request was to the cluster."""
        if type(ask.request) in _TO_THE_CLUSTER:
            self.outbox.note_failure(why, ask.asked, names_cause=isinstance(ask.request, FetchTopics))

    def _give_up(self, ask: Ask[Any], why: str, now: Moment) -> None:
        """A request failed, or was not answered in time."""
        match request := ask.request:
            case FetchTopics():
                self._topics_due_s = min(self._topics_due_s, now.at_s + RETRY_S)
            case FetchOffsets():
                self._ends.give_up(ask)
                self.end_times.give_up(ask, now, self._steady_ms(now))
            case FetchTopicConfigs():
                self._retention.give_up(ask, now)
            case FetchGroups():
                self.logs.start.give_up_groups(ask, why, now)
            case FetchShareLags():
                self._share_lags.give_up(ask, why, now)
            case Load():
                self.logs.start.receive_loaded(Failed(request.id, why), ask, now)
            case ReadHistory():
                self.logs.start.give_up_history(request, now)
            case FetchStoredGroups():
                self._stored.give_up(ask.asked, why, now)
            case ReadFirstRecords():
                self._record_ages.give_up(ask, now)
            case Save() | SaveIndex() | SaveFile() | ForgetSaved():
                if self._savings.note_failed(request, now):
                    self.outbox.note(now, "state is not saved", warn=True, why=why)

    def _receive_topics(self, given: TopicsFetched, asked: Moment, now: Moment) -> None:
        logs = self.logs
        self._facts, self._facts_asked_s = given.facts, asked.at_s
        if logs.offsets.topic != OFFSETS_TOPIC:  # a copy: the groups are those of another cluster
            self._facts = replace(given.facts, coordinators=())
        self._show_facts()
        wanted, denied = self._find_wanted_topics(), given.facts.denied
        changed = self.topics.note(given.topics, asked, wanted=wanted, alive=logs.find_alive(), denied=denied)
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
        pause_s = self.conf.topics_interval_s
        if self.topics.is_doubtful or not (logs.offsets.exists or logs.offsets.is_hidden):
            pause_s = LIST_AGAIN_S
        elif not logs.offsets.exists or not logs.share.exists:
            pause_s = min(pause_s, MISSING_INTERVAL_S)
        self._topics_due_s = now.at_s + pause_s

    def _receive_configs(self, given: TopicConfigsFetched, ask: Ask[FetchTopicConfigs], now: Moment) -> None:
        if ask.request.names == SETTINGS:
            self._retention.receive(given, ask, now)
        else:
            self.logs.receive_retention(given)

    def _receive_offsets(self, given: OffsetsFetched, ask: Ask[FetchOffsets], now: Moment) -> None:
        ask.waiting.difference_update(given.offsets)
        errors = [offset for offset in given.offsets.values() if isinstance(offset, str)]
        if len(errors) < len(given.offsets):
            self.outbox.note_answer(ask.asked)
        elif errors:
            self._note_failure(ask, errors[0])
        if isinstance(ask.request.kind, int):
            self.end_times.receive(ask, given.offsets, now, self._steady_ms(now), final=given.final)
            return
        if given.final:
            self._ends.give_up(ask)
        self.logs.receive_offsets(given, ask)
        if self._ends.receive(ask, given.offsets, self._steady_ms(ask.asked)):
            self.end_times.note_samples(now, final=given.final)
            self._record_ages.note_samples()
        doubted = self._ends.doubted
        self.end_times.receive_bounds(ask, given.offsets, now, doubted=doubted, final=given.final)
        self._place_groups()

    # --- Requests ----------------------------------------------------------------------------------------

    def _ask_for_what_is_due(self, now: Moment) -> None:
        listed_s = self.topics.asked.at_s if self.topics.asked else now.at_s
        if self.logs.lost_s > listed_s:
            again_s = max(listed_s, self._topics_sent_s) + RETRY_S
            self._topics_due_s = min(self._topics_due_s, again_s)
        if now.at_s >= self._topics_due_s and not self.outbox.has(FetchTopics):
            self.outbox.send(FetchTopics(self.outbox.next_id(), self._find_wanted_topics()), now, TIMEOUT_S)
            self._topics_sent_s = now.at_s
            self._topics_due_s = now.at_s + self.conf.topics_interval_s
        self.logs.request(now)
        self._sample(now)
        self._does_more |= self._was_read or now.at_s >= self._began.at_s + PATIENCE_S
        if self._does_more:
            self.logs.start.read_history(now)
            self._stored.request(now)
        self._date(now)
        if self._was_read:
            self._record_ages.request(now)
            self._retention.request(now)
            self._log_sizes.request(now)
        self._save(now)

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
            self._ends.forget_answers()
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
            self._topics_due_s = min(self._topics_due_s, now.at_s if unknown and is_first else again_s)

    def _find_doubtful_topics(self) -> set[str]:
        """The topics that may have been created since the last list: some commits to them are newer."""
        listed = self.topics.undoubted
        if listed is None:
            return set()
        return self.tracker.find_doubtful_topics(self._steady_ms(listed)) - self.topics.denied

    def _date(self, now: Moment) -> None:
        """Requests offsets by time, once the logs are read: commits that are half read change soon."""
        self.end_times.forget(self._ends.take_dropped())
        if self._does_more:
            self.end_times.request(now, self._steady_ms(now), self._ends.believed)

    def _save(self, now: Moment) -> None:
        if self.conf.saves:
            next_id, ends_ms = self.outbox.next_id, self._steady_ms(now)
            verdicts = self._activity.verdicts
            for request in self._savings.collect(
                now, self.logs.offsets, self.tracker, next_id, ends_ms, verdicts
            ):
                self.outbox.send(request, now, DISK_TIMEOUT_S)

    def _count_requests(self) -> dict[str, int]:
        kinds = {**_TO_THE_CLUSTER, ReadFirstRecords: "first_records"}
        return {name: n for kind, name in kinds.items() if (n := self.outbox.sent[kind.__name__])}

    def _list_facts(self, now: Moment) -> ClusterFacts:
        if not self._is_list_current(now):
            return ClusterFacts()
        return replace(self._shown_facts, log_sizes=self._log_sizes.list_current(now))

    def _is_list_current(self, now: Moment) -> bool:
        return now.at_s - self._facts_asked_s <= LISTS * self.conf.topics_interval_s

    # --- Small things ------------------------------------------------------------------------------------

    def _place_groups(self) -> None:
        count, last_written = self.logs.offsets.partition_count, self.logs.offsets.last_written
        self.tracker.set_offsets_partitions(count, last_written=last_written)

    def _steady_ms(self, moment: Moment) -> int:
        return self._began.wall_ms + round((moment.at_s - self._began.at_s) * 1000)
