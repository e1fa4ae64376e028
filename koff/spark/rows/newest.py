"""Finds the commits that matter to the table `current`, and derives its rows: numpy over Arrow, no Spark.

A slot is a (group, topic, partition). In this module, a slot whose commits are in two partitions of the
offsets topic counts as two slots, until `_keep_last_coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.lag.window import WINDOW

Ints = NDArray[np.int64]
TICK_MS = 1000
"""Commits within one second count as one, as in the tracker."""
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


def keep_newest(commits: pa.RecordBatch) -> pa.RecordBatch:
    """The commits that matter to `current`: for each slot its last commit, its last deletion, and the last
    commit of each of its last `WINDOW` seconds after that deletion.

    The other rows change nothing in `current`, whatever rows come before or after this batch.
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


SLOT_UPDATES = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("commit_timestamp", pa.timestamp("us", "UTC")),
        ("topic_id", pa.string()),
        ("offsets_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("deleted", pa.bool_()),
        ("cleared", pa.int64()),
        (
            "more",
            pa.list_(pa.struct([("at_ms", pa.int64()), ("committed", pa.int64()), ("lag", pa.int64())])),
        ),
    ]
)
"""A row for each slot, as `derive_slot_updates` returns it: the slot's last commit; `cleared`, the log offset
of its last deletion; and `more`, its last commits after that deletion with the lag after each, at most one a
second, the newest first (null: there are none)."""
STALE_MS = 600_000
"""An end offset that was sampled more than this before a commit is not used for the lag after that commit."""


def derive_slot_updates(commits: pa.RecordBatch, ends: pa.RecordBatch) -> pa.RecordBatch:
    """What the commits change in `current`: a row of `SLOT_UPDATES` for each slot.

    There is at least one commit. `ends` are sampled end offsets of the same topic partitions, with the
    columns topic, partition, timestamp and committed (the end offset).
    """
    # `keep_newest` returns rows sorted by slot, then by log offset.
    rows = keep_newest(commits)
    slot, is_deletion = _number_slots(rows), _to_numpy(rows, "tombstone", 0) != 0
    row = np.arange(len(rows))
    first = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    size = np.diff(np.append(first, len(rows)))
    number, last = np.repeat(np.arange(len(first)), size), first + size - 1

    # The last commits after the slot's last deletion (-1: none).
    deletion = np.maximum.reduceat(np.where(is_deletion, row, -1), first)
    alive = ~is_deletion & (_to_numpy(rows, "committed", -1) >= 0) & (row > deletion[number])
    second = _to_numpy(rows, "commit_timestamp", _NEVER_US) // (TICK_MS * 1000)
    kept = _find_last_seconds(row[alive], number[alive], second[alive])
    values = pa.StructArray.from_arrays(
        [
            pa.array(second[kept] * TICK_MS, mask=second[kept] == _NEVER_US // (TICK_MS * 1000)),
            rows.column("committed").take(pa.array(kept)),
            _lags_after(rows.take(pa.array(kept)), ends),
        ],
        fields=list(SLOT_UPDATES.field("more").type.value_type),
    )
    count = np.bincount(number[kept], minlength=len(first))
    starts = np.append(0, np.cumsum(count)).astype(np.int32)
    more = pa.ListArray.from_arrays(pa.array(starts, mask=np.append(count == 0, False)), values)

    # A row for each slot: the columns of its last commit, and the derived ones.
    cleared = pa.array(_to_numpy(rows, "log_offset", 0)[deletion], mask=deletion < 0)
    last_rows = rows.take(pa.array(last))
    derived = {"deleted": last_rows.column("tombstone"), "cleared": cleared, "more": more}
    columns = [derived[name] if name in derived else last_rows.column(name) for name in SLOT_UPDATES.names]
    return _keep_last_coordinator(pa.RecordBatch.from_arrays(columns, schema=SLOT_UPDATES))


_NEVER_US = -(1 << 62)
"""Stands for a time that is null; differences to it do not overflow 64 bits."""


def _find_last_seconds(row: Ints, number: Ints, second: Ints) -> Ints:
    """The last row of each of a slot's last `WINDOW` seconds, by slot, the newest second first."""
    order = np.lexsort((row, second, number))
    ends = np.append((np.diff(number[order]) != 0) | (np.diff(second[order]) != 0), True)[: len(order)]
    kept = order[ends]
    kept = kept[np.lexsort((-row[kept], number[kept]))]
    newer = np.arange(len(kept)) - np.searchsorted(number[kept], number[kept])
    found: Ints = row[kept[newer < WINDOW]]
    return found


def _lags_after(commits: pa.RecordBatch, ends: pa.RecordBatch) -> pa.Array:
    """The lag after each commit, by the last end offset that was sampled before it; null if the sample is
    more than `STALE_MS` older."""
    if not len(ends) or not len(commits):
        return pa.nulls(len(commits), pa.int64())

    # Number the topic partitions of both alike.
    both = pa.Table.from_batches([batch.select(["topic", "partition"]) for batch in (commits, ends)])
    place = _number_combinations(both.combine_chunks().to_batches()[0], ("topic", "partition"))
    commit_place, end_place = place[: len(commits)], place[len(commits) :]

    # One sorted key of (partition, time) for a single search: each partition has `span` keys of its own. The
    # times of commits are clipped into the span: before the first sample there is no end offset, and at its
    # upper limit the last sample is too old.
    sampled = _to_numpy(ends, "timestamp", _NEVER_US) // 1000
    origin = int(sampled.min()) - 1
    span = int(sampled.max()) - origin + STALE_MS + 2
    order = np.lexsort((sampled, end_place))
    keys = end_place[order] * span + sampled[order] - origin
    seen = np.clip(_to_numpy(commits, "timestamp", _NEVER_US) // 1000 - origin, 0, span - 1)
    position = np.searchsorted(keys, commit_place * span + seen, side="right") - 1

    # The sample before each commit. It may be one of another partition, or too old.
    before = order[np.maximum(position, 0)]
    known = (position >= 0) & (end_place[before] == commit_place)
    known &= seen - (sampled[before] - origin) <= STALE_MS
    lag = _to_numpy(ends, "committed", 0)[before] - _to_numpy(commits, "committed", 0)
    return pa.array(np.maximum(lag, 0), mask=~known)


def _keep_last_coordinator(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One row for each (group, topic, partition): that of the offsets partition with the last commit.

    A group has commits in two offsets partitions after the offsets topic was given more partitions.
    """
    slot = _number_combinations(rows, ("group", "topic", "partition"))
    order = np.lexsort((_to_numpy(rows, "timestamp", _NEVER_US), slot))
    last = order[np.append(np.diff(slot[order]) != 0, True)[: len(order)]]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last)))


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
