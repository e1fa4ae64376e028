"""Which commits of many may matter to what is current: numpy over Arrow, and nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.lag.windows import WINDOW

Ints = NDArray[np.int64]
TICK_MS = 1000
"""Commits of one second count as one, as in the tracker."""
_CHUNK = 500_000


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in few large batches."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _CHUNK:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def newest(commits: pa.RecordBatch) -> pa.RecordBatch:
    """Of each slot the last commit, the last deletion, and the last commits of the last seconds after it.

    The rest changes nothing of what is current, whatever else there is before or after these rows.
    """
    slot, offset = _slots(commits), _numpy(commits, "log_offset", 0)
    order = np.lexsort((offset, slot))
    slot = slot[order]
    row = np.arange(len(order))
    first = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    last = np.append(first[1:], len(order)) - 1
    deleted = _numpy(commits, "tombstone", 0)[order] != 0
    deletion = np.maximum.reduceat(np.where(deleted, row, -1), first)
    alive = ~deleted & (_numpy(commits, "committed", -1)[order] >= 0) & (row > deletion[of])
    tick = _numpy(commits, "commit_timestamp", 0)[order] // (TICK_MS * 1000)
    kept = _last_seconds(row[alive], of[alive], tick[alive])
    found = np.zeros(len(order), np.bool_)
    found[kept] = found[last] = found[deletion[deletion >= 0]] = True
    return commits.take(pa.array(order[found]))


def _last_seconds(row: NDArray[np.int64], of: NDArray[np.int64], tick: NDArray[np.int64]) -> Ints:
    """The last row of each of the last seconds of each slot; rows stand in order within their slot."""
    ends = np.append((of[1:] != of[:-1]) | (tick[1:] != tick[:-1]), True)[: len(row)]
    row, of = row[ends], of[ends]
    behind = np.searchsorted(of, of, side="right") - 1 - np.arange(len(of))
    kept: Ints = row[behind < WINDOW]
    return kept


def _slots(commits: pa.RecordBatch) -> Ints:
    """A number for each (partition of the offsets topic, group, topic, partition)."""
    code = np.zeros(len(commits), np.int64)
    for name in ("offsets_partition", "group", "topic", "partition"):
        column = commits.column(name).dictionary_encode()
        more = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        code = code * (len(column.dictionary) + 1) + more
        code = np.unique(code, return_inverse=True)[1] if code.max(initial=0) > 2**40 else code
    return code


def _numpy(commits: pa.RecordBatch, name: str, void: int) -> Ints:
    column = commits.column(name).cast(pa.int64()).fill_null(void)
    found: Ints = column.to_numpy(zero_copy_only=False)
    return found
