"""Lives of groups in files: JSON lines, gzipped or not. And the verdict on each sample of them.

{"life": "name", "objective_s": null, "retention_s": null, "rows": 3, "sample_s": 5}
{"history": [{"span_s": 36000, "records": 9000, "pauses": [{"records": 5, "late_before_s": 600,
  "late_after_s": 0, ...}]}, null, null]}                        (optional: what the log tells of each row)
{"t": 1800000000, "members": 2, "rebalances": 0, "rows": [{"committed": 10, "start": 0, "end": 12,
  "stable": 12, "held_s": 0, "member": 0, "subscribed": true, "assigned": true, "withheld": false,
  "lag_s": 1.5, "moved_at": 1799999998}, ...]}
... more samples, then the next life
"""

import gzip
import json
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.judge import Judge
from koff.lag.late_causes import Cause
from koff.lag.usual_lateness import CLASSES, UsualLateness, find_classes
from koff.lag.verdict import Verdict
from koff.lag.verdict_sample import VerdictSample

RATE_S = 300.0
"""The produce rate is over so many seconds."""
_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("committed", "start", "end", "stable", "member"), np.int64),
    **dict.fromkeys(("subscribed", "assigned", "withheld"), np.bool_),
    **dict.fromkeys(("held_s", "lag_s", "moved_at"), np.float64),
}
"""What a sample has of each row. Null is an unknown number."""


class Pause(NamedTuple):
    """A pause between two commits that the log shows: how late the row was at its end, before and after."""

    records: int
    late_before_s: float
    late_after_s: float


class LifeError(ValueError):
    """A file of lives is wrong: the text names the file, the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One sample: the time as it is in the file, and the columns of the rows."""

    t: float
    members: int
    rebalances: int
    rows: dict[str, NDArray[Any]]


@dataclass(slots=True)
class Life:
    """One life. `history` has for each row its records and pauses in the log, None where nothing is known."""

    name: str
    rows: int
    objective_s: float
    retention_s: float
    history: list[tuple[int, list[Pause]] | None] = field(default_factory=list)
    samples: list[Observation] = field(default_factory=list)


def read_lives(path: Path) -> Iterator[Life]:
    """The lives of a file, one after the other. Raises `LifeError`."""
    life: Life | None = None
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                number += 1
                found = json.loads(line)
                if "life" in found:
                    if life is not None:
                        yield life
                    life = _begin(found)
                elif life is None:
                    raise ValueError("there is no life yet")
                elif "history" in found:
                    life.history = [_read_history(row) for row in found["history"]]
                else:
                    life.samples.append(_read_sample(found, life))
    except (ArithmeticError, AttributeError, EOFError, LookupError, OSError, TypeError, ValueError) as error:
        raise LifeError(f"{path}, line {number}: {error or type(error).__name__}") from None
    if life is not None:
        yield life


def _begin(head: Any) -> Life:
    times_s = (head.get(name) for name in ("objective_s", "retention_s"))
    objective_s, retention_s = (math.nan if time_s is None else float(time_s) for time_s in times_s)
    return Life(str(head["life"]), int(head["rows"]), objective_s, retention_s)


def _read_history(row: Any) -> tuple[int, list[Pause]] | None:
    if row is None:
        return None
    names = ("late_before_s", "late_after_s")
    pauses = [Pause(int(p["records"]), *(float(p[name]) for name in names)) for p in row["pauses"]]
    return int(row["records"]), pauses


def _read_sample(found: Any, life: Life) -> Observation:
    rows, at_s = found["rows"], float(found["t"])
    if len(rows) != life.rows:
        raise ValueError(f"{len(rows)} rows, but the life has {life.rows}")
    if not at_s > (life.samples[-1].t if life.samples else -math.inf):
        raise ValueError("t is not later than that of the sample before")

    def read_column(name: str, kind: type) -> NDArray[Any]:
        unknown = math.nan if kind is np.float64 else -1
        return np.array([unknown if row[name] is None else row[name] for row in rows], kind)

    columns = {name: read_column(name, kind) for name, kind in _COLUMNS.items()}
    return Observation(found["t"], int(found["members"]), int(found["rebalances"]), columns)


def _seed(usual: UsualLateness, records: int, pauses: list[Pause]) -> None:
    """Adds the history of a row of the only group: of `records` in all, those of the `pauses` were late."""
    counts = np.zeros((1, CLASSES), np.float32)
    for pause in pauses:
        points_s = np.linspace(pause.late_before_s, pause.late_after_s, 17)[1::2]
        np.add.at(counts[0], find_classes(points_s), pause.records / len(points_s))
        records -= pause.records
    counts[0, 0] += max(records, 0)
    usual.add_counts(counts)
    usual.returns[0] = min(int(usual.returns[0]) + len(pauses), 255)


def judge_life(life: Life) -> Iterator[dict[str, Any]]:
    """The verdict, the cause and the usual lateness at each sample."""
    judge = Judge(1, life.rows)
    for seed in life.history:
        if seed is not None:
            _seed(judge.usual, *seed)
    ends: deque[tuple[float, NDArray[Any]]] = deque()
    for observation in life.samples:
        ends.append((observation.t, observation.rows["end"]))
        while len(ends) > 2 and ends[1][0] <= observation.t - RATE_S:
            ends.popleft()
        passed_s = max(observation.t - ends[0][0], 1e-9)
        judged = judge.judge(_build_sample(life, observation, (ends[-1][1] - ends[0][1]) / passed_s))
        cause = Cause(judged.cause[0])
        yield {
            "life": life.name,
            "t": observation.t,
            "verdict": Verdict(judged.verdict[0]).name,
            "cause": None if cause is Cause.NONE else cause.label,
            "usual_s": float(judged.usual_s[0]) or None,
        }


def _build_sample(life: Life, observation: Observation, produce_per_s: NDArray[Any]) -> VerdictSample:
    rows = dict(observation.rows)
    late_s, moved_at_s = rows.pop("lag_s"), rows.pop("moved_at")
    return VerdictSample(
        at_s=observation.t,
        group=np.zeros(life.rows, np.int64),
        counts=rows["subscribed"] | (observation.members <= 0),
        late_s=np.where(rows.pop("withheld"), math.nan, late_s),
        at_least=np.zeros(life.rows, np.bool_),
        moved_at_s=moved_at_s,
        produce_per_s=produce_per_s,
        consume_per_s=np.full(life.rows, np.nan),
        objective_s=np.full(life.rows, life.objective_s),
        retention_s=np.full(life.rows, life.retention_s),
        members=np.array([observation.members]),
        epoch=np.zeros(1, np.int64),
        rebalances=np.array([observation.rebalances]),
        commits_held_back=np.zeros(1, np.bool_),
        **rows,
    )
