"""The first records that groups have yet to commit: which to read, and what becomes of them.

The record at a committed offset says when it was written, where the history of end offsets can only estimate
it. Reading records costs much more, so it is done for chosen groups, a few records a second.

In all other groups, koff reads where a small lag is at rest: there may be no record, but only the marker that
ends a transaction. A consumer that commits the offset after its last record stays below this marker for ever,
and is not late. Pure: no I/O, no threads, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor.end_offsets import EndOffsets
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.requests import FirstRecord, FirstRecordsRead, Moment, ReadFirstRecords, RecordPlace
from koff.tracker import LaggingRow, Tracker
from koff.tracker.row_index import Ints

AT_ONCE = 2_000
"""The most places in one request."""
TIMEOUT_S = 20.0
PAUSE_S, AT_REST_PAUSE_S = 1.0, 10.0
"""The pauses before koff looks again for rows that wait, if none does: in chosen groups, in the others."""
AT_REST_PER_S = 50
"""The most places a second that are read where a lag is at rest."""
UNREADY_PAUSE_S = 0.1
RETRY_S = 30.0
"""When a place is read again that could not be read."""
DENIED_S = 600.0
"""When a topic is read again that this user may not read: rights may be granted."""
_FORGET_S = 3_600.0  # a denied topic that had no rows for so long


class ExactTimeLags:
    """Finds out when the oldest record was written that a chosen group has yet to commit.

    `is_chosen` chooses groups by name; None chooses none. At most `per_s` places are read in a second, and
    the rows that have waited longest come first. If `per_s` is None, all are read without a pause, and each
    row only once, whatever the group commits after that.

    With `at_rest_ms`, the present time by the clock of the end offsets, only rows are read whose small lag is
    at rest, and koff notes of a record only that there is one.
    """

    def __init__(
        self,
        is_chosen: Callable[[str], bool] | None,
        per_s: int | None,
        tracker: Tracker,
        ends: EndOffsets,
        outbox: Outbox,
        *,
        at_rest_ms: Callable[[Moment], int] | None = None,
    ) -> None:
        self._is_chosen, self._per_s, self._at_rest_ms = is_chosen, per_s, at_rest_ms
        self._pause_s = AT_REST_PAUSE_S if at_rest_ms else PAUSE_S
        self._at_most = AT_ONCE if per_s is None else min(max(per_s, 1), AT_ONCE)
        self._tracker, self._ends, self._outbox = tracker, ends, outbox
        self._queue = _Queue()
        self._asked: dict[RecordPlace, list[LaggingRow]] = {}
        self._request_id = -1
        # When the topics that may not be read are asked again.
        self._denied: dict[str, float] = {}
        self._is_begun = False
        self._due_s = float("inf") if is_chosen is None else float("-inf")

    @property
    def is_exact(self) -> bool:
        """Whether no row of a chosen group waited to be read when koff last looked.

        Rows that could not be read do not wait until they are due again.
        """
        return self._is_chosen is None or (self._is_begun and not self._asked)

    @property
    def due_s(self) -> float:
        """When `request` has to be called; infinite while a request is open."""
        return float("inf") if self._asked else self._due_s

    def request(self, now: Moment) -> None:
        """Sends a request if one is due. Call it once the logs are read.

        The first request waits for the end offsets: without them, no row has a lag.
        """
        if now.at_s < self.due_s:
            return
        if not self._is_begun and not self._ends.is_answered:
            self._due_s = now.at_s + UNREADY_PAUSE_S
            return
        self._is_begun = True
        for row in self._find_rows(now):
            self._asked.setdefault(RecordPlace(row.topic, row.partition, row.committed), []).append(row)
        if self._asked:
            request = ReadFirstRecords(self._outbox.next_id(), frozenset(self._asked))
            self._request_id = request.id
            self._outbox.send(request, now, TIMEOUT_S)
        else:
            self._due_s = now.at_s + self._pause_s

    def has_sent(self, request: ReadFirstRecords) -> bool:
        """Whether this is the open request."""
        return bool(self._asked) and request.id == self._request_id

    def receive(self, given: FirstRecordsRead, ask: Ask[ReadFirstRecords], now: Moment) -> None:
        """Takes the records of a request. A place that is not in the result could not be read."""
        asked = self._close(ask, now)
        read, failed = [], []
        for place, rows in asked.items():
            record = given.records.get(place)
            if self._ends.is_outdated((place.topic, place.partition), ask):
                continue  # the record may be of a topic that was deleted since
            if isinstance(record, FirstRecord):
                timestamp_ms = record.timestamp_ms
                if self._at_rest_ms and timestamp_ms != NO_RECORD:
                    timestamp_ms = NO_TIMESTAMP  # the group was not chosen: its lag stays the estimate
                read += [(row, record.offset, timestamp_ms) for row in rows]
            else:
                failed += rows
        self._defer(failed, now)
        self._tracker.note_first_records(read)
        self._note_denied(given, {row.topic for row, _, _ in read}, now)

    def give_up(self, ask: Ask[ReadFirstRecords], now: Moment) -> None:
        """There is no result: all its places are read again later."""
        for rows in self._close(ask, now).values():
            self._defer(rows, now)

    def _find_rows(self, now: Moment) -> list[LaggingRow]:
        """The rows to read now."""
        self._denied = {t: due_s for t, due_s in self._denied.items() if now.at_s < due_s + _FORGET_S}
        denied = {topic for topic, due_s in self._denied.items() if now.at_s < due_s}
        assert self._is_chosen is not None  # else no request is ever due
        return self._tracker.find_unread_rows(
            self._is_chosen,
            lambda keys: self._queue.pick(keys, self._at_most, now.at_s),
            without=denied,
            at_rest_ms=self._at_rest_ms(now) if self._at_rest_ms else None,
        )

    def _close(self, ask: Ask[ReadFirstRecords], now: Moment) -> dict[RecordPlace, list[LaggingRow]]:
        """The rows by place of the open request, which is open no more. Sets when the next one is due."""
        asked, self._asked = self._asked, {}
        keys = [row.key for rows in asked.values() for row in rows]
        if self._per_s is None:
            self._due_s = now.at_s
            # A busy group commits again before all others are read: that would never end.
            self._queue.defer(keys, float("inf"))
        else:
            self._queue.requeue(keys, now.at_s)
            # The rest keeps to the rate; and a slow cluster is not busy with this more than half of the time.
            pause_s = max(len(asked) / max(self._per_s, 1), PAUSE_S)
            self._due_s = max(ask.asked.at_s + pause_s, now.at_s + (now.at_s - ask.asked.at_s))
        return asked

    def _defer(self, rows: Iterable[LaggingRow], now: Moment) -> None:
        if self._per_s is not None:
            self._queue.defer((row.key for row in rows), now.at_s + RETRY_S)

    def _note_denied(self, given: FirstRecordsRead, readable: set[str], now: Moment) -> None:
        """Notes which topics may not be read, and which may be read again."""
        for topic in sorted(given.denied - readable):
            if topic not in self._denied and not self._at_rest_ms:
                whys = {
                    why for at, why in given.records.items() if at.topic == topic and isinstance(why, str)
                }
                why = min(whys, default="this user may not read it")
                self._outbox.note(now, "no exact lag in seconds", warn=True, topic=topic, why=why)
            self._denied[topic] = now.at_s + DENIED_S
        for topic in sorted(readable & self._denied.keys()):
            del self._denied[topic]
            if not self._at_rest_ms:
                self._outbox.note(now, "exact lag in seconds again", topic=topic)


class _Queue:
    """Since when rows have been waiting, by their keys: a row that commits again keeps its place."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.int64)
        self._since = np.zeros(0)
        self._not_before: dict[int, float] = {}

    def pick(self, keys: Ints, at_most: int, now_s: float) -> Ints:
        """Indexes of the keys that have waited longest. Other keys than `keys` wait no more."""
        order = np.argsort(keys)
        sorted_ = keys[order]
        since = np.full(len(keys), now_s)
        if len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, sorted_), len(self._keys) - 1)
            known = self._keys[at] == sorted_
            since[known] = self._since[at[known]]
        self._keys, self._since = sorted_, since
        self._not_before = {key: due_s for key, due_s in self._not_before.items() if due_s > now_s}
        open_ = np.flatnonzero(~np.isin(sorted_, np.array(list(self._not_before), np.int64)))
        longest = open_[np.argsort(since[open_], kind="stable")[:at_most]]
        picked: Ints = order[longest]
        return picked

    def requeue(self, keys: Collection[int], now_s: float) -> None:
        """Lets these keys wait from now on, if they still wait: a busy row must not come first again."""
        self._since[np.isin(self._keys, np.fromiter(keys, np.int64, len(keys)))] = now_s

    def defer(self, keys: Iterable[int], until_s: float) -> None:
        """Leaves these keys out until then."""
        self._not_before.update(dict.fromkeys(keys, until_s))
