"""End offsets over time as they are saved and shown, and the ages of records that follow from them."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]
"""Row numbers of an `EndHistory`."""


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

    def select(self, rows: Rows) -> "Curves":
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
