"""How well series of verdicts fit the truth: what an on-call engineer would say of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Span = tuple[float, float, str]
"""From, until and "healthy", "late" or "broken"."""
OPEN = ("WARN", "ERR")
NEAR_S = 900.0
"""A verdict that is open at most so long before or after an incident belongs to it: the objective of the
owner, which sets when an incident begins, is not what koff knows."""


@dataclass(slots=True)
class Score:
    """Counts over many lives; `build` makes the figures of them.

    A wait is from when a group is broken, or late if it never is, until its verdict is WARN or ERR.
    """

    incidents: int = 0
    found: int = 0
    broken: int = 0
    became_err: int = 0
    waits_s: list[float] = field(default_factory=list)
    broken_s: float = 0.0
    ok_while_broken_s: float = 0.0
    late_s: float = 0.0
    err_while_late_s: float = 0.0
    changes: list[int] = field(default_factory=list)
    false_openings: int = 0
    healthy_days: float = 0.0
    causes: int = 0
    right_causes: int = 0

    def add(
        self,
        times_s: Sequence[float],
        verdicts: Sequence[str],
        causes: Sequence[str | None],
        spans: Sequence[Span],
        true_causes: Collection[str],
        *,
        learned_s: float = 0.0,
    ) -> None:
        """Adds a life. Openings before `learned_s` are not counted as false."""
        at, verdict = np.array(times_s), np.array(verdicts)
        step_s = float(np.median(np.diff(at))) if len(at) > 1 else 0.0
        is_open = np.isin(verdict, OPEN)
        belongs = np.zeros(len(at), np.bool_)
        label = np.full(len(at), "healthy", "U8")
        for begin, end, name in spans:
            label[(at >= begin) & (at <= end)] = name
        broken, late = label == "broken", label == "late"
        self.broken_s += step_s * int(broken.sum())
        self.ok_while_broken_s += step_s * int((broken & (verdict == "OK")).sum())
        self.late_s += step_s * int(late.sum())
        self.err_while_late_s += step_s * int((late & (verdict == "ERR")).sum())
        for begin, end, has_broken in _list_incidents(spans):
            near = (at >= begin - NEAR_S) & (at <= end + NEAR_S)
            within = (at >= begin) & (at <= end)
            self.incidents += 1
            opened = np.flatnonzero(within & is_open)
            self.found += bool(len(opened))
            if len(opened):
                truly_s = float(at[within & broken][0]) if has_broken else begin
                self.waits_s.append(max(float(at[opened[0]]) - truly_s, 0.0))
            if has_broken:
                self.broken += 1
                self.became_err += bool((within & (verdict == "ERR")).any())
            first, last = _widen(is_open, near)
            belongs[first:last] = True
            part = verdict[max(first - 1, 0) : last + 1]
            self.changes.append(int((part[1:] != part[:-1]).sum()))
            named = [cause for cause in causes[first:last] if cause is not None]
            if true_causes and named:
                self.causes += 1
                self.right_causes += named[0] in true_causes
        began = np.flatnonzero(is_open & ~np.concatenate([[False], is_open[:-1]]) & ~belongs)
        self.false_openings += int((at[began] >= at[0] + learned_s).sum())
        self.healthy_days += step_s * int(((label == "healthy") & (at >= at[0] + learned_s)).sum()) / 86_400

    def build(self) -> dict[str, Any]:
        """The figures: percent, seconds and counts."""

        def percent(part: float, whole: float) -> float | None:
            return round(100 * part / whole, 2) if whole else None

        return {
            "incidents": self.incidents,
            "found_percent": percent(self.found, self.incidents),
            "broken_that_became_err_percent": percent(self.became_err, self.broken),
            "wait_p95_s": round(float(np.percentile(self.waits_s, 95)), 1) if self.waits_s else None,
            "ok_while_broken_percent": percent(self.ok_while_broken_s, self.broken_s),
            "err_while_late_percent": percent(self.err_while_late_s, self.late_s),
            "changes_mean": round(float(np.mean(self.changes)), 2) if self.changes else None,
            "changes_p95": float(np.percentile(self.changes, 95)) if self.changes else None,
            "false_openings_per_1000_days": round(1000 * self.false_openings / self.healthy_days, 1)
            if self.healthy_days
            else None,
            "first_cause_right_percent": percent(self.right_causes, self.causes),
        }


def _list_incidents(spans: Sequence[Span]) -> list[tuple[float, float, bool]]:
    """Each run of spans that are not healthy: from, until, and whether a part of it is broken."""
    found: list[tuple[float, float, bool]] = []
    is_within = False
    for begin, end, name in spans:
        if name == "healthy":
            is_within = False
        elif is_within:
            found[-1] = (found[-1][0], end, found[-1][2] or name == "broken")
        else:
            found.append((begin, end, name == "broken"))
            is_within = True
    return found


def _widen(is_open: np.ndarray[Any, Any], near: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The samples of an incident as koff saw it: all that are open near it, as indices from and until."""
    touched = np.flatnonzero(is_open & near)
    if not len(touched):
        return 0, 0
    first, last = int(touched[0]), int(touched[-1])
    while first > 0 and is_open[first - 1]:
        first -= 1
    while last + 1 < len(is_open) and is_open[last + 1]:
        last += 1
    return first, last + 1
