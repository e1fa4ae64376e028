"""The first record at or after each row's committed offset, from which exact time lags are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, FirstRecords
from koff.tracker.row_index import Ints

_COLUMNS = 1 + len(FirstRecords._fields)


class LaggingRow(NamedTuple):
    """A row with a lag whose first uncommitted record is not known.

    `key` identifies the row (group, topic, partition) in this process, whatever the group commits.
    """

    key: int
    topic: str
    partition: int
    committed: int


def join_records(parts: Sequence[FirstRecords | None], rows: Sequence[Ints]) -> FirstRecords | None:
    """The first records of several lists of rows as one. None if there are none in any of them.

    `rows` are arrays as long as the lists.
    """
    if all(part is None for part in parts):
        return None
    columns = (
        part or FirstRecords(unread := np.full(len(own), UNKNOWN, np.int64), unread, unread)
        for part, own in zip(parts, rows, strict=True)
    )
    return FirstRecords(*map(np.concatenate, zip(*columns, strict=True)))


class FirstRecordTable:
    """The first records that were read, by row. It takes no memory until a record is read."""

    def __init__(self) -> None:
        # The committed offset that the record was read for, and the columns of `FirstRecords`.
        self._columns = np.zeros((_COLUMNS, 0), np.int64)

    def put(self, rows: Ints, committed: Ints, records: FirstRecords) -> None:
        """Sets the first record of `rows`, as read for the `committed` offsets."""
        if not rows.size:
            return
        self._reserve(int(rows.max(initial=-1)) + 1)
        self._columns[:, rows] = committed, *records

    def get(self, rows: Ints, committed: Ints) -> FirstRecords | None:
        """The records of `rows`, UNKNOWN where not read, or for an offset above `committed`. None without any
        record that was read.
        """
        if not self._columns.size:
            return None
        self._reserve(int(rows.max(initial=-1)) + 1)
        read_for, offset, *timestamps = self._columns[:, rows]
        return FirstRecords(np.where(read_for <= committed, offset, UNKNOWN), *timestamps)

    def clear(self, rows: Ints) -> None:
        """Drops the records of `rows`, which will stand for other partitions."""
        self._columns[:, rows[rows < self._columns.shape[1]]] = UNKNOWN

    def _reserve(self, size: int) -> None:
        more = size - self._columns.shape[1]
        if more > 0:
            # An eighth more than needed, so that a growing shard seldom copies.
            new = np.full((_COLUMNS, more + size // 8 + 16), UNKNOWN, np.int64)
            self._columns = np.concatenate([self._columns, new], axis=1)
