"""How each partition of the offsets topic starts: from its saved state, the coordinators, or its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from koff.monitor.moment import Moment
from koff.monitor.resume_rules import NOTHING_SAVED, reason_not_to_resume
from koff.monitor.saved import Saved

Way = Literal["snapshot", "replay", "resume"]
"""How a monitor starts: from the coordinators' responses, from the log start, or from the saved state."""

Source = Literal["auto", "log", "coordinators"]
"""Where commits come from: the offsets topic, or requests to the coordinators if it may not be read."""


EMPTY_LOG = "its log is empty"
"""Why a partition needs neither coordinators nor a saved state."""


class Bounds(NamedTuple):
    """The log start offset and the last stable offset of a partition."""

    start: int
    stable: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Restore the saved state, and read on at its position."""

    position: int
    leader_epoch: int
    saved: Saved


@dataclass(frozen=True, slots=True)
class Seed:
    """Take the coordinators' response, and read on at `position`, which is not after the end before that."""

    position: int
    why: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Read the log from its start, `position`."""

    position: int
    why: str


Plan = Resume | Seed | Replay


def plan_start(
    way: Way,
    saved: Mapping[int, Saved | str],
    bounds: Mapping[int, Bounds],
    now: Moment,
    *,
    delete_retention_ms: int,
    may_seed: bool,
    tail: int = 0,
) -> dict[int, Plan]:
    """The plan of each partition that has bounds. Each partition goes its own way.

    `saved` are the saved states, or why there is none. Without `may_seed`, the coordinators are of no use.
    The last `tail` offsets of a log are read in any case: a log that is not longer needs no coordinators.
    """
    plans: dict[int, Plan] = {}
    for partition, (start, stable) in bounds.items():
        found = saved.get(partition, NOTHING_SAVED) if way == "resume" else "--start " + way
        if isinstance(found, Saved):
            why = reason_not_to_resume(
                found, now=now, delete_retention_ms=delete_retention_ms, log_start=start, last_stable=stable
            )
            if why is None:
                plans[partition] = Resume(found.position, found.leader_epoch, found)
                continue
        else:
            why = found
        if stable <= start:
            plans[partition] = Replay(start, EMPTY_LOG)
        elif way == "replay" or not may_seed or stable - start <= tail:
            plans[partition] = Replay(start, why)
        else:
            plans[partition] = Seed(stable - tail, why)
    return plans
