"""What is said of a group and its rows: the verdict, where its allowance comes from, and its incident."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from koff.lag.verdict_sample import Floats, Ints, Mask


class Verdict(IntEnum):
    """From unknown and good to bad. The names are in JSON and metrics, so they never change."""

    UNKNOWN = 0
    OK = 1
    WARN = 2
    """Late: it may recover by itself."""
    ERR = 3
    """It will not recover by itself, or records are lost."""


class Basis(IntEnum):
    """Where an allowance comes from. The names are in JSON and metrics, so they never change."""

    FLOOR = 0
    USUAL = 1
    OBJECTIVE = 2
    RETENTION = 3


class IncidentChange(IntEnum):
    """What became of the incident of a group."""

    NONE = 0
    OPENED = 1
    RAISED = 2
    """The first ERR of an incident that began as WARN."""
    CLOSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Of rows (N,): `late`, `standing`, `lost` (below the log start), `allowance_s`, and `skipped_from`, from
    where the offset jumped forward at this sample without members (else -1). Of groups (G,):

    - `verdict` (`Verdict`), `change` (`IncidentChange`) and `since_s`, when the open incident
      began; NaN without.
    - `group_allowance_s` is the least of its rows, and `basis` its `Basis`. `usual_s` is 0 where it is not
      known yet. `late_most_s` is the largest time lag; NaN if a row is unknown.
    - `catch_up_s` is the time until caught up: infinite if the lag does not fall, NaN if that is unknown.
    - `usual_per_s` is the usual produce rate, NaN if that is not known yet.
    - `cause` is the first `Cause` of the group; `row_cause` has one for each late row (N,).
    """

    late: Mask
    standing: Mask
    lost: Mask
    allowance_s: Floats
    skipped_from: Ints
    verdict: NDArray[np.uint8]
    change: NDArray[np.uint8]
    since_s: Floats
    group_allowance_s: Floats
    basis: NDArray[np.uint8]
    usual_s: Floats
    late_most_s: Floats
    catch_up_s: Floats
    usual_per_s: Floats
    cause: NDArray[np.uint8]
    row_cause: NDArray[np.uint8]
