"""Finds what matters to the state in decoded records: numpy over Arrow, no Spark.

A slot is a (group, topic, partition). In this module, a slot whose commits are in two partitions of the
offsets topic counts as two slots.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from koff.lag.window import WINDOW
from koff.spark.rows.decoding import COMMITS

Ints = NDArray[np.int64]
TICK_MS = 1000
"""Commits within one second count as one, as in the tracker."""
COMMIT_COLUMNS = (
    *("offsets_partition", "log_offset", "timestamp", "group", "topic", "partition", "committed"),
    *("leader_epoch", "commit_timestamp", "topic_id", "tombstone"),
)
"""The columns of a commit that the state needs."""
GROUP_COLUMNS = ("offsets_partition", "log_offset", "timestamp", "kind", "group", "key", "value")
"""The columns of a record about a group that the state needs."""
STATE_COLUMNS = tuple(dict.fromkeys(COMMIT_COLUMNS + GROUP_COLUMNS))
LOG_ORDER = [("offsets_partition", "ascending"), ("log_offset", "ascending")]
"""The order of records, for `sort_by`."""
NO_STATE = ("Undecodable", "Unknown")
"""The kinds of records that change nothing in the state."""
CHUNK_ROWS = 500_000
"""How many commits are searched at once: of few commits, most would be the newest of their slot."""


def coalesce_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of at least `CHUNK_ROWS` rows (the last may be smaller)."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(map(len, pending)) >= CHUNK_ROWS:
            yield pa.concat_batches(pending)
            pending = []
    if pending:
        yield pa.concat_batches(pending)


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def split_records(rows: Rows) -> tuple[Rows, Rows]:
    """The commits among decoded records, and the records about groups, with the columns for the state."""
    kinds = rows.column("kind")
    is_commit, is_none = (pc.is_in(kinds, pa.array(names)) for names in (COMMITS, NO_STATE))
    commits, others = rows.filter(is_commit), rows.filter(pc.invert(pc.or_(is_commit, is_none)))
    return commits.select(list(COMMIT_COLUMNS)), others.select(list(GROUP_COLUMNS))


def keep_newest(commits: pa.RecordBatch) -> pa.RecordBatch:
    """The commits that matter to the state: for each slot its last commit, its last deletion, and the last
    commit of each of its last `WINDOW` seconds after that deletion.

    The other rows change nothing in it, whatever rows come before or after this batch.
    """
    if not len(commits):
        return commits

    # Sort by slot, then by log offset. `number` is the number of each row's slot; `first` and `last` are the
    # first and the last row of each slot.
    slot, offset = _number_slots(commits), _to_numpy(commits, "log_offset", 0)
    order = np.lexsort((offset, slot))
    slot = slot[order]
    row = np.arange(len(order))
    first = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    number = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    last = np.append(first[1:], len(order)) - 1

    # A commit is alive if it is after the slot's last deletion (-1: none) and has an offset.
    is_deletion = _to_numpy(commits, "tombstone", 0)[order] != 0
    deletion = np.maximum.reduceat(np.where(is_deletion, row, -1), first)
    alive = ~is_deletion & (_to_numpy(commits, "committed", -1)[order] >= 0) & (row > deletion[number])
    tick = _to_numpy(commits, "commit_timestamp", 0)[order] // (TICK_MS * 1000)

    # Keep the last commits of each slot, its last row, and its last deletion.
    kept = np.zeros(len(order), np.bool_)
    kept[_find_last_ticks(row[alive], number[alive], tick[alive])] = True
    kept[last] = kept[deletion[deletion >= 0]] = True
    return commits.take(pa.array(order[kept]))


def _find_last_ticks(row: Ints, number: Ints, tick: Ints) -> Ints:
    """The last row of each of a slot's last `WINDOW` ticks; rows are sorted by slot, then by log offset.

    Rows with the same tick one after the other count as one tick.
    """
    ends = np.append((number[1:] != number[:-1]) | (tick[1:] != tick[:-1]), True)[: len(row)]
    row, number = row[ends], number[ends]
    # How many ticks of the same slot follow.
    followers = np.searchsorted(number, number, side="right") - 1 - np.arange(len(number))
    found: Ints = row[followers < WINDOW]
    return found


def _number_slots(commits: pa.RecordBatch) -> Ints:
    """A number for each (offsets partition, group, topic, partition)."""
    return _number_combinations(commits, ("offsets_partition", "group", "topic", "partition"))


def _number_combinations(rows: pa.RecordBatch, names: Iterable[str]) -> Ints:
    """A number for each combination of values in these columns; null is a value like any other."""
    number = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows.column(name).dictionary_encode()
        code = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        number = number * (len(column.dictionary) + 1) + code
        # Numbers are made dense again before the next product could overflow 64 bits.
        number = np.unique(number, return_inverse=True)[1] if number.max(initial=0) > 2**40 else number
    return number


def _to_numpy(commits: pa.RecordBatch, name: str, null: int) -> Ints:
    """A column as integers (timestamps in microseconds), with `null` for null."""
    column = commits.column(name).cast(pa.int64()).fill_null(null)
    values: Ints = column.to_numpy(zero_copy_only=False)
    return values
