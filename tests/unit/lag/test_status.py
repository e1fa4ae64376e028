"""Burrow's verdict, its traps repaired."""

import random

import numpy as np
import pytest

from koff.lag import Status, group_completeness, group_status, status, window_features
from tests.unit.lag import burrow
from tests.unit.lag.burrow import Commit
from tests.unit.lag.test_window import turned_into_arrays

NOW = 1_700_000_000_000


def verdicts(rows, **settings):
    """Names of the status of many (commits, lag, committed, oldest end)."""
    windows, lags, committed, oldest = zip(*rows, strict=True)
    allowed = {k: v for k, v in settings.items() if k == "allowed_lag"}
    codes = status(
        window_features(*turned_into_arrays(windows), **allowed),
        current_lag=np.array([0 if lag is None else lag for lag in lags]),
        current_lag_known=np.array([lag is not None for lag in lags]),
        committed=np.array(committed),
        oldest_end=np.array(oldest),
        **{"now_ms": NOW, **settings},
    )
    return [Status(code).name for code in codes]


def verdict(*commits, lag=50, oldest_end=-1, committed=None, **settings):
    """Of one window, given as (offset, seconds ago, lag at the commit)."""
    window = [Commit(offset, NOW - 1000 * ago_s, known) for offset, ago_s, known in commits]
    last = window[-1].offset if window else -1
    return verdicts([(window, lag, last if committed is None else committed, oldest_end)], **settings)[0]


FALLING_BEHIND = [(100 + i, 50 - 5 * i, 10 + i) for i in range(10)]
STUCK = [(100, 50 - 5 * i, 10 + i) for i in range(10)]


def test_without_a_commit_it_is_not_found():
    assert verdict(lag=None) == "NOTFOUND"


def test_without_a_known_lag_it_is_unknown():
    assert verdict(*FALLING_BEHIND, lag=None) == "UNKNOWN"


@pytest.mark.parametrize("lag", [0, -5])
def test_rule_1_caught_up_is_ok_whatever_the_window_says(lag):
    assert verdict(*STUCK, lag=lag) == "OK"
    assert verdict((5, 9999, -1), lag=lag) == "OK"
    assert verdict(lag=lag, committed=5) == "OK"


def test_rule_1_takes_an_allowed_lag():
    assert verdict(*STUCK, lag=50, allowed_lag=50) == "OK"
    assert verdict(*STUCK, lag=51, allowed_lag=9) == "STALL"
    assert verdict(*STUCK, lag=51, allowed_lag=10) == "OK"  # was allowed at the first commit


def test_rule_2_silent_for_longer_than_the_window_spans_is_stop():
    stopped = [(offset, ago + 41, lag) for offset, ago, lag in FALLING_BEHIND]
    assert verdict(*stopped, oldest_end=110) == "STOP"
    assert verdict(*FALLING_BEHIND, oldest_end=110) == "WARN"


def test_rule_2_an_end_reached_a_while_ago_means_idle_and_not_stopped():
    idle = [(100 + i, 3600 + 50 - 5 * i, 0) for i in range(10)]
    assert verdict(*idle, lag=5, oldest_end=109) == "OK"
    assert verdict(*idle, lag=5, oldest_end=110) == "STOP"


def test_rule_3_a_rewind_that_was_not_made_up_for():
    assert verdict((100, 30, 9), (200, 25, 9), (50, 20, 9), (60, 15, 9)) == "REWIND"
    assert verdict((100, 30, 9), (200, 25, 9), (50, 20, 9), (200, 15, 9)) == "WARN"


def test_rule_4_caught_up_at_some_commit_is_ok():
    assert verdict((100, 30, 9), (120, 25, 0), (125, 20, 9), (130, 15, 19)) == "OK"


def test_rule_5_commits_that_do_not_move_are_stall():
    assert verdict(*STUCK) == "STALL"


def test_rule_6_falling_behind_is_warn_and_unknown_lags_are_passed_over():
    assert verdict(*FALLING_BEHIND) == "WARN"
    assert verdict((1, 30, 9), (2, 25, -1), (3, 20, 9), (4, 15, 10)) == "WARN"


def test_rule_7_catching_up_is_ok():
    assert verdict((1, 30, 9), (2, 25, -1), (3, 20, 8), (4, 15, 10)) == "OK"


def test_trap_one_commit_spans_no_time_and_is_not_stopped_at_once():
    assert verdict((100, 2, 50), oldest_end=150) == "UNKNOWN"
    assert verdict((100, 601, 50), oldest_end=150) == "STOP"
    assert verdict((100, 301, 50), oldest_end=150, assumed_span_ms=300_000) == "STOP"
    assert verdict((100, 2, 50), oldest_end=150, min_commits=1) == "STOP"


def test_trap_one_commit_neither_stalls_nor_warns():
    assert verdict((100, 2, 50)) == "UNKNOWN"
    assert verdict((100, 9, 50), (100, 2, 50)) == "UNKNOWN"


@pytest.mark.parametrize("lags", [[0] * 10, [*range(10, 0, -1)]])
def test_trap_ends_not_watched_for_long_enough_prove_no_stop_and_no_health(lags):
    idle = [(100 + i, 3600 + 50 - 5 * i, lags[i]) for i in range(10)]
    assert verdict(*idle, lag=5, oldest_end=-1) == "UNKNOWN"
    assert verdict(*idle, lag=5, oldest_end=100) == "OK"


def test_trap_what_was_wrong_before_a_silence_is_not_unknown_for_want_of_ends():
    for window, bad in ((STUCK, "STALL"), (FALLING_BEHIND, "WARN")):
        assert verdict(*[(offset, ago + 60, lag) for offset, ago, lag in window], oldest_end=-1) == bad


def test_trap_a_silence_ends_where_the_commits_are_known_to():
    window = [Commit(100 + i, NOW - 1000 * (100 - 5 * i), 20 - i) for i in range(10)]  # spans 45 s, 55 s ago
    rows, known_until_ms = [(window, 50, 109, 120)] * 2, np.array([NOW, NOW - 20_000])
    assert verdicts(rows, now_ms=known_until_ms) == ["STOP", "OK"]


def test_trap_lags_from_before_the_monitor_make_no_warning():
    unknown = [(100 + i, 50 - 5 * i, -1) for i in range(10)]
    assert verdict(*unknown) == "UNKNOWN"


def test_trap_times_that_run_backwards_span_nothing():
    backwards = [(100 + i, 5 * i, 10 + i) for i in range(10)]
    assert verdict(*backwards, oldest_end=200) == "STOP"
    assert verdict(*[(o, ago - 46, lag) for o, ago, lag in backwards], oldest_end=200) == "WARN"


def random_row(rng):
    commits = []
    at_ms, offset = NOW - rng.choice([10, 100, 1000]) * 1000, rng.randrange(20)
    for _ in range(rng.choice([0, 1, 2, 3, 10, 10, rng.randrange(11)])):
        at_ms += rng.choice([-100, 0, 1000, 20_000])
        offset = max(0, offset + rng.choice([0, 0, 1, 5, -3, 3] if rng.random() < 0.6 else [0]))
        commits.append(Commit(offset, at_ms, rng.choice([-1, 0, 3, 3, 4, 5] if rng.random() < 0.5 else [3])))
    committed = commits[-1].offset if commits else rng.choice([-1, 7])
    lag = rng.choice([None, -2, 0, 1, 5, 5, 5, 5])
    return commits, lag, committed, rng.choice([-1, committed, committed + 1, committed - 1])


def test_random_rows_agree_with_the_rules_in_plain_python():
    rng = random.Random(11)
    rows = [random_row(rng) for _ in range(20_000)]
    for settings in ({}, {"allowed_lag": 3, "min_commits": 1}, {"min_commits": 5, "assumed_span_ms": 30_000}):
        expected = [
            burrow.status(commits, lag=lag, committed=committed, oldest_end=oldest, now_ms=NOW, **settings)
            for commits, lag, committed, oldest in rows
        ]
        assert verdicts(rows, **settings) == expected
        assert set(expected) == set(Status.__members__) - {"ERR"}


def test_a_group_is_as_bad_as_its_worst_row_and_burrow_says_err():
    rows = [
        (0, Status.OK),
        (0, Status.WARN),
        (1, Status.OK),
        (1, Status.STALL),
        (2, Status.UNKNOWN),
        (2, Status.NOTFOUND),
        (3, Status.OK),
        (3, Status.UNKNOWN),
        (4, Status.NOTFOUND),
        (6, Status.STOP),
        (7, Status.REWIND),
    ]
    groups, statuses = np.array(rows).T
    found = group_status(statuses.astype(np.uint8), groups, 8)
    assert [Status(code).name for code in found] == [
        *("WARN", "ERR", "UNKNOWN", "OK", "NOTFOUND", "NOTFOUND", "ERR", "ERR")
    ]


def test_a_group_is_as_complete_as_burrow_says_by_its_rows_with_full_windows():
    count = np.array([10, 10, 9, 10, 1])
    window = np.zeros((5, 10), int)
    found = group_completeness(window_features(window, window, window, count), np.array([0, 0, 0, 2, 3]), 4)
    assert found.tolist() == [pytest.approx(2 / 3), pytest.approx(np.nan, nan_ok=True), 1, 0]


def test_a_group_with_a_row_that_is_not_decided_is_not_ok_but_may_be_worse():
    statuses = np.array([Status.OK, Status.UNKNOWN] * 2 + [Status.WARN, Status.UNKNOWN, Status.OK], np.uint8)
    groups, undecided = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 1, 0, 0, 0, 1, 0], np.bool_)
    found = group_status(statuses, groups, 4, undecided=undecided)
    assert found.tolist() == [Status.UNKNOWN, Status.OK, Status.WARN, Status.OK]
