"""Samples of groups for the tests of verdicts and causes."""

from typing import Any

import numpy as np

from koff.lag.verdict_sample import VerdictSample

ROW: dict[str, Any] = {
    "group": 0,
    "counts": True,
    "committed": 100,
    "start": 0,
    "end": 100,
    "stable": 100,
    "held_s": 0.0,
    "member": 0,
    "subscribed": True,
    "assigned": True,
    "produce_per_s": 10.0,
    "consume_per_s": np.nan,
    "late_s": 0.0,
    "at_least": False,
    "moved_at_s": 0.0,
    "objective_s": np.nan,
    "retention_s": np.nan,
}
GROUP: dict[str, Any] = {"members": 1, "epoch": 1, "rebalances": 0, "commits_held_back": False}


def build_sample(at_s: float, *rows: dict[str, Any], groups: int = 1, **changed: Any) -> VerdictSample:
    """A sample of rows that are caught up and moved at `at_s`, but for what is given."""
    each = [{**ROW, "moved_at_s": at_s, **row} for row in rows]
    of_groups = {name: changed.get(name, value) for name, value in GROUP.items()}
    columns = {name: np.array([row[name] for row in each], type(value)) for name, value in ROW.items()}
    return VerdictSample(
        at_s=at_s,
        **columns,
        **{name: np.broadcast_to(np.asarray(value), (groups,)) for name, value in of_groups.items()},
    )
