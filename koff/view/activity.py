"""What groups did lately: rebalances, members that came and left, resets. One view alone cannot show it."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.verdict import Basis, Verdict
from koff.tracker import Group, Member, State
from koff.view.earlier import Archive
from koff.view.incidents import IncidentLog
from koff.view.lag_history import LagHistory

REBALANCES_SPAN_MS, MEMBERS_SPAN_MS = 300_000, 3_600_000
MOST_RESETS = 10_000
"""So many partitions of a cluster with a reset are kept, the newest."""
RESET_SPAN_MS = 3_600_000
_NAMED = 3
"""So many client ids are named."""

Place = tuple[str, str, int]
"""Group, topic and partition."""


class Reset(NamedTuple):
    """A committed offset went back from `offset`."""

    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupActivity:
    """What one group did: how often it rebalanced within `REBALANCES_SPAN_MS`, and who came and left then.

    `members` is until when, within `MEMBERS_SPAN_MS`, it had another number of members, and how many: the
    oldest first.
    """

    rebalances: int = 0
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    members: tuple[tuple[int, int], ...] = ()

    @property
    def most_members(self) -> int:
        """The most members that it had before the number last changed; -1 if it did not change."""
        return max((number for _, number in self.members), default=-1)


class ShardVerdicts(NamedTuple):
    """The verdicts on the groups of a shard at the time `at_s`, when it had this `layout`."""

    layout: object
    groups: list[Group]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]
    at_s: float
    verdicts: GroupVerdicts


@dataclass(frozen=True, slots=True)
class ClusterActivity:
    """What the groups of a cluster did lately. Groups that did nothing are missing."""

    groups: Mapping[str, GroupActivity] = field(default_factory=dict)
    resets: Mapping[Place, Reset] = field(default_factory=dict)
    verdicts: dict[int, ShardVerdicts] = field(default_factory=dict)
    """By shard, the verdicts of its groups when they were last looked at."""

    def list_late(self) -> dict[str, bool]:
        """Whether each group with an objective is late. Groups without a verdict are missing."""
        return {
            shard.groups[at].name: bool(shard.verdicts.verdict[at] >= Verdict.WARN)
            for shard in self.verdicts.values()
            for at in np.flatnonzero(shard.verdicts.basis == Basis.OBJECTIVE).tolist()
            if shard.verdicts.verdict[at] != Verdict.UNKNOWN
        }


@dataclass(slots=True)
class RecentActivity:
    """Holds the newest `ClusterActivity`, the last hour of lags and the incidents: one thread sets them, any
    reads them.
    """

    current: ClusterActivity = field(default_factory=ClusterActivity)
    history: LagHistory = field(default_factory=LagHistory)
    incidents: IncidentLog = field(default_factory=IncidentLog)
    archive: Archive | None = None
    """What is kept for longer than an hour; None without a state directory."""
    unready_since_ms: int | None = None
    """Since when koff is not ready, in ms since 1970. None: it is ready, or nobody has looked yet."""
    is_saved: bool = False
    """Whether there is a state directory: then `verdicts` is what the verdicts depend on, now and then."""
    verdicts: State | None = None
    saved_verdicts: State | None = None
    """The same, as the process before has saved it, until it was taken over."""


class _Rebalance(NamedTuple):
    at_ms: int
    epochs: int
    joined: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(slots=True)
class _GroupLog:
    rebalances: deque[_Rebalance] = field(default_factory=lambda: deque(maxlen=100))
    members: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=100))
    """Until when the group had so many members, before the number changed."""

    def build(self, now_ms: int) -> GroupActivity | None:
        """What the group did; None if that is nothing. Forgets what was too long ago."""
        while self.rebalances and self.rebalances[0].at_ms < now_ms - REBALANCES_SPAN_MS:
            self.rebalances.popleft()
        while self.members and self.members[0][0] < now_ms - MEMBERS_SPAN_MS:
            self.members.popleft()
        if not self.rebalances and not self.members:
            return None
        return GroupActivity(
            sum(each.epochs for each in self.rebalances),
            _name_most(each.joined for each in self.rebalances),
            _name_most(each.left for each in self.rebalances),
            tuple(self.members),
        )


class ActivityLog:
    """Collects what the groups of a cluster do, from one view to the next. Bounded. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupLog] = {}
        self._resets: dict[Place, Reset] = {}

    def note_group(self, before: Group, now: Group, now_ms: int) -> None:
        """The epoch or the members of a group are others than before."""
        log = self._groups.setdefault(now.name, _GroupLog())
        if before.member_count != now.member_count:
            log.members.append((now_ms, before.member_count))
        if min(before.epoch, now.epoch) >= 0 and now.epoch > before.epoch:
            joined, left = (
                tuple(member.client_id for member in members[:100])
                for members in (list_new(before, now), list_new(now, before))
            )
            log.rebalances.append(_Rebalance(now_ms, now.epoch - before.epoch, joined, left))

    def note_reset(self, place: Place, offset: int, now_ms: int) -> None:
        """The committed offset of a row went back from `offset`."""
        before = self._resets.pop(place, None)  # the newest are the last
        if before is not None and before.at_ms >= now_ms - RESET_SPAN_MS:
            offset = max(offset, before.offset)
        self._resets[place] = Reset(offset, now_ms)
        if len(self._resets) > MOST_RESETS:
            del self._resets[next(iter(self._resets))]

    def forget(self, groups: Collection[str] = (), topics: Collection[tuple[str, str]] = ()) -> None:
        """These groups were deleted: a later one of that name is another.

        And these topics, each of a group, were created again: their offsets are others.
        """
        for name in groups:
            self._groups.pop(name, None)
        if groups or topics:
            self._resets = {
                place: reset
                for place, reset in self._resets.items()
                if place[0] not in groups and place[:2] not in topics
            }

    def build(self, now_ms: int) -> ClusterActivity:
        built = {name: log.build(now_ms) for name, log in self._groups.items()}
        groups = {name: activity for name, activity in built.items() if activity is not None}
        self._groups = {name: self._groups[name] for name in groups}
        resets = {
            place: reset for place, reset in self._resets.items() if reset.at_ms >= now_ms - RESET_SPAN_MS
        }
        self._resets = dict(resets)
        return ClusterActivity(groups, resets)


def list_new(before: Group, now: Group) -> list[Member]:
    """The members that are present now, and were not before."""
    if before.members is now.members:
        return []
    ids = {member.id for member in before.members if member.present}
    return [member for member in now.members if member.present and member.id not in ids]


def _name_most(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    counts = Counter(name for names in lists for name in names)
    return tuple(name for name, _ in counts.most_common(_NAMED))
