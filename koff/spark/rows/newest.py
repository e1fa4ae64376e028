"""Which commits of many matter to what is current, and what that is: numpy over Arrow, nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from koff.lag.window import WINDOW

Ints = NDArray[np.int64]
TICK_MS = 1000
"""Commits of one second count as one, as in the tracker."""
CHUNK = 500_000


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in few large batches."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= CHUNK:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def newest(commits: pa.RecordBatch) -> pa.RecordBatch:
    """Of each slot the last commit, the last deletion, and the last commits of the last seconds after it.

    The rest changes nothing of what is current, whatever else there is before or after these rows.
    """
    if not len(commits):
        return commits
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


NEWS = pa.schema(
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
"""What `news` gives: of a slot its last commit, the log offset of its last deletion, and its last commits
after that with the lag that each left, one a second, the newest first (null: none)."""
STALE_MS = 600_000
"""An end that was sampled longer before a commit says nothing of the lag that the commit left."""


def news(commits: pa.RecordBatch, ends: pa.RecordBatch) -> pa.RecordBatch:
    """What the commits change of what is current, a row for each slot: `NEWS`.

    There is a commit at least. `ends` are samples of the same topics' partitions: topic, partition,
    timestamp, committed (the end).
    """
    rows = newest(commits)
    slot, deleted = _slots(rows), _numpy(rows, "tombstone", 0) != 0
    row = np.arange(len(rows))
    first = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    size = np.diff(np.append(first, len(rows)))
    of, last = np.repeat(np.arange(len(first)), size), first + size - 1
    deletion = np.maximum.reduceat(np.where(deleted, row, -1), first)
    alive = ~deleted & (_numpy(rows, "committed", -1) >= 0) & (row > deletion[of])
    second = _numpy(rows, "commit_timestamp", _NEVER_US) // (TICK_MS * 1000)
    kept = _each_second(row[alive], of[alive], second[alive])
    values = pa.StructArray.from_arrays(
        [
            pa.array(second[kept] * TICK_MS, mask=second[kept] == _NEVER_US // (TICK_MS * 1000)),
            rows.column("committed").take(pa.array(kept)),
            _lags(rows.take(pa.array(kept)), ends),
        ],
        fields=list(NEWS.field("more").type.value_type),
    )
    count = np.bincount(of[kept], minlength=len(first))
    starts = np.append(0, np.cumsum(count)).astype(np.int32)
    more = pa.ListArray.from_arrays(pa.array(starts, mask=np.append(count == 0, False)), values)
    cleared = pa.array(_numpy(rows, "log_offset", 0)[deletion], mask=deletion < 0)
    lasts = rows.take(pa.array(last))
    told = {"deleted": lasts.column("tombstone"), "cleared": cleared, "more": more}
    columns = [told[name] if name in told else lasts.column(name) for name in NEWS.names]
    return _of_one_home(pa.RecordBatch.from_arrays(columns, schema=NEWS))


_NEVER_US = -(1 << 62)


def _each_second(row: Ints, of: Ints, second: Ints) -> Ints:
    """The last row of each second, the last seconds of each slot, the newest first within it."""
    order = np.lexsort((row, second, of))
    ends = np.append((np.diff(of[order]) != 0) | (np.diff(second[order]) != 0), True)[: len(order)]
    kept = order[ends]
    kept = kept[np.lexsort((-row[kept], of[kept]))]
    before = np.arange(len(kept)) - np.searchsorted(of[kept], of[kept])
    found: Ints = row[kept[before < WINDOW]]
    return found


def _lags(commits: pa.RecordBatch, ends: pa.RecordBatch) -> pa.Array:
    """The lag that each commit left: by the end that was sampled last before it, if not long before."""
    if not len(ends) or not len(commits):
        return pa.nulls(len(commits), pa.int64())
    both = pa.Table.from_batches([each.select(["topic", "partition"]) for each in (commits, ends)])
    place = _codes(both.combine_chunks().to_batches()[0], ("topic", "partition"))
    mine, theirs = place[: len(commits)], place[len(commits) :]
    sampled = _numpy(ends, "timestamp", _NEVER_US) // 1000
    origin = int(sampled.min()) - 1
    span = int(sampled.max()) - origin + STALE_MS + 2
    order = np.lexsort((sampled, theirs))
    at = theirs[order] * span + sampled[order] - origin
    seen = np.clip(_numpy(commits, "timestamp", _NEVER_US) // 1000 - origin, 0, span - 1)
    found = np.searchsorted(at, mine * span + seen, side="right") - 1
    before = order[np.maximum(found, 0)]
    known = (found >= 0) & (theirs[before] == mine) & (seen - (sampled[before] - origin) <= STALE_MS)
    left = _numpy(ends, "committed", 0)[before] - _numpy(commits, "committed", 0)
    return pa.array(np.maximum(left, 0), mask=~known)


def _of_one_home(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each slot once: in the partition that spoke last, when the offsets topic was given more of them."""
    slot = _codes(rows, ("group", "topic", "partition"))
    order = np.lexsort((_numpy(rows, "timestamp", _NEVER_US), slot))
    last = order[np.append(np.diff(slot[order]) != 0, True)[: len(order)]]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last)))


def _slots(commits: pa.RecordBatch) -> Ints:
    """A number for each (partition of the offsets topic, group, topic, partition)."""
    return _codes(commits, ("offsets_partition", "group", "topic", "partition"))


def _codes(rows: pa.RecordBatch, names: Iterable[str]) -> Ints:
    """A number for each combination of these columns."""
    code = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows.column(name).dictionary_encode()
        more = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        code = code * (len(column.dictionary) + 1) + more
        code = np.unique(code, return_inverse=True)[1] if code.max(initial=0) > 2**40 else code
    return code


def _numpy(commits: pa.RecordBatch, name: str, void: int) -> Ints:
    column = commits.column(name).cast(pa.int64()).fill_null(void)
    found: Ints = column.to_numpy(zero_copy_only=False)
    return found
