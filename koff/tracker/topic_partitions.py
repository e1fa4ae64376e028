"""The sampled offsets of topic partitions, and the history of their end offsets."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    ENDS_SPAN_MS,
    UNKNOWN,
    EndHistory,
    FirstRecords,
    Rates,
    TimeLags,
    is_topic_recreated,
    produce_rates,
    refine_with_records,
    time_lag_s,
)
from koff.lag.verdict_sample import Floats
from koff.records.key_codes import NameCodes
from koff.tracker.numbered_partitions import SAMPLED, NumberedPartitions
from koff.tracker.row_index import NO_ROW, Ints
from koff.tracker.topic_ids import TopicIds

Offsets = Mapping[tuple[str, int], int]
RECENT_MS = 30_000
"""Samples that are older than the newest one by less are kept when the history is dropped."""
RESPONSE_MS = 2_500
"""A sample is one interval old when the next is requested, and older by up to this, or by half the interval,
when that is returned."""
KEEP_UNUSED_MS = 600_000
"""How long the end offsets of an unused partition are kept: a group may come back to it."""

LATE_S, STILL_MS = 30.0, 30_000
"""A row is late from so much lag on, and stands still if its committed offset has not changed for so long."""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Columns by partition number: names, and sampled offsets (-1: unknown). A free row has partition -1.

    `gone` is set if the topic, or that partition of it, does not exist. `topic_id` is the present id of the
    topic (`fold_topic_ids`), 0 if unknown. `sampled_at` is the time of the request for the end offset, in ms
    of the caller's clock. `held_ms` is how long the last stable offset is known to have stayed where it is,
    below the end offset: so long, at least, the transaction at that offset has been open. `retention_s` is
    how long the topic keeps a record, NaN if that is unknown.
    """

    topic: list[str]
    partition: list[int]
    end: Ints
    start: Ints
    stable: Ints
    sampled_at: Ints
    held_ms: Ints
    gone: NDArray[np.bool_]
    topic_id: Ints
    retention_s: Floats
    end_before: Ints | None = None
    """The end offsets `ENDS_SPAN_MS` ago; None if the snapshot was taken without a time."""
    produce: Rates | None = None
    """The produce rates; None if the snapshot was taken without a time."""


class PartitionTable:
    """The sampled offsets of the topic partitions that have a number, and their history."""

    def __init__(self, topics: NameCodes | None = None) -> None:
        self.numbers = NumberedPartitions(topics)
        self.topic_ids = TopicIds(self.numbers.topics)
        self.history = EndHistory()
        """By number. It may have fewer rows than there are numbers."""
        self.retention_s: Mapping[str, float] = {}
        """How long topics keep their records, in seconds, as far as that is known."""
        self._columns = self.numbers.columns
        self._reach_s: float | None = None
        self._oldest_ms: float = math.inf  # the age up to which a sample shows the lag at a commit

    def list_in_history(self) -> Ints:
        """The numbers that the history has rows for."""
        return np.arange(min(self.numbers.room, len(self.history)))

    def lags_at_commit(self, numbers: NDArray[np.integer[Any]], committed: Ints, live_ms: int) -> Ints:
        """The lag that each of these commits had at the time `live_ms`, when they were read.

        It is UNKNOWN without an end offset, and for history (`live_ms` is UNKNOWN). It is UNKNOWN too if
        the end offset was requested after the commits were read: commits may wait before they are applied.
        And it is UNKNOWN if the end offset was requested too long before (`expect_samples`).
        """
        if live_ms == UNKNOWN:
            return np.full(len(committed), UNKNOWN, np.int64)
        end, age_ms = self._columns.end[numbers], live_ms - self._columns.sampled_at[numbers]
        known = (end >= 0) & (age_ms >= 0) & (age_ms <= self._oldest_ms)
        return np.where(known, np.maximum(end - committed, 0), UNKNOWN)

    def lag_at_commit(self, number: int, committed: int, live_ms: int) -> int:
        """The same for one commit, in less time."""
        columns = self._columns
        end, age_ms = columns.end.item(number), live_ms - columns.sampled_at.item(number)
        is_known = live_ms != UNKNOWN and end >= 0 and 0 <= age_ms <= self._oldest_ms
        return max(end - committed, 0) if is_known else UNKNOWN

    def fits_topic(self, numbers: NDArray[np.integer[Any]], topic_ids: Ints) -> NDArray[np.bool_]:
        """Whether these partitions exist, and their topics have these (folded) ids. An unknown id fits."""
        present = self.topic_ids.list_by_code()[self._columns.topic[numbers]]
        is_another = is_topic_recreated(committed_topic_id=topic_ids, topic_id=present)
        fits: NDArray[np.bool_] = ~(self._columns.gone[numbers] | is_another)
        return fits

    def expect_past_ends(self, reach_s: float, *, gap_ms: int = 30_000) -> None:
        """Promises that `add_past_ends` fills the history of end offsets, as far back as `reach_s`.

        Until it has, time lags are unknown. `gap_ms` is the longest usual time between two samples.
        """
        self._reach_s, self.history.gap_ms = reach_s, gap_ms

    def expect_samples(self, interval_s: float) -> None:
        """Promises a sample of each end offset every `interval_s`.

        So an end offset that is older by more than `RESPONSE_MS` shows no lag at commit: koff had a pause, or
        has lost the leader. A commit above it would seem to have caught up, and of several commits each would
        seem to be nearer to the end than the one before.
        """
        self._oldest_ms = 1000 * interval_s + max(500 * interval_s, RESPONSE_MS)

    def add_samples(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Sets sampled offsets. `at_ms` is when they were requested; UNKNOWN keeps no history.

        Partitions that have no number get one. A log start offset goes back to UNKNOWN only.
        """
        for name, offsets in (("end", ends), ("start", starts), ("stable", stables)):
            if not offsets:
                continue
            rows = self.numbers.assign_by_name(offsets)  # before any look at a column, which it may replace
            values = np.fromiter(offsets.values(), np.int64, len(offsets))
            if name == "start":  # a lower one is that of a topic created again, whose end is not known yet
                values = np.where(values == UNKNOWN, UNKNOWN, np.maximum(values, self._columns.start[rows]))
            elif name == "stable":
                self._note_held(rows, values, at_ms)
            getattr(self._columns, name)[rows] = values
            if name == "end":
                # It has an end offset, so it exists.
                self._columns.sampled_at[rows], self._columns.gone[rows] = at_ms, False
                if at_ms != UNKNOWN:
                    self.history.add_samples(rows, self._columns.end[rows], at_ms)

    def _note_held(self, rows: Ints, stables: Ints, at_ms: int) -> None:
        """Notes since when these last stable offsets have been where they are now, below the end offset."""
        held = (stables >= 0) & (stables < self._columns.end[rows])
        since = self._columns.held_since[rows]
        is_same = (since != UNKNOWN) & (stables == self._columns.stable[rows])
        self._columns.held_since[rows] = np.where(held, np.where(is_same, since, at_ms), UNKNOWN)
        self._columns.stable_at[rows] = at_ms

    def add_past_ends(self, offsets: Offsets, at_ms: int) -> None:
        """Adds past end offsets to the history. Partitions without a number are ignored.

        An offset is the first with a record at `at_ms` or later.
        """
        rows = self.numbers.find_by_name(offsets)
        known = np.flatnonzero(rows != NO_ROW)
        ends = np.fromiter(offsets.values(), np.int64, len(offsets))
        self.history.add_past_points(rows[known], ends[known], at_ms)

    def clear_history(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Drops the history of end offsets of these partitions, or of all, but for their newest samples."""
        size = min(self.numbers.room, len(self.history))
        cleared = np.arange(len(self.history))
        if partitions is not None:
            found = self.numbers.find_by_name(partitions)
            cleared = found[(found != NO_ROW) & (found < size)]
        self.history.clear(cleared)
        at, end = self._columns.sampled_at[:size], self._columns.end[:size]
        # Samples that are much older than others would look like a clock that was set.
        recent = (at != UNKNOWN) & (end != UNKNOWN) & (at > at.max(initial=UNKNOWN) - RECENT_MS)
        recent &= np.isin(np.arange(size), cleared)
        for at_ms in np.unique(at[recent]).tolist():
            rows = np.flatnonzero(recent & (at == at_ms))
            self.history.add_samples(rows, end[rows], at_ms)

    def find_undated(
        self,
        rows: Ints,
        committed: Ints,
        now_ms: int,
        records: FirstRecords | None = None,
        *,
        skew_ms: int = 0,
    ) -> tuple[Ints, Ints]:
        """The partitions and offsets of the oldest uncommitted records whose age is unknown.

        The arguments are those of `time_lags`. The result has the rows that have a lag.
        """
        oldest = np.maximum(committed, self._columns.start[rows])
        behind = np.flatnonzero((committed >= 0) & (oldest < self._columns.end[rows]))
        if not len(behind):  # as a rule
            return behind, behind
        if records is not None:
            records = records.select(behind)
        found = self.time_lags(rows[behind], committed[behind], now_ms, records, skew_ms=skew_ms)
        undated = behind[~found.known]
        return rows[undated], oldest[undated]

    def forget_offsets(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Sets the sampled offsets of the partitions to unknown. `gone`: the partitions no longer exist."""
        rows = self.numbers.assign_by_name(list(partitions))
        for name in SAMPLED:
            getattr(self._columns, name)[rows] = UNKNOWN
        self._columns.gone[rows] = gone
        # A failed request leaves the history as it is: the log is still the same.
        if gone:
            self._clear_history(rows)

    def _clear_history(self, rows: Ints) -> None:
        self.history.clear(rows[rows < len(self.history)])

    def release_unused(self, used: NDArray[np.bool_], at_ms: int = UNKNOWN) -> None:
        """Frees the numbers of partitions that are not `used` (a mask by number).

        A partition without end offset history is freed at once, any other `KEEP_UNUSED_MS` after it was first
        found unused at a time `at_ms`. Without `at_ms`, partitions with a history are kept.
        """
        n = self.numbers.room
        idle, since = ~used & self.numbers.mask_used(), self._columns.unused_since[:n]
        kept = np.zeros(n, np.bool_)  # the history may have fewer rows than there are numbers
        in_history = self.list_in_history()
        kept[in_history] = self.history.newest_ends(in_history) != UNKNOWN
        # The time since when a partition is unused starts again whenever it is used.
        since[~idle] = UNKNOWN
        if at_ms != UNKNOWN:
            since[idle & (since == UNKNOWN)] = at_ms
            kept &= at_ms - since <= KEEP_UNUSED_MS
        released = np.flatnonzero(idle & ~kept)
        self._clear_history(released)
        self.numbers.release(released)

    def ends_at(self, at_ms: int) -> Ints:
        """The end offset of each partition at `at_ms`; UNKNOWN before its first sample."""
        ends = np.full(self.numbers.room, UNKNOWN, np.int64)
        rows = self.list_in_history()
        ends[rows] = self.history.ends_at(rows, at_ms)
        return ends

    def produce_rates(self) -> Rates:
        rates = Rates.build_unknown(self.numbers.room)
        rows = self.list_in_history()
        rates.per_s[rows], rates.known[rows] = produce_rates(self.history, rows)
        return rates

    def time_lags(
        self,
        rows: Ints,
        committed: Ints,
        now_ms: int,
        records: FirstRecords | None = None,
        *,
        skew_ms: int = 0,
    ) -> TimeLags:
        """The ages of the oldest uncommitted records, for the `committed` offsets in the partitions `rows`.

        `records` are the first uncommitted records, where they were read; their timestamps are by clocks that
        koff's is ahead of by `skew_ms`.
        """
        start, reach_s = self._columns.start[rows], self._reach_s
        if records is None:
            return time_lag_s(self.history, rows, committed, now_ms, start=start, reach_s=reach_s)
        return refine_with_records(
            self.history,
            rows,
            committed,
            now_ms,
            records,
            start=start,
            end=self._columns.end[rows],
            reach_s=reach_s,
            skew_ms=skew_ms,
        )

    def is_unread(self, rows: Ints, committed: Ints, records: FirstRecords | None) -> NDArray[np.bool_]:
        """A mask of the rows that have a lag but no valid record in `records`."""
        end, oldest = self._columns.end[rows], np.maximum(committed, self._columns.start[rows])
        behind = (committed >= 0) & (committed < end)
        return behind if records is None else behind & ~records.is_valid(oldest=oldest, end=end)

    def is_worth_reading(self, rows: Ints, committed: Ints, moved_ms: Ints, now_ms: int) -> NDArray[np.bool_]:
        """A mask of the rows, which lag, whose first record may change their time lag.

        Of records that have arrived since the first sample, the samples know the age. But the record may have
        been removed by compaction, or there may be only control records left, since a transaction ends with
        one: then a late row stands still. `moved_ms` is when the committed offset last changed, and `now_ms`
        the present time, by the clock of the samples.
        """
        times = self.time_lags(rows, committed, now_ms)
        is_late = ~times.known | (times.seconds >= LATE_S)
        watched_end, _ = self.history.first_samples(rows, now_ms)
        is_older = np.maximum(committed, self._columns.start[rows]) < watched_end
        is_older |= times.at_least | ~times.known
        stands: NDArray[np.bool_] = is_late & ~(now_ms - moved_ms < STILL_MS)
        return is_older | stands

    def identify_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Sets the present ids of topics, by name. A topic that was created again loses its history."""
        for name in self.topic_ids.identify(topic_ids):
            code = self.numbers.topics.assign_code(name)
            self._clear_history(np.flatnonzero(self._columns.topic[: self.numbers.room] == code))

    def take_snapshot(self, now_ms: int | None = None) -> PartitionSnapshot:
        """A copy of all columns. Without `now_ms` it has no `end_before` and no `produce`."""
        n, columns = self.numbers.room, self._columns
        topic, partition = self.numbers.find_names(np.arange(n))
        return PartitionSnapshot(
            topic=topic,
            partition=partition,
            end=columns.end[:n].copy(),
            start=columns.start[:n].copy(),
            stable=columns.stable[:n].copy(),
            sampled_at=columns.sampled_at[:n].copy(),
            held_ms=self._held_ms(n),
            gone=columns.gone[:n].copy(),
            topic_id=self.topic_ids.list_by_code()[columns.topic[:n]],
            retention_s=self._retention_by_code()[columns.topic[:n]],
            end_before=None if now_ms is None else self.ends_at(now_ms - ENDS_SPAN_MS),
            produce=None if now_ms is None else self.produce_rates(),
        )

    def _held_ms(self, size: int) -> Ints:
        since, at = self._columns.held_since[:size], self._columns.stable_at[:size]
        return np.where((since != UNKNOWN) & (at != UNKNOWN), at - since, UNKNOWN)

    def _retention_by_code(self) -> Floats:
        """How long each topic keeps its records, and at last a NaN for code -1."""
        known = self.retention_s
        return np.array([*(known.get(name, math.nan) for name in self.numbers.topics.names), math.nan])
