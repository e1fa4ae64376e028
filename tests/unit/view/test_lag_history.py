"""The last hour of lags."""

import numpy as np
import pytest

from koff.view import lag_history
from koff.view.lag_history import STEP_S, STEPS, LagHistory, shorten

STEP_MS = STEP_S * 1000
NOW_MS = STEP_MS * 120_000_000


def add(history: LagHistory, step: int, **lags: float) -> None:
    values = np.array(list(lags.values()), np.float64)
    history.add(list(lags), values, values / 10, np.zeros(len(values)), NOW_MS + step * STEP_MS)


def find_lag(history: LagHistory, name: str) -> list[float | None]:
    """What is known of the last steps, without the unknown beginning."""
    course = history.find(name)
    assert len(course.lag) == len(course.time_lag_s) == STEPS
    lags = [None if np.isnan(lag) else lag for lag in course.lag.tolist()]
    first = next((number for number, lag in enumerate(lags) if lag is not None), STEPS)
    return lags[first:]


def test_lags_come_in_the_order_of_their_times_with_gaps():
    history = LagHistory()
    for step in (0, 1, 4):
        add(history, step, g=step + 10)
    assert find_lag(history, "g") == [10, 11, None, None, 14]
    course = history.find("g")
    assert course.end_ms == NOW_MS + 5 * STEP_MS
    assert course.time_lag_s[-1] == pytest.approx(1.4)


def test_values_of_one_step_overwrite_each_other():
    history = LagHistory()
    history.add(["g"], np.array([1.0]), np.array([1.0]), np.zeros(1), NOW_MS)
    history.add(["g"], np.array([2.0]), np.array([1.0]), np.zeros(1), NOW_MS + 5000)
    assert find_lag(history, "g") == [2]


def test_rates_are_those_of_whole_steps_between_known_lags():
    history = LagHistory()
    for at, lag in enumerate((50, 50, 80, 80, np.nan, np.nan, 90, 90, 75, 75, 75)):  # two looks a step
        values = np.array([lag])
        history.add(["g"], values, values, np.array([15.0]), NOW_MS + at * STEP_MS // 2)
    course = history.find("g")
    # Since the lag was unknown in between, nobody knows when those commits came; the last step is not over.
    assert np.array_equal(course.consumed_per_s[-6:], [np.nan, 2, np.nan, np.nan, 2, np.nan], equal_nan=True)
    assert np.array_equal(course.produced_per_s[-6:], [np.nan, 4, np.nan, np.nan, 1, np.nan], equal_nan=True)


def test_after_an_hour_the_oldest_is_forgotten():
    history = LagHistory()
    for step in range(STEPS + 3):
        add(history, step, g=step)
    assert find_lag(history, "g") == list(range(3, STEPS + 3))


@pytest.mark.parametrize("step", [-1, STEPS, 10 * STEPS])
def test_a_clock_that_was_set_begins_anew(step):
    history = LagHistory()
    add(history, 0, g=5)
    add(history, step, g=6)
    assert find_lag(history, "g") == [6]


def test_what_is_withheld_is_unknown():
    history = LagHistory()
    add(history, 0, g=5, h=1)
    add(history, 1, g=float("nan"), h=2)
    add(history, 2, g=7, h=3)
    assert find_lag(history, "g") == [5, None, 7]
    assert history.find("absent") is None


def test_what_is_kept_is_bounded_and_groups_that_are_gone_make_room(monkeypatch):
    monkeypatch.setattr(lag_history, "MOST_GROUPS", 300)
    history = LagHistory()
    add(history, 0, **{f"old-{number}": 1 for number in range(300)})
    add(history, 1, late=5)
    assert history.find("late") is None
    add(history, STEPS + 1, late=5)
    assert find_lag(history, "late") == [5]
    assert history.find("old-0") is None
    assert history._values.shape == (3, 300, STEPS)


def test_a_cluster_has_a_total_where_no_lag_is_withheld():
    history = LagHistory()
    assert history.find_total() is None
    for step, is_whole in enumerate((True, False, True)):
        values = np.array([10.0 + step, np.nan, 5.0])
        history.add(
            ["g", "unknown", "h"], values, values / 10, np.ones(3), NOW_MS + step * STEP_MS, is_whole=is_whole
        )
    total = history.find_total()
    assert np.array_equal(total.lag[-3:], [15, np.nan, 17], equal_nan=True)
    assert np.allclose(total.time_lag_s[-3:], [1.0, np.nan, 1.2], equal_nan=True)
    add(history, 2, g=1)  # the same step, and not whole now
    total = history.find_total()
    assert np.isnan(total.lag[-1])


def test_a_shortened_course_keeps_its_peaks():
    values = np.array([1, 9, np.nan, 2, np.nan, np.nan, 3, 3], np.float64)
    assert np.array_equal(shorten(values, 4), [9, 2, np.nan, 3], equal_nan=True)
