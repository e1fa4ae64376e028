"""The first records at or after commits, by row: what exact time lags are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, FirstRecords
from koff.tracker.row_index import Ints


class Behind(NamedTuple):
    """A row with a lag whose first record is not known.

    `key` is the row's for as long as the process lives, whatever it commits.
    """

    key: int
    topic: str
    partition: int
    committed: int


class FirstRecordTable:
    """Columns by row, of no size until something was read: who does not read records pays nothing."""

    def __init__(self) -> None:
        self._columns = np.zeros((3, 0), np.int64)

    def put(self, rows: Ints, committed: Ints, records: FirstRecords) -> None:
        """Notes what was read for those commits."""
        if not rows.size:
            return
        self._reach(int(rows.max(initial=-1)) + 1)
        self._columns[:, rows] = committed, *records

    def get(self, rows: Ints, committed: Ints) -> FirstRecords | None:
        """What was read for the rows' commits; None when nothing ever was."""
        if not self._columns.size:
            return None
        self._reach(int(rows.max(initial=-1)) + 1)
        read_for, offset, timestamp_ms = self._columns[:, rows]
        return FirstRecords(np.where(read_for == committed, offset, UNKNOWN), timestamp_ms)

    def clear(self, rows: Ints) -> None:
        """Forgets those rows, which will stand for other partitions."""
        self._columns[:, rows[rows < self._columns.shape[1]]] = UNKNOWN

    def _reach(self, size: int) -> None:
        more = size - self._columns.shape[1]
        if more > 0:
            new = np.full((3, more + size // 8 + 16), UNKNOWN, np.int64)
            self._columns = np.concatenate([self._columns, new], axis=1)
