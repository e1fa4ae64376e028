"""The last commits of every row: the offset, time and lag of each commit, packed into twelve bytes.

And the time of the last commit that changed the offset, however many commits ago that was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.tracker.column_table import ColumnTable, column
from koff.tracker.row_index import Ints

WIDTH = 10
"""Commits per row."""
TICK_MS = 1000
"""Commits within one tick count as one commit, with the newest offset (Burrow's minimum distance)."""
_INT32_MAX = 2**31 - 1
_SLOTS = ("offset", "time", "lag")
_SAVED = ("base", "head", "count", "moved")
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


class WindowTable(ColumnTable):
    """A ring of `WIDTH` commits per row.

    Offsets are relative to the row's base, times are ticks (seconds since 1970), both in 32 bits. A jump of
    more than two billion offsets moves the base. Lags above two billion are stored as two billion.
    """

    base: Ints = column(np.int64)
    offset: NDArray[np.int32] = column(np.int32, height=WIDTH)
    time: NDArray[np.int32] = column(np.int32, height=WIDTH)
    lag: NDArray[np.int32] = column(np.int32, height=WIDTH)
    head: NDArray[np.int8] = column(np.int8, -1)
    """The newest slot: -1 makes 0 the next slot."""
    count: NDArray[np.int8] = column(np.int8)
    moved: NDArray[np.int32] = column(np.int32)

    def clear(self, rows: Ints) -> None:
        """Drops all commits of `rows`."""
        self.head[rows], self.count[rows] = -1, 0

    def add(self, rows: Ints, offset: Ints, time_ms: Ints, lag: Ints) -> None:
        """Adds commits (N,) in the order given; a row may occur more than once."""
        tick = np.clip(time_ms // TICK_MS, -_INT32_MAX, _INT32_MAX)
        # A stable sort keeps the commits of a row in order. numpy has a fast radix sort only for 16 bits.
        short = rows.astype(np.uint16) if rows.max() < 1 << 16 else rows
        order = np.argsort(short, kind="stable")
        rows, offset, tick, lag = rows[order], offset[order], tick[order], lag[order]
        self._note_moves(rows, offset, tick)
        # Only the last commit of a row in one tick is written.
        joins = (rows[1:] == rows[:-1]) & (tick[1:] == tick[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~joins]))
        last = np.append(first[1:], len(rows)) - 1
        self._write_slots(rows[first], offset[last], tick[first], lag[last])

    def add_one(self, row: int, offset: int, time_ms: int, lag: int) -> None:
        """Adds one commit, in less time than `add`."""
        tick = max(-_INT32_MAX, min(time_ms // TICK_MS, _INT32_MAX))
        head, count = self.head.item(row), self.count.item(row)
        if count == 0 or self.offset.item(head, row) + self.base.item(row) != offset:
            self.moved[row] = tick
        if count == 0:
            self.base[row] = offset
        elif abs(offset - self.base.item(row)) > _INT32_MAX:
            self._move_base(np.array([row]), np.array([offset]))
        # A commit in the tick of the newest slot overwrites that slot; any other takes the next slot.
        if count == 0 or self.time.item(head, row) != tick:
            head = (head + 1) % WIDTH
            self.time[head, row] = tick
            self.head[row], self.count[row] = head, min(count + 1, WIDTH)
        self.offset[head, row] = offset - self.base.item(row)
        self.lag[head, row] = min(lag, _INT32_MAX)

    def get(self, rows: Ints) -> Windows:
        """The windows of `rows`."""
        count = self.count[rows].astype(np.int64)
        # The head is the newest slot, so the slot after it is the oldest, or unfilled.
        slots = (self.head[rows].astype(np.int64)[:, None] + 1 + np.arange(WIDTH)) % WIDTH
        columns = rows[:, None]
        return Windows(
            self.offset[slots, columns] + self.base[rows][:, None],
            self.time[slots, columns].astype(np.int64) * TICK_MS,
            self.lag[slots, columns].astype(np.int64),
            count,
        )

    def moved_ms(self, rows: Ints) -> Ints:
        """When the last commit was made that changed the offset of each row; 0 for a row without commits."""
        return np.where(self.count[rows] > 0, self.moved[rows], 0) * np.int64(TICK_MS)

    def save(self, rows: Ints) -> dict[str, NDArray[Any]]:
        """The windows of `rows` for `restore`: columns (N,), and columns of the filled slots."""
        filled = _filled_slots(self.head[rows], self.count[rows])
        saved: dict[str, NDArray[Any]] = {"window_" + name: getattr(self, name)[rows] for name in _SAVED}
        return saved | {"window_" + name: getattr(self, name)[:, rows][filled] for name in _SLOTS}

    def restore(self, rows: Ints, saved: Mapping[str, NDArray[Any]]) -> None:
        """Sets the windows of `rows` to the columns that `save` returned for the same number of rows."""
        for name in _SAVED:
            getattr(self, name)[rows] = saved["window_" + name]
        # np.nonzero lists the filled slots in the order in which `save` copied them.
        slot, index = np.nonzero(_filled_slots(saved["window_head"], saved["window_count"]))
        for name in _SLOTS:
            getattr(self, name)[slot, rows[index]] = saved["window_" + name]

    def _note_moves(self, rows: Ints, offset: Ints, tick: Ints) -> None:
        """Notes which of these commits change the offset: sorted by row, in commit order within a row."""
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        own = rows[starts]
        newest = self.offset[self.head[own], own] + self.base[own]  # the newest slot is exact
        moves = np.concatenate([[True], offset[1:] != offset[:-1]])
        moves[starts] = (self.count[own] == 0) | (newest != offset[starts])
        self.moved[rows[moves]] = tick[moves]  # of several commits of a row, the last one stays

    def _write_slots(self, rows: Ints, offset: Ints, tick: Ints, lag: Ints) -> None:
        """Writes commits sorted by row, in commit order within a row. Neighbours of a row differ in tick."""
        # Where each row's commits start, how many there are, and the ring of each row.
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        sizes = np.diff(np.append(starts, len(rows)))
        own = rows[starts]
        head, count = self.head[own].astype(np.int64), self.count[own].astype(np.int64)
        # A first commit in the same tick as the newest slot is merged into that slot.
        newest = self.time[np.maximum(head, 0), own]
        merged = ((count > 0) & (newest == tick[starts])).astype(np.int64)
        # The slot of each commit. Of more than WIDTH commits of a row, only the last ones are written.
        rank = np.arange(len(rows)) - np.repeat(starts, sizes)
        slot = (np.repeat(head + 1 - merged, sizes) + rank) % WIDTH
        keep = rank >= np.repeat(sizes - WIDTH, sizes)
        # Offsets relative to the base; an empty row takes its first offset as the base.
        self.base[own[count == 0]] = offset[starts[count == 0]]
        relative = offset - self.base[rows]
        if len(far := np.flatnonzero(np.abs(relative) > _INT32_MAX)):
            self._move_base(rows[far], offset[far])
            relative = np.clip(offset - self.base[rows], -_INT32_MAX, _INT32_MAX)
        # Write. A merged slot keeps its time: it is the same tick.
        joined = np.zeros(len(rows), np.bool_)
        joined[starts] = merged.astype(np.bool_)
        self.offset[slot[keep], rows[keep]] = relative[keep]
        self.lag[slot[keep], rows[keep]] = np.minimum(lag[keep], _INT32_MAX)
        fresh = keep & ~joined
        self.time[slot[fresh], rows[fresh]] = tick[fresh]
        self.head[own] = (head + sizes - merged) % WIDTH
        self.count[own] = np.minimum(count + sizes - merged, WIDTH)

    def _move_base(self, rows: Ints, offset: Ints) -> None:
        """Moves the base of `rows` to `offset`, and clips older offsets to 32 bits. A row may repeat."""
        # The first index of a row in the reversed array is that of its last commit, which sets the base.
        rows, last = np.unique(rows[::-1], return_index=True)
        base = offset[::-1][last]
        moved = self.offset[:, rows] + (self.base[rows] - base)
        self.offset[:, rows] = np.clip(moved, -_INT32_MAX, _INT32_MAX)
        self.base[rows] = base


def _filled_slots(head: NDArray[np.int8], count: NDArray[np.int8]) -> NDArray[np.bool_]:
    """A mask (WIDTH, rows) of the slots that hold a commit."""
    # int8 is enough: WIDTH is small, and the remainder of a negative number is positive in numpy.
    age = (head - np.arange(WIDTH, dtype=np.int8)[:, None]) % WIDTH
    filled: NDArray[np.bool_] = age < count
    return filled
