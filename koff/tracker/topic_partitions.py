"""The topic partitions that groups commit to or are assigned, and their sampled offsets."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import (
    ENDS_SPAN_MS,
    UNKNOWN,
    Curves,
    EndHistory,
    FirstRecords,
    Rates,
    TimeLags,
    is_topic_recreated,
    produce_rates,
    refine_with_records,
    time_lag_s,
)
from koff.lag.end_history import TICK_MS
from koff.lag.samples import Floats
from koff.proto.primitives import parse_uuid
from koff.records.key_codes import NameCodes
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_occurrences, spread_bits
from koff.tracker.saved_state import State, compact_codes, expand_codes

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


_SAMPLED = ("_end", "_start", "_stable", "_sampled_at", "_stable_at", "_held_since")


class PartitionTable:
    """Numbers topic partitions from 0, and holds their sampled offsets as columns by that number.

    A (topic, partition) keeps its number until `release_unused` frees it. Topics are codes of `topics`.
    """

    def __init__(self, topics: NameCodes | None = None) -> None:
        self._topics = topics or NameCodes()
        self._index = RowIndex()
        self._count = 0
        self._free: list[int] = []
        self._topic = np.zeros(64, np.int32)
        self._partition = np.zeros(64, np.int32)
        self._gone = np.zeros(64, np.bool_)
        self._end = np.full(64, UNKNOWN, np.int64)
        self._start = np.full(64, UNKNOWN, np.int64)
        self._stable = np.full(64, UNKNOWN, np.int64)
        self._sampled_at = np.full(64, UNKNOWN, np.int64)
        self._stable_at = np.full(64, UNKNOWN, np.int64)
        # When the last stable offset was first sampled as what it is now; unknown if no record was above it.
        self._held_since = np.full(64, UNKNOWN, np.int64)
        self._unused_since = np.full(64, UNKNOWN, np.int64)
        # By topic name, for topics that have a code: the (folded) id that the history of end offsets is of.
        # Until the topic is identified, it is the id that a restored history was saved with.
        self._topic_ids: dict[str, int] = {}
        self._present: Mapping[str, str] = {}  # as of the last `identify_topics`
        self.retention_s: Mapping[str, float] = {}
        """How long topics keep their records, in seconds, as far as that is known."""
        self._history = EndHistory()
        self._reach_s: float | None = None
        self._oldest_ms: float = math.inf  # the age up to which a sample shows the lag at a commit

    def __len__(self) -> int:
        return self._count - len(self._free)

    @property
    def room(self) -> int:
        """The upper bound of the numbers: every number is below it. Free numbers count too."""
        return self._count

    def lags_at_commit(self, numbers: NDArray[np.integer[Any]], committed: Ints, live_ms: int) -> Ints:
        """The lag that each of these commits had at the time `live_ms`, when they were read.

        It is UNKNOWN without an end offset, and for history (`live_ms` is UNKNOWN). It is UNKNOWN too if
        the end offset was requested after the commits were read: commits may wait before they are applied.
        And it is UNKNOWN if the end offset was requested too long before (`expect_samples`).
        """
        if live_ms == UNKNOWN:
            return np.full(len(committed), UNKNOWN, np.int64)
        end, age_ms = self._end[numbers], live_ms - self._sampled_at[numbers]
        known = (end >= 0) & (age_ms >= 0) & (age_ms <= self._oldest_ms)
        return np.where(known, np.maximum(end - committed, 0), UNKNOWN)

    def lag_at_commit(self, number: int, committed: int, live_ms: int) -> int:
        """The same for one commit, in less time."""
        end, age_ms = self._end.item(number), live_ms - self._sampled_at.item(number)
        is_known = live_ms != UNKNOWN and end >= 0 and 0 <= age_ms <= self._oldest_ms
        return max(end - committed, 0) if is_known else UNKNOWN

    def fits_topic(self, numbers: NDArray[np.integer[Any]], topic_ids: Ints) -> NDArray[np.bool_]:
        """Whether these partitions exist, and their topics have these (folded) ids. An unknown id fits."""
        present = self._topic_ids_by_code()[self._topic[numbers]]
        is_another = is_topic_recreated(committed_topic_id=topic_ids, topic_id=present)
        fits: NDArray[np.bool_] = ~(self._gone[numbers] | is_another)
        return fits

    def expect_past_ends(self, reach_s: float, *, gap_ms: int = 30_000) -> None:
        """Promises that `add_past_ends` fills the history of end offsets, as far back as `reach_s`.

        Until it has, time lags are unknown. `gap_ms` is the longest usual time between two samples.
        """
        self._reach_s, self._history.gap_ms = reach_s, gap_ms

    def expect_samples(self, interval_s: float) -> None:
        """Promises a sample of each end offset every `interval_s`.

        So an end offset that is older by more than `RESPONSE_MS` shows no lag at commit: koff had a pause, or
        has lost the leader. A commit above it would seem to have caught up, and of several commits each would
        seem to be nearer to the end than the one before.
        """
        self._oldest_ms = 1000 * interval_s + max(500 * interval_s, RESPONSE_MS)

    def assign_numbers(self, topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        """The number of each (topic code, partition) (N,). Partitions without a number get one."""
        keys = self._index_keys(topics, partitions)
        numbers = self._index.find(keys)
        missing = np.flatnonzero(numbers == NO_ROW)
        if missing.size:
            new = missing[first_occurrences(keys[missing])]
            # One partition may occur several times among the missing. Freed numbers are used first.
            freed = [self._free.pop() for _ in range(min(len(new), len(self._free)))]
            more = len(new) - len(freed)
            self._grow_columns(more)
            rows = np.array([*freed, *range(self._count, self._count + more)], np.int64)
            self._topic[rows], self._partition[rows] = topics[new], partitions[new]
            self._count += more
            self._index.add(keys[new], rows)
            numbers[missing] = self._index.find(keys[missing])
        return numbers

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
        for name, offsets in (("_end", ends), ("_start", starts), ("_stable", stables)):
            if not offsets:
                continue
            rows = self.assign_numbers_by_name(offsets)  # before getattr: it may replace the columns
            values = np.fromiter(offsets.values(), np.int64, len(offsets))
            if name == "_start":  # a lower one is that of a topic created again, whose end is not known yet
                values = np.where(values == UNKNOWN, UNKNOWN, np.maximum(values, self._start[rows]))
            elif name == "_stable":
                self._note_held(rows, values, at_ms)
            getattr(self, name)[rows] = values
            if name == "_end":
                self._sampled_at[rows], self._gone[rows] = at_ms, False  # it has an end, so it exists
                if at_ms != UNKNOWN:
                    self._history.add_samples(rows, self._end[rows], at_ms)

    def _note_held(self, rows: Ints, stables: Ints, at_ms: int) -> None:
        """Notes since when these last stable offsets have been where they are now, below the end offset."""
        held = (stables >= 0) & (stables < self._end[rows])
        since = self._held_since[rows]
        is_same = (since != UNKNOWN) & (stables == self._stable[rows])
        self._held_since[rows] = np.where(held, np.where(is_same, since, at_ms), UNKNOWN)
        self._stable_at[rows] = at_ms

    def add_past_ends(self, offsets: Offsets, at_ms: int) -> None:
        """Adds past end offsets to the history. Partitions without a number are ignored.

        An offset is the first with a record at `at_ms` or later.
        """
        rows = self._find_numbers(offsets)
        known = np.flatnonzero(rows != NO_ROW)
        ends = np.fromiter(offsets.values(), np.int64, len(offsets))
        self._history.add_past_points(rows[known], ends[known], at_ms)

    def clear_history(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Drops the history of end offsets of these partitions, or of all, but for their newest samples."""
        size = min(self._count, len(self._history))
        cleared = np.arange(len(self._history))
        if partitions is not None:
            found = self._find_numbers(partitions)
            cleared = found[(found != NO_ROW) & (found < size)]
        self._history.clear(cleared)
        at, end = self._sampled_at[:size], self._end[:size]
        # Samples that are much older than others would look like a clock that was set.
        recent = (at != UNKNOWN) & (end != UNKNOWN) & (at > at.max(initial=UNKNOWN) - RECENT_MS)
        recent &= np.isin(np.arange(size), cleared)
        for at_ms in np.unique(at[recent]).tolist():
            rows = np.flatnonzero(recent & (at == at_ms))
            self._history.add_samples(rows, end[rows], at_ms)

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

        The arguments are those of `time_lags`. The result is of those rows that have a lag.
        """
        oldest = np.maximum(committed, self._start[rows])
        behind = np.flatnonzero((committed >= 0) & (oldest < self._end[rows]))
        if not len(behind):  # as a rule
            return behind, behind
        if records is not None:
            records = records.select(behind)
        found = self.time_lags(rows[behind], committed[behind], now_ms, records, skew_ms=skew_ms)
        undated = behind[~found.known]
        return rows[undated], oldest[undated]

    def forget_offsets(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Sets the sampled offsets of the partitions to unknown. `gone`: the partitions no longer exist."""
        rows = self.assign_numbers_by_name(list(partitions))
        for name in _SAMPLED:
            getattr(self, name)[rows] = UNKNOWN
        self._gone[rows] = gone
        # A failed request leaves the history as it is: the log is still the same.
        if gone:
            self._history.clear(rows[rows < len(self._history)])

    def release_unused(self, used: NDArray[np.bool_], at_ms: int = UNKNOWN) -> None:
        """Frees the numbers of partitions that are not `used` (a mask by number).

        A partition without end offset history is freed at once, any other `KEEP_UNUSED_MS` after it was first
        found unused at a time `at_ms`. Without `at_ms`, partitions with a history are kept.
        """
        n = self._count
        idle, since = ~used & (self._partition[:n] >= 0), self._unused_since[:n]
        kept = np.zeros(n, np.bool_)  # the history may have fewer rows than there are numbers
        in_history = np.arange(min(n, len(self._history)))
        kept[in_history] = self._history.newest_ends(in_history) != UNKNOWN
        # The time since when a partition is unused starts again whenever it is used.
        since[~idle] = UNKNOWN
        if at_ms != UNKNOWN:
            since[idle & (since == UNKNOWN)] = at_ms
            kept &= at_ms - since <= KEEP_UNUSED_MS
        self._release_numbers(np.flatnonzero(idle & ~kept))

    def topic_codes(self) -> list[int]:
        """The codes of the topics that have a numbered partition."""
        codes: list[int] = np.unique(self._topic[: self._count][self._partition[: self._count] >= 0]).tolist()
        return codes

    def keep_topic_ids(self, topics: Iterable[int]) -> None:
        """Drops the ids of topics whose codes are not in `topics`."""
        kept = {self._topics.names[code] for code in topics}
        self._topic_ids = {name: id_ for name, id_ in self._topic_ids.items() if name in kept}

    def _release_numbers(self, rows: Ints) -> None:
        if not len(rows):  # as a rule
            return
        self._index.remove(self._index_keys(self._topic[rows], self._partition[rows]))
        for name in (*_SAMPLED, "_unused_since"):
            getattr(self, name)[rows] = UNKNOWN
        self._topic[rows] = self._partition[rows] = -1  # marks a free row
        self._gone[rows] = False
        self._history.clear(rows[rows < len(self._history)])
        self._free.extend(rows.tolist())

    @staticmethod
    def _index_keys(topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        # Topic code and partition in one number. The view as unsigned keeps a negative partition to 32 bits.
        return spread_bits(topics.astype(np.int64) << 32 | partitions.view(np.uint32))

    def ends_at(self, at_ms: int) -> Ints:
        """The end offset of each partition at `at_ms`; UNKNOWN before its first sample."""
        ends = np.full(self._count, UNKNOWN, np.int64)
        rows = np.arange(min(self._count, len(self._history)))
        ends[rows] = self._history.ends_at(rows, at_ms)
        return ends

    def produce_rates(self) -> Rates:
        """The produce rate of each partition."""
        rates = Rates(np.zeros(self._count), np.zeros(self._count, np.bool_))
        rows = np.arange(min(self._count, len(self._history)))
        rates.per_s[rows], rates.known[rows] = produce_rates(self._history, rows)
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
        start, reach_s = self._start[rows], self._reach_s
        if records is None:
            return time_lag_s(self._history, rows, committed, now_ms, start=start, reach_s=reach_s)
        return refine_with_records(
            self._history,
            rows,
            committed,
            now_ms,
            records,
            start=start,
            end=self._end[rows],
            reach_s=reach_s,
            skew_ms=skew_ms,
        )

    def is_unread(self, rows: Ints, committed: Ints, records: FirstRecords | None) -> NDArray[np.bool_]:
        """A mask of the rows that have a lag but no valid record in `records`."""
        end, oldest = self._end[rows], np.maximum(committed, self._start[rows])
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
        watched_end, _ = self._history.first_samples(rows, now_ms)
        is_older = (np.maximum(committed, self._start[rows]) < watched_end) | times.at_least | ~times.known
        stands: NDArray[np.bool_] = is_late & ~(now_ms - moved_ms < STILL_MS)
        return is_older | stands

    def identify_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Sets the present ids of topics, by name. A topic that was created again loses its history.

        The table keeps `topic_ids`, and looks up a topic once it has a code.
        """
        self._note_topic_ids()
        self._present = topic_ids
        for name in self._topic_ids.keys() & topic_ids.keys():
            id_ = fold_topic_id(topic_ids[name])
            if id_ and self._topic_ids[name] != id_:
                self._topic_ids[name] = id_
                rows = np.flatnonzero(self._topic[: self._count] == self._topics.assign_code(name))
                self._history.clear(rows[rows < len(self._history)])

    def _note_topic_ids(self) -> None:
        """Looks up the ids of topics that are new here."""
        for name in self._topics.names:
            if name not in self._topic_ids and (id_ := self._find_topic_id(name)):
                self._topic_ids[name] = id_

    def _find_topic_id(self, name: str) -> int:
        """The folded id of the topic, 0 if unknown."""
        return self._topic_ids.get(name, 0) or fold_topic_id(self._present.get(name, ""))

    def save_ends(self, now_ms: int | None = None) -> State:
        """A copy of the end offset history of all partitions, for `restore_ends`.

        `now_ms` is the present time by the clock of the samples. With it, another clock can be used later.
        """
        rows = np.arange(min(self._count, len(self._history)))
        rows = rows[self._history.newest_ends(rows) != UNKNOWN]  # those with a sample
        curves = self._history.save(rows)
        if curves is None:
            return State({"topic_names": []}, {})
        assert curves.gaps is not None
        assert curves.live is not None
        topic, partition = self.codes_and_partitions(rows)
        names, topic = compact_codes(topic, self._topics)
        return State(
            {
                "topic_names": names,
                "epoch_ms": curves.epoch_ms,
                "tick": curves.tick,
                "saved_at_ms": now_ms,
            },
            {
                "topic_id": np.array([self._find_topic_id(name) for name in names], np.int64),
                "topic": topic,
                "partition": partition,
                "count": curves.count,
                "offset": curves.offsets,
                "tick": curves.ticks,
                "gap": curves.gaps,
                "live": curves.live,
            },
        )

    def restore_ends(
        self, state: State, *, now_ms: int | None = None, pause_ms: int | None = None
    ) -> str | None:
        """Restores the history from `save_ends`. Returns why not, or None.

        `now_ms` is the present time by the clock of the samples to come. `pause_ms` is how long ago the state
        was saved; with it, the saved times are converted to that clock, whatever clock they are by. Without
        `pause_ms`, they must be by the same clock. A history whose newest sample is in the future is not
        restored: the pause since then is unknown, so each of its ages is, and `add_past_ends` can fill a new
        history within seconds. Without `now_ms`, no time is checked.

        The history of a topic is left out if the topic has another id by now: it was created again. If its
        present id is not known yet, `identify_topics` drops that history later.

        Raises ValueError if an end offset was sampled before.
        """
        facts, columns = state.facts, state.columns
        if not columns:
            return None
        epoch_ms = facts["epoch_ms"]
        if now_ms is not None and pause_ms is not None and facts.get("saved_at_ms") is not None:
            epoch_ms += now_ms - pause_ms - facts["saved_at_ms"]
        if now_ms is not None and epoch_ms + facts["tick"] * TICK_MS > now_ms:
            return "its newest end offset is of a time that is in the future"
        names = facts["topic_names"]
        saved_ids = zip(names, columns["topic_id"].tolist(), strict=True)
        same = {name: id_ for name, id_ in saved_ids if self._find_topic_id(name) in (0, id_)}
        points = (
            columns["count"],
            columns["offset"],
            columns["tick"],
            columns.get("gap"),
            columns.get("live"),
        )
        curves = Curves(epoch_ms, facts["tick"], *points)
        # Numbers are valid in one process only: the saved names get new numbers.
        kept = np.flatnonzero(np.array([name in same for name in names], np.bool_)[columns["topic"]])
        codes = expand_codes(names, columns["topic"][kept], self._topics)
        rows = self.assign_numbers(codes, columns["partition"][kept])
        self._history.restore(rows, curves if len(kept) == len(columns["topic"]) else curves.select(kept))
        self._topic_ids |= {name: id_ for name, id_ in same.items() if id_}
        return None

    def codes_and_partitions(
        self, rows: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The topic codes and the partitions of the partition numbers `rows`."""
        return self._topic[rows], self._partition[rows]

    def assign_numbers_by_name(self, partitions: Iterable[tuple[str, int]]) -> Ints:
        """The number of each (topic, partition). Partitions without a number get one."""
        return self.assign_numbers(*self._codes_of(partitions))

    def _find_numbers(self, partitions: Iterable[tuple[str, int]]) -> Ints:
        """The number of each (topic, partition); `NO_ROW` without one."""
        return self._index.find(self._index_keys(*self._codes_of(partitions)))

    def _codes_of(self, partitions: Iterable[tuple[str, int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The topic codes and the partitions. New topics get a code."""
        pairs = [(self._topics.assign_code(topic), partition) for topic, partition in partitions]
        codes = np.array(pairs, np.int32).reshape(-1, 2)
        # Copies: `_index_keys` views the columns as another type, which must be contiguous.
        return codes[:, 0].copy(), codes[:, 1].copy()

    def take_snapshot(self, now_ms: int | None = None) -> PartitionSnapshot:
        """A copy of all columns. Without `now_ms` it has no `end_before` and no `produce`."""
        # A free row has topic code -1: index -1 is the appended "".
        n, topics = self._count, [*self._topics.names, ""]
        codes = self._topic[:n].tolist()
        return PartitionSnapshot(
            topic=[topics[code] for code in codes],
            partition=self._partition[:n].tolist(),
            end=self._end[:n].copy(),
            start=self._start[:n].copy(),
            stable=self._stable[:n].copy(),
            sampled_at=self._sampled_at[:n].copy(),
            held_ms=self._held_ms(n),
            gone=self._gone[:n].copy(),
            topic_id=self._topic_ids_by_code()[self._topic[:n]],
            retention_s=self._retention_by_code()[self._topic[:n]],
            end_before=None if now_ms is None else self.ends_at(now_ms - ENDS_SPAN_MS),
            produce=None if now_ms is None else self.produce_rates(),
        )

    def _held_ms(self, size: int) -> Ints:
        since, at = self._held_since[:size], self._stable_at[:size]
        return np.where((since != UNKNOWN) & (at != UNKNOWN), at - since, UNKNOWN)

    def _topic_ids_by_code(self) -> Ints:
        """The present id of each topic, 0 if unknown, and at last a 0 for code -1."""
        self._note_topic_ids()
        return np.array([*(self._topic_ids.get(name, 0) for name in self._topics.names), 0], np.int64)

    def _retention_by_code(self) -> Floats:
        """How long each topic keeps its records, and at last a NaN for code -1."""
        known = self.retention_s
        return np.array([*(known.get(name, math.nan) for name in self._topics.names), math.nan])

    def _grow_columns(self, more: int) -> None:
        size = len(self._topic)
        while size < self._count + more:
            size *= 2
        more = size - len(self._topic)
        if more:
            self._topic = np.concatenate([self._topic, np.zeros(more, np.int32)])
            self._partition = np.concatenate([self._partition, np.zeros(more, np.int32)])
            self._gone = np.concatenate([self._gone, np.zeros(more, np.bool_)])
            for name in (*_SAMPLED, "_unused_since"):
                setattr(self, name, np.concatenate([getattr(self, name), np.full(more, UNKNOWN, np.int64)]))


def fold_topic_ids(ids: NDArray[np.uint8]) -> Ints:
    """Topic ids (N, 16) reduced to 64 bits each, 0 for the zero id.

    That suffices to distinguish the id of a topic from that of its successor of the same name.
    """
    # Without the factor, an id with two equal halves would become 0.
    halves = np.ascontiguousarray(ids).view(np.int64).reshape(-1, 2)
    return halves[:, 0] ^ (halves[:, 1] * 3)


@functools.lru_cache(maxsize=1024)
def fold_topic_id(topic_id: str) -> int:
    """`fold_topic_ids` of one id in Kafka's text form of 22 characters; 0 for ""."""
    return int(fold_topic_ids(np.frombuffer(parse_uuid(topic_id), np.uint8))[0]) if topic_id else 0
