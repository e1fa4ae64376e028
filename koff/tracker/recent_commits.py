"""The last commits of every row: the offset, time and lag of each commit, packed into twelve bytes.

And the time of the last commit that changed the offset, however many commits ago that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints

WIDTH = 10
"""Commits per row."""
TICK_MS = 1000
"""Commits within one tick count as one commit, with the newest offset (Burrow's minimum distance)."""
_INT32_MAX = 2**31 - 1
_SLOTS = ("_offset", "_time", "_lag")
_SAVED = ("_base", "_head", "_count", "_moved")
"""A saved state has these columns whole. Of the columns in `_SLOTS`, it has the filled slots only."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The windows of some rows: arrays (rows, WIDTH), newest last, unfilled slots in front.

    Times are in ms; `lag` is -1 where unknown; `count` (rows,) is the number of filled slots.
    """

    offset: Ints
    time_ms: Ints
    lag: Ints
    count: NDArray[np.int64]


class WindowTable:
    """A ring of `WIDTH` commits per row.

    Offsets are relative to the row's base, times are ticks (seconds since 1970), both in 32 bits. A jump of
    more than two billion offsets moves the base. Lags above two billion are stored as two billion.
    """

    def __init__(self) -> None:
        self._base = np.zeros(0, np.int64)
        self._offset = np.zeros((WIDTH, 0), np.int32)
        self._time = np.zeros((WIDTH, 0), np.int32)
        self._lag = np.zeros((WIDTH, 0), np.int32)
        self._head = np.zeros(0, np.int8)
        self._count = np.zeros(0, np.int8)
        self._moved = np.zeros(0, np.int32)

    def resize(self, rows: int) -> None:
        """Makes room for `rows` rows, which is at least the present number."""
        more = rows - len(self._base)
        self._base = np.concatenate([self._base, np.zeros(more, np.int64)])
        for name in _SLOTS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((WIDTH, more), np.int32)], axis=1))
        # A head of -1 makes 0 the next slot.
        self._head = np.concatenate([self._head, np.full(more, -1, np.int8)])
        self._count = np.concatenate([self._count, np.zeros(more, np.int8)])
        self._moved = np.concatenate([self._moved, np.zeros(more, np.int32)])

    def clear(self, rows: Ints) -> None:
        """Drops all commits of `rows`."""
        self._head[rows], self._count[rows] = -1, 0

    def add(self, rows: Ints, offset: Ints, time_ms: Ints, lag: Ints) -> None:
        """Adds commits (N,) in the order given; a row may occur more than once."""
        tick = np.clip(time_ms // TICK_MS, -_INT32_MAX, _INT32_MAX)
        # A stable sort keeps the commits of a row in order. numpy has a fast radix sort only for 16 bits.
        short = rows.astype(np.uint16) if rows.max() < 1 << 16 else rows
        order = np.argsort(short, kind="stable")
        rows, offset, tick, lag = rows[order], offset[order], tick[order], lag[order]
        self._note_moves(rows, offset, tick)
        # Of the commits of a row in one tick, only the last one is written.
        joins = (rows[1:] == rows[:-1]) & (tick[1:] == tick[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~joins]))
        last = np.append(first[1:], len(rows)) - 1
        self._write_slots(rows[first], offset[last], tick[first], lag[last])

    def add_one(self, row: int, offset: int, time_ms: int, lag: int) -> None:
        """Adds one commit, in less time than `add`."""
        tick = max(-_INT32_MAX, min(time_ms // TICK_MS, _INT32_MAX))
        head, count = self._head.item(row), self._count.item(row)
        if count == 0 or self._offset.item(head, row) + self._base.item(row) != offset:
            self._moved[row] = tick
        if count == 0:
            self._base[row] = offset
        elif abs(offset - self._base.item(row)) > _INT32_MAX:
            self._move_base(np.array([row]), np.array([offset]))
        # A commit in the tick of the newest slot overwrites that slot; any other takes the next slot.
        if count == 0 or self._time.item(head, row) != tick:
            head = (head + 1) % WIDTH
            self._time[head, row] = tick
            self._head[row], self._count[row] = head, min(count + 1, WIDTH)
        self._offset[head, row] = offset - self._base.item(row)
        self._lag[head, row] = min(lag, _INT32_MAX)

    def get(self, rows: Ints) -> Windows:
        """The windows of `rows`."""
        count = self._count[rows].astype(np.int64)
        # The head is the newest slot, so the slot after it is the oldest, or unfilled.
        slots = (self._head[rows].astype(np.int64)[:, None] + 1 + np.arange(WIDTH)) % WIDTH
        columns = rows[:, None]
        return Windows(
            self._offset[slots, columns] + self._base[rows][:, None],
            self._time[slots, columns].astype(np.int64) * TICK_MS,
            self._lag[slots, columns].astype(np.int64),
            count,
        )

    def moved_ms(self, rows: Ints) -> Ints:
        """When the last commit was made that changed the offset of each row; 0 for a row without commits."""
        return np.where(self._count[rows] > 0, self._moved[rows], 0) * np.int64(TICK_MS)

    def save(self, rows: Ints) -> dict[str, NDArray[Any]]:
        """The windows of `rows` for `restore`: columns (N,), and columns of the filled slots."""
        filled = _filled_slots(self._head[rows], self._count[rows])
        saved: dict[str, NDArray[Any]] = {"window" + name: getattr(self, name)[rows] for name in _SAVED}
        return saved | {"window" + name: getattr(self, name)[:, rows][filled] for name in _SLOTS}

    def restore(self, rows: Ints, saved: Mapping[str, NDArray[Any]]) -> None:
        """Sets the windows of `rows` to the columns that `save` returned for the same number of rows."""
        for name in _SAVED:
            getattr(self, name)[rows] = saved["window" + name]
        # np.nonzero lists the filled slots in the order in which `save` copied them.
        slot, index = np.nonzero(_filled_slots(saved["window_head"], saved["window_count"]))
        for name in _SLOTS:
            getattr(self, name)[slot, rows[index]] = saved["window" + name]

    def _note_moves(self, rows: Ints, offset: Ints, tick: Ints) -> None:
        """Notes which of these commits change the offset: sorted by row, in commit order within a row."""
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        own = rows[starts]
        newest = self._offset[self._head[own], own] + self._base[own]  # the newest slot is exact
        moves = np.concatenate([[True], offset[1:] != offset[:-1]])
        moves[starts] = (self._count[own] == 0) | (newest != offset[starts])
        self._moved[rows[moves]] = tick[moves]  # of several commits of a row, the last one stays

    def _write_slots(self, rows: Ints, offset: Ints, tick: Ints, lag: Ints) -> None:
        """Writes commits sorted by row, in commit order within a row. Neighbours of a row differ in tick."""
        # Where each row's commits start, how many there are, and the ring of each row.
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        sizes = np.diff(np.append(starts, len(rows)))
        own = rows[starts]
        head, count = self._head[own].astype(np.int64), self._count[own].astype(np.int64)
        # A first commit in the same tick as the newest slot is merged into that slot.
        newest = self._time[np.maximum(head, 0), own]
        merged = ((count > 0) & (newest == tick[starts])).astype(np.int64)
        # The slot of each commit. Of more than WIDTH commits of a row, only the last ones are written.
        rank = np.arange(len(rows)) - np.repeat(starts, sizes)
        slot = (np.repeat(head + 1 - merged, sizes) + rank) % WIDTH
        keep = rank >= np.repeat(sizes - WIDTH, sizes)
        # Offsets relative to the base; an empty row takes its first offset as the base.
        self._set_base(own[count == 0], offset[starts[count == 0]])
        relative = offset - self._base[rows]
        if len(far := np.flatnonzero(np.abs(relative) > _INT32_MAX)):
            self._move_base(rows[far], offset[far])
            relative = np.clip(offset - self._base[rows], -_INT32_MAX, _INT32_MAX)
        # Write. A merged slot keeps its time: it is the same tick.
        joined = np.zeros(len(rows), np.bool_)
        joined[starts] = merged.astype(np.bool_)
        self._offset[slot[keep], rows[keep]] = relative[keep]
        self._lag[slot[keep], rows[keep]] = np.minimum(lag[keep], _INT32_MAX)
        fresh = keep & ~joined
        self._time[slot[fresh], rows[fresh]] = tick[fresh]
        self._head[own] = (head + sizes - merged) % WIDTH
        self._count[own] = np.minimum(count + sizes - merged, WIDTH)

    def _set_base(self, rows: Ints, base: Ints) -> None:
        self._base[rows] = base

    def _move_base(self, rows: Ints, offset: Ints) -> None:
        """Moves the base of `rows` to `offset`, and clips older offsets to 32 bits. A row may repeat."""
        # The first index of a row in the reversed array is that of its last commit, which sets the base.
        rows, last = np.unique(rows[::-1], return_index=True)
        base = offset[::-1][last]
        moved = self._offset[:, rows] + (self._base[rows] - base)
        self._offset[:, rows] = np.clip(moved, -_INT32_MAX, _INT32_MAX)
        self._base[rows] = base


def select_saved_windows(
    saved: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The columns of `WindowTable.save` without the rows that are not `kept`, and all other columns."""
    head, count = saved["window_head"], saved["window_count"]
    _, index = np.nonzero(_filled_slots(head, count))
    rows = {"window" + name: saved["window" + name][kept] for name in _SAVED}
    slots = {"window" + name: saved["window" + name][kept[index]] for name in _SLOTS}
    return {**saved, **rows, **slots}


def join_saved_windows(
    first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The columns of `WindowTable.save` for the rows of `first`, then those of `second`."""
    names = ["window" + name for name in _SAVED]
    joined = {name: np.concatenate([first[name], second[name]]) for name in names}
    places, others = (
        np.nonzero(_filled_slots(each["window_head"], each["window_count"])) for each in (first, second)
    )
    slot = np.concatenate([places[0], others[0]])
    row = np.concatenate([places[1], others[1] + len(first["window_head"])])
    order = np.lexsort((row, slot))  # by slot, then by row: as `save` copies them
    slots = ("window" + name for name in _SLOTS)
    return joined | {name: np.concatenate([first[name], second[name]])[order] for name in slots}


def _filled_slots(head: NDArray[np.int8], count: NDArray[np.int8]) -> NDArray[np.bool_]:
    """A mask (WIDTH, rows) of the slots that hold a commit."""
    # int8 is enough: WIDTH is small, and the remainder of a negative number is positive in numpy.
    age = (head - np.arange(WIDTH, dtype=np.int8)[:, None]) % WIDTH
    filled: NDArray[np.bool_] = age < count
    return filled
