"""The logs of the model: internal topics with real records, ordinary topics with numbers only.

They do what a broker's log does for a read_committed reader: control records, a last stable offset,
compaction that leaves gaps, truncation, and leader epochs, by which a reader notices a truncation.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

KEPT_FROM_COMPACTION = 5
"""The newest records are in the active segment, which is never compacted."""


class LogRecord(NamedTuple):
    """A record of an internal topic. `marker` is "commit" or "abort" in the control record of a producer.

    `epoch` is the leader's. `fact` is what the record means (`facts`), so that the model need not decode it;
    None for records without a meaning.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    producer: int | None = None
    marker: str = ""
    epoch: int = 0
    fact: object = None


class Written(NamedTuple):
    """A record to append."""

    key: bytes | None
    value: bytes | None
    fact: object = None


@dataclass(eq=False)
class PartitionLog:
    """A partition of an internal topic. `leader` is a broker id, None if the partition is leaderless.

    `end` is the high watermark. `generation` counts truncations. `truncated_to` maps each to the end then.
    """

    leader: int | None
    epoch: int = 0
    start: int = 0
    end: int = 0
    generation: int = 0
    truncated_to: dict[int, int] = field(default_factory=dict)
    records: list[LogRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open: dict[int, int] = {}
        """The first offset of each open transaction, by producer."""
        self._aborted: set[int] = set()
        self._horizons: dict[int, int] = {}
        self._epochs: list[tuple[int, int]] = [(self.epoch, 0)]

    @property
    def stable(self) -> int:
        """The last stable offset: a read_committed reader reads up to here."""
        return min(self.open.values(), default=self.end)

    def append(
        self, written: Iterable[Written], timestamp_ms: int, producer: int | None = None
    ) -> list[LogRecord]:
        """The appended records. With a producer they are part of its transaction, which begins if need be."""
        appended = []
        for key, value, fact in written:
            record = LogRecord(self.end, key, value, timestamp_ms, producer, "", self.epoch, fact)
            appended.append(record)
            self.end += 1
        if appended and producer is not None:
            self.open.setdefault(producer, appended[0].offset)
        self.records += appended
        return appended

    def end_transaction(self, producer: int, timestamp_ms: int, *, commit: bool) -> None:
        """Appends the control record. That ends the transaction of the producer, if one is open."""
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self._abort(producer, first, self.end)
        marker = "commit" if commit else "abort"
        self.records.append(LogRecord(self.end, None, None, timestamp_ms, producer, marker, self.epoch))
        self.end += 1

    def read(self, offset: int, limit: int) -> tuple[list[LogRecord], int]:
        """At most `limit` records as a read_committed reader gets them, and the next offset to read.

        That offset moves past control records, gaps and aborted records, but not past the last stable offset.
        """
        found: list[LogRecord] = []
        stable = self.stable
        for place in range(self._place(offset), len(self.records)):
            record = self.records[place]
            if record.offset >= stable:
                break
            if len(found) == limit:
                return found, found[-1].offset + 1
            if not record.marker and record.offset not in self._aborted:
                found.append(record)
        return found, max(offset, stable)

    def replay(self) -> list[LogRecord]:
        """All records and control records."""
        return self.records

    def offset_at_time(self, wall_ms: int) -> int:
        """The offset of the first record written at that time or later, -1 if there is none."""
        return next((record.offset for record in self.records if record.timestamp_ms >= wall_ms), -1)

    def end_at(self, wall_ms: int) -> int:
        """The high watermark at that time."""
        offset = self.offset_at_time(wall_ms)
        return self.end if offset < 0 else max(self.start, offset)

    def elect(self, leader: int | None) -> None:
        """Another leader, with a new leader epoch. None: the partition becomes leaderless."""
        self.leader = leader
        if leader is not None:
            self.epoch += 1
            self._epochs.append((self.epoch, self.end))

    def truncate(self, offset: int) -> None:
        """Drops the records from `offset` on. Elect a leader afterwards."""
        offset = max(offset, self.start)
        del self.records[self._place(offset) :]
        self.end = offset
        self.generation += 1
        self.truncated_to[self.generation] = offset
        self._epochs = [(epoch, first) for epoch, first in self._epochs if first < offset] or [(0, 0)]
        self._rebuild_transactions()

    def batch_start(self, offset: int) -> int:
        """The offset at which the batch with this offset begins: logs are truncated between batches."""
        place = self._place(offset)
        while 0 < place < len(self.records) and _is_same_batch(*self.records[place - 1 : place + 1]):
            place -= 1
        return self.records[place].offset if place < len(self.records) else self.end

    def epoch_end(self, epoch: int) -> int:
        """The end offset of the newest leader epoch of this log that is not above `epoch`.

        As in Kafka's OffsetsForLeaderEpoch: the log of a reader of that epoch, whose position is above this
        offset, was truncated.
        """
        place = bisect_right(self._epochs, (epoch, 1 << 62))
        return self._epochs[place][1] if place < len(self._epochs) else self.end

    def trim(self, offset: int) -> None:
        """Moves the log start offset, as DeleteRecords does."""
        if offset > self.start:
            self.start = min(offset, self.end)
            del self.records[: self._place(self.start)]

    def compact(self, now_ms: int, retention_ms: int) -> None:
        """Keeps the last record of each key below the active segment, and drops aborted records.

        Tombstones and control records are dropped in a later compaction, at least `retention_ms` after the
        first one that saw them.
        """
        active = self.records[-KEPT_FROM_COMPACTION].offset if len(self.records) > KEPT_FROM_COMPACTION else 0
        bound = min(active, self.stable)
        dirty = self._place(bound)
        last = {
            record.key: record.offset
            for record in self.records[:dirty]
            if not record.marker and record.offset not in self._aborted
        }
        data = [
            record
            for record in self.records[:dirty]
            if not record.marker and last.get(record.key) == record.offset
            if record.value is not None or self._is_young(record, now_ms, retention_ms)
        ]
        # A control record stays as long as any data of its producer.
        producers = {record.producer for record in (*data, *self.records[dirty:]) if not record.marker}
        markers = [
            record
            for record in self.records[:dirty]
            if record.marker
            if record.producer in producers or self._is_young(record, now_ms, retention_ms)
        ]
        self.records[:dirty] = sorted(data + markers, key=_offset_of)

    def _is_young(self, record: LogRecord, now_ms: int, retention_ms: int) -> bool:
        return now_ms < self._horizons.setdefault(record.offset, now_ms + retention_ms)

    def _place(self, offset: int) -> int:
        """The place in `records` of the first record at or after that offset."""
        return bisect_left(self.records, offset, key=_offset_of)

    def _abort(self, producer: int, first: int, marker: int) -> None:
        for record in self.records[self._place(first) : self._place(marker)]:
            if record.producer == producer:
                self._aborted.add(record.offset)

    def _rebuild_transactions(self) -> None:
        """Transactions whose control record was truncated are open again."""
        self.open.clear()
        self._aborted.clear()
        for record in self.records:
            if record.producer is None:
                continue
            if not record.marker:
                self.open.setdefault(record.producer, record.offset)
                continue
            first = self.open.pop(record.producer, None)
            if first is not None and record.marker == "abort":
                self._abort(record.producer, first, record.offset)


def read_all(log: PartitionLog) -> list[LogRecord]:
    """All that a read_committed reader gets, in pieces."""
    found: list[LogRecord] = []
    position = log.start
    while position < log.stable:
        some, position = log.read(position, 7)
        found += some
    return found


def _offset_of(record: LogRecord) -> int:
    return record.offset


def _is_same_batch(first: LogRecord, second: LogRecord) -> bool:
    """Batches are not kept: records of one moment and one producer count as one."""
    if first.marker or second.marker:
        return False
    return (first.timestamp_ms, first.producer) == (second.timestamp_ms, second.producer)


class FormerRecords(NamedTuple):
    """The end offset and the `history` of a log before a truncation."""

    end: int
    history: list[tuple[int, int]]


@dataclass(eq=False)
class PlainLog:
    """A partition of an ordinary topic. A negative `open_offset` means that no transaction is open."""

    leader: int | None
    end: int = 0
    start: int = 0
    epoch: int = 0
    open_offset: int = -1
    history: list[tuple[int, int]] = field(default_factory=list)
    """The end offset from each wall-clock time in ms on."""
    former: list[FormerRecords] = field(default_factory=list)
    """The records that were lost in truncations."""

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return self.end if self.open_offset < 0 else min(self.open_offset, self.end)

    def batch_start(self, offset: int) -> int:
        """The same offset: these logs have no batches."""
        return offset

    def write(self, records: int, wall_ms: int) -> None:
        """Appends that many records."""
        self.end += records
        self.history.append((wall_ms, self.end))

    def written_ms(self, offset: int) -> int | None:
        """When the record at that offset was written; None if there is none yet."""
        return find_written_ms(self.history, offset)

    def truncate(self, offset: int) -> None:
        """Drops the records from `offset` on."""
        self.former.append(FormerRecords(self.end, self.history))
        self.end = max(offset, self.start)
        self.history = [(at, min(end, self.end)) for at, end in self.history]

    def elect(self, leader: int | None) -> None:
        """Another leader, with a new leader epoch. None: the partition becomes leaderless."""
        self.leader = leader
        self.epoch += leader is not None

    def trim(self, offset: int) -> None:
        """Moves the log start offset, as DeleteRecords does."""
        self.start = max(self.start, min(offset, self.end))

    def offset_at_time(self, wall_ms: int) -> int:
        """The offset of the first record written at that time or later, -1 if there is none."""
        place = bisect_left(self.history, (wall_ms, -1))
        before = self.history[place - 1][1] if place else 0
        first = max(before, self.start)
        return first if first < self.end else -1


def find_written_ms(history: list[tuple[int, int]], offset: int) -> int | None:
    """When the record at that offset was written, by the `history` of a `PlainLog`; None if it was not."""
    place = bisect_right(history, offset, key=lambda entry: entry[1])
    return history[place][0] if place < len(history) else None


LogT = TypeVar("LogT", PartitionLog, PlainLog)


@dataclass(eq=False)
class Topic(Generic[LogT]):
    """A topic. `id` is in Kafka's notation, of 22 characters."""

    name: str
    id: str
    partitions: list[LogT]
