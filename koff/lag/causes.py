"""Why a group lags: the likely causes of a lag that grows or stands still, row by row.

A row (group, topic, partition) is behind if it has a lag. It is standing if it is behind and its status is
STOP or STALL. It is growing if it is behind, not standing, its lag is above `lag_limits`, and either its
status is WARN, or it consumes no faster than records are produced and has not read all that was there
`ENDS_SPAN_MS` ago. (A burst of records is above the limit too until the group commits again.) A row advances
if it is not standing, its window of commits has a step forward, and the pause since is no longer than the
window. A row may have several causes:

    cause                rows               when
    fell_out_of_log      behind             the committed offset is below the log start
    reset                above the limit    the committed offset went back, and is not back yet
    no_members           behind             the row is not OK or above the limit, and the group has no member
    not_assigned         behind             as above, but no member has the row, and it does not advance
    open_transaction     behind             the row is not OK or above the limit, and the commit is at the
                                            last stable offset, where a transaction has been open for
                                            `OPEN_TRANSACTION_MS` (explains the lag beyond it)
    held_back_commits    standing           an open transaction may hold back commits of the group
    rebalancing          standing, growing  `MANY_REBALANCES` or more within `REBALANCES_SPAN_MS` (also if the
                                            row has read what was there `ENDS_SPAN_MS` ago)
    fewer_members        standing, growing  the group had more members within `MEMBERS_SPAN_MS`

The others are of rows that neither no_members, not_assigned, open_transaction nor held_back_commits explains:

    not_committing       standing           no row of the group advances
    slow_member          standing           all rows of its member stand, two or more; another one advances
    stuck_partition      standing           the other standing rows: the rest of the group advances
    hot_partition        growing            three times the mean produce rate of the group's other rows, and
                                            most other rows keep up
    uneven_assignment    growing            as slow_member, and the member has twice its fair share of rows
    slow_member          growing            at most half of the members are behind, and this is one of them
    production_rose      growing            the group's records come `ROSE` times as fast as they used to
    too_slow             growing            all that is left
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.status import Status

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MANY_REBALANCES, REBALANCES_SPAN_MS = 3, 300_000
MEMBERS_SPAN_MS = 3_600_000
OPEN_TRANSACTION_MS = 20_000
"""Two samples of the last stable offset show that a transaction is so old. Shorter ones are usual."""
ROSE = 1.5
NOT_ASSIGNED = -2
"""Stands for the member of a row that no member of its group is assigned."""
_HOT = 3.0
_UNEVEN = 2.0
_SPARE_S = 15.0
"""So many seconds of production may wait, besides twice the usual lag, before a lag counts as growing."""


class Cause(IntEnum):
    """Why a group lags. Causes that explain as much of a lag come in this order: the more precise first."""

    FELL_OUT_OF_LOG = 0
    RESET = 1
    NO_MEMBERS = 2
    NOT_ASSIGNED = 3
    OPEN_TRANSACTION = 4
    HELD_BACK_COMMITS = 5
    STUCK_PARTITION = 6
    UNEVEN_ASSIGNMENT = 7
    SLOW_MEMBER = 8
    HOT_PARTITION = 9
    REBALANCING = 10
    FEWER_MEMBERS = 11
    NOT_COMMITTING = 12
    PRODUCTION_ROSE = 13
    TOO_SLOW = 14

    @property
    def label(self) -> str:
        """The name in JSON and metrics, such as `no_members`: it never changes."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFacts:
    """What is known of the rows (N,) and of the groups (G,) of one shard. -1 stands for an unknown offset.

    - `group` is the group of each row, `member` the number of its member; -1 if that is not known.
      `NOT_ASSIGNED` if the group has members, and none of them has the row.
    - `lag` is 0 where it is unknown. `usual_lag` and the rates (offsets per second) are as in
      `koff.lag.rates`; an unknown rate is 0. `never` says that the row never catches up.
    - `is_silent` says that the pause since the last commit is longer than the time that the window spans.
    - `stable` is the last stable offset. The transaction at that offset has been open for `held_ms` at least;
      -1 if there is none. `end_before` is the end offset `ENDS_SPAN_MS` ago.
    - `went_back_from` is the committed offset before a reset, -1 without one.
    - `members` counts the present members of each group, -1 if it commits without any. `most_members`
      is the most within `MEMBERS_SPAN_MS`, `rebalances` how many there were within `REBALANCES_SPAN_MS`.
    - `commits_held_back` says that an open transaction may hold back commits of the group.
    - `produced_before` is the usual produce rate of all rows of a group, NaN if it is unknown.
    """

    group: NDArray[np.integer[Any]]
    member: Ints
    lag: Ints
    status: NDArray[np.uint8]
    usual_lag: Ints
    never: Mask
    is_silent: Mask
    consume_per_s: Floats
    produce_per_s: Floats
    committed: Ints
    start: Ints
    stable: Ints
    held_ms: Ints
    end_before: Ints
    went_back_from: Ints
    members: Ints
    most_members: Ints
    rebalances: Ints
    commits_held_back: Mask
    produced_before: Floats


class Explanation(NamedTuple):
    """The rows (N,) that have a cause, and how many offsets of their lags (N,) it explains: 0 elsewhere."""

    rows: Mask
    offsets: Ints


def lag_limits(facts: CauseFacts) -> Floats:
    """The lag of each row up to which it may be chance that the lag does not shrink.

    A lag that is sampled at any moment between two commits is at most twice the usual lag.
    """
    limits: Floats = 2.0 * facts.usual_lag + _SPARE_S * facts.produce_per_s
    return limits


def find_causes(facts: CauseFacts) -> dict[Cause, Explanation]:
    """The causes that at least one row has."""
    if not (facts.lag > 0).any():  # as a rule
        return {}
    return _Rules(facts).explain()


class _Rules:
    """The masks that several rules need."""

    def __init__(self, facts: CauseFacts) -> None:
        self.facts = facts
        self.groups = len(facts.members)
        self.behind = facts.lag > 0
        self.above = facts.lag > lag_limits(facts)
        self.standing = self.behind & np.isin(facts.status, (Status.STOP, Status.STALL))
        is_old = facts.end_before > facts.committed  # not just a burst that the group has yet to commit
        is_falling_behind = self.above & ((facts.status == Status.WARN) | (facts.never & is_old))
        self.growing = self.behind & ~self.standing & is_falling_behind
        # A partition without new records has no new commits, or the same offset again: that shows nothing.
        self.advances = ~self.standing & (facts.consume_per_s > 0) & ~facts.is_silent
        self.keeps_up = ~self.standing & ~self.growing
        self.has_member = facts.member >= 0
        # Rows without a member are of one more member, which no rule looks at.
        self.member = np.where(self.has_member, facts.member, facts.member.max(initial=-1) + 1)

    def explain(self) -> dict[Cause, Explanation]:
        """The causes, each with its rows."""
        facts, stuck = self.facts, self.standing | self.growing
        of_group = facts.group
        rows: dict[Cause, Mask] = {}
        lags: dict[Cause, Ints] = {}
        # What is true of the position of a row, whatever its course is.
        rows[Cause.FELL_OUT_OF_LOG] = self.behind & (facts.committed >= 0) & (facts.committed < facts.start)
        was_reset = (facts.went_back_from >= 0) & (facts.committed >= 0)
        is_back = was_reset & (facts.committed >= facts.went_back_from)
        is_reset = was_reset & ~is_back & self.above
        rows[Cause.RESET] = is_reset | (self.behind & (facts.status == Status.REWIND) & ~is_back)
        to_read_again = np.maximum(facts.went_back_from - facts.committed, 0)
        lags[Cause.RESET] = np.where(was_reset & ~is_back, np.minimum(facts.lag, to_read_again), facts.lag)
        # What keeps a row from moving, whoever reads it.
        is_left = self.behind & ((facts.status != Status.OK) | self.above)
        rows[Cause.NO_MEMBERS] = is_left & (facts.members == 0)[of_group]
        rows[Cause.NOT_ASSIGNED] = is_left & ~self.advances & (facts.member == NOT_ASSIGNED)
        at_stable = (facts.stable >= 0) & (facts.committed <= facts.stable)
        at_stable &= facts.committed >= facts.stable - facts.usual_lag
        rows[Cause.OPEN_TRANSACTION] = is_left & at_stable & (facts.held_ms >= OPEN_TRANSACTION_MS)
        beyond = facts.lag - np.maximum(facts.stable - facts.committed, 0)
        lags[Cause.OPEN_TRANSACTION] = np.maximum(beyond, 0)
        is_unread = rows[Cause.NO_MEMBERS] | rows[Cause.NOT_ASSIGNED]
        held_back = self.standing & facts.commits_held_back[of_group] & ~is_unread
        rows[Cause.HELD_BACK_COMMITS] = held_back
        explained = is_unread | rows[Cause.OPEN_TRANSACTION] | held_back
        standing = self._explain_standing(self.standing & ~explained)
        growing = self._explain_growing(self.growing & ~explained)
        rows |= standing | growing
        rows[Cause.SLOW_MEMBER] = standing[Cause.SLOW_MEMBER] | growing[Cause.SLOW_MEMBER]
        # What is true of the group.
        stuck &= ~rows[Cause.NOT_ASSIGNED]
        # Rebalances and a burst at once are no chance: without a look at `end_before`, it is named sooner.
        is_slower = self.behind & self.above & facts.never & ~rows[Cause.NOT_ASSIGNED]
        rows[Cause.REBALANCING] = (stuck | is_slower) & (facts.rebalances >= MANY_REBALANCES)[of_group]
        fewer = (facts.members > 0) & (facts.members < facts.most_members)
        rows[Cause.FEWER_MEMBERS] = stuck & fewer[of_group]
        return {
            cause: Explanation(rows[cause], np.where(rows[cause], lags.get(cause, facts.lag), 0))
            for cause in Cause
            if rows[cause].any()
        }

    def _explain_standing(self, left: Mask) -> dict[Cause, Mask]:
        """The causes of the standing rows in `left`."""
        of_group, advances = self.facts.group, self._count_groups(self.advances)
        nothing_advances = left & (advances == 0)[of_group]
        # All rows of a member stand, while rows of another member advance.
        standing, advancing = self._count_members(self.standing), self._count_members(self.advances)
        is_whole = (standing >= 2) & (advancing == 0)
        member_stands = left & ~nothing_advances & self.has_member & is_whole[self.member]
        return {
            Cause.NOT_COMMITTING: nothing_advances,
            Cause.SLOW_MEMBER: member_stands,
            Cause.STUCK_PARTITION: left & ~nothing_advances & ~member_stands,
        }

    def _explain_growing(self, left: Mask) -> dict[Cause, Mask]:
        """The causes of the growing rows in `left`."""
        facts, of_group = self.facts, self.facts.group
        size = np.bincount(of_group, minlength=self.groups)
        growing, keeping_up = self._count_groups(self.growing), self._count_groups(self.keeps_up)
        produced = np.bincount(of_group, weights=facts.produce_per_s, minlength=self.groups)
        mean_of_others = (produced[of_group] - facts.produce_per_s) / np.maximum(size - 1, 1)[of_group]
        few_grow = (size >= 3) & (keeping_up > growing)
        hot = left & few_grow[of_group] & (facts.produce_per_s >= _HOT * mean_of_others)
        # Members with a row that falls behind, among all members with rows.
        with_rows, behind = self._count_each_member(self.has_member), self._count_each_member(left & ~hot)
        few_behind = (with_rows >= 2) & (2 * behind <= with_rows)
        of_member = left & ~hot & self.has_member & few_behind[of_group]
        owned = self._count_members(np.ones(len(of_group), np.bool_))[self.member]
        fair_share = np.maximum(size / np.maximum(facts.members, 1), 1)[of_group]
        uneven = of_member & (owned >= _UNEVEN * fair_share)
        left = left & ~hot & ~of_member
        rose = produced >= ROSE * facts.produced_before  # False where the usual rate is NaN
        return {
            Cause.HOT_PARTITION: hot,
            Cause.UNEVEN_ASSIGNMENT: uneven,
            Cause.SLOW_MEMBER: of_member & ~uneven,
            Cause.PRODUCTION_ROSE: left & rose[of_group],
            Cause.TOO_SLOW: left & ~rose[of_group],
        }

    def _count_groups(self, mask: Mask) -> Ints:
        """How many rows of each group are in the mask."""
        return np.bincount(self.facts.group[mask], minlength=self.groups)

    def _count_members(self, mask: Mask) -> Ints:
        """How many rows of each member are in the mask."""
        return np.bincount(self.member[mask], minlength=int(self.member.max(initial=0)) + 1)

    def _count_each_member(self, mask: Mask) -> Ints:
        """How many members of each group have a row in the mask."""
        rows = np.flatnonzero(mask & self.has_member)
        _, first = np.unique(self.member[rows], return_index=True)  # a member is of one group
        return np.bincount(self.facts.group[rows[first]], minlength=self.groups)
