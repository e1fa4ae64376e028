"""Numbers for the topic partitions that groups commit to or are assigned, and columns by these numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.records.key_codes import NameCodes
from koff.tracker.column_table import ColumnTable, column
from koff.tracker.row_index import NO_ROW, Ints, RowIndex, first_occurrences, spread_bits

FREE = -1
"""The partition of a number that no topic partition has."""


class PartitionColumns(ColumnTable):
    """The known facts of a topic partition, by its number. Offsets and times in ms are UNKNOWN at first."""

    topic: NDArray[np.int32] = column(np.int32, FREE)
    partition: NDArray[np.int32] = column(np.int32, FREE)
    gone: NDArray[np.bool_] = column(np.bool_)
    end: Ints = column(np.int64, UNKNOWN)
    start: Ints = column(np.int64, UNKNOWN)
    stable: Ints = column(np.int64, UNKNOWN)
    sampled_at: Ints = column(np.int64, UNKNOWN)
    stable_at: Ints = column(np.int64, UNKNOWN)
    held_since: Ints = column(np.int64, UNKNOWN)
    """When the last stable offset was first sampled as what it is now; unknown if no record was above it."""
    unused_since: Ints = column(np.int64, UNKNOWN)


SAMPLED = ("end", "start", "stable", "sampled_at", "stable_at", "held_since")
"""The columns that samples fill."""


class NumberedPartitions:
    """Numbers topic partitions from 0. A (topic, partition) keeps its number until that is released.

    Topics are codes of `topics`.
    """

    def __init__(self, topics: NameCodes | None = None) -> None:
        self.topics = topics or NameCodes()
        self.columns = PartitionColumns()
        self.room = 0
        """The upper bound of the numbers: every number is below it. Free numbers count too."""
        self.numbering = 0
        """Changes whenever a topic partition gets or loses its number."""
        self._index = RowIndex()
        self._free: list[int] = []
        self._new: list[Ints] | None = None

    def __len__(self) -> int:
        return self.room - len(self._free)

    def assign(self, topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
        """The number of each (topic code, partition) (N,). Partitions without a number get one."""
        keys = _index_keys(topics, partitions)
        numbers = self._index.find(keys)
        missing = np.flatnonzero(numbers == NO_ROW)
        if missing.size:
            new = missing[first_occurrences(keys[missing])]
            # One partition may occur several times among the missing. Freed numbers are used first.
            freed = [self._free.pop() for _ in range(min(len(new), len(self._free)))]
            end = self.room + len(new) - len(freed)
            rows = np.array([*freed, *range(self.room, end)], np.int64)
            self.columns.reserve(end)
            self.columns.topic[rows], self.columns.partition[rows] = topics[new], partitions[new]
            self.room = end
            self._index.add(keys[new], rows)
            numbers[missing] = self._index.find(keys[missing])
            self.numbering += 1
            if self._new is not None:
                self._new.append(rows)
        return numbers

    def assign_by_name(self, partitions: Iterable[tuple[str, int]]) -> Ints:
        """The number of each (topic, partition). Partitions without a number get one."""
        return self.assign(*self._find_codes(partitions))

    def find_by_name(self, partitions: Iterable[tuple[str, int]]) -> Ints:
        """The number of each (topic, partition); `NO_ROW` without one."""
        return self._index.find(_index_keys(*self._find_codes(partitions)))

    def find_names(self, numbers: NDArray[np.integer[Any]]) -> tuple[list[str], list[int]]:
        """The topics and the partitions with these numbers; "" and FREE for a free number."""
        names = [*self.topics.names, ""]  # index -1 is that of a free number
        topics = [names[code] for code in self.columns.topic[numbers].tolist()]
        return topics, self.columns.partition[numbers].tolist()

    def mask_used(self) -> NDArray[np.bool_]:
        """A mask of the numbers that topic partitions have."""
        used: NDArray[np.bool_] = self.columns.partition[: self.room] != FREE
        return used

    def list_topic_codes(self) -> list[int]:
        """The codes of the topics that have a numbered partition."""
        codes: list[int] = np.unique(self.columns.topic[: self.room][self.mask_used()]).tolist()
        return codes

    def release(self, numbers: Ints) -> None:
        """Frees these numbers, and forgets what their columns have."""
        if not len(numbers):  # as a rule
            return
        self._index.remove(_index_keys(self.columns.topic[numbers], self.columns.partition[numbers]))
        self.columns.reset(numbers)
        self._free.extend(numbers.tolist())
        self.numbering += 1
        self._new = None  # a freed number may be used again

    def drain_new(self) -> Ints | None:
        """Numbers given since the last call. None: any number may be new, or free."""
        new, self._new = self._new, []
        return None if new is None else np.unique(np.concatenate([np.zeros(0, np.int64), *new]))

    def _find_codes(
        self, partitions: Iterable[tuple[str, int]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The topic codes and the partitions. New topics get a code."""
        pairs = [(self.topics.assign_code(topic), partition) for topic, partition in partitions]
        codes = np.array(pairs, np.int32).reshape(-1, 2)
        # Copies: `_index_keys` views the columns as another type, which must be contiguous.
        return codes[:, 0].copy(), codes[:, 1].copy()


def _index_keys(topics: NDArray[np.int32], partitions: NDArray[np.int32]) -> Ints:
    # Topic code and partition in one number. The view as unsigned keeps a negative partition to 32 bits.
    return spread_bits(topics.astype(np.int64) << 32 | partitions.view(np.uint32))
