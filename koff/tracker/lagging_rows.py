"""Rows whose first uncommitted record is to be read: exact time lags are computed from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koff.lag import UNKNOWN, FirstRecords
from koff.tracker.row_index import Ints


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
