"""Lives of all kinds at once: the verdict on each, by koff's rule and by others."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.verdicts.kinds import ILL, build_script
from bench.verdicts.rivals import Burrow, Growth, Threshold
from bench.verdicts.score import Score
from bench.verdicts.world import DAY_S, ROWS, STEP_S, Script, World
from koff.lag.judge import Judge
from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict

LABELS = ("healthy", "late", "broken")
THIS = "koff"
SHORT_S = 120.0
_VERDICTS = np.array([verdict.name for verdict in Verdict])
_CAUSES = np.array([None if cause is Cause.NONE else cause.label for cause in Cause])


class Life(NamedTuple):
    """A life that was lived: its labels, and by rule the verdicts of its steps; and koff's causes."""

    script: Script
    labels: NDArray[np.uint8]
    verdicts: Mapping[str, NDArray[np.uint8]]
    causes: NDArray[np.uint8]


def run_lives(
    kinds: Collection[str],
    seeds: Collection[int],
    days: float,
    *,
    with_objectives: bool = False,
    with_rivals: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Life]:
    """Lives of these kinds, one for each seed. `progress` gets the steps that are done, and of how many."""
    scripts = [build_script(name, seed, days) for name in kinds for seed in seeds]
    world, size, steps = World(scripts), len(scripts), scripts[0].steps
    judge, rivals = Judge(size, size * ROWS), _build_rivals(size) if with_rivals else {}
    verdicts = {name: np.zeros((size, steps), np.uint8) for name in (THIS, *rivals)}
    causes = np.full((size, steps), Cause.NONE, np.uint8)
    knows = [s.kind in ILL or s.needs_objective for s in scripts]
    known = [script.objective_s if k else np.nan for script, k in zip(scripts, knows, strict=True)]
    objective_s = np.repeat(known, ROWS)
    starts = np.array([script.starts for script in scripts])
    for step in range(steps):
        progress(step, steps)
        new = (starts == step) & (step > 0)
        if new.any():  # a new monitor knows nothing yet
            groups = np.where(new, -1, np.arange(size))
            judge = judge.select(groups, np.where(np.repeat(new, ROWS), -1, np.arange(size * ROWS)))
        sample = world.advance()
        judged = judge.judge(replace(sample, objective_s=objective_s) if with_objectives else sample)
        verdicts[THIS][:, step], causes[:, step] = judged.verdict, judged.cause
        for name, rival in rivals.items():
            verdicts[name][:, step] = rival.judge(sample, world.commits)
    return [
        Life(script, world.labels[n], {name: each[n] for name, each in verdicts.items()}, causes[n])
        for n, script in enumerate(scripts)
    ]


def _build_rivals(size: int) -> dict[str, Any]:
    return {
        "Burrow's rule": Burrow(size * ROWS),
        "lag > 1000 for 5 min": Threshold(size, 1000),
        "> 60 s for 5 min": Threshold(size, 60, by_time=True),
        "growing for 5 min": Growth(size),
    }


def _drop_short(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The labels, but healthy where a group is ill for less than `SHORT_S`: that is no incident."""
    ill = np.concatenate([[False], labels > 0, [False]])
    begins, ends = np.flatnonzero(ill[1:] & ~ill[:-1]), np.flatnonzero(ill[:-1] & ~ill[1:])
    kept = labels.copy()
    for begin, end in zip(begins, ends, strict=True):
        if (end - begin) * STEP_S < SHORT_S and end < len(labels):
            kept[begin:end] = 0
    return kept


def score_life(score: Score, life: Life, rule: str = THIS) -> None:
    """Adds a life to the score, from where the monitor starts."""
    script, first = life.script, life.script.starts
    labels = _drop_short(life.labels[first:])
    times_s: list[float] = ((np.arange(first, script.steps) + 1) * STEP_S).tolist()
    ends = np.flatnonzero(np.diff(labels, append=255)).tolist()
    begins = [0, *(end + 1 for end in ends[:-1])]
    score.add(
        times_s,
        _VERDICTS[life.verdicts[rule][first:]].tolist(),
        _CAUSES[life.causes[first:]].tolist(),
        [(times_s[b], times_s[e], LABELS[labels[b]]) for b, e in zip(begins, ends, strict=True)],
        script.causes if rule == THIS else (),
        learned_s=DAY_S,
    )
