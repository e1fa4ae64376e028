"""The last commits of every row: offset, time and lag of each, packed into twelve bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints

WIDTH = 10
TICK_MS = 1000
"""Commits within one tick count as one: the newest offset, under the tick (Burrow's minimum distance)."""
_BIG = 2**31 - 1
_SLOTS = ("_offset", "_time", "_lag")


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Shape (rows, WIDTH), newest last, unfilled places in front. Times in ms; lag -1 where unknown."""

    offset: Ints
    time_ms: Ints
    lag: Ints
    count: NDArray[np.int64]


class WindowTable:
    """A ring of `WIDTH` commits a row.

    Offsets are kept relative to the row's base, times in ticks of a second since 1970, both in 32 bits (a
    jump of over two billion offsets moves the base); lags beyond two billion are kept as two billion.
    """

    def __init__(self) -> None:
        self._base = np.zeros(0, np.int64)
        self._offset = np.zeros((WIDTH, 0), np.int32)
        self._time = np.zeros((WIDTH, 0), np.int32)
        self._lag = np.zeros((WIDTH, 0), np.int32)
        self._head = np.zeros(0, np.int8)
        self._count = np.zeros(0, np.int8)

    def resize(self, rows: int) -> None:
        """Makes room for so many rows."""
        more = rows - len(self._base)
        self._base = np.concatenate([self._base, np.zeros(more, np.int64)])
        for name in _SLOTS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((WIDTH, more), np.int32)], axis=1))
        self._head = np.concatenate([self._head, np.full(more, -1, np.int8)])
        self._count = np.concatenate([self._count, np.zeros(more, np.int8)])

    def clear(self, rows: Ints) -> None:
        """Forgets all commits of those rows."""
        self._head[rows], self._count[rows] = -1, 0

    def add(self, rows: Ints, offset: Ints, time_ms: Ints, lag: Ints) -> None:
        """Adds commits in the order given; a row may come more than once."""
        tick = np.clip(time_ms // TICK_MS, -_BIG, _BIG)
        short = rows.astype(np.uint16) if rows.max() < 1 << 16 else rows  # numpy sorts these by radix
        order = np.argsort(short, kind="stable")
        rows, offset, tick, lag = rows[order], offset[order], tick[order], lag[order]
        joins = (rows[1:] == rows[:-1]) & (tick[1:] == tick[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~joins]))
        last = np.append(first[1:], len(rows)) - 1
        self._write(rows[first], offset[last], tick[first], lag[last])

    def add_one(self, row: int, offset: int, time_ms: int, lag: int) -> None:
        """The same with one commit."""
        tick = max(-_BIG, min(time_ms // TICK_MS, _BIG))
        head, count = self._head.item(row), self._count.item(row)
        if count == 0:
            self._base[row] = offset
        elif abs(offset - self._base.item(row)) > _BIG:
            self._rebase(np.array([row]), np.array([offset]))
        if count == 0 or self._time.item(head, row) != tick:
            head = (head + 1) % WIDTH
            self._time[head, row] = tick
            self._head[row], self._count[row] = head, min(count + 1, WIDTH)
        self._offset[head, row] = offset - self._base.item(row)
        self._lag[head, row] = min(lag, _BIG)

    def get(self, rows: Ints) -> Windows:
        """The windows of those rows."""
        count = self._count[rows].astype(np.int64)
        at = (self._head[rows].astype(np.int64)[:, None] + 1 + np.arange(WIDTH)) % WIDTH
        columns = rows[:, None]
        return Windows(
            self._offset[at, columns] + self._base[rows][:, None],
            self._time[at, columns].astype(np.int64) * TICK_MS,
            self._lag[at, columns].astype(np.int64),
            count,
        )

    def save(self, rows: Ints) -> dict[str, NDArray[Any]]:
        """The windows of those rows for `restore`: a few columns (N,), and the filled slots in others."""
        head, count = self._head[rows], self._count[rows]
        filled = _filled(head, count)
        saved: dict[str, NDArray[Any]] = {"window_base": self._base[rows]}
        saved |= {"window_head": head, "window_count": count}
        return saved | {"window" + name: getattr(self, name)[:, rows][filled] for name in _SLOTS}

    def restore(self, rows: Ints, saved: Mapping[str, NDArray[Any]]) -> None:
        """Puts into those rows what `save` took out of as many."""
        head, count = saved["window_head"], saved["window_count"]
        self._base[rows], self._head[rows], self._count[rows] = saved["window_base"], head, count
        slot, place = np.nonzero(_filled(head, count))
        for name in _SLOTS:
            getattr(self, name)[slot, rows[place]] = saved["window" + name]

    def _write(self, rows: Ints, offset: Ints, tick: Ints, lag: Ints) -> None:
        """Writes slots that are in order, those of a row next to each other."""
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        sizes = np.diff(np.append(starts, len(rows)))
        own = rows[starts]
        head, count = self._head[own].astype(np.int64), self._count[own].astype(np.int64)
        newest = self._time[np.maximum(head, 0), own]
        merged = ((count > 0) & (newest == tick[starts])).astype(np.int64)
        rank = np.arange(len(rows)) - np.repeat(starts, sizes)
        place = (np.repeat(head + 1 - merged, sizes) + rank) % WIDTH
        keep = rank >= np.repeat(sizes - WIDTH, sizes)
        self._move_base(own[count == 0], offset[starts[count == 0]])
        relative = offset - self._base[rows]
        if len(far := np.flatnonzero(np.abs(relative) > _BIG)):
            self._rebase(rows[far], offset[far])
            relative = np.clip(offset - self._base[rows], -_BIG, _BIG)
        joined = np.zeros(len(rows), np.bool_)
        joined[starts] = merged.astype(np.bool_)
        self._offset[place[keep], rows[keep]] = relative[keep]
        self._lag[place[keep], rows[keep]] = np.minimum(lag[keep], _BIG)
        fresh = keep & ~joined
        self._time[place[fresh], rows[fresh]] = tick[fresh]
        self._head[own] = (head + sizes - merged) % WIDTH
        self._count[own] = np.minimum(count + sizes - merged, WIDTH)

    def _move_base(self, rows: Ints, base: Ints) -> None:
        self._base[rows] = base

    def _rebase(self, rows: Ints, offset: Ints) -> None:
        """Rows whose new commits are too far from their base start from there; older ones are cut to fit."""
        rows, last = np.unique(rows[::-1], return_index=True)
        base = offset[::-1][last]
        moved = self._offset[:, rows] + (self._base[rows] - base)
        self._offset[:, rows] = np.clip(moved, -_BIG, _BIG)
        self._base[rows] = base


def _filled(head: NDArray[np.int8], count: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which slots hold a commit, (WIDTH, rows)."""
    age = (head - np.arange(WIDTH, dtype=np.int8)[:, None]) % WIDTH
    filled: NDArray[np.bool_] = age < count
    return filled
