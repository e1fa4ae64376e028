"""The verdicts on the groups of a shard, by groups and rows: what is shown of them, and all that is found."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from koff.lag.late_causes import Cause
from koff.lag.verdict import Basis, Verdict
from koff.lag.verdict_sample import Floats, Ints, Mask

_OF_GROUPS: dict[str, float] = {
    "verdict": Verdict.UNKNOWN,
    "cause": Cause.NONE,
    "since_s": np.nan,
    "usual_s": 0.0,
    "allowance_s": np.nan,
    "basis": Basis.FLOOR,
    "catch_up_s": np.nan,
    "usual_per_s": np.nan,
}
_OF_ROWS: dict[str, float] = {"late": False, "standing": False, "lost": False, "row_cause": Cause.NONE}
"""The values of a group, and of a row, on which there is no verdict yet."""


@dataclass(frozen=True, slots=True)
class GroupVerdicts:
    """Of rows (N,): `late`, `standing`, `lost` (below the log start), and `row_cause`, one for each late row.
    Of groups (G,):

    - `verdict` (`Verdict`), the first `cause`, and `since_s`, when the open incident began; NaN without.
    - `allowance_s` is the least of its rows, and `basis` its `Basis`. `usual_s` is 0 where it is not known.
    - `catch_up_s` is the time until caught up: infinite if the lag does not fall, NaN if that is unknown.
    - `usual_per_s` is the usual produce rate, NaN if that is not known yet.

    A group that was not looked at yet is UNKNOWN, and so is one that is withheld for long.
    """

    verdict: NDArray[np.uint8]
    cause: NDArray[np.uint8]
    since_s: Floats
    usual_s: Floats
    allowance_s: Floats
    basis: NDArray[np.uint8]
    catch_up_s: Floats
    usual_per_s: Floats
    late: Mask
    standing: Mask
    lost: Mask
    row_cause: NDArray[np.uint8]

    @classmethod
    def build(cls, judged: "Judgement") -> Self:
        """What is shown of a judgement."""
        return cls(**{name: getattr(judged, name) for name in (*_OF_GROUPS, *_OF_ROWS)})

    @classmethod
    def build_unknown(cls, groups: int, rows: int) -> Self:
        """Those of groups that nobody has looked at."""
        columns: dict[str, Any] = {}
        for first, size in ((_OF_GROUPS, groups), (_OF_ROWS, rows)):
            for name, value in first.items():
                kind = np.uint8 if isinstance(value, int) and not isinstance(value, bool) else type(value)
                columns[name] = np.full(size, value, kind)
        return cls(**columns)

    def select(self, groups: NDArray[np.integer[Any]], rows: NDArray[np.integer[Any]]) -> Self:
        """A copy for other groups and rows: for each its number in these, -1 for a new one."""
        copy = self.build_unknown(len(groups), len(rows))
        for names, numbers in ((_OF_GROUPS, groups), (_OF_ROWS, rows)):
            for name in names:
                getattr(copy, name)[numbers >= 0] = getattr(self, name)[numbers[numbers >= 0]]
        return copy

    def judge_rows(self, known: Mask) -> NDArray[np.uint8]:
        """The `Verdict` of each row: whether it is late, and stands or loses records. `known`: its lag is."""
        is_err = self.standing | (self.lost & self.late)
        found = np.where(is_err, Verdict.ERR, np.where(self.late, Verdict.WARN, Verdict.OK))
        return np.where(known, found, Verdict.UNKNOWN).astype(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement(GroupVerdicts):
    """What a sample shows. Of rows (N,): `skipped_from`, from where the offset jumped forward at this sample
    without members (else -1). Of groups (G,): `change` (`IncidentChange`), and `late_most_s`, the largest
    time lag; NaN if a row is unknown.
    """

    skipped_from: Ints
    change: NDArray[np.uint8]
    late_most_s: Floats
