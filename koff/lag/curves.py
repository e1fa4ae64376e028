"""Curves of end offsets over time: points in columns, slot by slot, with the oldest point of a row first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]
"""Row numbers of an `EndHistory`."""
_Column = TypeVar("_Column", np.int64, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A copy of some rows of an `EndHistory`.

    `count` (N,) is the number of points of each row. `offsets` and `ticks` hold the points: the first point
    of every row, then the second point of every row that has two, and so on. A point has the end offset, and
    the time in ticks of `TICK_MS` since `epoch_ms`. `tick` is the newest time of the whole history. `gaps`
    has, for each point, whether there is a gap between it and the point before it. `live` is the tick of the
    first sample of each row. Without `gaps` and `live`, all points are samples, and there is no gap.
    """

    epoch_ms: int
    tick: int
    count: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    ticks: NDArray[np.uint32]
    gaps: NDArray[np.bool_] | None = None
    live: NDArray[np.uint32] | None = None

    def select(self, rows: Rows) -> Curves:
        """A copy of some of these curves, which `rows` has the indexes of."""
        # np.nonzero lists the points in the order of `offsets`.
        count = self.count.astype(np.intp)
        slot, row = np.nonzero(np.arange(int(count.max(initial=0)))[:, None] < count)
        order = np.full(len(count), -1)
        order[rows] = np.arange(len(rows))
        kept = np.flatnonzero(order[row] >= 0)
        kept = kept[np.lexsort((order[row[kept]], slot[kept]))]
        return replace(
            self,
            count=self.count[rows],
            offsets=self.offsets[kept],
            ticks=self.ticks[kept],
            gaps=None if self.gaps is None else self.gaps[kept],
            live=None if self.live is None else self.live[rows],
        )


class Ages(NamedTuple):
    """How long ago records were produced, and where no gap makes that imprecise; arrays (N,)."""

    seconds: NDArray[np.float64]
    precise: NDArray[np.bool_]


def find_first_above(
    column: NDArray[_Column], counts: NDArray[np.uint8], rows: Rows, values: NDArray[np.int64]
) -> Rows:
    """The slot of each row's first point above the value, in a column (slots, all rows).

    `counts` has the number of points of all rows. The newest point must be above the value.
    """
    low = np.zeros(len(rows), np.intp)
    high = counts[rows].astype(np.intp) - 1
    # All rows at once, for as many steps as the longest search can take.
    for _ in range(int(high.max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        above = column[middle, rows] > values
        high = np.where(above, middle, high)
        low = np.where(above, low, middle + 1)
    return high


def shift_points(columns: Iterable[NDArray[Any]], rows: Rows, slots: Rows, counts: Rows) -> None:
    """Moves the points of each row from its slot on one slot up. `counts` has their numbers of points."""
    top = int(counts.max(initial=0)) + 1
    places = np.arange(top)[:, None]
    source = places - (places > slots)
    for points in columns:
        points[:top, rows] = points[source, rows]
