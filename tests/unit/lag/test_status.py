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


IDLE = [(100 + i, 3600 + 50 - 5 * i, 0) for i in range(10)]
BACKWARDS = [(100 + i, 5 * i, 10 + i) for i in range(10)]


def after(seconds, commits):
    """The same commits, so much longer ago."""
    return [(offset, ago_s + seconds, lag) for offset, ago_s, lag in commits]


@pytest.mark.parametrize(
    ("commits", "settings", "expected"),
    [
        ([], {"lag": None}, "NOTFOUND"),
        (FALLING_BEHIND, {"lag": None}, "UNKNOWN"),
        # Rule 1: caught up is OK, whatever the window says. There may be an allowed lag.
        *((STUCK, {"lag": lag}, "OK") for lag in (0, -5)),
        *(([(5, 9999, -1)], {"lag": lag}, "OK") for lag in (0, -5)),
        *(([], {"lag": lag, "committed": 5}, "OK") for lag in (0, -5)),
        (STUCK, {"lag": 50, "allowed_lag": 50}, "OK"),
        (STUCK, {"lag": 51, "allowed_lag": 9}, "STALL"),
        (STUCK, {"lag": 51, "allowed_lag": 10}, "OK"),  # was allowed at the first commit
        # Rule 2: silent for longer than the window spans is STOP, and not if the end was reached: it is idle.
        (after(41, FALLING_BEHIND), {"oldest_end": 110}, "STOP"),
        (FALLING_BEHIND, {"oldest_end": 110}, "WARN"),
        (IDLE, {"lag": 5, "oldest_end": 109}, "OK"),
        (IDLE, {"lag": 5, "oldest_end": 110}, "STOP"),
        # Rule 3: a rewind that was not made up for.
        ([(100, 30, 9), (200, 25, 9), (50, 20, 9), (60, 15, 9)], {}, "REWIND"),
        ([(100, 30, 9), (200, 25, 9), (50, 20, 9), (200, 15, 9)], {}, "WARN"),
        # Rule 4: caught up at some commit is OK.
        ([(100, 30, 9), (120, 25, 0), (125, 20, 9), (130, 15, 19)], {}, "OK"),
        # Rule 5: commits that do not move are STALL.
        (STUCK, {}, "STALL"),
        # Rule 6: falling behind is WARN, and unknown lags are passed over.
        (FALLING_BEHIND, {}, "WARN"),
        ([(1, 30, 9), (2, 25, -1), (3, 20, 9), (4, 15, 10)], {}, "WARN"),
        # Rule 7: catching up is OK.
        ([(1, 30, 9), (2, 25, -1), (3, 20, 8), (4, 15, 10)], {}, "OK"),
        # Trap: one commit spans no time. It is not stopped at once, and neither stalls nor warns.
        ([(100, 2, 50)], {"oldest_end": 150}, "UNKNOWN"),
        ([(100, 601, 50)], {"oldest_end": 150}, "STOP"),
        ([(100, 301, 50)], {"oldest_end": 150, "assumed_span_ms": 300_000}, "STOP"),
        ([(100, 2, 50)], {"oldest_end": 150, "min_commits": 1}, "STOP"),
        ([(100, 2, 50)], {}, "UNKNOWN"),
        ([(100, 9, 50), (100, 2, 50)], {}, "UNKNOWN"),
        # Trap: ends that were not watched for long enough prove no stop and no health.
        (IDLE, {"lag": 5, "oldest_end": -1}, "UNKNOWN"),
        (IDLE, {"lag": 5, "oldest_end": 100}, "OK"),
        ([(o, ago, 10 - i) for i, (o, ago, _) in enumerate(IDLE)], {"lag": 5, "oldest_end": -1}, "UNKNOWN"),
        ([(o, ago, 10 - i) for i, (o, ago, _) in enumerate(IDLE)], {"lag": 5, "oldest_end": 100}, "OK"),
        # Trap: what was wrong before a silence is not unknown for want of ends.
        (after(60, STUCK), {"oldest_end": -1}, "STALL"),
        (after(60, FALLING_BEHIND), {"oldest_end": -1}, "WARN"),
        # Trap: lags from before the monitor make no warning.
        ([(o, ago, -1) for o, ago, _ in FALLING_BEHIND], {}, "UNKNOWN"),
        # Trap: times that run backwards span nothing.
        (BACKWARDS, {"oldest_end": 200}, "STOP"),
        (after(-46, BACKWARDS), {"oldest_end": 200}, "WARN"),
    ],
)
def test_each_rule_and_each_trap_has_its_verdict(commits, settings, expected):
    assert verdict(*commits, **settings) == expected


def test_trap_a_silence_ends_where_the_commits_are_known_to():
    window = [Commit(100 + i, NOW - 1000 * (100 - 5 * i), 20 - i) for i in range(10)]  # spans 45 s, 55 s ago
    rows, known_until_ms = [(window, 50, 109, 120)] * 2, np.array([NOW, NOW - 20_000])
    assert verdicts(rows, now_ms=known_until_ms) == ["STOP", "OK"]


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
