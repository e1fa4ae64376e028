"""Why a row is late: one cause for each late row (group, topic, partition), and the first one for its group.

Only rows that are late have causes, so that verdict and cause cannot disagree. The first that holds counts:

    fell_out_of_log    the committed offset is below the log start
    open_transaction   the commit is at the last stable offset, or less than the records of NEAR_STABLE_S
                       below it, and a transaction is open there for HELD_S, or the row stands just there
    no_members         the group has had no members for EMPTY_S, or has none and the row stands
    not_assigned       a member subscribes to the topic, and no member has the row
    held_back_commits  standing, and an open transaction may hold back commits of the group
    rebalancing        MANY_REBALANCES or more within five minutes
    not_committing     standing, and no row of the group moved within half of its allowance
    slow_member        standing, as all rows, two or more, of its member; other rows move
    stuck_partition    the other standing rows, but for those of a group that reads records again elsewhere
    reset              below where it was, and moving; or standing, while another row does so: a consumer
                       works off one partition after the other
    hot_partition      moving; few rows are late, and this one gets HOT times the mean of the other rows
    uneven_assignment  moving, as all rows of its member, which has UNEVEN times its fair share
    production_rose    moving; records came ROSE times as fast as usual when the incident opened
    too_slow           the other moving rows

A group whose offsets jumped forward while it had no members has the cause records_skipped. During an incident
the first cause of a group changes only to one above it, and never among those below `reset`.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.lag.verdict_sample import Ints, Mask, VerdictSample, has_rows

HELD_S, NEAR_STABLE_S = 20.0, 30.0
MANY_REBALANCES = 3
HOT, UNEVEN, ROSE = 3.0, 2.0, 1.5


class Cause(IntEnum):
    """Why a group is late, the more precise first. NONE stands for a row that is not late."""

    FELL_OUT_OF_LOG = 0
    OPEN_TRANSACTION = 1
    NO_MEMBERS = 2
    NOT_ASSIGNED = 3
    HELD_BACK_COMMITS = 4
    REBALANCING = 5
    NOT_COMMITTING = 6
    SLOW_MEMBER = 7
    STUCK_PARTITION = 8
    RESET = 9
    HOT_PARTITION = 10
    UNEVEN_ASSIGNMENT = 11
    PRODUCTION_ROSE = 12
    TOO_SLOW = 13
    RECORDS_SKIPPED = 14
    NONE = 15

    @property
    def label(self) -> str:
        """The name in JSON and metrics, such as `no_members`: it never changes."""
        return self.name.lower()


def find_causes_of_rows(
    sample: VerdictSample,
    *,
    late: Mask,
    standing: Mask,
    moves: Mask,
    was_further: Mask,
    is_left: Mask,
    rose: Mask,
) -> NDArray[np.uint8]:
    """The `Cause` of each row (N,).

    `moves` are rows that moved within half of their allowance, `was_further` those that had a higher
    committed offset. Of groups (G,): `is_left` has had no members for a while, `rose` as above.
    """
    of, groups = sample.group, len(sample.members)
    moving = late & ~standing
    rate = np.nan_to_num(sample.produce_per_s)
    is_open = (sample.stable >= 0) & (sample.stable < sample.end)
    near_stable = is_open & (sample.stable - sample.committed <= NEAR_STABLE_S * rate)
    stands_at_stable = is_open & standing & (sample.committed >= sample.stable) & (sample.held_s > 0)
    # Each member's rows. Rows without a known member are of one more, of which no rule speaks.
    known = sample.member >= 0
    member = np.where(known, sample.member, sample.member.max(initial=-1) + 1)
    owned, owned_late, owned_standing = (
        np.bincount(member[rows], minlength=int(member.max(initial=0)) + 1)[member]
        for rows in (sample.counts, late & sample.counts, standing & sample.counts)
    )
    size, late_rows = (_count(rows, of, groups) for rows in (sample.counts, late & sample.counts))
    others = (np.bincount(of, weights=rate, minlength=groups)[of] - rate) / np.maximum(size[of] - 1, 1)
    is_few = (size >= 2) & (2 * late_rows <= size)
    fair_share = np.maximum(size / np.maximum(sample.members, 1), 1)[of]
    is_whole_member = known & (owned >= 2) & (owned_late == owned)
    waits = standing & was_further & has_rows(moves & was_further & sample.counts, of, groups)[of]
    rules = (
        (Cause.FELL_OUT_OF_LOG, (sample.committed >= 0) & (sample.committed < sample.start)),
        (Cause.OPEN_TRANSACTION, stands_at_stable | (near_stable & (sample.held_s >= HELD_S))),
        (Cause.NO_MEMBERS, is_left[of] | (standing & (sample.members == 0)[of])),
        (Cause.NOT_ASSIGNED, (sample.members > 0)[of] & sample.subscribed & ~sample.assigned),
        (Cause.HELD_BACK_COMMITS, standing & sample.commits_held_back[of]),
        (Cause.REBALANCING, (sample.rebalances >= MANY_REBALANCES)[of]),
        (Cause.NOT_COMMITTING, standing & ~has_rows(moves & sample.counts, of, groups)[of]),
        (Cause.SLOW_MEMBER, standing & known & (owned >= 2) & (owned_standing == owned)),
        (Cause.STUCK_PARTITION, standing & ~waits),
        (Cause.RESET, (moving & was_further) | waits),
        (Cause.HOT_PARTITION, moving & is_few[of] & (rate >= HOT * others) & (rate > 0)),
        (Cause.UNEVEN_ASSIGNMENT, moving & is_whole_member & (owned >= UNEVEN * fair_share)),
        (Cause.PRODUCTION_ROSE, moving & rose[of]),
    )
    causes = np.select([late & rule for _, rule in rules], [cause for cause, _ in rules], Cause.TOO_SLOW)
    return np.where(late, causes, Cause.NONE).astype(np.uint8)


def find_first_causes(
    rows: NDArray[np.uint8], group: NDArray[np.integer[Any]], before: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """The first `Cause` of each group (G,), which had the cause `before` in this incident (NONE: none)."""
    first = np.full(len(before), Cause.NONE, np.uint8)
    np.minimum.at(first, group, rows)
    is_moving = (before > Cause.RESET) & (first > Cause.RESET) & (before < Cause.RECORDS_SKIPPED)
    kept: NDArray[np.uint8] = np.where((first < before) & ~is_moving, first, before)
    return kept


def _count(rows: Mask, group: NDArray[np.integer[Any]], groups: int) -> Ints:
    return np.bincount(group[rows], minlength=groups)
