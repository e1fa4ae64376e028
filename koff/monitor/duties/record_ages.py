"""The first records that groups have yet to commit: which to read, and what becomes of them.

Samples of end offsets tell how old a record is that arrived since the first sample. Of an older one its
timestamp tells. And where compaction has removed records, or only the marker that ends a transaction is left,
no sample tells: a consumer that commits the offset after its last record stays below such a marker for ever,
and is not late. So koff reads the first record of rows that are late or were late at its start, a few a
second.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from koff.lag import NO_RECORD, NO_TIMESTAMP
from koff.monitor.duties.end_offsets import EndOffsets
from koff.monitor.means import Means
from koff.monitor.moment import Moment
from koff.monitor.outbox import Pending, Shared
from koff.monitor.requests import Request, Result
from koff.tracker import LaggingRow
from koff.tracker.row_index import Ints

if TYPE_CHECKING:
    from koff.client.record_times import FirstRecordResult

AT_ONCE = 2_000
"""The most places in one request."""
TIMEOUT_S = 20.0
"""How long the core waits for a result. Reading takes `Means.timeout_s`."""
PAUSE_S, IDLE_PAUSE_S = 1.0, 10.0
"""The least pause between two requests; and before koff looks again for rows that wait, if none does."""
MOST_AT_ONE_LOOK = 2_000
UNREADY_PAUSE_S = 0.1
RETRY_S = 30.0
"""When a place is read again that could not be read."""
DENIED_S = 600.0
"""When a topic is read again that this user may not read: rights may be granted."""
_FORGET_S = 3_600.0  # a denied topic that had no rows for so long


class RecordPlace(NamedTuple):
    """An offset of a topic partition."""

    topic: str
    partition: int
    offset: int


class FirstRecord(NamedTuple):
    """The first record at or after a place, and when it was written: one of `koff.lag.FirstRecords`."""

    offset: int
    timestamp_ms: int
    later_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class FirstRecordsRead(Result):
    """The first records at the places of a request, or why they could not be read.

    `denied` are the topics that this user may not read.
    """

    records: Mapping[RecordPlace, FirstRecord | str]
    denied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReadFirstRecords(Request):
    """The first record at or after each of these places. Its result is `FirstRecordsRead`."""

    thread = "records"
    metric = "first_records"
    places: frozenset[RecordPlace]

    def carry_out(self, means: Means) -> Result:
        from koff.client.record_times import ReadPlace, Unread, read_record_times

        places = [ReadPlace(*place) for place in self.places]
        found = read_record_times(means.lister, places, means.timeout_s, means.is_stopping)
        records = {RecordPlace(*place): _convert(response) for place, response in found.items()}
        unread = ((place, response) for place, response in found.items() if isinstance(response, Unread))
        denied = frozenset(place.topic for place, response in unread if response.denied)
        return FirstRecordsRead(self.id, records, denied)


def _convert(response: "FirstRecordResult") -> FirstRecord | str:
    from koff.client.record_times import EndReached, Unread

    match response:
        case Unread(reason):
            return reason
        case EndReached(offset):
            return FirstRecord(offset, NO_RECORD)
    times = (NO_TIMESTAMP if time is None else time for time in (response.timestamp_ms, response.later_ms))
    return FirstRecord(response.offset, *times)


class RecordAges:
    """Finds out when the oldest record was written that a group has yet to commit.

    Of the rows that are worth it (`TopicPartitions.is_worth_reading`), at most `per_s` are read in a second;
    those that have waited longest come first. If `per_s` is None, for one look, `MOST_AT_ONE_LOOK` are read
    without a pause, and each row only once, whatever the group commits after that.

    `steady_ms` gives a time by the clock of the end offsets.
    """

    def __init__(self, per_s: int | None, shared: Shared, ends: EndOffsets) -> None:
        self._tracker, self._outbox, self._steady_ms = shared
        self._per_s, self._ends = per_s, ends
        self._at_most = AT_ONCE if per_s is None else min(max(per_s, 1), AT_ONCE)
        self._left = MOST_AT_ONE_LOOK
        self._queue = _Queue()
        self._requested: dict[RecordPlace, list[LaggingRow]] = {}
        # When the topics that may not be read are asked again.
        self._denied: dict[str, float] = {}
        self._is_begun = False
        self._due_s = float("-inf")

    @property
    def is_settled(self) -> bool:
        """Whether no row waited to be read when koff last looked.

        Rows that could not be read do not wait until they are due again.
        """
        return self._is_begun and not self._requested

    @property
    def due_s(self) -> float:
        """When `request` has to be called; infinite while a request is open."""
        return float("inf") if self._requested else self._due_s

    def note_samples(self) -> None:
        """There are new end offsets. One look does not end before it has looked for rows with them."""
        if self._per_s is None:
            self._is_begun, self._due_s = False, float("-inf")

    def request(self, now: Moment) -> None:
        """Sends a request if one is due. Call it once the logs are read.

        The first request waits for the end offsets: without them, no row has a lag.
        """
        if now.at_s < self.due_s:
            return
        if not self._is_begun and not self._ends.has_responses:
            self._due_s = now.at_s + UNREADY_PAUSE_S
            return
        self._is_begun = True
        for row in self._find_rows(now):
            self._requested.setdefault(RecordPlace(row.topic, row.partition, row.committed), []).append(row)
        if self._requested:
            self._outbox.send(
                ReadFirstRecords(self._outbox.next_id(), frozenset(self._requested)), self, now, TIMEOUT_S
            )
        else:
            self._due_s = now.at_s + IDLE_PAUSE_S

    def receive(self, given: FirstRecordsRead, pending: Pending[ReadFirstRecords], now: Moment) -> None:
        """Takes the records of a request. A place that is not in the result could not be read."""
        requested = self._close(pending, now)
        read, failed = [], []
        for place, rows in requested.items():
            record = given.records.get(place)
            if self._ends.is_outdated((place.topic, place.partition), pending):
                continue  # the record may be of a topic that was deleted since
            if isinstance(record, FirstRecord):
                read += [(row, record) for row in rows]
            else:
                failed += rows
        self._defer(failed, now)
        self._tracker.note_first_records(read)
        self._note_denied(given, {row.topic for row, _ in read}, now)

    def give_up(self, pending: Pending[ReadFirstRecords], why: str, now: Moment) -> None:
        """There is no result: all places of the request are read again later."""
        for rows in self._close(pending, now).values():
            self._defer(rows, now)

    def _find_rows(self, now: Moment) -> list[LaggingRow]:
        self._denied = {t: due_s for t, due_s in self._denied.items() if now.at_s < due_s + _FORGET_S}
        denied = {topic for topic, due_s in self._denied.items() if now.at_s < due_s}
        at_most = min(self._at_most, self._left)
        return self._tracker.find_unread_rows(
            lambda keys: self._queue.pick(keys, at_most, now.at_s), self._steady_ms(now), without=denied
        )

    def _close(self, pending: Pending[ReadFirstRecords], now: Moment) -> dict[RecordPlace, list[LaggingRow]]:
        """The rows by place of the open request, which is open no more. Sets when the next one is due."""
        requested, self._requested = self._requested, {}
        keys = [row.key for rows in requested.values() for row in rows]
        if self._per_s is None:
            self._due_s = now.at_s
            # A busy group commits again before all others are read: that would never end.
            self._queue.defer(keys, float("inf"))
            self._left -= len(keys)
        else:
            self._queue.requeue(keys, now.at_s)
            # The rest keeps to the rate; and a slow cluster is not busy with this more than half of the time.
            pause_s = max(len(requested) / max(self._per_s, 1), PAUSE_S)
            self._due_s = max(
                pending.requested.at_s + pause_s, now.at_s + (now.at_s - pending.requested.at_s)
            )
        return requested

    def _defer(self, rows: Iterable[LaggingRow], now: Moment) -> None:
        if self._per_s is not None:
            self._queue.defer((row.key for row in rows), now.at_s + RETRY_S)

    def _note_denied(self, given: FirstRecordsRead, readable: set[str], now: Moment) -> None:
        """Notes which topics may not be read, and which may be read again."""
        self._denied |= dict.fromkeys(given.denied - readable, now.at_s + DENIED_S)
        for topic in readable & self._denied.keys():
            del self._denied[topic]


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
        self._not_before.update(dict.fromkeys(keys, until_s))
