"""The verdict on each group: whether it keeps up, and if not, whether it will recover by itself.

    allowance   the objective, or min(max(FLOOR_S, 2 * usual), retention / 2)   (row; a group has the least)
    late        a row whose time lag L is above its allowance A
    standing    late, and its offset did not change for 0.75 A, or the group has had no members for EMPTY_S
    growing     over each span of A: m = the least total lag in it, l = the least L. It falls if m or l is
                below 0.99 of the one before. score = clip(score -1 or +1, -2, 2); growing is set at 2, and
                cleared at -2. All is forgotten when L jumps by more than A / 2 and the time passed (a reset,
                a new row), or when standing ends. At the first sample: no more is consumed than produced
    r           the largest L / A of the group's rows
    bad         r > 1, or (was bad and r > 0.5)
    err         a row stands, or a row with a lag is below the log start, or
                (growing and (r > K, or it was ERR and r > K / 2))

    ERR         bad and err
    WARN        bad, or for SKIPPED_S after offsets jumped forward while the group had no members
    OK          otherwise
    UNKNOWN     the time lag of a row is unknown: an open verdict stays; OK stays for UNKNOWN_S. Also a group
                of which no row counts

Rows that do not count (of a topic to which no live member subscribes) change nothing. The rule was found by
experiment, with labelled lives of groups: `python -m bench.verdicts` measures it.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.lag.group_verdicts import Judgement
from koff.lag.late_causes import ROSE, Cause, find_causes_of_rows, find_first_causes
from koff.lag.usual_lateness import FLOOR_S, UsualLateness
from koff.lag.verdict import Basis, IncidentChange, Verdict
from koff.lag.verdict_sample import Floats, Ints, Mask, VerdictSample, find_most, has_rows, sum_rows

K = 5.0
"""So many allowances behind, and not gaining, is no longer late but lost."""
STANDING, STALLED = 0.75, 0.5
"""A late row stands if it did not move for so much of its allowance. Its cause is that of a row that stands a
little sooner: what has not moved for so long has stopped, and is not too slow."""
EMPTY_S, SKIPPED_S, UNKNOWN_S, CLOSED_S = 60.0, 600.0, 90.0, 120.0
_WARM_UP_S, _USUAL_PACE_S = 600.0, 3600.0
_FALLS = 0.99
AGAIN = 0.5
"""A group is bad until it is below so much of its allowance."""


_NEW: dict[str, tuple[str, float]] = {
    "verdict": ("u1", Verdict.UNKNOWN),
    "bad": ("?", False),
    "stood": ("?", False),
    "late_most_s": ("f4", np.nan),
    "known_at_s": ("f4", np.nan),
    "empty_since_s": ("f4", np.nan),
    "epoch": ("i4", -1),
    "skipped_at_s": ("f4", np.nan),
    "incident_since_s": ("f4", np.nan),
    "incident_worst": ("u1", Verdict.UNKNOWN),
    "ok_since_s": ("f4", np.nan),
    "cause": ("u1", Cause.NONE),
    "rose": ("?", False),
    "usual_per_s": ("f4", np.nan),
    "observed_s": ("f4", 0),
}
"""The state of a group: types, and the values of a new one."""
_NO_TREND: dict[str, tuple[str, float]] = {
    "span_began_s": ("f4", np.nan),
    "least_lag": ("f4", np.inf),
    "least_late_s": ("f4", np.inf),
    "lag_before": ("f4", np.nan),
    "late_before_s": ("f4", np.nan),
    "fall_per_s": ("f4", np.nan),
    "score": ("i1", 0),
    "growing": ("?", False),
}
"""The same for the trend. These columns are forgotten together."""
GROUP_STATE = np.dtype([(name, kind) for name, (kind, _) in (_NEW | _NO_TREND).items()])
ROW_STATE = np.dtype([("highest", "i8"), ("late_s", "f4")])
"""The highest committed offset of a row, and its time lag at the last sample."""


class _Rows(NamedTuple):
    """What follows from a sample alone: of rows (N,), and of groups (G,)."""

    known: Mask
    unknown: Mask
    """Of groups: the time lag of a row is unknown."""
    is_judged: Mask
    """Of groups: a row counts."""
    late_s: Floats
    late_most_s: Floats
    most_allowances: Floats
    """Of groups: the largest time lag in allowances."""
    sum_of_lags: Floats
    usual_s: Floats
    allowance_s: Floats
    """Of groups: the least of its rows."""
    basis: NDArray[np.uint8]
    is_left: Mask
    """Of groups: without members for a while."""
    moves: Mask
    stalled: Mask
    late: Mask
    standing: Mask
    lost: Mask
    stands: Mask
    loses: Mask
    """Of groups: a row stands, and a row is below its log start."""


class Judge:
    """Judges `groups` groups with `rows` rows, from sample to sample. Pure: no clock."""

    def __init__(self, groups: int = 0, rows: int = 0) -> None:
        first = tuple(value for _, value in (_NEW | _NO_TREND).values())
        self.groups = np.full(groups, np.array(first, GROUP_STATE), GROUP_STATE)
        self.rows = np.full(rows, np.array((-1, np.nan), ROW_STATE), ROW_STATE)
        self.usual = UsualLateness(groups)
        self.base_s = self.at_s = np.nan  # the first sample, and the last one after it

    @property
    def has_new(self) -> bool:
        """Whether a group was not judged yet: then rates of consumption are wanted."""
        return bool(np.isnan(self.groups["known_at_s"]).any())

    def select(self, groups: NDArray[np.integer[Any]], rows: NDArray[np.integer[Any]]) -> "Judge":
        """A copy for other groups and rows: for each its number in this one, -1 for a new one."""
        copy = Judge(len(groups), len(rows))
        copy.groups[groups >= 0] = self.groups[groups[groups >= 0]]
        copy.rows[rows >= 0] = self.rows[rows[rows >= 0]]
        copy.usual, copy.base_s, copy.at_s = self.usual.select(groups), self.base_s, self.at_s
        return copy

    def judge(self, sample: VerdictSample) -> Judgement:
        """The verdicts at this sample, which must not be older than the one before."""
        if np.isnan(self.base_s):
            self.base_s = sample.at_s
        now_s, state = sample.at_s - self.base_s, self.groups
        rows = self._look_at_rows(sample, now_s)
        self._follow_trend(now_s, rows)
        self._begin_trend(sample, rows)
        skipped, skipped_from = self._follow_skips(sample, now_s)
        self._decide(now_s, rows, skipped)
        self._learn(sample, now_s, rows)
        change = self._follow_incidents(now_s)
        self._follow_production(sample, rows, self._passed_s(now_s), change == IncidentChange.OPENED)
        row_cause = self._explain(sample, rows, skipped)
        self.at_s = now_s
        is_open = state["verdict"] >= Verdict.WARN
        return Judgement(
            late=rows.late,
            standing=rows.standing,
            lost=rows.lost,
            skipped_from=skipped_from,
            verdict=np.where(rows.is_judged | is_open, state["verdict"], Verdict.UNKNOWN).astype(np.uint8),
            change=change,
            since_s=state["incident_since_s"].astype(np.float64) + self.base_s,  # else in steps of 128 s
            allowance_s=rows.allowance_s,
            basis=rows.basis,
            usual_s=rows.usual_s,
            late_most_s=np.where(rows.unknown, np.nan, rows.late_most_s),
            catch_up_s=self._find_catch_ups(rows.sum_of_lags),
            usual_per_s=np.where(state["observed_s"] >= _WARM_UP_S, state["usual_per_s"], np.nan),
            cause=np.where(is_open, state["cause"], Cause.NONE).astype(np.uint8),
            row_cause=row_cause,
        )

    def _passed_s(self, now_s: float) -> float:
        return 0.0 if np.isnan(self.at_s) else now_s - self.at_s

    def _look_at_rows(self, sample: VerdictSample, now_s: float) -> _Rows:
        groups, of = len(self.groups), sample.group
        counts = sample.counts & (sample.committed >= 0)
        # What a row may be late. A lower bound that is within it says nothing.
        usual_s = self.usual.find_usual_s(now_s)
        learned_s = np.fmin(np.maximum(FLOOR_S, 2 * usual_s)[of], sample.retention_s / 2)
        allowance_s = np.where(np.isnan(sample.objective_s), learned_s, sample.objective_s)
        group_allowance_s = np.full(groups, np.inf)
        np.minimum.at(group_allowance_s, of[counts], allowance_s[counts])
        basis = np.where(2 * usual_s > FLOOR_S, Basis.USUAL, Basis.FLOOR).astype(np.uint8)
        is_least = counts & (allowance_s == group_allowance_s[of])
        basis[of[is_least & (allowance_s < np.maximum(FLOOR_S, 2 * usual_s)[of])]] = Basis.RETENTION
        basis[of[is_least & ~np.isnan(sample.objective_s)]] = Basis.OBJECTIVE
        known = counts & ~np.isnan(sample.late_s) & ~(sample.at_least & (sample.late_s <= allowance_s))
        late_s = np.where(known, sample.late_s, 0.0)
        lag = np.where(known, np.maximum(sample.end - sample.committed, 0), 0)
        # Which rows stand.
        is_left = self._follow_members(sample, now_s)
        late = late_s > allowance_s
        lost = known & (lag > 0) & (sample.committed < sample.start)
        still_s = sample.at_s - sample.moved_at_s
        standing = late & ((still_s >= STANDING * allowance_s) | is_left[of])
        moves = still_s < STALLED * allowance_s
        return _Rows(
            known=known,
            unknown=has_rows(counts & ~known, of, groups),
            is_judged=has_rows(counts, of, groups),
            late_s=late_s,
            late_most_s=find_most(late_s, of, groups),
            most_allowances=find_most(late_s / allowance_s, of, groups),
            sum_of_lags=sum_rows(lag, of, groups),
            usual_s=usual_s,
            allowance_s=np.where(np.isinf(group_allowance_s), FLOOR_S, group_allowance_s),
            basis=basis,
            is_left=is_left,
            moves=moves,
            stalled=standing | (late & (still_s >= STALLED * allowance_s)),
            late=late,
            standing=standing,
            lost=lost,
            stands=has_rows(standing, of, groups),
            loses=has_rows(lost, of, groups),
        )

    def _follow_members(self, sample: VerdictSample, now_s: float) -> Mask:
        """Which groups have had no members for a while."""
        state, empty_s = self.groups, np.full(len(self.groups), now_s)
        new = np.isnan(state["known_at_s"])
        if new.any():  # nobody saw the last member leave: it was after its last commit
            moved_s = np.full(len(state), -np.inf)
            np.fmax.at(moved_s, sample.group, sample.moved_at_s - self.base_s)
            empty_s = np.where(new & ~np.isinf(moved_s), moved_s, now_s)
        state["empty_since_s"] = np.where(
            sample.members == 0, np.fmin(state["empty_since_s"], empty_s), np.nan
        )
        is_left: Mask = now_s - state["empty_since_s"] >= EMPTY_S
        return is_left

    def _follow_skips(self, sample: VerdictSample, now_s: float) -> tuple[Mask, Ints]:
        """Which groups skipped records lately, and of rows that do so now: from where. Offsets jumped forward
        while the group had no members.

        Members that came and left since the last sample have changed the epoch.
        """
        state, before = self.groups, self.rows["highest"]
        was_empty = (state["empty_since_s"] < now_s) & (state["epoch"] == sample.epoch)
        state["epoch"] = sample.epoch
        if not was_empty.any():
            return now_s - state["skipped_at_s"] < SKIPPED_S, np.full(len(before), -1)
        jumped = sample.counts & (before >= 0) & (sample.committed > before)
        jumped &= was_empty[sample.group]
        state["skipped_at_s"][has_rows(jumped, sample.group, len(state))] = now_s
        skipped: Mask = now_s - state["skipped_at_s"] < SKIPPED_S
        return skipped, np.where(jumped, before, -1)

    def _decide(self, now_s: float, rows: _Rows, skipped: Mask) -> None:
        state, r = self.groups, rows.most_allowances
        before, unknown = state["verdict"].copy(), rows.unknown
        bad = (r > 1) | (state["bad"] & (r > AGAIN))
        is_losing = state["growing"] & ((r > K) | ((before == Verdict.ERR) & (r > K / 2)))
        err = bad & (rows.stands | rows.loses | is_losing)
        found = np.where(err, Verdict.ERR, np.where(bad | skipped, Verdict.WARN, Verdict.OK))
        # Where a row is unknown, an open verdict stays, or becomes worse.
        state["known_at_s"][~unknown] = now_s
        is_fresh = (before == Verdict.OK) & (now_s - state["known_at_s"] < UNKNOWN_S)
        stays = np.where((before >= Verdict.WARN) | is_fresh, before, Verdict.UNKNOWN)
        partly = np.where(found >= Verdict.WARN, np.maximum(found, stays), stays)
        state["verdict"] = np.where(unknown, partly, found)
        state["bad"] = bad | (unknown & state["bad"])

    def _explain(self, sample: VerdictSample, rows: _Rows, skipped: Mask) -> NDArray[np.uint8]:
        """The cause of each row. Sets the first cause of each group."""
        state = self.groups
        row_cause = find_causes_of_rows(
            sample,
            late=rows.late,
            standing=rows.stalled,
            moves=rows.moves,
            was_further=sample.committed < self.rows["highest"],
            is_left=rows.is_left,
            rose=state["rose"],
        )
        is_open = state["verdict"] >= Verdict.WARN
        row_cause[~is_open[sample.group]] = Cause.NONE
        before = np.where(np.isnan(state["incident_since_s"]), Cause.NONE, state["cause"])
        cause = find_first_causes(row_cause, sample.group, before)
        state["cause"] = np.where(is_open & skipped & (cause == Cause.NONE), Cause.RECORDS_SKIPPED, cause)
        return row_cause

    def _follow_trend(self, now_s: float, rows: _Rows) -> None:
        known, stands, late_s, allowance_s = (
            ~rows.unknown,
            rows.stands,
            rows.late_most_s,
            rows.allowance_s,
        )
        state = self.groups
        jumps = late_s > state["late_most_s"] + allowance_s / 2 + self._passed_s(now_s)
        forgotten = known & (jumps | (state["stood"] & ~stands))
        for name, (_, first) in _NO_TREND.items() if forgotten.any() else ():
            state[name][forgotten] = first
        state["stood"][known] = stands[known]
        state["span_began_s"][known & np.isnan(state["span_began_s"])] = now_s
        state["least_lag"][known] = np.fmin(state["least_lag"], rows.sum_of_lags)[known]
        state["least_late_s"][known] = np.fmin(state["least_late_s"], late_s)[known]
        ends = np.flatnonzero(known & (now_s - state["span_began_s"] >= allowance_s))
        span = state[ends]
        # The first span has none before it to be compared with.
        compared = ~np.isnan(span["lag_before"])
        falls = span["least_lag"] < _FALLS * span["lag_before"]
        falls |= span["least_late_s"] < _FALLS * span["late_before_s"]
        score = np.clip(span["score"] + np.where(falls, -1, 1), -2, 2)
        span["score"] = np.where(compared, score, span["score"])
        span["growing"] = (span["growing"] | (span["score"] == 2)) & (span["score"] != -2)
        span["fall_per_s"] = (span["lag_before"] - span["least_lag"]) / (now_s - span["span_began_s"])
        span["lag_before"], span["late_before_s"] = span["least_lag"], span["least_late_s"]
        span["least_lag"] = span["least_late_s"] = np.inf
        span["span_began_s"] = now_s
        state[ends] = span

    def _begin_trend(self, sample: VerdictSample, rows: _Rows) -> None:
        """Of groups that are looked at for the first time, takes the trend from their rates."""
        state = self.groups
        new = ~rows.unknown & np.isnan(state["known_at_s"]) & (rows.most_allowances > K)
        if not new.any():
            return
        known = rows.known & ~np.isnan(sample.produce_per_s) & ~np.isnan(sample.consume_per_s)
        gain = np.where(known, sample.consume_per_s - sample.produce_per_s, 0.0)
        falls = sum_rows(gain, sample.group, len(state)) > 0
        state["growing"][new & has_rows(known, sample.group, len(state)) & ~falls] = True

    def _find_catch_ups(self, lag: Floats) -> Floats:
        fall = self.groups["fall_per_s"].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(fall > 0, lag / fall, np.inf)
        return np.where(lag <= 0, 0.0, np.where(np.isnan(fall), np.nan, seconds))

    def _learn(self, sample: VerdictSample, now_s: float, rows: _Rows) -> None:
        """Learns how late records are. Records that are read again do not count."""
        row, late_most_s = self.rows, np.where(rows.unknown, np.nan, rows.late_most_s)
        records = sample.committed - row["highest"]
        moved = rows.known & (row["highest"] >= 0) & (records > 0) & ~np.isnan(row["late_s"])
        self.usual.add(
            sample.group[moved],
            records[moved].astype(np.float64),
            row["late_s"][moved] + self._passed_s(now_s),
            rows.late_s[moved],
            late_s=late_most_s,
            late_before_s=self.groups["late_most_s"],
            now_s=now_s,
        )
        row["highest"][sample.counts] = np.maximum(row["highest"], sample.committed)[sample.counts]
        row["late_s"] = np.where(rows.known, rows.late_s, np.nan)
        self.groups["late_most_s"] = late_most_s

    def _follow_production(self, sample: VerdictSample, rows: _Rows, passed_s: float, opened: Mask) -> None:
        """Learns the usual produce rate of groups that keep up, and compares it when an incident opens."""
        state = self.groups
        per_s = sum_rows(np.nan_to_num(sample.produce_per_s), sample.group, len(state))
        state["rose"][opened] = (per_s >= ROSE * state["usual_per_s"])[opened] & (
            state["observed_s"][opened] >= _WARM_UP_S
        )
        learns = (state["verdict"] == Verdict.OK) & ~rows.unknown
        state["observed_s"] += np.where(learns, min(passed_s, _USUAL_PACE_S), 0.0)
        weight = np.clip(passed_s / np.clip(state["observed_s"], 1.0, _USUAL_PACE_S), 0.0, 1.0)
        usual = np.nan_to_num(state["usual_per_s"])
        state["usual_per_s"] = np.where(learns, usual + weight * (per_s - usual), state["usual_per_s"])

    def _follow_incidents(self, now_s: float) -> NDArray[np.uint8]:
        state = self.groups
        verdict, worst = state["verdict"], state["incident_worst"]
        is_open, is_ill = ~np.isnan(state["incident_since_s"]), verdict >= Verdict.WARN
        is_ok = verdict == Verdict.OK
        state["ok_since_s"][is_ill] = np.nan
        state["ok_since_s"][is_ok] = np.fmin(state["ok_since_s"], now_s)[is_ok]
        opened = ~is_open & is_ill
        raised = is_open & (verdict == Verdict.ERR) & (worst < Verdict.ERR)
        closed = is_open & is_ok & (now_s - state["ok_since_s"] >= CLOSED_S)
        state["incident_since_s"][opened] = now_s
        state["incident_since_s"][closed] = np.nan
        state["incident_worst"] = np.where(
            closed, Verdict.UNKNOWN, np.where(is_ill, np.fmax(worst, verdict), worst)
        )
        kinds = [IncidentChange.OPENED, IncidentChange.RAISED, IncidentChange.CLOSED]
        changes = np.select([opened, raised, closed], kinds, IncidentChange.NONE)
        return changes.astype(np.uint8)
