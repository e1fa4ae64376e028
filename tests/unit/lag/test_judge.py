"""The verdict on a group, line by line of its rule."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from koff.lag.group_verdicts import Judgement
from koff.lag.judge import CLOSED_S, EMPTY_S, SKIPPED_S, UNKNOWN_S, Judge
from koff.lag.late_causes import Cause
from koff.lag.usual_lateness import CLASSES, FLOOR_S, RETURNS
from koff.lag.verdict import Basis, IncidentChange, Verdict
from tests.unit.lag.samples import build_sample

OK, WARN, ERR, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.ERR, Verdict.UNKNOWN
STEP_S = 5.0


def look(judge: Judge, at_s: float, *rows: dict[str, Any], **changed: Any) -> Judgement:
    return judge.judge(build_sample(at_s, *rows, **changed))


def one() -> Judge:
    """A judge of a group with one row, which was caught up at 0 s."""
    judge = Judge(1, 1)
    look(judge, 0, {})
    return judge


def behind(late_s: float, lag: int = 1000, **more: Any) -> dict[str, Any]:
    return {"late_s": late_s, "end": 100 + lag, **more}


def live(judge: Judge, times: Iterable[float], late_s: float, **more: Any) -> list[Verdict]:
    """The verdicts of a group that is late by so much and moves all the time, its lag as large as ever."""
    return [Verdict(look(judge, at, behind(late_s, **more)).verdict[0]) for at in times]


def test_a_group_is_late_above_its_allowance_and_until_it_is_below_half_of_it():
    judge = one()
    for at_s, late_s, verdict in [(5, 120, OK), (10, 121, WARN), (15, 61, WARN), (20, 60, OK), (25, 100, OK)]:
        assert look(judge, at_s, behind(late_s)).verdict == [verdict], late_s


@pytest.mark.parametrize(
    ("settings", "allowance_s", "basis"),
    [
        ({}, FLOOR_S, Basis.FLOOR),
        ({"objective_s": 30.0}, 30, Basis.OBJECTIVE),
        ({"objective_s": 30.0, "retention_s": 10.0}, 30, Basis.OBJECTIVE),
        ({"retention_s": 100.0}, 50, Basis.RETENTION),
        ({"retention_s": np.inf}, FLOOR_S, Basis.FLOOR),
    ],
)
def test_the_allowance_is_the_objective_or_the_floor_and_never_more_than_half_the_retention(
    settings, allowance_s, basis
):
    judged = look(one(), 5, behind(10, **settings))
    assert judged.allowance_s.tolist() == [allowance_s]
    assert judged.basis.tolist() == [basis]


def test_a_group_may_be_twice_as_late_as_is_usual_for_it():
    judge = one()
    counts = np.zeros((1, CLASSES), np.float32)
    counts[0, 12] = 900  # at most 1920 s late
    judge.usual.add_counts(counts)
    judge.usual.returns[0] = RETURNS
    judged = look(judge, 5, behind(10))
    assert judged.usual_s[0] == pytest.approx(1920, rel=0.01)
    assert judged.allowance_s[0] == 2 * judged.usual_s[0]


def test_each_row_has_its_own_objective_and_the_group_the_least():
    judge = Judge(1, 2)
    judged = look(judge, 0, behind(200, objective_s=300.0), behind(100, objective_s=90.0))
    assert (judged.late.tolist(), judged.verdict.tolist()) == ([False, True], [WARN])
    assert judged.allowance_s.tolist() == [90]


@pytest.mark.parametrize(("still_s", "verdict"), [(89, WARN), (90, ERR)])
def test_a_late_row_stands_if_it_did_not_move_for_three_quarters_of_the_allowance(still_s, verdict):
    judged = look(one(), 200, behind(130, moved_at_s=200.0 - still_s))
    assert (judged.standing.tolist(), judged.verdict.tolist()) == ([verdict is ERR], [verdict])


def test_a_late_row_stands_if_the_group_has_had_no_members_for_a_minute():
    judge = one()
    assert look(judge, 10, behind(5), members=0).verdict == [OK]
    assert look(judge, 5 + EMPTY_S, behind(130), members=0).verdict == [WARN]
    assert look(judge, 10 + EMPTY_S, behind(130), members=0).verdict == [ERR]
    assert look(judge, 15 + EMPTY_S, behind(130), members=1).verdict == [WARN]


def test_at_the_first_sample_a_group_is_empty_since_its_last_commit():
    judged = look(Judge(1, 1), 1000, behind(130, moved_at_s=1000 - EMPTY_S), members=0)
    assert (judged.verdict.tolist(), judged.cause.tolist()) == ([ERR], [Cause.NO_MEMBERS])


def test_a_late_row_below_the_log_start_is_lost():
    judged = look(one(), 5, behind(130, start=101))
    assert (judged.lost.tolist(), judged.verdict.tolist()) == ([True], [ERR])
    assert look(one(), 5, behind(10, start=101)).verdict == [OK]


def test_a_group_that_does_not_gain_is_lost_at_five_allowances_and_until_half_of_that():
    judge = one()
    # It becomes late little by little, for a leap would say nothing of the trend; growing takes four spans.
    late = [live(judge, [at], min(at, 500))[-1] for at in np.arange(5, 700, STEP_S)]
    assert (set(late[:24]), set(late[24:])) == ({OK}, {WARN})
    for late_s, verdict in [(550, WARN), (600, WARN), (601, ERR), (301, ERR), (300, WARN)]:
        assert live(judge, [700 + late_s / 1000], late_s) == [verdict], late_s


def test_a_group_that_gains_stays_late_however_late_it_is():
    judge, lag = one(), 100_000
    verdicts = []
    for at_s in np.arange(5, 2000, STEP_S):
        lag -= 100 if at_s > 1000 else 0
        verdicts += live(judge, [at_s], min(at_s, 1500.0), lag=lag)
    assert verdicts[-1] is WARN
    assert ERR in verdicts  # before it gained


def test_a_leap_forgets_the_trend():
    judge = one()
    live(judge, np.arange(5, 1000, STEP_S), 550)
    assert live(judge, [1000], 601) == [ERR]
    assert live(judge, [1005], 5000) == [WARN]


@pytest.mark.parametrize("after", [OK, WARN, ERR])
def test_where_a_row_is_unknown_an_open_verdict_stays_and_ok_for_a_while(after):
    judge = one()
    late_s = {OK: 0, WARN: 130, ERR: 130}[after]
    row = behind(late_s, moved_at_s=-1000.0 if after is ERR else 5.0)
    assert look(judge, 5, row).verdict == [after]
    assert look(judge, 4 + UNKNOWN_S, behind(np.nan)).verdict == [after]
    assert look(judge, 5 + UNKNOWN_S, behind(np.nan)).verdict == [UNKNOWN if after is OK else after]
    assert look(judge, 6 + UNKNOWN_S, {}).verdict == [OK]


def test_a_row_that_is_late_is_late_though_another_is_unknown():
    judge = Judge(1, 2)
    assert look(judge, 0, {}, behind(np.nan)).verdict == [UNKNOWN]
    assert look(judge, 5, behind(130), behind(np.nan)).verdict == [WARN]


def test_rows_that_do_not_count_change_nothing():
    judge = Judge(1, 2)
    judged = look(judge, 0, {}, behind(9999, counts=False))
    assert (judged.verdict.tolist(), judged.late.tolist()) == ([OK], [False, False])


def test_records_that_are_skipped_while_nobody_reads_are_a_warning_for_ten_minutes():
    judge = one()
    look(judge, 5, {}, members=0)
    judged = look(judge, 10, {"committed": 5000, "end": 5000}, members=0)
    assert (judged.verdict.tolist(), judged.cause.tolist()) == ([WARN], [Cause.RECORDS_SKIPPED])
    row = {"committed": 5000, "end": 5000}
    assert look(judge, 9 + SKIPPED_S, row, members=1).verdict == [WARN]
    assert look(judge, 10 + SKIPPED_S, row, members=1).verdict == [OK]


def test_the_last_commit_of_a_member_that_leaves_skips_nothing():
    judge = one()
    assert look(judge, 5, {"committed": 5000, "end": 5000}, members=0).verdict == [OK]


@pytest.mark.parametrize(
    ("produce_per_s", "consume_per_s", "verdict"),
    [(10.0, 9.0, ERR), (10.0, 10.0, ERR), (10.0, 11.0, WARN), (10.0, np.nan, WARN), (np.nan, 9.0, WARN)],
)
def test_one_look_at_what_is_far_behind_tells_by_the_rates_whether_it_gains(
    produce_per_s, consume_per_s, verdict
):
    rates = {"produce_per_s": produce_per_s, "consume_per_s": consume_per_s}
    assert look(Judge(1, 1), 1000, behind(601, **rates)).verdict == [verdict]
    assert look(Judge(1, 1), 1000, behind(599, **rates)).verdict == [WARN]


def test_a_lower_bound_says_that_a_row_is_late_and_never_that_it_is_not():
    judge = one()
    verdicts = [look(judge, at, behind(at, at_least=True)).verdict[0] for at in (60, 95, 121)]
    assert verdicts == [OK, UNKNOWN, WARN]


def test_members_that_came_and_left_between_two_samples_have_skipped_nothing():
    judge = one()
    look(judge, 5, {}, members=0, epoch=4)
    assert look(judge, 10, {"committed": 5000, "end": 5000}, members=0, epoch=6).verdict == [OK]


def test_an_incident_is_opened_raised_once_and_closed_after_two_minutes_of_ok():
    judge, changes = one(), []
    still = {"moved_at_s": -1000.0}
    steps: list[tuple[float, float, dict[str, Any]]]
    steps = [(5, 130, {}), (10, 130, still), (15, 130, {}), (20, 130, still), (25, 0, {}), (30, 130, {})]
    steps += [(35, 0, {}), (34 + CLOSED_S, 0, {}), (35 + CLOSED_S, 0, {}), (40 + CLOSED_S, 0, {})]
    for at_s, late_s, more in steps:
        judged = look(judge, at_s, behind(late_s, **more))
        changes.append(IncidentChange(judged.change[0]).name)
        assert np.isnan(judged.since_s[0]) == (at_s >= 35 + CLOSED_S)
    assert [change for change in changes if change != "NONE"] == ["OPENED", "RAISED", "CLOSED"]
    assert changes[0] == "OPENED"


def test_the_time_at_which_an_incident_began_is_exact():
    judge, now_s = Judge(1, 1), 1_796_000_000.0
    look(judge, now_s, behind(0))
    for after_s in (37.5, 60):
        assert look(judge, now_s + after_s, behind(130)).since_s.tolist() == [now_s + 37.5]


def test_what_is_bad_at_the_first_sample_is_opened_then():
    judged = look(Judge(1, 1), 1000, behind(500, moved_at_s=0.0))
    assert (judged.verdict.tolist(), judged.change.tolist()) == ([ERR], [IncidentChange.OPENED])


def test_an_incident_stays_open_while_nothing_is_known():
    judge = one()
    look(judge, 5, behind(130))
    for at_s in (10, 500, 1000):
        judged = look(judge, at_s, behind(np.nan))
        assert (judged.verdict.tolist(), judged.change.tolist()) == ([WARN], [IncidentChange.NONE])


def test_the_time_until_caught_up_is_that_of_the_least_lag():
    judge, lag = one(), 10_000
    for at_s in np.arange(5, 400, STEP_S):
        lag -= 50
        judged = look(judge, at_s, behind(150, lag=lag))
    assert judged.catch_up_s[0] == pytest.approx(lag / 10, rel=0.02)
    assert look(one(), 5, {}).catch_up_s == [0]
    assert np.isnan(look(one(), 5, behind(10)).catch_up_s[0])


def test_groups_are_judged_each_by_its_own_rows_and_keep_their_state_at_other_numbers():
    judge = Judge(2, 3)
    rows = [behind(130), {"group": 1}, behind(130, group=1, moved_at_s=-500.0)]
    judged = look(judge, 0, *rows, groups=2)
    assert judged.verdict.tolist() == [WARN, ERR]
    assert judged.late.tolist() == [True, False, True]
    # Another group comes in front, and the first one goes.
    judge = judge.select(np.array([-1, 1]), np.array([-1, 1, 2]))
    rows = [{}, {"group": 1}, behind(70, group=1)]
    assert look(judge, 5, *rows, groups=2).verdict.tolist() == [OK, WARN]
    assert judge.rows["highest"].tolist() == [100, 100, 100]


def test_a_cluster_without_groups_is_judged():
    judged = Judge().judge(build_sample(0.0, groups=0))
    assert judged.verdict.tolist() == []
