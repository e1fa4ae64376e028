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
        return self.select(shown, np.ones(len(self.rows), np.bool_))

    def select(self, groups: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Layout:
        """The layout of the groups in the first mask, and of those of their rows that are in the second."""
        kept, numbers = groups[self.group] & rows, np.cumsum(groups) - 1
        return Layout(
            self.described,
            self.rows[kept],
            [self.names[i] for i in np.flatnonzero(groups).tolist()],
            numbers[self.group[kept]].astype(np.int32),
            self.partition[kept],
        )
