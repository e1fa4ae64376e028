"""The features of the windows of commits, computed again where a window has changed."""

import numpy as np
from numpy.typing import NDArray

from koff.lag import Features, window_features
from koff.tracker.column_table import ColumnTable, column
from koff.tracker.recent_commits import WindowTable
from koff.tracker.row_index import Ints

_AT_ONCE = 8192  # rows: the windows of a chunk fit the cache of a core


class FeatureTable(ColumnTable):
    """The columns of `Features`, by row, with times in seconds; `changed` where they are out of date."""

    changed: NDArray[np.bool_] = column(np.bool_)
    first_s: NDArray[np.int32] = column(np.int32)
    last_s: NDArray[np.int32] = column(np.int32)
    commits: NDArray[np.uint8] = column(np.uint8)
    marks: NDArray[np.uint8] = column(np.uint8)
    consumed: NDArray[np.float32] = column(np.float32)

    def update(self, windows: WindowTable, rows: Ints) -> Features:
        """The features of `rows`. Computes those of the windows that have changed."""
        changed = rows[self.changed[rows]]
        for start in range(0, len(changed), _AT_ONCE):
            part = changed[start : start + _AT_ONCE]
            window = windows.get(part)
            found = window_features(window.offset, window.time_ms, window.lag, window.count)
            self.first_s[part], self.last_s[part] = found.first_ms // 1000, found.last_ms // 1000
            self.commits[part], self.marks[part] = found.commits, found.marks
            self.consumed[part] = found.consumed
        self.changed[changed] = False
        return Features(
            self.first_s[rows] * np.int64(1000),
            self.last_s[rows] * np.int64(1000),
            self.commits[rows],
            self.marks[rows],
            self.consumed[rows],
        )
