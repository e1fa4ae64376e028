"""The topic partitions that anyone committed to, and what was sampled of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
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
    produce_rates,
    time_lag_s,
    with_records,
)
from koff.proto.primitives import uuid_bytes
from koff.records.key_codes import Names
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_of_each, spread
from koff.tracker.saved_state import State, numbered, recoded

Offsets = Mapping[tuple[str, int], int]
KEEP_UNUSED_MS = 600_000
"""For how long it stays known where the ends stood of a partition that nobody uses: groups come back."""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Rows by partition id: names, and sampled offsets (-1: not known). Some rows are free: partition -1.

    `gone`: the topic, or that partition of it, does not exist. `topic_id`: of the topic as it is now, folded
    (`fold`), 0 where not known. `sampled_at`: when the end was asked for, ms of the caller's clock.
    """

    topic: list[str]
    partition: list[int]
    end: Ints
    start: Ints
    stable: Ints
    sampled_at: Ints
    gone: NDArray[np.bool_]
    topic_id: Ints
    end_before: Ints | None = None
    """What the end was `ENDS_SPAN_MS` ago; None when the snapshot was taken without a time."""
    produce: Rates | None = None
    """How fast the ends grew; None likewise."""


_OFFSETS = ("_end", "_start", "_stable", "_sampled_at")


class PartitionTable:
    """Gives each (topic, partition) a small number, until `retire`, and keeps its sampled offsets by it.

    Topics are numbers too: codes of `topics`.
    """

    def __init__(self, topics: Names | None = None) -> None:
        self._topics = topics or Names()
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
        self._unused_since = np.full(64, UNKNOWN, np.int64)
        self._topic_ids: dict[int, int] = {}
        self._history = EndHistory()
        self._history_of: dict[int, int] = {}  # the topic's id, by its code, where it is known

    def __len__(self) -> int:
        return self._count - len(self._free)

    @property
    def room(self) -> int:
        """All numbers are below this."""
        return self._count

    @property
    def end(self) -> Ints:
        """Sampled end offsets by id."""
        return self._end

    def ids(self, topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        """The numbers of those partitions; new ones for those that have none."""
        keys = self._keys(topics, partitions)
        found = self._index.find(keys)
        missing = np.flatnonzero(found == NO_ROW)
        if missing.size:
            new = missing[first_of_each(keys[missing])]
            freed = [self._free.pop() for _ in range(min(len(new), len(self._free)))]
            more = len(new) - len(freed)
            self._grow(more)
            rows = np.array([*freed, *range(self._count, self._count + more)], np.int64)
            self._topic[rows], self._partition[rows] = topics[new], partitions[new]
            self._count += more
            self._index.add(keys[new], rows)
            found[missing] = self._index.find(keys[missing])
        return found

    def sample(
        self,
        *,
        ends: Offsets | None = None,
        starts: Offsets | None = None,
        stables: Offsets | None = None,
        at_ms: int = UNKNOWN,
    ) -> None:
        """Notes sampled offsets, the ends as of `at_ms`; partitions that were not known are from now on."""
        for name, offsets in (("_end", ends), ("_start", starts), ("_stable", stables)):
            if offsets:
                rows = self.numbers(offsets)  # may replace the columns by longer ones
                getattr(self, name)[rows] = np.fromiter(offsets.values(), np.int64, len(offsets))
        if ends:
            rows = self.numbers(ends)
            self._sampled_at[rows], self._gone[rows] = at_ms, False
            if at_ms != UNKNOWN:
                self._history.add(rows, self._end[rows], at_ms)

    def forget(self, partitions: Iterable[tuple[str, int]], *, gone: bool = True) -> None:
        """Offsets of those partitions are not known from here on; `gone` says that they do not exist."""
        rows = self.numbers(list(partitions))
        for name in _OFFSETS:
            getattr(self, name)[rows] = UNKNOWN
        self._gone[rows] = gone
        if gone:
            self._history.forget(rows[rows < len(self._history)])

    def retire(self, used: NDArray[np.bool_], at_ms: int = UNKNOWN) -> None:
        """Frees the numbers of partitions that are not `used` (a row a number).

        Those without a history at once, the others after a while; without a time these all stay.
        """
        n = self._count
        idle, since = ~used & (self._partition[:n] >= 0), self._unused_since[:n]
        kept = np.zeros(n, np.bool_)
        reached = np.arange(min(n, len(self._history)))
        kept[reached] = self._history.newest(reached) != UNKNOWN
        since[~idle] = UNKNOWN
        if at_ms != UNKNOWN:
            since[idle & (since == UNKNOWN)] = at_ms
            kept &= at_ms - since <= KEEP_UNUSED_MS
        self._release(np.flatnonzero(idle & ~kept))

    def topics(self) -> list[int]:
        """The codes of the topics that have partitions here."""
        codes: list[int] = np.unique(self._topic[: self._count][self._partition[: self._count] >= 0]).tolist()
        return codes

    def keep_ids(self, topics: Iterable[int]) -> None:
        """Forgets the ids of all topics but those with these codes."""
        kept = set(topics)
        for ids in (self._topic_ids, self._history_of):
            for code in ids.keys() - kept:
                del ids[code]

    def _release(self, rows: Ints) -> None:
        self._index.remove(self._keys(self._topic[rows], self._partition[rows]))
        for name in (*_OFFSETS, "_unused_since"):
            getattr(self, name)[rows] = UNKNOWN
        self._topic[rows] = self._partition[rows] = -1
        self._gone[rows] = False
        self._history.forget(rows[rows < len(self._history)])
        self._free.extend(rows.tolist())

    @staticmethod
    def _keys(topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        return spread(topics.astype(np.int64) << 32 | partitions.view(np.uint32))

    def ends_at(self, at_ms: int) -> Ints:
        """What each partition's end was then; UNKNOWN before its first sample."""
        ends = np.full(self._count, UNKNOWN, np.int64)
        rows = np.arange(min(self._count, len(self._history)))
        ends[rows] = self._history.ends_at(rows, at_ms)
        return ends

    def produce_rates(self) -> Rates:
        """How fast each partition's end grows."""
        rates = Rates(np.zeros(self._count), np.zeros(self._count, np.bool_))
        rows = np.arange(min(self._count, len(self._history)))
        rates.per_s[rows], rates.known[rows] = produce_rates(self._history, rows)
        return rates

    def time_lag(
        self, rows: Ints, committed: Ints, now_ms: int, records: FirstRecords | None = None
    ) -> TimeLags:
        """How old the oldest record is that lies behind those commits to those partitions.

        `records` are those of them that were read.
        """
        start = self._start[rows]
        by_ends = time_lag_s(self._history, rows, committed, now_ms, start=start)
        if records is None:
            return by_ends
        return with_records(by_ends, records, start=start, end=self._end[rows], now_ms=now_ms)

    def unread(self, rows: Ints, committed: Ints, records: FirstRecords | None) -> NDArray[np.bool_]:
        """Where there is a lag, and `records` do not tell (any more) how old it is."""
        start, end = self._start[rows], self._end[rows]
        behind = (committed >= 0) & (committed < end)
        return behind if records is None else behind & ~records.hold(start=start, end=end)

    def identify(self, topic_ids: Mapping[str, str]) -> None:
        """Notes the present ids of topics, by name. What was created anew has no history."""
        present = {self._topics.code(name): fold_text(given) for name, given in topic_ids.items()}
        self._topic_ids.update(present)
        for code, given in present.items():
            if given and self._history_of.setdefault(code, given) != given:
                self._history_of[code] = given
                rows = np.flatnonzero(self._topic[: self._count] == code)
                self._history.forget(rows[rows < len(self._history)])

    def save_ends(self) -> State:
        """Where the ends of all partitions stood in the past, for `restore_ends`."""
        rows = np.arange(min(self._count, len(self._history)))
        rows = rows[self._history.newest(rows) != UNKNOWN]
        curves = self._history.save(rows)
        if curves is None:
            return State({"topic_names": []}, {})
        topic, partition = self.places(rows)
        codes = np.unique(topic)
        names, topic = numbered(topic, self._topics)
        return State(
            {"topic_names": names, "epoch_ms": curves.epoch_ms, "tick": curves.tick},
            {
                "topic_id": np.array([self._history_of.get(code, 0) for code in codes.tolist()], np.int64),
                "topic": topic,
                "partition": partition,
                "count": curves.count,
                "offset": curves.offsets,
                "tick": curves.ticks,
            },
        )

    def restore_ends(self, state: State) -> None:
        """Takes back what `save_ends` gave. Raises ValueError if an end was sampled before."""
        facts, columns = state.facts, state.columns
        if not columns:
            return
        names = facts["topic_names"]
        rows = self.ids(recoded(names, columns["topic"], self._topics), columns["partition"])
        curves = Curves(
            facts["epoch_ms"], facts["tick"], columns["count"], columns["offset"], columns["tick"]
        )
        self._history.restore(rows, curves)
        for name, topic_id in zip(names, columns["topic_id"].tolist(), strict=True):
            if topic_id:
                self._history_of[self._topics.code(name)] = topic_id

    def places(self, rows: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The topic (its code) and the partition of each of those numbers."""
        return self._topic[rows], self._partition[rows]

    def names(self) -> list[tuple[str, int]]:
        """All (topic, partition) that have a number, in the order of these."""
        topics, n = self._topics.names, self._count
        return [
            (topics[t], p)
            for t, p in zip(self._topic[:n].tolist(), self._partition[:n].tolist(), strict=True)
            if p >= 0
        ]

    def numbers(self, at: Iterable[tuple[str, int]]) -> Ints:
        """The numbers of those (topic, partition); new ones for those that have none."""
        pairs = [(self._topics.code(topic), partition) for topic, partition in at]
        codes = np.array(pairs, np.int32).reshape(-1, 2)
        return self.ids(codes[:, 0].copy(), codes[:, 1].copy())

    def snapshot(self, now_ms: int | None = None) -> PartitionSnapshot:
        """A copy that later changes leave alone."""
        n, topics, ids = self._count, [*self._topics.names, ""], self._topic_ids
        codes = self._topic[:n].tolist()
        return PartitionSnapshot(
            topic=[topics[code] for code in codes],
            partition=self._partition[:n].tolist(),
            end=self._end[:n].copy(),
            start=self._start[:n].copy(),
            stable=self._stable[:n].copy(),
            sampled_at=self._sampled_at[:n].copy(),
            gone=self._gone[:n].copy(),
            topic_id=np.fromiter((ids.get(code, 0) for code in codes), np.int64, n),
            end_before=None if now_ms is None else self.ends_at(now_ms - ENDS_SPAN_MS),
            produce=None if now_ms is None else self.produce_rates(),
        )

    def _grow(self, more: int) -> None:
        size = len(self._topic)
        while size < self._count + more:
            size *= 2
        more = size - len(self._topic)
        if more:
            self._topic = np.concatenate([self._topic, np.zeros(more, np.int32)])
            self._partition = np.concatenate([self._partition, np.zeros(more, np.int32)])
            self._gone = np.concatenate([self._gone, np.zeros(more, np.bool_)])
            for name in (*_OFFSETS, "_unused_since"):
                setattr(self, name, np.concatenate([getattr(self, name), np.full(more, UNKNOWN, np.int64)]))


def fold(ids: NDArray[np.uint8]) -> Ints:
    """Topic ids, (rows, 16), in 64 bits each, 0 for the zero id: enough to tell one from its successor."""
    halves = np.ascontiguousarray(ids).view(np.int64).reshape(-1, 2)
    return halves[:, 0] ^ (halves[:, 1] * 3)


@functools.lru_cache(maxsize=1024)
def fold_text(topic_id: str) -> int:
    """The same of one id in Kafka's 22 characters; 0 for "" ."""
    return int(fold(np.frombuffer(uuid_bytes(topic_id), np.uint8))[0]) if topic_id else 0
