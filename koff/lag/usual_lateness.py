"""How late the records of a group usually are when the group commits them: what koff learns by itself.

Each group has a histogram of its records by their lateness. Records that are committed while the group is
more than `FLOOR_S` late go to a pending copy. It is added when the group has come back by itself, so that an
incident teaches nothing while it lasts, and dropped if koff did not see the lateness begin. What is older
counts less: half as much after `HALF_LIFE_S`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.samples import Floats

FLOOR_S = 120.0
"""A group that is not later than this is never late: no deployment is shorter news."""
CLASSES = 26
EDGES_S: NDArray[np.float64] = 30.0 * 2.0 ** (np.arange(CLASSES) / 2)
"""The upper edges of the classes of lateness: half octaves, from 30 s to two days."""
QUANTILE = 0.8
RETURNS, LEARNED_S = 3, 86_400.0
"""The histogram is used after so many returns from above `FLOOR_S`, or after so many seconds."""
HALF_LIFE_S = 3.5 * 86_400
_DECAY_EVERY_S = 600.0
_POINTS = (np.arange(8) + 0.5) / 8  # the records of one commit are spread over so many points


class Pause(NamedTuple):
    """A pause between two commits that the log shows: how late the row was at its end, before and after."""

    records: int
    late_before_s: float
    late_after_s: float


def find_classes(late_s: Floats) -> NDArray[np.int64]:
    """The class of each lateness in seconds."""
    octaves = np.log2(np.maximum(late_s, EDGES_S[0]) / EDGES_S[0])
    classes: NDArray[np.int64] = np.minimum(np.ceil(2 * octaves - 1e-9), CLASSES - 1).astype(np.int64)
    return classes


class UsualLateness:
    """The histograms of `size` groups, 26 numbers each. The pending copies take memory only while in use."""

    def __init__(self, size: int = 0) -> None:
        self.counts = np.zeros((size, CLASSES), np.float32)
        self.returns = np.zeros(size, np.uint8)
        self.since_s = np.full(size, np.nan, np.float32)
        self._slot = np.full(size, -1, np.int32)
        self._pending = np.zeros((0, CLASSES), np.float32)
        self._is_unseen = np.zeros(size, np.bool_)
        self._is_away = np.zeros(size, np.bool_)
        self.decayed_s = np.nan

    def select(self, groups: NDArray[np.integer[Any]]) -> UsualLateness:
        """A copy for other groups: for each its number in this one, -1 for a new group."""
        copy, old = UsualLateness(len(groups)), groups >= 0
        for name in ("counts", "returns", "since_s", "_slot", "_is_unseen", "_is_away"):
            getattr(copy, name)[old] = getattr(self, name)[groups[old]]
        used = np.flatnonzero(copy._slot >= 0)
        copy._pending = self._pending[copy._slot[used]]
        copy._slot[used] = np.arange(len(used))
        copy.decayed_s = self.decayed_s
        return copy

    def seed(self, group: int, records: int, pauses: Iterable[Pause]) -> None:
        """Adds a row's history in the log: `records` in all, of which those of the `pauses` were late."""
        for pause in pauses:
            late_s = pause.late_before_s + (pause.late_after_s - pause.late_before_s) * _POINTS
            np.add.at(self.counts[group], find_classes(late_s), pause.records / len(_POINTS))
            self.returns[group] = min(int(self.returns[group]) + 1, 255)
            records -= pause.records
        self.counts[group, 0] += max(records, 0)

    def find_usual_s(self, now_s: float) -> Floats:
        """Within how many seconds four of five records are committed (G,). 0: too little is known."""
        sums = np.cumsum(self.counts, axis=1, dtype=np.float64)
        total = sums[:, -1]
        usual_s = EDGES_S[np.argmax(sums >= QUANTILE * total[:, None], axis=1)]
        is_known = (self.returns >= RETURNS) | (now_s - self.since_s >= LEARNED_S)
        return np.where(is_known & (total > 0), usual_s, 0.0)

    def add(
        self,
        group: NDArray[np.integer[Any]],
        records: Floats,
        before_s: Floats,
        after_s: Floats,
        *,
        late_s: Floats,
        late_before_s: Floats,
        now_s: float,
    ) -> None:
        """Adds records that were committed, as rows: lateness just before the commit, and just after it.

        `late_s` (G,) is the lateness of each group now, and `late_before_s` the one before; NaN: unknown.
        """
        self._decay(now_s)
        self.since_s[np.isnan(self.since_s)] = now_s
        # An excursion of which koff has not seen the begin teaches nothing.
        self._is_unseen |= (late_s > FLOOR_S) & ~(late_before_s <= FLOOR_S) & ~self._is_away
        self._is_away |= late_s > FLOOR_S
        added = np.zeros((len(late_s), CLASSES), np.float32)
        punctual = before_s <= EDGES_S[0]
        added[:, 0] = np.bincount(group[punctual], weights=records[punctual], minlength=len(late_s))
        own, count = group[~punctual].astype(np.int64), records[~punctual] / len(_POINTS)
        for point in _POINTS:
            spread_s = before_s[~punctual] + (after_s[~punctual] - before_s[~punctual]) * point
            place = own * CLASSES + find_classes(spread_s)
            added += np.bincount(place, weights=count, minlength=added.size).reshape(added.shape)
        self._put_aside(np.flatnonzero(self._is_away), added)
        self.counts[~self._is_away] += added[~self._is_away]
        self._take_back(np.flatnonzero(self._is_away & (late_s <= FLOOR_S)))

    def _put_aside(self, groups: NDArray[np.int64], added: NDArray[np.float32]) -> None:
        new = groups[self._slot[groups] < 0]
        if len(new):
            self._slot[new] = np.arange(len(self._pending), len(self._pending) + len(new))
            self._pending = np.concatenate([self._pending, np.zeros((len(new), CLASSES), np.float32)])
        self._pending[self._slot[groups]] += added[groups]

    def _take_back(self, groups: NDArray[np.int64]) -> None:
        """These groups have come back by themselves."""
        if not len(groups):
            return
        seen = groups[~self._is_unseen[groups]]
        self.counts[seen] += self._pending[self._slot[seen]]
        self.returns[seen] = np.minimum(self.returns[seen], 254) + 1
        self._is_away[groups] = self._is_unseen[groups] = False
        self._slot[groups] = -1
        used = np.flatnonzero(self._slot >= 0)
        self._pending = self._pending[self._slot[used]]
        self._slot[used] = np.arange(len(used))

    def _decay(self, now_s: float) -> None:
        if not now_s - self.decayed_s < _DECAY_EVERY_S:
            if self.decayed_s < now_s:
                self.counts *= np.float32(0.5 ** ((now_s - self.decayed_s) / HALF_LIFE_S))
            self.decayed_s = now_s
