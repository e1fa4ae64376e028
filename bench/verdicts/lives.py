"""Lives of groups in files: JSON lines, gzipped or not. And the verdict on each sample of them.

{"life": "name", "objective_s": null, "retention_s": null, "rows": 3, "sample_s": 5}
{"history": [{"span_s": 36000, "records": 9000, "pauses": [{"records": 5, "late_before_s": 600,
  "late_after_s": 0, ...}]}, null, null]}                        (optional: what the log tells of each row)
{"t": 1800000000, "members": 2, "rebalances": 0, "rows": [{"committed": 10, "start": 0, "end": 12,
  "stable": 12, "held_s": 0, "member": 0, "subscribed": true, "assigned": true, "withheld": false,
  "lag_s": 1.5, "moved_at": 1799999998}, ...]}
... more samples, then the next life
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from koff.lag.late_causes import Cause
from koff.lag.samples import Sample
from koff.lag.usual_lateness import Pause
from koff.lag.verdict import Judge, Verdict

RATE_S = 300.0
"""The produce rate is over so many seconds."""


class LifeError(ValueError):
    """A file of lives is wrong: the text names the file, the line and what is wrong."""


@dataclass(slots=True)
class Life:
    """One life: its head, and its samples as they are in the file."""

    name: str
    rows: int
    objective_s: float = math.nan
    retention_s: float = math.nan
    history: Sequence[Any] = ()
    samples: list[dict[str, Any]] = field(default_factory=list)


def read_lives(path: Path) -> Iterator[Life]:
    """The lives of a file, one after the other. Raises `LifeError`."""
    life: Life | None = None
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                if "life" in found:
                    if life is not None:
                        yield life
                    life = _begin(found)
                elif life is None:
                    raise ValueError("there is no life yet")
                elif "history" in found:
                    life.history = found["history"]
                else:
                    _check(found, life)
                    life.samples.append(found)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise LifeError(f"{path}, line {number}: {error or type(error).__name__}") from None
    if life is not None:
        yield life


def _begin(head: Any) -> Life:
    def read_s(name: str) -> float:
        return math.nan if head.get(name) is None else float(head[name])

    return Life(str(head["life"]), int(head["rows"]), read_s("objective_s"), read_s("retention_s"))


def _check(sample: Any, life: Life) -> None:
    if len(sample["rows"]) != life.rows:
        raise ValueError(f"{len(sample['rows'])} rows, but the life has {life.rows}")
    for name in ("t", "members"):
        float(sample[name])


def judge_life(life: Life, objective_s: float | None = None) -> Iterator[dict[str, Any]]:
    """The verdict, the cause and the usual lateness at each sample. `objective_s` replaces the life's."""
    judge, rows = Judge(1, life.rows), life.rows
    for row in life.history:
        if row is not None:
            pauses = [Pause(p["records"], p["late_before_s"], p["late_after_s"]) for p in row["pauses"]]
            judge.usual.seed(0, row["records"], pauses)
    group = np.zeros(rows, np.int64)
    objective = np.full(rows, life.objective_s if objective_s is None else objective_s)
    retention = np.full(rows, life.retention_s)
    ends: list[tuple[float, np.ndarray[Any, Any]]] = []
    for found in life.samples:
        at_s, each = float(found["t"]), found["rows"]

        def column(name: str, kind: Any, default: Any, of: Any = each) -> np.ndarray[Any, Any]:
            values = [row.get(name) for row in of]
            return np.array([default if value is None else value for value in values], kind)

        end, withheld = column("end", np.int64, -1), column("withheld", bool, False)
        ends.append((at_s, end))
        while len(ends) > 2 and ends[1][0] <= at_s - RATE_S:
            ends.pop(0)
        first_s, first = ends[0]
        late_s = column("lag_s", float, math.nan)
        subscribed = column("subscribed", bool, True)
        members = int(found["members"])
        judged = judge.judge(
            Sample(
                at_s=at_s,
                group=group,
                counts=subscribed | (members <= 0),
                committed=column("committed", np.int64, -1),
                start=column("start", np.int64, -1),
                end=end,
                stable=column("stable", np.int64, -1),
                held_s=column("held_s", float, 0.0),
                member=column("member", np.int64, -1),
                subscribed=subscribed,
                assigned=column("assigned", bool, True),
                produce_per_s=(end - first) / (at_s - first_s) if at_s > first_s else np.full(rows, math.nan),
                late_s=np.where(withheld, math.nan, late_s),
                moved_at_s=column("moved_at", float, math.nan),
                objective_s=objective,
                retention_s=retention,
                members=np.array([members]),
                rebalances=np.array([int(found.get("rebalances") or 0)]),
                commits_held_back=np.zeros(1, bool),
            )
        )
        cause = Cause(judged.cause[0])
        yield {
            "life": life.name,
            "t": found["t"],
            "verdict": Verdict(judged.verdict[0]).name,
            "cause": None if cause is Cause.NONE else cause.label,
            "usual_s": float(judged.usual_s[0]) or None,
        }
