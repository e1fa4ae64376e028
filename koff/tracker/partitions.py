"""The topic partitions that anyone committed to, and what was sampled of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.records.names import Names
from koff.tracker.index import NO_ROW, Ints, RowIndex, first_of_each, spread

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Rows by partition id: names, and sampled offsets (-1: not known, or the topic is gone)."""

    topic: list[str]
    partition: list[int]
    end: Ints
    start: Ints


class PartitionTable:
    """Gives each (topic, partition) a small number, for good, and keeps its sampled offsets by it.

    Topics are numbers too: codes of `topics`.
    """

    def __init__(self, topics: Names | None = None) -> None:
        self._topics = topics or Names()
        self._index = RowIndex()
        self._count = 0
        self._topic = np.zeros(64, np.int32)
        self._partition = np.zeros(64, np.int32)
        self._end = np.full(64, UNKNOWN, np.int64)
        self._start = np.full(64, UNKNOWN, np.int64)

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> Ints:
        """Sampled end offsets by id."""
        return self._end

    def ids(self, topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        """The numbers of those partitions; new ones for those that have none."""
        keys = spread(topics.astype(np.int64) << 32 | partitions.view(np.uint32))
        found = self._index.find(keys)
        missing = np.flatnonzero(found == NO_ROW)
        if missing.size:
            new = missing[first_of_each(keys[missing])]
            rows = np.arange(self._count, self._count + len(new))
            self._grow(len(new))
            self._topic[rows], self._partition[rows] = topics[new], partitions[new]
            self._count += len(new)
            self._index.add(keys[new], rows)
            found[missing] = self._index.find(keys[missing])
        return found

    def sample(self, *, ends: Offsets | None = None, starts: Offsets | None = None) -> None:
        """Notes sampled offsets; partitions that were not known are from now on."""
        for offsets, known in ((ends or {}, "_end"), (starts or {}, "_start")):
            if offsets:
                rows = self._rows(offsets)
                getattr(self, known)[rows] = np.fromiter(offsets.values(), np.int64, len(offsets))

    def forget(self, gone: Iterable[tuple[str, int]]) -> None:
        """Partitions that are no more: their offsets are not known from here on."""
        rows = self._rows(list(gone))
        self._end[rows] = UNKNOWN
        self._start[rows] = UNKNOWN

    def names(self) -> list[tuple[str, int]]:
        """All (topic, partition), in the order of their numbers."""
        topics, n = self._topics.names, self._count
        return [
            (topics[t], p)
            for t, p in zip(self._topic[:n].tolist(), self._partition[:n].tolist(), strict=True)
        ]

    def snapshot(self) -> PartitionSnapshot:
        """A copy that later changes leave alone."""
        n, topics = self._count, self._topics.names
        return PartitionSnapshot(
            [topics[code] for code in self._topic[:n].tolist()],
            self._partition[:n].tolist(),
            self._end[:n].copy(),
            self._start[:n].copy(),
        )

    def _rows(self, at: Iterable[tuple[str, int]]) -> Ints:
        pairs = [(self._topics.code(topic), partition) for topic, partition in at]
        codes = np.array(pairs, np.int32).reshape(-1, 2)
        return self.ids(codes[:, 0].copy(), codes[:, 1].copy())

    def _grow(self, more: int) -> None:
        size = len(self._topic)
        while size < self._count + more:
            size *= 2
        if size > len(self._topic):
            self._topic = np.resize(self._topic, size)
            self._partition = np.resize(self._partition, size)
            added = np.full(size - len(self._end), UNKNOWN, np.int64)
            self._end = np.concatenate([self._end, added])
            self._start = np.concatenate([self._start, added])
