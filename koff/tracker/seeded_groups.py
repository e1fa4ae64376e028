"""The groups that coordinators described at the start, until anything but the log says more of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.tracker.commit_rows import CommitRows
from koff.tracker.groups import Group
from koff.tracker.row_index import Ints

_DOUBTED = 4
"""So many of the first commits may have a time that is long ago: any client may write any time."""


class SeededGroups:
    """The groups that coordinators described; None if the shard is not from their descriptions."""

    def __init__(self, described: Collection[str] | None = None) -> None:
        self._described = described
        self.unmoved_since_ms = UNKNOWN
        """Rows whose commit has no time have not moved since, if that is known."""

    def note_first_commits(self, applied: Ints, rows: CommitRows) -> None:
        """Described rows that are not among the `applied` rows have not moved since these commits."""
        if self._described is not None and self.unmoved_since_ms == UNKNOWN:
            committed_at = rows.committed_at[applied]
            known = np.sort(committed_at[committed_at >= 0])
            if len(known):  # a few commits may have any time
                self.unmoved_since_ms = int(known[min(_DOUBTED, len(known) - 1)])

    def build_simple(self, name: str) -> Group:
        """A group without a record of its own, as far as koff knows."""
        is_known = self._described is None or name in self._described
        return Group(name) if is_known else Group(name, state="Unknown")

    def find_whole(self, names: Sequence[str]) -> NDArray[np.bool_] | bool:
        """Which groups have all their rows. A group that was not described may have commits before that."""
        described = self._described
        return True if described is None else np.array([name in described for name in names], np.bool_)
