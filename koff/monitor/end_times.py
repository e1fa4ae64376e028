"""The requests for offsets by time, from which the history of end offsets learns the time before koff."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from koff.monitor.broker_clock import BrokerClock
from koff.monitor.confirmations import Confirmations
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.past_ends import OLDEST_MS, PastEnds
from koff.monitor.requests import FetchOffsets, Moment, TopicPartition
from koff.tracker import Tracker

TIMEOUT_S = 10.0
PAUSE_S, OPEN_PAUSE_S = 0.2, 0.5
"""The shortest pause between two looks at all rows, which cost time; while requests by time are open, the
second: most results come soon, but one broker may be slow."""
GATHER_S = 0.1
"""So long, a look waits for more results after the first one: each broker responds for itself."""
CLOCK_WAIT_S = 1.0
"""How long the first requests wait for a commit, whose timestamp shows the clock of the brokers."""


class EndTimes:
    """Fetches offsets by time until the tracker knows the age of each uncommitted record within 20 %.

    Requests are by the timestamps of Kafka. All other times are by the tracker's clock, which does not step.

    The tracker gets results once they are confirmed (`Confirmations`).

    `gap_ms` is the longest usual time between two samples of end offsets.
    """

    def __init__(self, tracker: Tracker, outbox: Outbox, *, gap_ms: int) -> None:
        self.clock = BrokerClock()
        self._tracker, self._outbox = tracker, outbox
        self._plan = PastEnds()
        # By id of each open request: its time by the tracker's clock, and the partitions without a result.
        self._open: dict[int, tuple[int, set[TopicPartition]]] = {}
        self._confirmations = Confirmations(outbox)
        self._topic_ids: dict[str, str] = {}
        self._is_due = False
        self._looked_s = self._changed_s = self._clock_since_s = -math.inf
        tracker.expect_past_ends(OLDEST_MS / 1000, gap_ms=gap_ms)

    @property
    def is_settled(self) -> bool:
        """Whether no request is open, and none is to be sent before the next samples."""
        return not (self._open or self._confirmations.is_open or self._is_due)

    @property
    def due_s(self) -> float:
        """When `request` has something to do; infinite if it has to wait for samples or results."""
        pause_s = OPEN_PAUSE_S if self._open else PAUSE_S
        return max(self._looked_s + pause_s, self._changed_s + GATHER_S) if self._is_due else math.inf

    def note_samples(self, now: Moment) -> None:
        """Notes that the tracker has new samples of end offsets."""
        self._note_change(now.at_s)

    def _note_change(self, at_s: float) -> None:
        """Something has changed, so a look at all rows is due soon."""
        if not self._is_due:
            self._is_due, self._changed_s = True, at_s

    def note_topics(self, ids: Mapping[str, str]) -> None:
        """Notes the present ids of topics. What is known of a topic that was created again is forgotten."""
        again = {name for name, id_ in ids.items() if self._topic_ids.get(name, id_) != id_}
        self._topic_ids = dict(ids)
        if again:
            self.forget(at for at in self._plan.partitions() if at[0] in again)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets what is known, and open requests, of partitions whose history was dropped."""
        gone = set(partitions)
        self._plan.forget(gone)
        for _, waiting in self._open.values():
            waiting.difference_update(gone)
        self._confirmations.forget(gone)

    def request(self, now: Moment, now_ms: int, *, can_know_clock: bool) -> None:
        """Sends the requests that are wanted now, unless a look at all rows was taken just before.

        `now_ms` is now by the tracker's clock. `can_know_clock`: commits with timestamps may come in.
        """
        shows_clock = not self.clock.is_known and self._tracker.is_skew_known
        if now.at_s < self.due_s and not shows_clock:
            return
        self._looked_s = now.at_s
        self._compare_clocks(now, now_ms)
        undated = self._tracker.find_undated(now_ms)
        if undated and can_know_clock and self._has_to_wait_for_clock(now):
            return
        self._is_due = False
        for at_ms, partitions in self._plan.wanted(undated, now_ms):
            request_id = self._outbox.next_id()
            self._open[request_id] = at_ms, set(partitions)
            kafka_ms = max(at_ms + self.clock.ahead_ms, 0)
            self._outbox.send(FetchOffsets(request_id, kafka_ms, partitions), now, TIMEOUT_S)
        asking = set[TopicPartition]().union(*(waiting for _, waiting in self._open.values()))
        self._confirmations.request(asking, now)

    def take(
        self,
        ask: Ask[FetchOffsets],
        offsets: Mapping[TopicPartition, int | str],
        now: Moment,
        now_ms: int,
        *,
        final: bool,
    ) -> None:
        """Takes a result, or a part of it."""
        if ask.request.id not in self._open:
            return
        at_ms, waiting = self._open[ask.request.id]
        # The results of partitions that were forgotten meanwhile may be of another log.
        known = {at: offset for at, offset in offsets.items() if at in waiting and isinstance(offset, int)}
        failed = [at for at, offset in offsets.items() if at in waiting and isinstance(offset, str)]
        waiting.difference_update(offsets)
        self._plan.note(known, at_ms)
        self._confirmations.add(known, at_ms)
        self._plan.note_failed(failed, at_ms, now_ms)
        self._note_change(now.at_s)
        if final:
            self.give_up(ask, now, now_ms)

    def take_bounds(
        self,
        ask: Ask[FetchOffsets],
        offsets: Mapping[TopicPartition, int | str],
        now: Moment,
        *,
        doubted: Collection[TopicPartition],
        final: bool,
    ) -> None:
        """Takes log start or end offsets, which the tracker has already.

        The logs of `doubted` partitions may be others than koff knows: their results are useless.
        """
        self.forget(at for at in offsets if at in doubted)
        by_time: dict[int, dict[TopicPartition, int]] = {}
        for at, results in self._confirmations.take(ask, offsets).items():
            for at_ms, offset in results.items():
                by_time.setdefault(at_ms, {})[at] = offset
        for at_ms, ends in by_time.items():
            self._tracker.add_past_ends(ends, at_ms)
        if by_time:
            self._note_change(now.at_s)  # another record may be the oldest one now
        if final:
            self._confirmations.give_up(ask)

    def give_up(self, ask: Ask[FetchOffsets], now: Moment, now_ms: int) -> None:
        """There is no result for the partitions that the request waits for: they are asked later."""
        self._confirmations.give_up(ask)
        if ask.request.id not in self._open:
            return
        at_ms, waiting = self._open.pop(ask.request.id)
        self._plan.note_failed(waiting, at_ms, now_ms)
        self._note_change(now.at_s)  # others may have waited for their turn

    def _has_to_wait_for_clock(self, now: Moment) -> bool:
        if self._clock_since_s == -math.inf:
            self._clock_since_s = now.at_s
        return not self.clock.is_known and now.at_s < self._clock_since_s + CLOCK_WAIT_S

    def _compare_clocks(self, now: Moment, now_ms: int) -> None:
        before_ms = self.clock.ahead_ms
        if self._tracker.is_skew_known and self.clock.note(self._tracker.skew_ms, now_ms):
            # What was asked before is of other times than it was taken for.
            self.forget(self._plan.partitions())
            self._tracker.forget_past_ends()
            change_s = round((self.clock.ahead_ms - before_ms) / 1000, 1)
            self._outbox.note(now, "the clock of the brokers differs", warn=True, by_s=change_s)
