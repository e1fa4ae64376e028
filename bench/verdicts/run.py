"""Lives of all kinds at once: the verdict on each, and the score."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from bench.verdicts.kinds import HEALTHY, ILL, build_script
from bench.verdicts.score import Score
from bench.verdicts.world import DAY_S, ROWS, STEP_S, Script, World
from koff.lag.late_causes import Cause
from koff.lag.verdict import Judge, Verdict

LABELS = ("healthy", "late", "broken")


def run_lives(
    kinds: Collection[str], seeds: Collection[int], days: float, *, with_objectives: bool = False
) -> list[tuple[Script, Any, Any, Any]]:
    """Each script, with the labels, the verdicts and the causes (numbers) of its steps."""
    scripts = [build_script(name, seed, days) for name in kinds for seed in seeds]
    world, size = World(scripts), len(scripts)
    judge = Judge(size, size * ROWS)
    steps = scripts[0].steps
    verdicts, causes = np.zeros((size, steps), np.uint8), np.full((size, steps), Cause.NONE, np.uint8)
    starts = {script.starts for script in scripts} - {0}
    known = [s.objective_s if s.kind in ILL or s.needs_objective else np.nan for s in scripts]
    objective = np.repeat([o if np.isfinite(o) else np.nan for o in known], ROWS)
    for step in range(steps):
        if step in starts:  # a new monitor knows nothing yet
            new = np.array([script.starts == step for script in scripts])
            groups, rows = np.arange(size), np.arange(size * ROWS)
            judge = judge.select(np.where(new, -1, groups), np.where(np.repeat(new, ROWS), -1, rows))
        sample = world.advance()
        if with_objectives:
            sample = replace(sample, objective_s=objective)
        judged = judge.judge(sample)
        verdicts[:, step], causes[:, step] = judged.verdict, judged.cause
    return [(script, world.labels[n], verdicts[n], causes[n]) for n, script in enumerate(scripts)]


def score_life(score: Score, life: tuple[Script, Any, Any, Any]) -> None:
    """Adds a life to the score, from where the monitor starts."""
    script, labels, verdicts, causes = life
    first = script.starts
    times = (np.arange(script.steps) + 1) * STEP_S
    ends = np.flatnonzero(np.diff(labels[first:], append=255)) + first
    begins = np.concatenate([[first], ends[:-1] + 1])
    spans = [(times[b], times[e], LABELS[labels[b]]) for b, e in zip(begins, ends, strict=True)]
    score.add(
        times[first:],
        [Verdict(v).name for v in verdicts[first:]],
        [None if c == Cause.NONE else Cause(c).label for c in causes[first:]],
        spans,
        script.causes,
        learned_s=DAY_S,
    )


ALL = (*HEALTHY, *ILL)
