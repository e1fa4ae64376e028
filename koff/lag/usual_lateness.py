"""How late the records of a group usually are when the group commits them: what koff learns by itself.

Each group has a histogram of its records by their lateness. Records that are committed while the group is
more than `FLOOR_S` late go to a pending copy. It is added when the group has come back by itself, so that an
incident teaches nothing while it lasts, and dropped if koff did not see the lateness begin. What is older
counts less: half as much after `HALF_LIFE_S`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.verdict_sample import Floats

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
_NOTHING = 0.01  # records
_POINTS = (np.arange(8) + 0.5) / 8  # the records of one commit are spread over so many points


def find_classes(late_s: Floats) -> NDArray[np.int64]:
    """The class of each lateness in seconds."""
    octaves = np.log2(np.maximum(late_s, EDGES_S[0]) / EDGES_S[0])
    classes: NDArray[np.int64] = np.minimum(np.ceil(2 * octaves - 1e-9), CLASSES - 1).astype(np.int64)
    return classes


class _Histograms:
    """A histogram for some of `size` groups; the others take four bytes each."""

    def __init__(self, size: int = 0) -> None:
        self._slot = np.full(size, -1, np.int32)
        self._counts = np.zeros((0, CLASSES), np.float32)

    @property
    def groups(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._slot >= 0)

    def read(self, groups: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        counts: NDArray[np.float32] = self._counts[self._slot[groups]]
        return counts

    def add(self, groups: NDArray[np.integer[Any]], counts: NDArray[np.float32]) -> None:
        """Adds to the histograms of these groups (N,), each of which is there once."""
        new = groups[self._slot[groups] < 0]
        if len(new):
            self._slot[new] = np.arange(len(self._counts), len(self._counts) + len(new))
            self._counts = np.concatenate([self._counts, np.zeros((len(new), CLASSES), np.float32)])
        self._counts[self._slot[groups]] += counts

    def drop(self, groups: NDArray[np.integer[Any]]) -> None:
        self._slot[groups] = -1
        kept = self.groups
        self._counts = self._counts[self._slot[kept]]
        self._slot[kept] = np.arange(len(kept))

    def select(self, groups: NDArray[np.integer[Any]]) -> "_Histograms":
        """A copy for other groups: for each its number in this one, -1 for a new group."""
        copy, old = _Histograms(len(groups)), groups >= 0
        copy._slot[old] = self._slot[groups[old]]
        copy._counts = self._counts
        copy.drop(groups[:0])
        return copy

    def scale(self, factor: float) -> None:
        """Multiplies all counts. Forgets histograms in which next to nothing is left."""
        self._counts *= np.float32(factor)
        groups = self.groups
        self.drop(groups[self.read(groups).sum(axis=1) < _NOTHING])


class UsualLateness:
    """The histograms of `size` groups. A group that is never late takes few bytes."""

    def __init__(self, size: int = 0) -> None:
        self.returns = np.zeros(size, np.uint8)
        self.since_s = np.full(size, np.nan, np.float32)
        self._punctual = np.zeros(size, np.float32)  # the first class
        self._late = _Histograms(size)  # the others
        self._pending = _Histograms(size)
        self._is_unseen = np.zeros(size, np.bool_)
        self._is_away = np.zeros(size, np.bool_)
        self.decayed_s = np.nan

    @property
    def counts(self) -> NDArray[np.float32]:
        """The histograms of all groups (N, CLASSES), a copy, without those that are pending."""
        counts = np.zeros((len(self.returns), CLASSES), np.float32)
        counts[self._late.groups] = self._late.read(self._late.groups)
        counts[:, 0] += self._punctual
        return counts

    def add_counts(self, counts: NDArray[np.float32]) -> None:
        """Adds histograms of all groups, as `counts` returns them."""
        self._learn(np.arange(len(counts)), counts)

    def select(self, groups: NDArray[np.integer[Any]]) -> "UsualLateness":
        """A copy for other groups: for each its number in this one, -1 for a new group."""
        copy, old = UsualLateness(len(groups)), groups >= 0
        for name in ("returns", "since_s", "_punctual", "_is_unseen", "_is_away"):
            getattr(copy, name)[old] = getattr(self, name)[groups[old]]
        copy._late, copy._pending = self._late.select(groups), self._pending.select(groups)
        copy.decayed_s = self.decayed_s
        return copy

    def find_usual_s(self, now_s: float) -> Floats:
        """Within how many seconds four of five records are committed (G,). 0: too little is known."""
        usual_s = np.where(self._punctual > 0, EDGES_S[0], 0.0)
        late = self._late.groups
        sums = np.cumsum(self._late.read(late), axis=1, dtype=np.float64) + self._punctual[late, None]
        usual_s[late] = EDGES_S[np.argmax(sums >= QUANTILE * sums[:, -1:], axis=1)]
        is_known = (self.returns >= RETURNS) | (now_s - self.since_s >= LEARNED_S)
        return np.where(is_known, usual_s, 0.0)

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
        punctual = before_s <= EDGES_S[0]
        in_time = np.bincount(group[punctual], weights=records[punctual], minlength=len(late_s))
        own, count = group[~punctual].astype(np.int64), records[~punctual] / len(_POINTS)
        some = np.union1d(np.flatnonzero(self._is_away), own)
        counts = np.zeros((len(some), CLASSES), np.float32)
        counts[:, 0] = in_time[some]
        for point in _POINTS:
            spread_s = before_s[~punctual] + (after_s[~punctual] - before_s[~punctual]) * point
            place = np.searchsorted(some, own) * CLASSES + find_classes(spread_s)
            counts += np.bincount(place, weights=count, minlength=counts.size).reshape(counts.shape)
        in_time[some] = 0
        self._punctual += in_time.astype(np.float32)
        is_away = self._is_away[some]
        self._pending.add(some[is_away], counts[is_away])
        self._learn(some[~is_away], counts[~is_away])
        self._take_back(np.flatnonzero(self._is_away & (late_s <= FLOOR_S)))

    def _learn(self, groups: NDArray[np.integer[Any]], counts: NDArray[np.float32]) -> None:
        """Adds to the histograms of these groups, each of which is there once."""
        self._punctual[groups] += counts[:, 0]
        late = counts[:, 1:].any(axis=1)
        self._late.add(groups[late], np.where(np.arange(CLASSES) > 0, counts[late], np.float32(0)))

    def _take_back(self, groups: NDArray[np.int64]) -> None:
        """These groups have come back by themselves."""
        if not len(groups):
            return
        seen = groups[~self._is_unseen[groups]]
        self._learn(seen, self._pending.read(seen))
        self._pending.drop(groups)
        self.returns[seen] = np.minimum(self.returns[seen], 254) + 1
        self._is_away[groups] = self._is_unseen[groups] = False

    def _decay(self, now_s: float) -> None:
        if not now_s - self.decayed_s < _DECAY_EVERY_S:
            if self.decayed_s < now_s:
                factor = 0.5 ** ((now_s - self.decayed_s) / HALF_LIFE_S)
                self._punctual *= np.float32(factor)
                self._late.scale(factor)
            self.decayed_s = now_s
