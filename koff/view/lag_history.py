"""The lags of groups over the last hour, in a ring of bounded size. Any thread may call any method."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STEP_S, STEPS = 15, 240
"""A value every so many seconds, for one hour."""
MINUTE_MS = 60_000
MOST_GROUPS = 20_000
"""So many groups of a cluster are kept: 3 KB each, 60 MB in all."""
_GROW = 256

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Course(NamedTuple):
    """What one group did: a value every `STEP_S`, the newest last. NaN: unknown.

    `end_ms` is when the newest step ends. The rates are records a second; those of the newest step are not
    known yet.
    """

    end_ms: int
    lag: Floats
    time_lag_s: Floats
    consumed_per_s: Floats
    produced_per_s: Floats

    @classmethod
    def build(cls, end_ms: int, looks_ms: Ints, lag: Floats, time_lag_s: Floats, consumed: Floats) -> Course:
        """Makes the rates of how many records were `consumed` in each step, up to its last look.

        `looks_ms` is when that was; 0 for a step without one. Where a lag is unknown, the commits of more
        than one step were found at once: no rate is known.
        """
        at = np.flatnonzero(looks_ms)
        grown, in_s = np.diff(lag[at]), np.diff(looks_ms[at]) / 1000
        consumed_per_s, produced_per_s = np.full((2, len(lag)), np.nan)
        consumed_per_s[at[1:]] = np.round(np.where(np.isnan(grown), np.nan, consumed[at[1:]] / in_s), 2)
        produced_per_s[at[1:]] = np.round(np.maximum(consumed_per_s[at[1:]] + grown / in_s, 0), 2)
        consumed_per_s[-1] = produced_per_s[-1] = np.nan
        return cls(end_ms, lag, time_lag_s, consumed_per_s, produced_per_s)


class LastKnown(NamedTuple):
    """The newest known lag of a group, and its age: at most `STEP_S` less than this. None: unknown then."""

    lag: float
    time_lag_s: float | None
    age_s: int


def find_last_known(course: Course | None) -> LastKnown | None:
    """The newest known lag in a course; None if none is known."""
    known = np.flatnonzero(~np.isnan(course.lag)) if course else np.zeros(0, np.intp)
    if course is None or not len(known):
        return None
    at = int(known[-1])
    time_lag_s = float(course.time_lag_s[at])
    age_s = (len(course.lag) - at) * STEP_S
    return LastKnown(float(course.lag[at]), None if np.isnan(time_lag_s) else time_lag_s, age_s)


class LagHistory:
    """The last hour of one cluster. Lags of the same step overwrite each other, records consumed add up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._values = np.full((3, 0, STEPS), np.nan, np.float32)
        self._totals = np.full((3, STEPS), np.nan)
        self._looks_ms = np.zeros(STEPS, np.int64)
        self._step: int | None = None

    def add(
        self,
        names: Sequence[str],
        lags: Floats,
        time_lags_s: Floats,
        consumed: Floats,
        now_ms: int,
        *,
        is_whole: bool = False,
    ) -> None:
        """Adds the present lags of all groups of the cluster. NaN: unknown, or withheld.

        `consumed` is how many records each has committed since the last call. Unless `is_whole`, the
        cluster has no total: a lag is withheld, or a group may be missing.
        """
        with self._lock:
            self._advance(now_ms // (STEP_S * 1000))
            slots = self._find_slots(names)
            known = slots >= 0
            at = (self._step or 0) % STEPS
            self._looks_ms[at] = now_ms
            self._values[0, slots[known], at] = lags[known]
            self._values[1, slots[known], at] = time_lags_s[known]
            so_far = np.nan_to_num(self._values[2, slots[known], at])
            self._values[2, slots[known], at] = so_far + consumed[known]
            self._totals[:2, at] = np.nan
            self._totals[2, at] = np.nan_to_num(self._totals[2, at]) + consumed.sum()
            if is_whole and not np.isnan(lags).all():
                self._totals[0, at] = np.nansum(lags)
                if not np.isnan(time_lags_s).all():
                    self._totals[1, at] = np.nanmax(time_lags_s)

    def find(self, name: str) -> Course | None:
        """The last hour of a group; None if nothing is kept of it."""
        with self._lock:
            slot = self._slots.get(name)
            if slot is None or self._step is None:
                return None
            return self._order(self._values[:, slot, :], self._step)

    def find_total(self) -> Course | None:
        """The last hour of the cluster: the sum of the known lags, and the longest time lag."""
        with self._lock:
            return None if self._step is None else self._order(self._totals, self._step)

    def list_known(self, now_ms: int) -> list[tuple[str, float, float]]:
        """The groups with a known lag in the newest step: name, lag and time lag (NaN: unknown).

        None, if this step is older than a minute.
        """
        with self._lock:
            if self._step is None or now_ms - self._looks_ms[self._step % STEPS] > MINUTE_MS:
                return []
            lag, time_lag_s = self._values[:2, :, self._step % STEPS].tolist()
            slots = self._slots.items()
            return [(name, lag[at], time_lag_s[at]) for name, at in slots if lag[at] == lag[at]]

    def _order(self, values: NDArray[Any], step: int) -> Course:
        # The oldest step follows the newest in the ring.
        back = -(step % STEPS) - 1
        ordered = np.roll(values, back, axis=1).astype(np.float64)
        return Course.build((step + 1) * STEP_S * 1000, np.roll(self._looks_ms, back), *ordered)

    def _advance(self, step: int) -> None:
        """Moves to that step. Steps between without a value are unknown."""
        if self._step is None or step < self._step or step - self._step >= STEPS:
            if self._step is not None:  # the clock was set, or koff saw nothing for an hour
                self._values[:] = np.nan
                self._totals[:] = np.nan
                self._looks_ms[:] = 0
            self._step = step
        for passed in range(self._step + 1, step + 1):
            self._values[:, :, passed % STEPS] = np.nan
            self._totals[:, passed % STEPS] = np.nan
            self._looks_ms[passed % STEPS] = 0
        self._step = step

    def _find_slots(self, names: Sequence[str]) -> Ints:
        """The slot of each group, -1 for none. New groups get one."""
        missing = [name for name in names if name not in self._slots]
        if missing and len(self._free) < len(missing):
            self._release()
        for name in missing:
            if not self._free:
                self._allocate()
            if not self._free:
                break
            slot = self._slots[name] = self._free.pop()
            self._values[:, slot, :] = np.nan
        return np.array([self._slots.get(name, -1) for name in names], np.int64)

    def _release(self) -> None:
        """Frees the slots of groups of which nothing was known for an hour."""
        known = np.asarray((~np.isnan(self._values)).any(axis=(0, 2)))
        for name in [name for name, slot in self._slots.items() if not known[slot]]:
            self._free.append(self._slots.pop(name))

    def _allocate(self) -> None:
        size = self._values.shape[1]
        more = min(max(size, _GROW), MOST_GROUPS - size)
        if more > 0:
            new = np.full((3, more, STEPS), np.nan, np.float32)
            self._values = np.concatenate([self._values, new], axis=1)
            self._free.extend(range(size + more - 1, size - 1, -1))


def shorten(values: Floats, points: int) -> Floats:
    """The largest known value of each of `points` equal parts; NaN where none is known."""
    parts = values.reshape(points, -1)
    known = ~np.isnan(parts)
    largest = np.where(known, parts, -np.inf).max(axis=1)
    return np.where(known.any(axis=1), largest, np.nan)
