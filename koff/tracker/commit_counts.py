"""How many commits of each group were applied as they were made: without history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koff.tracker.row_index import Ints


class CommitCounts(dict[str, int]):
    """The counts by group. Groups that are gone are forgotten once there are many of them."""

    def add(self, groups: NDArray[np.int32], names: Sequence[str]) -> None:
        """Counts one commit for each of these codes of groups, which are indexes into `names`."""
        in_batch = np.bincount(groups)
        codes = np.flatnonzero(in_batch)
        for code, count in zip(codes.tolist(), in_batch[codes].tolist(), strict=True):
            self[names[code]] = self.get(names[code], 0) + count

    def list_by_name(self, names: Sequence[str]) -> Ints:
        """The counts of these groups, which are all that there are."""
        if len(self) > 2 * len(names) + 100:
            for gone in self.keys() - set(names):
                del self[gone]
        return np.array([self.get(name, 0) for name in names], np.int64)
