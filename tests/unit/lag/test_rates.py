"""Rates, and the time until a group has caught up."""

import numpy as np
import pytest

from koff.lag import (
    NEVER,
    CatchUps,
    EndHistory,
    Rates,
    consume_rates,
    produce_rates,
    seconds_until_caught_up,
    usual_lags,
    window_features,
)
from tests.unit.lag.burrow import Commit
from tests.unit.lag.test_window import turned_into_arrays

ROW = np.array([0])


def produced_per_s(*samples, span_s=300.0):
    """Samples are (seconds, end offset)."""
    history = EndHistory(1)
    for at_s, end in samples:
        history.add_samples(ROW, np.array([end]), 5_000_000 + at_s * 1000)
    rates = produce_rates(history, ROW, span_s=span_s)
    return rates.per_s.item() if rates.known[0] else None


def consumed_per_s(*commits, now_s):
    """Commits are (seconds, offset)."""
    windows = [[Commit(offset, at_s * 1000, -1) for at_s, offset in commits]]
    rates = consume_rates(window_features(*turned_into_arrays(windows)), now_s * 1000)
    return rates.per_s.item() if rates.known[0] else None


@pytest.mark.parametrize(
    ("samples", "span_s", "per_s"),
    [
        ([(0, 0), (100, 1000), (200, 1500)], 100, 5),
        ([(0, 0), (100, 1000), (200, 1500)], 150, 1000 / 150),
        ([(0, 0), (100, 1000), (200, 1500)], 200, 7.5),
        ([(0, 0), (20, 100)], 300, 5),  # a short history: of all of it
        ([(0, 70), (20, 70)], 300, 0),
        ([], 300, None),
        ([(0, 5)], 300, None),
        ([(0, 50), (10, 5)], 300, None),  # begun anew
    ],
)
def test_the_produce_rate_is_of_the_span_before_the_newest_sample(samples, span_s, per_s):
    assert produced_per_s(*samples, span_s=span_s) == (per_s and pytest.approx(per_s))


STEADY = [(0, 100), (5, 150), (10, 200)]


@pytest.mark.parametrize(
    ("commits", "now_s", "per_s"),
    [
        (STEADY, 10, 10),
        (STEADY, 15, 10),
        (STEADY, 25, 5),  # it falls while the group is silent
        (STEADY, 1005, 0.1),
        ([(0, 1000), (5, 0), (10, 50)], 10, 5),  # a reset does not count; what was consumed after it does
        ([], 10, None),
        ([(0, 100)], 10, None),
        ([(5, 100), (5, 200)], 10, None),  # no time between them
        ([(5, 100), (4, 200)], 10, None),
    ],
)
def test_the_consume_rate_is_that_of_the_window(commits, now_s, per_s):
    assert consumed_per_s(*commits, now_s=now_s) == (per_s and pytest.approx(per_s))


def test_rates_of_many_rows_are_those_of_each_in_whatever_chunks_and_dtypes():
    rng = np.random.default_rng(2)
    count = rng.integers(0, 11, 20_000)
    offsets = rng.integers(0, 1000, (20_000, 10))
    times = np.cumsum(rng.integers(0, 3, (20_000, 10)), axis=1)
    many = rates_of_windows(offsets, times, count.astype(np.uint8))
    narrow = rates_of_windows(offsets.astype(np.int32), times, count)
    assert (many.per_s == narrow.per_s).all()
    assert np.isfinite(many.per_s).all()
    for row in range(0, 20_000, 1009):
        one = rates_of_windows(offsets[[row]], times[[row]], count[[row]])
        assert [one.per_s.item(), one.known.item()] == [many.per_s[row], many.known[row]]


def rates_of_windows(offsets, times, count):
    return consume_rates(window_features(offsets, times, np.full(offsets.shape, -1), count), 40)


NO_RATE = None


@pytest.mark.parametrize(
    ("lag", "consume", "produce", "seconds"),
    [
        (100, 15, 5, 10),
        (100, 5, 5, "never"),
        (100, 0, 5, "never"),
        (100, 0, 0, "never"),
        (0, 0, 5, 0),
        (-3, NO_RATE, 5, 0),
        (100, NO_RATE, 5, None),
        (100, 5, NO_RATE, None),
        (None, 15, 5, None),
    ],
)
def test_a_group_catches_up_by_what_it_consumes_beyond_what_is_produced_or_never(
    lag, consume, produce, seconds
):
    def rates(per_s):
        return Rates(np.array([per_s or 0.0]), np.array([per_s is not NO_RATE]))

    found = seconds_until_caught_up(
        np.array([lag or 0]), np.array([lag is not None]), consume=rates(consume), produce=rates(produce)
    )
    assert found.known.item() == (seconds is not None)
    assert found.never.item() == (seconds == "never")
    if isinstance(seconds, int) or seconds is None:
        assert found.seconds.item() == (seconds or 0)


def test_a_group_that_keeps_up_at_a_small_lag_has_caught_up_if_that_is_allowed():
    same = Rates(np.array([5.0, 5.0, 10.0]), np.array([True] * 3))
    slow = Rates(np.array([5.0, 5.0, 5.0]), np.array([True] * 3))
    lag = np.array([20, 21, 70])
    found = seconds_until_caught_up(lag, lag > 0, consume=same, produce=slow, allowed_lag=20)
    assert found.seconds.tolist() == [0, NEVER, 10]


def test_what_is_produced_between_two_commits_is_the_usual_lag():
    windows = [[Commit(o, at_s * 1000, -1) for at_s, o in w] for w in ([(0, 5), (10, 9), (30, 9)], [(0, 5)])]
    features = window_features(*turned_into_arrays(windows))
    produce = Rates(np.array([1.5, 1.5]), np.array([True, True]))
    assert usual_lags(features, produce).tolist() == [23, 0]
    assert usual_lags(features, Rates(produce.per_s, np.array([False, True]))).tolist() == [0, 0]


def test_a_group_that_stopped_never_catches_up_whatever_it_consumed_before():
    rates = Rates(np.array([50.0, 50.0]), np.array([True, False]))
    slow = Rates(np.array([5.0, 5.0]), np.array([True, False]))
    lag = np.array([100, 100])
    found = seconds_until_caught_up(lag, lag > 0, consume=rates, produce=slow, stopped=lag > 0)
    assert found.never.tolist() == [True, True]
    assert found.known.tolist() == [True, True]


def test_a_sum_of_rates_is_unknown_if_a_row_is_incomplete_or_none_is_known():
    rates = Rates(np.array([1.0, 2.0, 0.0, 4.0]), np.array([True, True, False, True]))
    incomplete = np.array([False, False, False, True])
    found = rates.sum(np.array([0, 0, 1, 2]), 4, incomplete=incomplete)
    assert (found.per_s.tolist(), found.known.tolist()) == ([3, 0, 0, 0], [True, False, False, False])
    assert rates.hide(incomplete).known.tolist() == [True, True, False, False]
    assert not Rates.build_unknown(2).known.any()


def test_a_group_has_caught_up_when_its_slowest_row_has():
    rows = CatchUps(np.array([3.0, NEVER, 5.0, 0.0, 0.0]), np.array([True, True, True, False, False]))
    lag_known = np.array([True, True, True, True, False])
    found = rows.find_slowest(np.array([0, 1, 2, 2, 0]), 4, lag_known=lag_known)
    assert found.seconds.tolist() == [3, NEVER, 0, 0]
    assert found.known.tolist() == [True, True, False, False]
