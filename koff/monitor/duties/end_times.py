"""The requests for offsets by time, from which the history of end offsets learns the time before koff."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from koff.monitor.duties.confirmations import Confirmations
from koff.monitor.duties.end_offsets import EndOffsets
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.past_ends import NO_RECORD, OLDEST_MS, PastEnds
from koff.monitor.requests import TopicPartition

TOLERANCE_MS = 3_000
"""A smaller difference is not corrected: a commit may take that long until koff sees it."""
RISE_MS = 60_000
"""So long, commits must arrive later than before until that is taken for a clock that was set."""


class BrokerClock:
    """The clock of the brokers, compared with a steady clock of koff's. All times are in ms.

    Each correction makes what was known of the past useless, so it must not follow each measurement.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        """What to add to a time of koff's clock. 0 if it is unknown, or small."""
        self.is_known = False
        self._later_since_ms: int | None = None

    def note(self, skew_ms: int, now_ms: int) -> bool:
        """Notes how far koff's clock is ahead, as measured now. Returns whether `ahead_ms` changed."""
        was_known, self.is_known = self.is_known, True
        change_ms = skew_ms + self.ahead_ms
        if abs(change_ms) <= TOLERANCE_MS:
            self._later_since_ms = None
            return False
        # Slow reads look like a clock that was set back: wait whether that lasts.
        if change_ms > 0 and was_known:
            if self._later_since_ms is None:
                self._later_since_ms = now_ms
            if now_ms - self._later_since_ms < RISE_MS:
                return False
        self._later_since_ms = None
        self.ahead_ms = -skew_ms
        return True


TIMEOUT_S = 10.0
SHORTEST_PAUSE_S = 0.01
PAUSE_PER_ROW_S, PAUSE_PER_PARTITION_S = 1e-6, 1e-5
"""The pauses after a look at all rows, and after one at the partitions with records of unknown age. A look
takes at most half as long."""
GATHER_S = 0.2
"""So long, a look at all rows waits for the samples of other brokers: one that is slow must not delay it."""


@dataclass(slots=True)
class _Pace:
    """When work is done that takes time: soon after a change, but not at once after the last time.

    It waits for half a pause after a change: the next one may be close.
    """

    pause_s: float = SHORTEST_PAUSE_S
    done_s: float = -math.inf
    changed_s: float = math.inf
    """Since when there is something to do; infinite if there is nothing."""
    due_s: float = math.inf

    @property
    def is_wanted(self) -> bool:
        return self.changed_s < math.inf

    def note_change(self, now: Moment, wait_s: float = 0.0) -> None:
        self.changed_s = min(self.changed_s, now.at_s + wait_s)
        self.due_s = max(self.changed_s + self.pause_s / 2, self.done_s + self.pause_s)

    def begin(self, now: Moment, pause_s: float) -> None:
        self.done_s, self.pause_s = now.at_s, max(pause_s, SHORTEST_PAUSE_S)
        self.changed_s = self.due_s = math.inf


@dataclass(frozen=True, slots=True)
class _Open:
    """An open request: its time by the tracker's clock, and the partitions without a result.

    `ends` has the newest end offset of each partition that was sampled at that time or later. If no record is
    that late, that was the end offset at that time, too. An older sample, or a newer one, may be another.
    """

    at_ms: int
    waiting: set[TopicPartition]
    ends: Mapping[TopicPartition, int]


class EndTimes:
    """Fetches offsets by time until the tracker knows the age of each uncommitted record within 20 %.

    Requests are by the timestamps of Kafka. All other times are by the tracker's clock, which does not step.
    The first requests do not wait for the clock of the brokers to be known: on an idle cluster, no commit
    would ever show it. If it turns out to be another one, all is asked again.

    The tracker gets results once they are confirmed (`Confirmations`). Until then, the ages of the same
    records are unknown, and no look at all rows is needed to know what to ask next.

    `gap_ms` is the longest usual time between two samples of end offsets.
    """

    def __init__(self, shared: Shared, ends: EndOffsets, *, gap_ms: int) -> None:
        self.clock = BrokerClock()
        self._tracker, self._outbox, self._steady_ms = shared
        self._ends = ends
        self._plan = PastEnds()
        self._open: dict[int, _Open] = {}  # by id of the request
        self._confirmations = Confirmations(shared.outbox, ends)
        self._topic_ids: dict[str, str] = {}
        # Partitions with records of unknown age, as of the last look at all rows, and the offsets of these.
        self._undated: dict[TopicPartition, list[int]] = {}
        self._rows, self._partitions = _Pace(), _Pace()
        shared.tracker.partitions.expect_past_ends(OLDEST_MS / 1000, gap_ms=gap_ms)

    @property
    def is_settled(self) -> bool:
        """Whether no request is open, and none is to be sent before the next samples."""
        is_wanted = self._rows.is_wanted or self._partitions.is_wanted
        return not (self._open or self._confirmations.is_open or is_wanted)

    @property
    def due_s(self) -> float:
        """When `request` has something to do; infinite if it has to wait for samples or results."""
        return min(self._rows.due_s, self._partitions.due_s)

    def note_samples(self, now: Moment, *, final: bool) -> None:
        """Notes that the tracker has new samples of end offsets. `final`: of all partitions requested."""
        self._rows.note_change(now, 0.0 if final else GATHER_S)

    def note_topics(self, ids: Mapping[str, str]) -> None:
        """Notes the present ids of topics. What is known of a topic that was created again is forgotten."""
        again = {name for name, id_ in ids.items() if self._topic_ids.get(name, id_) != id_}
        self._topic_ids = dict(ids)
        if again:
            self.forget(at for at in self._list_known() if at[0] in again)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets what is known, and open requests, of partitions whose history was dropped."""
        gone = set(partitions)
        if not gone:
            return
        self._plan.forget(gone)
        for request in self._open.values():
            request.waiting.difference_update(gone)
        self._confirmations.forget(gone)

    def request(self, now: Moment) -> None:
        self.forget(self._ends.take_dropped())
        shows_clock = not self.clock.is_known and self._tracker.is_skew_known
        if now.at_s < self.due_s and not shows_clock:
            return
        now_ms, sampled = self._steady_ms(now), self._ends.believed
        if now.at_s >= self._rows.due_s or shows_clock:
            self._rows.begin(now, PAUSE_PER_ROW_S * self._tracker.row_count)
            self._compare_clocks(now, now_ms)
            self._undated = self._tracker.find_undated(now_ms)
        self._partitions.begin(now, PAUSE_PER_PARTITION_S * len(self._undated))
        for at_ms, partitions in self._plan.wanted(self._undated, now_ms):
            request_id = self._outbox.next_id()
            newest = ((at, sampled[at]) for at in partitions if at in sampled)
            ends = {at: sample.end for at, sample in newest if sample.requested_ms >= at_ms}
            self._open[request_id] = _Open(at_ms, set(partitions), ends)
            kafka_ms = max(at_ms + self.clock.ahead_ms, 0)
            self._outbox.send(FetchOffsets(request_id, kafka_ms, partitions), self, now, TIMEOUT_S)
        # Where a result was not confirmed, the history could not take it yet.
        contradicted = self._plan.take_contradicted() - self._confirmations.partitions()
        if contradicted:
            self._tracker.partitions.clear_history(contradicted)
        asking = set[TopicPartition]().union(*(request.waiting for request in self._open.values()))
        self._confirmations.request(asking, now)

    def receive(self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment) -> None:
        request = self._open[pending.request.id]
        # The results of partitions that were forgotten meanwhile may be of another log.
        results = {at: offset for at, offset in given.offsets.items() if at in request.waiting}
        failed = [at for at, offset in results.items() if isinstance(offset, str)]
        known = {
            at: request.ends.get(at, NO_RECORD) if offset == NO_RECORD else offset
            for at, offset in results.items()
            if isinstance(offset, int)
        }
        request.waiting.difference_update(results)
        self._plan.note(known, request.at_ms)
        ends = {at: offset for at, offset in known.items() if offset != NO_RECORD}
        self._confirmations.add(ends, request.at_ms)
        self._plan.note_failed(failed, request.at_ms, self._steady_ms(now))
        self._partitions.note_change(now)
        if given.final:
            self.give_up(pending, "", now)

    def receive_bounds(self, given: OffsetsFetched, pending: Pending[FetchOffsets], now: Moment) -> None:
        """Takes log start or end offsets, which the tracker has already."""
        doubted = self._ends.doubted  # their logs may be others than koff knows: their results are useless
        self.forget(at for at in given.offsets if at in doubted)
        by_time: dict[int, dict[TopicPartition, int]] = {}
        for at, results in self._confirmations.receive(pending, given.offsets).items():
            for at_ms, offset in results.items():
                # Most have only shown where to ask next. The history has little room.
                if self._plan.is_needed(at, at_ms):
                    by_time.setdefault(at_ms, {})[at] = offset
        for at_ms, ends in by_time.items():
            self._tracker.partitions.add_past_ends(ends, at_ms)
        if by_time:
            self._rows.note_change(now)  # another record may be the oldest one now
        if given.final:
            self.give_up_bounds(pending)

    def give_up_bounds(self, pending: Pending[FetchOffsets]) -> None:
        """There are no more log start or end offsets of that request."""
        self._confirmations.give_up(pending)

    def give_up(self, pending: Pending[FetchOffsets], why: str, now: Moment) -> None:
        """There is no result for the partitions that the request waits for: they are asked later."""
        request = self._open.pop(pending.request.id)
        self._plan.note_failed(request.waiting, request.at_ms, self._steady_ms(now))
        self._partitions.note_change(now)  # others may have waited for their turn

    def _list_known(self) -> set[TopicPartition]:
        """The partitions that something is known of, or asked, also if no row wants it any more."""
        known = {*self._plan.partitions(), *self._confirmations.partitions()}
        return known.union(*(request.waiting for request in self._open.values()))

    def _compare_clocks(self, now: Moment, now_ms: int) -> None:
        before_ms = self.clock.ahead_ms
        if self._tracker.is_skew_known and self.clock.note(self._tracker.skew_ms, now_ms):
            # What was asked before is of other times than it was taken for.
            self.forget(self._list_known())
            self._tracker.partitions.clear_history()
            change_s = round((self.clock.ahead_ms - before_ms) / 1000, 1)
            self._outbox.note(now, "the clock of the brokers differs", warn=True, by_s=change_s)
