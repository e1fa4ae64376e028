"""Lives of groups by physics: what is produced, consumed and committed, in steps of `STEP_S`.

A life has `ROWS` partitions of one topic. Producers write at a rate, members read at a capacity and commit at
an interval, and a monitor samples. `Script` says what happens when; it knows nothing of verdicts. A sample is
ill if a record waits for longer than the owner's objective: then it is broken if the script says that the
group cannot recover by itself as things are, and else late.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.verdict_sample import VerdictSample

STEP_S = 5.0
ROWS = 3
DAY_S = 86_400.0
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Script:
    """What happens to one group in `steps` steps. Series are arrays (steps,), or one number for all.

    - `produce_per_s` is the rate of one partition, `shares` the factors of the partitions.
    - `capacity` is how much one partition's reader can take, as a factor of the mean produce rate. 0: stands.
    - `row_capacity` are the same factors by partition, `members` how many there are (0: nobody reads).
    - `row_stands` marks when partition 0 cannot be read on: a poison record.
    - `commits` says whether commits succeed; `commit_s` is the interval between two.
    - `moves` are (step, factor): the offset is set to that part of the log at that step.
    - `held` marks when a transaction is open on partition 0. `marker`: its end stays the last record.
    - `retention_s` is how long records stay. `seen` marks the samples that the monitor has; before `starts`,
      there is no monitor. `withheld` marks the samples of partition 0 that are withheld.
    - `broken` marks when the group cannot recover by itself; `causes` are its true causes.
      With `creeps`, the lag grows so slowly that it is broken only at five objectives.
    - `objective_s` is the owner's objective, which the monitor does not know. `needs_objective`: without one,
      no monitor can know that this life is healthy.
    """

    kind: str
    steps: int
    rng: np.random.Generator
    produce_per_s: Any = 10.0
    shares: Any = (1.0, 1.0, 1.0)
    capacity: Any = 3.0
    row_capacity: Any = (1.0, 1.0, 1.0)
    members: Any = 2
    row_stands: Any = False
    commits: Any = True
    commit_s: float = 5.0
    moves: tuple[tuple[int, float], ...] = ()
    held: Any = False
    retention_s: float = np.inf
    starts: int = 0
    withheld: Any = False
    rebalances: Any = 0
    subscribed: Any = True
    broken: Any = False
    causes: frozenset[str] = frozenset()
    objective_s: float = np.inf
    creeps: bool = False
    needs_objective: bool = False

    def series(self, name: str) -> NDArray[Any]:
        """The values of a series at all steps."""
        return np.broadcast_to(np.asarray(getattr(self, name)), (self.steps,))


class World:
    """All lives at once, step by step. `labels` (lives, steps): 0 healthy, 1 late, 2 broken."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts, self.step = scripts, 0
        size, steps = len(scripts), scripts[0].steps

        def stack(name: str, kind: Any) -> NDArray[Any]:
            return np.stack([script.series(name) for script in self.scripts]).astype(kind)

        self._produce, self._capacity = stack("produce_per_s", np.float32), stack("capacity", np.float32)
        self._members, self._commits = stack("members", np.int16), stack("commits", np.bool_)
        self._held, self._withheld = stack("held", np.bool_), stack("withheld", np.bool_)
        self._stands = stack("row_stands", np.bool_)
        self._broken, self._rebalances = stack("broken", np.bool_), stack("rebalances", np.int16)
        self._subscribed = stack("subscribed", np.bool_)
        self._mean = np.repeat(self._produce.mean(axis=1).astype(float), ROWS)
        self._shares = np.array([script.shares for script in self.scripts], float).ravel()
        self._row_capacity = np.array([script.row_capacity for script in self.scripts], float).ravel()
        self._every = np.array([max(round(s.commit_s / STEP_S), 1) for s in self.scripts])
        self._phase = np.array(
            [int(s.rng.integers(0, e)) for s, e in zip(self.scripts, self._every, strict=True)]
        )
        self._retention = np.repeat([s.retention_s for s in self.scripts], ROWS)
        self._objective = np.array([s.objective_s for s in self.scripts])
        self._creeps = np.array([s.creeps for s in self.scripts])
        self._moves = {(at, n): to for n, s in enumerate(self.scripts) for at, to in s.moves}
        rows = size * ROWS
        self.group = np.repeat(np.arange(size), ROWS)
        self._end, self._position = np.zeros(rows), np.zeros(rows)
        self._committed, self._start = np.zeros(rows), np.zeros(rows)
        self._stable, self._held_since = np.zeros(rows), np.full(rows, np.nan)
        self._moved_s = np.zeros(rows)
        self._rng = np.random.default_rng(1)
        self.ends = np.zeros((steps + 1, rows))  # the end offset after each step
        self._waits, self._oldest = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.labels = np.zeros((size, steps), np.uint8)
        self.commits = np.zeros(rows, np.bool_)  # the rows with a commit in the last step

    def advance(self) -> VerdictSample:
        """One step. Returns the sample at its end; `late_s` is NaN where it is withheld."""
        now, of, step = (self.step + 1) * STEP_S, self.group, self.step
        rate = self._produce[of, step] * self._shares
        self._end += np.floor(rate * STEP_S + self._rng.random(len(rate)))
        self.ends[step + 1] = self._end
        self._follow_transaction(now, step)
        for (at, life), to in self._moves.items():
            if at == step:
                rows = slice(life * ROWS, (life + 1) * ROWS)
                self._position[rows] = self._start[rows] + to * (self._end[rows] - self._start[rows])
        # Retention takes records away; a reader that was below begins at the log start.
        kept = np.isfinite(self._retention)
        old = np.maximum(step + 1 - np.where(kept, self._retention, 0) / STEP_S, 0).astype(np.int64)
        self._start = np.where(kept, np.maximum(self._start, self.ends[old, np.arange(len(of))]), self._start)
        reads = self._members[of, step] > 0
        power = self._capacity[of, step] * self._row_capacity * self._mean * reads
        power[::ROWS] *= ~self._stands[:, step]
        position = np.where(reads & (power > 0), np.maximum(self._position, self._start), self._position)
        self._position = np.minimum(position + power * STEP_S, np.maximum(position, self._stable))
        due = (step + self._phase) % self._every == 0
        commits = due[of] & self._commits[of, step] & reads
        moved = commits & (np.floor(self._position) != self._committed)
        self._committed = np.where(commits, np.floor(self._position), self._committed)
        for (at, life), _ in self._moves.items():
            if at == step:  # the offsets are set by hand
                rows = slice(life * ROWS, (life + 1) * ROWS)
                self._committed[rows] = np.floor(self._position[rows])
                moved[rows] = True
        self._moved_s = np.where(moved, now, self._moved_s)
        self.commits = commits
        late_s = self._measure(now)
        self._label(step, late_s)
        self.step += 1
        return self._build_sample(now, step, late_s)

    def _follow_transaction(self, now: float, step: int) -> None:
        first = np.arange(0, len(self.group), ROWS)
        held = np.zeros(len(self.group), np.bool_)
        held[first] = self._held[:, step]
        began = held & np.isnan(self._held_since)
        self._held_since = np.where(held, np.where(began, now, self._held_since), np.nan)
        self._stable = np.where(held, self._stable, self._end)

    def _measure(self, now: float) -> Floats:
        """How long the record at the committed offset, or at the log start, has waited."""
        at = np.maximum(self._committed, self._start)
        rows, waits = np.arange(len(at)), self._waits
        while True:  # the step in which that record came
            forward = (waits < self.step + 1) & (self.ends[np.minimum(waits + 1, self.step + 1), rows] <= at)
            if not forward.any():
                break
            waits = waits + forward
        while True:
            back = (waits > 0) & (self.ends[waits, rows] > at)
            if not back.any():
                break
            waits = waits - back
        self._waits = waits
        return np.where(self._end > at, np.maximum(now - (waits + 0.5) * STEP_S, 0.1), 0.0)

    def _label(self, step: int, late_s: Floats) -> None:
        worst = late_s.reshape(-1, ROWS).max(axis=1)
        broken = self._broken[:, step] & (~self._creeps | (worst > 5 * self._objective))
        self.labels[:, step] = np.where(worst > self._objective, 1 + broken, 0)

    def _build_sample(self, now: float, step: int, late_s: Floats) -> VerdictSample:
        of, size = self.group, len(self.scripts)
        withheld = np.zeros(len(of), np.bool_)
        withheld[::ROWS] = self._withheld[:, step]
        back = max(step + 1 - 60, 0)
        members = self._members[:, step].astype(np.int64)
        number = np.arange(len(of)) % ROWS % np.maximum(members, 1)[of]
        subscribed = self._subscribed[of, step]
        return VerdictSample(
            at_s=now,
            group=of,
            counts=subscribed | (members <= 0)[of],
            committed=self._committed.astype(np.int64),
            start=self._start.astype(np.int64),
            end=self._end.astype(np.int64),
            stable=self._stable.astype(np.int64),
            held_s=np.nan_to_num(now - self._held_since),
            member=np.where((members > 0)[of], of * 10 + number, -1),
            subscribed=subscribed,
            assigned=(members > 0)[of] & subscribed,
            produce_per_s=(self._end - self.ends[back]) / ((step + 1 - back) * STEP_S),
            consume_per_s=np.full(len(of), np.nan),
            late_s=np.where(withheld, np.nan, late_s),
            at_least=np.zeros(len(of), np.bool_),
            moved_at_s=self._moved_s.copy(),
            objective_s=np.full(len(of), np.nan),
            retention_s=np.where(np.isfinite(self._retention), self._retention, np.nan),
            members=members,
            epoch=np.zeros_like(members),
            rebalances=self._rebalances[:, step].astype(np.int64),
            commits_held_back=np.zeros(size, np.bool_),
        )
