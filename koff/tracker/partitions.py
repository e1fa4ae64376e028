"""The topic partitions that anyone committed to, and what was sampled of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sys import intern

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Rows by partition id: names, and sampled offsets (-1: not known, or the topic is gone)."""

    topic: list[str]
    partition: list[int]
    end: NDArray[np.int64]
    start: NDArray[np.int64]


class PartitionTable:
    """Gives each (topic, partition) a small number, for good, and keeps its sampled offsets by it."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int], int] = {}
        self._topic: list[str] = []
        self._partition: list[int] = []
        self._end = np.full(64, UNKNOWN, np.int64)
        self._start = np.full(64, UNKNOWN, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, topic: str, partition: int) -> int:
        """The number of that partition; a new one if it has none."""
        known = self._ids.get((topic, partition))
        if known is not None:
            return known
        new = len(self._ids)
        if new == len(self._end):
            grown = np.full(new, UNKNOWN, np.int64)
            self._end = np.concatenate([self._end, grown])
            self._start = np.concatenate([self._start, grown])
        topic = intern(topic)  # one string object a topic, not one a partition
        self._topic.append(topic)
        self._partition.append(partition)
        self._ids[topic, partition] = new
        return new

    def sample(
        self,
        *,
        ends: Mapping[tuple[str, int], int] | None = None,
        starts: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Notes sampled offsets; those of partitions that nobody committed to are left out."""
        for column, offsets in ((self._end, ends), (self._start, starts)):
            for at, offset in (offsets or {}).items():
                row = self._ids.get(at)
                if row is not None:
                    column[row] = offset

    def forget(self, gone: Iterable[tuple[str, int]]) -> None:
        """Partitions that are no more: their offsets are not known from here on."""
        rows = [self._ids[at] for at in gone if at in self._ids]
        self._end[rows] = UNKNOWN
        self._start[rows] = UNKNOWN

    def snapshot(self) -> PartitionSnapshot:
        """A copy that later changes leave alone."""
        n = len(self._ids)
        return PartitionSnapshot(
            self._topic[:n], self._partition[:n], self._end[:n].copy(), self._start[:n].copy()
        )
