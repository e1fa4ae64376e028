"""The owner of all that is known of one cluster. No I/O, no threads, no clock.

`Core.handle` takes one input, or only the time, and returns the requests that follow. Workers carry them out
and post the results as inputs. Nobody else touches the state, so there is no lock. A request that is not
answered in time is given up and sent again; what depends on it is withheld (`koff.monitor.confidence`).

Times: `Moment.at_s` never steps, and every interval here is measured by it. The tracker gets milliseconds
that count on from the wall clock at the start, and do not step either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from koff.lag import UNKNOWN
from koff.monitor.confidence import ViewFacts, build_view
from koff.monitor.end_offsets import EndOffsets
from koff.monitor.end_times import EndTimes
from koff.monitor.exact_time_lags import ExactTimeLags
from koff.monitor.followed_log import Blobs, FollowedLog
from koff.monitor.offsets_start import NO_GROUP, OffsetsStart
from koff.monitor.outbox import Ask, Event, Outbox
from koff.monitor.plan import Replay, Source, Way
from koff.monitor.requests import (
    Done,
    Failed,
    FetchGroups,
    FetchOffsets,
    FetchRetention,
    FetchStoredGroups,
    FetchTopics,
    FirstRecordsRead,
    ForgetSaved,
    GroupsFetched,
    HistoryRead,
    Input,
    Load,
    Loaded,
    Moment,
    OffsetKind,
    OffsetsFetched,
    Polled,
    Read,
    ReadFailed,
    ReadFirstRecords,
    ReadHistory,
    Request,
    RetentionFetched,
    Save,
    SaveEnds,
    SaveIndex,
    StopReading,
    StoredGroupsFetched,
    TopicsFetched,
    Unreachable,
)
from koff.monitor.savings import Savings
from koff.monitor.stored_groups import StoredGroups
from koff.monitor.topic_list import TopicList
from koff.monitor.topic_retention import TopicRetention
from koff.records.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from koff.serve.view import ClusterView
from koff.tracker import Tracker

RETENTION_PART = 0.9
"""A partition that was not current for this part of delete.retention.ms is read anew."""
SHORTEST_RETENTION_S = 30.0
"""Compaction looks for work every 15 s, and removes a tombstone in its second pass at the earliest."""
TIMEOUT_S, DISK_TIMEOUT_S = 10.0, 120.0
RETRY_S = 1.0
"""The pause before a failed request is sent again."""
PATIENCE_S = 60.0
"""So long, at most, history and ZooKeeper wait until the logs are read: a broker may be out of reach."""
LIST_AGAIN_S, MISSING_INTERVAL_S = 2.0, 10.0
"""The pause between two lists of topics while they contradict each other or there is no offsets topic; and
while there is no topic of share groups' state, or only the coordinators can be asked."""
_BOUNDS: tuple[OffsetKind, ...] = ("start", "stable")
_WATERMARKS: tuple[OffsetKind, ...] = ("end", "stable")


@dataclass(frozen=True, slots=True)
class CoreConf:
    """How the core of a monitor works.

    `cluster_name` is the name of the cluster in views, by default its id.

    `source` is where commits come from: the log, or responses of the coordinators to requests that are sent
    again and again. "auto": from the coordinators while the log may not be read.

    `limit_intervals`: a lag is served if both its sides were true within so many `end_interval_s`.
    `only` restricts the partitions of the offsets topic. With `saves`, the state is saved. With
    `zookeeper_interval_s`, groups of ZooKeeper are requested that often.

    `exact_groups` chooses the groups whose lag in seconds is exact, and `exact_per_s` is how many records a
    second are read for it; None: all at once, and once for each row (`ExactTimeLags`).
    """

    cluster_id: str = ""
    cluster_name: str = ""
    start: Way = "snapshot"
    source: Source = "auto"
    saves: bool = False
    offsets_topic: str = OFFSETS_TOPIC
    only: frozenset[int] | None = None
    zookeeper_interval_s: float | None = None
    end_interval_s: float = 5.0
    start_interval_s: float = 60.0
    topics_interval_s: float = 30.0
    limit_intervals: int = 5
    exact_groups: re.Pattern[str] | None = None
    exact_per_s: int | None = 50

    @property
    def limit_s(self) -> float:
        """How old the two sides of a served lag may be."""
        return self.limit_intervals * self.end_interval_s


class Core:
    """Watches one cluster. See the module's docstring; only one thread may call it."""

    def __init__(self, conf: CoreConf, now: Moment) -> None:
        self.conf = conf
        self.tracker = Tracker()
        self.topics = TopicList()
        live_s = conf.limit_s
        self.offsets = FollowedLog(conf.offsets_topic, self._apply_commits, conf.only, live_s=live_s)
        if conf.source == "coordinators":
            self.offsets.denied, self.offsets.is_never_read = "--source coordinators", True
        self.share = FollowedLog(SHARE_STATE_TOPIC, self._apply_share_state, live_s=live_s)
        self.outbox = Outbox()
        self._began = now
        self._savings = Savings(now)
        self._start = OffsetsStart(
            conf.start, conf.cluster_id, self.offsets, self.tracker, self._savings, self.outbox
        )
        self._share_retention = TopicRetention(SHARE_STATE_TOPIC, self.outbox)
        self._ends = EndOffsets(self.tracker, self.topics, self.outbox, conf.start_interval_s)
        self.end_times = EndTimes(self.tracker, self.outbox, gap_ms=round(conf.limit_s * 1000))
        self._stored = StoredGroups(
            conf.zookeeper_interval_s, self.tracker, self.outbox, limit_s=conf.limit_s
        )
        self._exact = ExactTimeLags(
            conf.exact_groups, conf.exact_per_s, self.tracker, self._ends, self.outbox
        )
        self._topics_due_s = self._sample_due_s = now.at_s
        self._topics_sent_s = float("-inf")
        self._was_read = self._was_ready = False
        self._does_more = False  # history and ZooKeeper come after the start

    # --- What the owner's loop calls ---------------------------------------------------------------------

    def handle(self, given: Input | None, now: Moment) -> list[Request]:
        """Takes one input (None: only time has passed). Returns the requests that are due.

        No input raises: one that cannot be used is counted in `skipped`.
        """
        if given is not None:
            try:
                self._take(given, now)
            except Exception as error:  # no input may end the process
                self.outbox.skip(type(given).__name__, error, now)
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
        more = [self._start.next_due_s(), self._stored.due_s, self.end_times.due_s]
        due += more if self._does_more else [self._began.at_s + PATIENCE_S]
        due += [self._exact.due_s] if self._was_read else []
        return min(*due, self.offsets.next_due_s(), self.share.next_due_s())

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
    def is_exact(self) -> bool:
        """Whether no row of `exact_groups` waits for its record to be read."""
        return self._exact.is_exact

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be expected soon: all was requested, and was answered or failed."""
        is_answered = self._ends.is_answered and self._stored.is_known
        return self._was_read and is_answered and self.is_dated and self.is_exact

    @property
    def refusal(self) -> str | None:
        """Why this user gets to know nothing, neither from the log nor from the coordinators; else None."""
        log = self.offsets
        if log.exists is False and log.topic != OFFSETS_TOPIC:
            return f"there is no topic {log.topic}, or koff may not DESCRIBE it: check --offsets-topic"
        if log.denied is None or log.is_never_read or self._was_read:
            return None
        if self.conf.source == "log" or log.topic != OFFSETS_TOPIC:
            return log.denied
        return f"{log.denied}; {NO_GROUP}" if self._start.is_refused else None

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        return self.outbox.take_events()

    def take_view(self, now: Moment) -> ClusterView:
        """What may be served now."""
        now_ms = self._steady_ms(now)
        impossible = {f"impossible {what}": n for what, n in self.tracker.impossible_counts.items()}
        polls = self.offsets.denied is not None and self.conf.source != "log"
        facts = ViewFacts(
            cluster=self.conf.cluster_name or self.conf.cluster_id,
            source="coordinators" if polls else "log",
            offsets=self.offsets,
            share=self.share,
            doubtful_topics={log.topic for log in (self.offsets, self.share) if self._is_doubtful(log)},
            history=self._start.history.replayed,
            stored_groups_at=self._stored.current,
            are_stored_groups_known=self._stored.is_known,
            steady_ms=self._steady_ms,
            now=now,
            oldest_ms=now_ms - round(self.conf.limit_s * 1000),
            topics_asked=self.topics.undoubted,
            failure=self.outbox.failure,
            ends_answered=self._was_read and self._ends.is_answered,
            was_ready=self._was_ready,
            record_counts=self.tracker.record_counts.copy(),
            skipped={**self.outbox.skipped, **impossible},
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

    def _take(self, given: Input, now: Moment) -> None:
        match given:
            case Polled():
                self._take_polled(given, now)
                return
            case ReadFailed():
                self._take_read_failure(given, now)
                return
            case Unreachable():
                self.outbox.note_unreachable(given.why, now)
                return
            case OffsetsFetched(final=False) | GroupsFetched(final=False) | HistoryRead(final=False):
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
            self._take_result(given, ask, now)
        except Exception:  # the request is sent again, as if it had failed
            self.outbox.close(ask.request.id)
            self._give_up(ask, "its result cannot be used", now)
            raise

    def _take_result(self, given: Input, ask: Ask[Any], now: Moment) -> None:
        match given, ask.request:
            case TopicsFetched(), FetchTopics():
                self.outbox.note_answer(ask.asked)
                self._take_topics(given, ask.asked, now)
            case OffsetsFetched(), FetchOffsets():
                self._take_offsets(given, ask, now)
            case RetentionFetched(), FetchRetention():
                self._retention(self._log(ask.request.topic)).take(given.delete_retention_ms)
            case GroupsFetched(), FetchGroups():
                if len(given.incomplete) < len(given.partitions or ask.request.partitions):
                    self.outbox.note_answer(ask.asked)
                used = self._start.take_groups(given, ask, now)
                self._fetch_log_offsets(self.offsets, "end", used, now)  # records wait up to there
            case Loaded(), Load():
                self._start.take_loaded(given, ask, now, self._steady_ms(now))
            case HistoryRead(), _:
                self._start.take_history(given, ask, now)
            case StoredGroupsFetched(), _:
                self._stored.take(given, ask.asked, now, self._steady_ms(now))
            case FirstRecordsRead(), ReadFirstRecords():
                self._exact.take(given, ask, now)
            case Done(), _:
                self._savings.note_done(ask.request)

    def _note_failure(self, ask: Ask[Any], why: str) -> None:
        """Notes that the cluster did not answer, if the request was to the cluster."""
        if isinstance(ask.request, FetchTopics | FetchOffsets | FetchGroups | FetchRetention | ReadHistory):
            self.outbox.note_failure(why, ask.asked)

    def _give_up(self, ask: Ask[Any], why: str, now: Moment) -> None:
        """A request failed, or was not answered in time."""
        match request := ask.request:
            case FetchTopics():
                self._topics_due_s = min(self._topics_due_s, now.at_s + RETRY_S)
            case FetchOffsets():
                self._ends.give_up(ask)
                self.end_times.give_up(ask, now, self._steady_ms(now))
            case FetchGroups():
                self._start.give_up_groups(ask, why, now)
            case Load():
                self._start.take_loaded(Failed(request.id, why), ask, now, self._steady_ms(now))
            case ReadHistory():
                self._start.give_up_history(request, now)
            case FetchStoredGroups():
                self._stored.give_up(ask.asked, why, now)
            case ReadFirstRecords():
                self._exact.give_up(ask, now)
            case Save() | SaveIndex() | SaveEnds() | ForgetSaved():
                if self._savings.note_failed(request, now):
                    self.outbox.note(now, "state is not saved", warn=True, why=why)

    def _take_topics(self, given: TopicsFetched, asked: Moment, now: Moment) -> None:
        logs = {log.topic: log for log in (self.offsets, self.share)}
        wanted = {topic for topic, _ in self._ends.watched} | logs.keys()
        # A topic that may not be read may also be missing in the list, because it may not be described.
        shut = {name for name, log in logs.items() if log.exists and log.denied is not None}
        alive = {name for name, log in logs.items() if log.take_progress()} | shut
        changed = self.topics.note(given.topics, asked, wanted=wanted, alive=alive)
        self.topics.forget_unwanted(wanted)
        if changed:
            known = self.topics.topics.items()
            ids = {name: topic.id for name, topic in known if topic and topic.id}
            self.tracker.identify_topics(ids)
            self.end_times.note_topics(ids)
            self._ends.forget_gone()
            self._ends.sample(now, everything=False)
        for name in changed & logs.keys():
            self._take_log_topic(logs[name], now)
        self._place_groups()
        if self.share.exists is None and self.share.topic not in given.topics:
            self.share.exists = False  # at once: most clusters have none, and no row depends on it yet
        for log in logs.values():  # which partitions have a leader changes without the rest
            seen = given.topics.get(log.topic)
            if seen is not None and seen.id == log.topic_id:
                log.leaderless = seen.leaderless
        pause_s = self.conf.topics_interval_s
        if self.topics.is_doubtful or not (self.offsets.exists or self.offsets.is_hidden):
            pause_s = LIST_AGAIN_S
        elif not self.offsets.exists or not self.share.exists:
            pause_s = min(pause_s, MISSING_INTERVAL_S)
        self._topics_due_s = now.at_s + pause_s

    def _take_log_topic(self, log: FollowedLog, now: Moment) -> None:
        """An internal topic came, went, was created again, or has grown."""
        existed, was_hidden = log.exists, log.is_hidden
        lost = log.note_topic(self.topics.topics[log.topic])
        if was_hidden and not log.is_hidden:
            # What was kept in one shard is placed anew. Nothing was saved of it, so no file is removed.
            for number in lost:
                self.tracker.reset_partition(number)
            self.tracker.set_offsets_partitions(0)
            lost = []
        if lost:
            self.outbox.note(now, "topic is gone or was created again", topic=log.topic, warn=True)
            self.outbox.command(StopReading(log.topic, frozenset(lost)))
            self._drop_state(log, lost)
        elif existed is not log.exists:
            text = "topic found" if log.exists else "topic does not exist"
            self.outbox.note(now, text, topic=log.topic, partitions=log.partition_count)
        if log is self.offsets:
            self._start.hide_absent_topic(self.conf.source, self.conf.only, now)
            self._savings.set_origin(self._start.origin)

    def _take_offsets(self, given: OffsetsFetched, ask: Ask[FetchOffsets], now: Moment) -> None:
        ask.waiting.difference_update(given.offsets)
        errors = [offset for offset in given.offsets.values() if isinstance(offset, str)]
        if len(errors) < len(given.offsets):
            self.outbox.note_answer(ask.asked)
        elif errors:
            self._note_failure(ask, errors[0])
        if isinstance(ask.request.kind, int):
            self.end_times.take(ask, given.offsets, now, self._steady_ms(now), final=given.final)
            return
        if given.final:
            self._ends.give_up(ask)
        for log in (self.offsets, self.share):
            own = {at[1]: offset for at, offset in given.offsets.items() if at[0] == log.topic}
            if not own:  # most responses are of other topics
                continue
            known = {number: offset for number, offset in own.items() if isinstance(offset, int)}
            truncated = log.take_offsets(ask.request.kind, known, ask.asked, given.epochs, ask.positions, now)
            self._lose(log, truncated, "their logs were truncated", now)
            elected = log.restart_elected(now)
            if elected:
                self.outbox.command(Read(log.topic, elected))
        if self._ends.take(ask, given.offsets, self._steady_ms(ask.asked)):
            self.end_times.note_samples(now, final=given.final)
        doubted = self._ends.doubted
        self.end_times.take_bounds(ask, given.offsets, now, doubted=doubted, final=given.final)
        self._place_groups()

    def _take_polled(self, given: Polled, now: Moment) -> None:
        log = self._log(given.topic)
        if log.denied is not None and not log.is_hidden:
            self.outbox.note(now, "topic may be read again", topic=log.topic)
            if log is self.offsets:
                self._start.seed_after_denial(now)
        self.outbox.note_answer(now)
        by_reason: dict[str, list[int]] = {}
        for lost in log.take_polled(given, now):
            by_reason.setdefault(lost.why, []).append(lost.partition)
        for why, partitions in by_reason.items():
            self._lose(log, partitions, why, now)

    def _take_read_failure(self, given: ReadFailed, now: Moment) -> None:
        log = self._log(given.topic)
        if given.denied and log.denied is None:
            self.outbox.note(now, "topic may not be read", warn=True, topic=log.topic, why=given.why)
        if not given.denied:
            self.outbox.note_failure(given.why, now)
        log.note_failure(given.why, now, denied=given.denied)

    # --- State -------------------------------------------------------------------------------------------

    def _apply_commits(self, number: int, keys: Blobs, values: Blobs, is_live: bool, now: Moment) -> None:
        self._apply(self.tracker.apply, number, keys, values, is_live, now)
        self._start.history.note_applied(number, keys, values)

    def _apply_share_state(self, number: int, keys: Blobs, values: Blobs, is_live: bool, now: Moment) -> None:
        self._apply(self.tracker.apply_share_state, number, keys, values, is_live, now)

    def _apply(
        self,
        apply: Callable[..., None],
        number: int,
        keys: Blobs,
        values: Blobs,
        is_live: bool,
        now: Moment,
    ) -> None:
        """Applies records. If one of them makes that fail, they are applied one by one, without it."""
        seen_at_ms = self._steady_ms(now) if is_live else UNKNOWN
        try:
            apply(number, keys, values, seen_at_ms=seen_at_ms)
        except Exception:  # which record it was is found below
            for key, value in zip(keys, values, strict=True):
                try:
                    apply(number, [key], [value], seen_at_ms=seen_at_ms)
                except Exception as error:  # any client may write any bytes
                    self.outbox.skip("record", error, now)

    def _lose(self, log: FollowedLog, partitions: Collection[int], why: str, now: Moment) -> None:
        """The logs of these partitions are not what they were: their state is dropped, and read anew."""
        if not partitions:
            return
        named = sorted(partitions)
        self.outbox.note(
            now, "partitions are read anew", warn=True, topic=log.topic, partitions=named, why=why
        )
        self.outbox.command(StopReading(log.topic, frozenset(partitions)))
        for number in partitions:
            log.reset(number)
        self._drop_state(log, partitions)
        # The topic may have been deleted, or created again.
        log.lost_s = now.at_s

    def _drop_state(self, log: FollowedLog, partitions: Iterable[int]) -> None:
        for number in partitions:
            if log is self.offsets:
                self.tracker.reset_partition(number)
                self._start.forget(number)
                self._savings.forget(number)
            else:
                self.tracker.reset_share_partition(number)

    # --- Requests ----------------------------------------------------------------------------------------

    def _ask_for_what_is_due(self, now: Moment) -> None:
        listed_s = self.topics.asked.at_s if self.topics.asked else now.at_s
        if any(log.lost_s > listed_s for log in (self.offsets, self.share)):
            again_s = max(listed_s, self._topics_sent_s) + RETRY_S
            self._topics_due_s = min(self._topics_due_s, again_s)
        if now.at_s >= self._topics_due_s and not self.outbox.has(FetchTopics):
            self.outbox.send(FetchTopics(self.outbox.next_id()), now, TIMEOUT_S)
            self._topics_sent_s = now.at_s
            self._topics_due_s = now.at_s + self.conf.topics_interval_s
        for log in (self.offsets, self.share):
            self._read_log(log, now)
        self._start.begin_partitions(now)
        if self.share.exists:
            self._share_retention.request(now)
        bounds = self.share.bounds()
        if bounds:
            replays = {p: Replay(bound.start, "share state is not saved") for p, bound in bounds.items()}
            self.outbox.command(Read(self.share.topic, self.share.begin(replays, now)))
        for log in (self.offsets, self.share):
            self._fetch_log_offsets(log, "end", log.take_started(), now)
        self._sample(now)
        self._does_more |= self._was_read or now.at_s >= self._began.at_s + PATIENCE_S
        if self._does_more:
            self._start.read_history(now)
            self._stored.request(now)
        self._date(now)
        if self._was_read:
            self._exact.request(now)
        self._save(now)

    def _read_log(self, log: FollowedLog, now: Moment) -> None:
        """Requests bounds of partitions that are not read yet; begins again after a failure."""
        unbounded = log.take_unbounded(now, now.at_s + RETRY_S)
        for kind in _BOUNDS if unbounded else ():
            under_way = self.outbox.waiting_for_lives(kind, log.positions())
            numbers = [number for number in unbounded if (log.topic, number) not in under_way]
            self._fetch_log_offsets(log, kind, numbers, now)
        if log.retry_s is not None and now.at_s >= log.retry_s:
            starts = log.begin_again(now)
            if starts:
                self.outbox.command(Read(log.topic, starts))

    def _sample(self, now: Moment) -> None:
        """Requests end offsets when they are due, and those of new partitions soon."""
        if not self._was_read and self._is_read():
            self._was_read = True
            self._sample_due_s = now.at_s  # what was requested before does not make koff ready
            self._ends.forget_answers()
            self.outbox.note(now, "the log is read", seconds=round(now.at_s - self._began.at_s, 3))
        due, new_s = now.at_s >= self._sample_due_s, self._ends.new_due_s()
        if due:
            self._sample_due_s = now.at_s + self.conf.end_interval_s
            for log in (self.offsets, self.share):
                self._sample_log(log, now)
            if self.conf.source != "log" or self.offsets.denied is None:
                self._start.ask_stuck(now, now.at_s - 2 * self.conf.end_interval_s)
        if due or (new_s is not None and now.at_s >= new_s):
            self._ends.sample(now, everything=due)
            again_s = self.topics.list_again_s(self._ends.unknown_topics(), LIST_AGAIN_S, now)
            self._topics_due_s = min(self._topics_due_s, again_s)

    def _date(self, now: Moment) -> None:
        """Requests offsets by time, once the logs are read: commits that are half read change soon."""
        self.end_times.forget(self._ends.take_dropped())
        if self._does_more:
            self.end_times.request(now, self._steady_ms(now))

    def _sample_log(self, log: FollowedLog, now: Moment) -> None:
        """Requests watermarks of an internal topic; begins again the partitions that need it."""
        if log.is_hidden:
            return
        for kind in _WATERMARKS:
            under_way = {at[1] for at in self.outbox.waiting_for(kind) if at[0] == log.topic}
            numbers = [number for number, _ in log.reading() if number not in under_way]
            self._fetch_log_offsets(log, kind, numbers, now)
        were_stalled = bool(log.stalled)
        stalled = log.restart_stalled(now)
        if were_stalled and not log.stalled:
            self.outbox.note(now, "partitions move again", topic=log.topic)
        if stalled:
            if not were_stalled:
                self.outbox.note(now, "partitions stalled", warn=True, topic=log.topic, count=len(stalled))
            self.outbox.command(Read(log.topic, stalled, stalled=True))
        retention_s = RETENTION_PART * self._retention(log).retention_ms / 1000
        oldest_s = now.at_s - max(retention_s, SHORTEST_RETENTION_S)
        late = [
            number
            for number, part in log.reading()
            if part.current is not None and part.current.at_s < oldest_s
        ]
        self._lose(log, late, "deletions may have been missed", now)

    def _fetch_log_offsets(
        self, log: FollowedLog, kind: OffsetKind, numbers: Iterable[int], now: Moment
    ) -> None:
        wanted = {(log.topic, number) for number in numbers}
        if wanted and not log.is_hidden:
            request = FetchOffsets(self.outbox.next_id(), kind, frozenset(wanted))
            self.outbox.send(request, now, TIMEOUT_S, log.positions())

    def _save(self, now: Moment) -> None:
        if self.conf.saves:
            next_id, ends_ms = self.outbox.next_id, self._steady_ms(now)
            for request in self._savings.collect(now, self.offsets, self.tracker, next_id, ends_ms):
                self.outbox.send(request, now, DISK_TIMEOUT_S)

    # --- Small things ------------------------------------------------------------------------------------

    def _is_read(self) -> bool:
        """Whether both logs were read to their end, as far as they have leaders and may be read."""
        logs = [self.offsets, *([self.share] if self.share.denied is None else [])]
        return all(log.exists is not None and not log.unread for log in logs)

    def _place_groups(self) -> None:
        count, last_written = self.offsets.partition_count, self.offsets.last_written
        self.tracker.set_offsets_partitions(count, last_written=last_written)

    def _is_doubtful(self, log: FollowedLog) -> bool:
        """Whether what was read may be of another topic than the one that the partitions are taken for."""
        asked = self.topics.asked
        return self.topics.is_another(log.topic) or asked is None or asked.at_s < log.lost_s

    def _retention(self, log: FollowedLog) -> TopicRetention:
        return self._share_retention if log is self.share else self._start.retention

    def _log(self, topic: str) -> FollowedLog:
        return self.share if topic == self.share.topic else self.offsets

    def _steady_ms(self, moment: Moment) -> int:
        return self._began.wall_ms + round((moment.at_s - self._began.at_s) * 1000)
