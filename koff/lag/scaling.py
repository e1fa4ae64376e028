"""How many members a group should have, so that its records are committed within its allowance.

    k           records a second of one member: in the last span, if the group was saturated in it, with as
                many members as now; else the most of any span; or what the owner says
    behind      L > m k A, so that the newest record will be later than the allowance A; or one is late
    pace        max(p, (L + p N) / (N + A)): to keep up, and so that within N seconds L is at most m k A
    needed      the least m with which no member has more partitions than it can do, floor(k P / pace) of P:
                the member with the most has ceil(P / m). Share groups need ceil(pace / k)

Behind, the group gets what is needed, never fewer members than it has. It gets at most twice as many at once,
unless the owner says k; and no more if more members brought too little in the last hour. A group that keeps
up loses members only if the others have HEADROOM. So no number that koff does not know is guessed: where one
is missing, the group keeps its members. So it does while it rebalances often.

L is the lag that more members can cure, p how fast records come, m the members, P the partitions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SPAN = 8
"""So many steps make a span: two minutes."""
SATURATED = 0.5
"""A group is saturated while its lag is that of so much of its allowance, or more."""
HEADROOM = 0.8
GAIN = 0.3
"""More members help if they bring at least this share of what they should bring."""


class ScaleReason(StrEnum):
    """Why a group should have so many members. The names are in JSON, so they never change."""

    NEEDED = "needed"
    KEEPS_UP = "keeps_up"
    IDLE = "idle"
    NOT_CURABLE = "not_curable"
    REBALANCING = "rebalancing"
    CAPACITY_UNKNOWN = "capacity_unknown"
    NO_GAIN = "no_gain"
    ALL_PARTITIONS = "all_partitions"


class Span(NamedTuple):
    """What a group did in `SPAN` steps during which its number of members stayed the same."""

    members: int
    consumed_per_s: float
    is_saturated: bool
    is_last: bool = False


class Load(NamedTuple):
    """What there is to do. `lag` is all of the lag, `curable` what more members can cure.

    The owner accepts a lag of `allowance_s`, and a curable lag `is_late` if it has that. `partitions` can be
    given to members; None: any number of members can share them. `is_rebalancing`: too often.
    """

    lag: int
    curable: int
    produce_per_s: float
    allowance_s: float
    partitions: int | None = None
    is_late: bool = False
    is_rebalancing: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """How many members a group should have, and why. `member_per_s` is None if it is not known."""

    members: int
    reason: ScaleReason
    member_per_s: float | None = None


def find_spans(lag: Floats, consumed_per_s: Floats, members: Sequence[int], allowance_s: float) -> list[Span]:
    """The spans of a course of steps (N,), the oldest first. NaN: unknown. `members` are those of each step.

    A step in which the group got other members is of no span, nor is one without members.
    """
    spans: list[Span] = []
    known = ~(np.isnan(lag) | np.isnan(consumed_per_s))
    last = int(np.flatnonzero(~np.isnan(consumed_per_s)).max(initial=-1))
    for end in range(SPAN, len(lag) + 1):
        part = slice(end - SPAN, end)
        present = members[end - 1]
        if present > 0 and known[part].all() and all(each == present for each in members[part]):
            rate = float(consumed_per_s[part].mean())
            is_saturated = bool((lag[part] > SATURATED * allowance_s * rate).all())
            spans.append(Span(present, rate, is_saturated, end - 1 == last))
    return spans


def choose_members(
    load: Load, members: int, spans: Sequence[Span], *, seconds: float, member_per_s: float | None = None
) -> Scale:
    """The members that the group should have, to be within its allowance in so many seconds.

    It has `members` now. `member_per_s` is what the owner says that a member can do.
    """
    rate = member_per_s or _find_rate(spans, members)
    if (held := _find_hold(load, rate)) is not None:
        is_zero = held is ScaleReason.IDLE
        return Scale(0 if is_zero else max(members, 1), held, rate)
    assert rate  # else it is held
    pace = max(
        load.produce_per_s,
        (load.curable + load.produce_per_s * seconds) / (seconds + load.allowance_s),
    )
    if not load.is_late and load.curable <= members * rate * load.allowance_s:
        kept = _count_needed(pace / HEADROOM / rate, load.partitions)
        return Scale(min(max(members, 1), kept), ScaleReason.KEEPS_UP, rate)
    wanted = max(_count_needed(pace / rate, load.partitions), members)
    if wanted > members and not _has_gained(spans, members):
        return Scale(members, ScaleReason.NO_GAIN, rate)
    is_enough = load.partitions is None or pace <= load.partitions * rate
    most = wanted if member_per_s else 2 * max(members, 1)
    reason = ScaleReason.NEEDED if is_enough else ScaleReason.ALL_PARTITIONS
    return Scale(min(wanted, most), reason, rate)


def _find_hold(load: Load, rate: float | None) -> ScaleReason | None:
    """Why the number of members does not follow from the load; None if it does."""
    if not load.lag and not load.produce_per_s:
        return ScaleReason.IDLE
    if load.is_rebalancing:
        return ScaleReason.REBALANCING
    if not load.curable and not load.produce_per_s:
        return ScaleReason.NOT_CURABLE
    return None if rate else ScaleReason.CAPACITY_UNKNOWN


def _count_needed(busy: float, partitions: int | None) -> int:
    """How many members do the work of so many that are always busy. At least one."""
    if partitions is None:
        return max(1, math.ceil(busy - 1e-6))  # a number that is larger by rounding alone counts as whole
    each = int(partitions / busy + 1e-6) if busy else partitions
    return max(1, -(-partitions // max(each, 1)))


def _find_rate(spans: Sequence[Span], members: int) -> float | None:
    """What one member can do: as it is now, if that is known; else at least so much."""
    now = _find_present(spans, members)
    if now is not None:
        return round(now.consumed_per_s / now.members, 3)
    return max((round(span.consumed_per_s / span.members, 3) for span in spans), default=None)


def _has_gained(spans: Sequence[Span], members: int) -> bool:
    """Whether more members brought more, as far as that was seen: each time the group was saturated."""
    now = _find_present(spans, members)
    fewer = [span for span in spans if span.is_saturated and span.members < members]
    if now is None or not fewer:
        return True
    best = max(fewer, key=lambda span: span.consumed_per_s)
    due = best.consumed_per_s * (1 + GAIN * (members / best.members - 1))
    return now.consumed_per_s >= due


def _find_present(spans: Sequence[Span], members: int) -> Span | None:
    """The last span, if the group was saturated in it, and has as many members now."""
    last = spans[-1] if spans else None
    return last if last and last.is_last and last.is_saturated and last.members == members else None
