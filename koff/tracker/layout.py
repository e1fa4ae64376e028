"""Which rows and groups a snapshot of a shard has, in which order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The live rows, each with its group and partition. The same object until rows or groups come or go.

    `names` are the groups with commits, by the numbers in `group`, then the described groups without commits.
    """

    described: list[str]
    rows: Ints
    names: list[str]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]

    def hide_groups(self, hidden: Collection[str]) -> Layout:
        """The layout without the groups `hidden`, and without their rows."""
        shown = np.array([name not in hidden for name in self.names], np.bool_)
        kept, numbers = shown[self.group], np.cumsum(shown) - 1
        return Layout(
            self.described,
            self.rows[kept],
            [name for name in self.names if name not in hidden],
            numbers[self.group[kept]].astype(np.int32),
            self.partition[kept],
        )
