"""The history of end offsets: what it keeps, and how far back it sees."""

import numpy as np
import pytest

from koff.lag import UNKNOWN, EndHistory, time_lag_s

ROW = np.array([0])


def filled(ends, points=60, interval_ms=10_000):
    history = EndHistory(points=points)
    for i, end in enumerate(ends):
        history.add_samples(ROW, np.array([end]), i * interval_ms)
    return history


def exact_age_s(ends, committed):
    """By all samples, in plain Python: the rule for ages, without thinning."""
    right = next(i for i, end in enumerate(ends) if end > committed)
    left = right - 1
    share = (committed - ends[left] + 1) / (ends[right] - ends[left] + 1)
    return 10 * (len(ends) - 1 - (left + share))


def flows():
    rng = np.random.default_rng(7)
    size = 3000
    yield "steady", np.full(size, 1000)
    yield "random", rng.poisson(5, size)
    yield "rare", rng.poisson(0.05, size)
    bursts = np.zeros(size, np.int64)
    for at in rng.integers(0, size, 12):
        bursts[at : at + 4] = rng.integers(100, 10_000)
    yield "bursts", bursts
    yield "levels", rng.poisson(np.repeat(rng.lognormal(5, 2, size // 30), 30))


@pytest.mark.parametrize(("name", "flow"), [pytest.param(n, f, id=n) for n, f in flows()])
def test_eight_hours_fit_in_sixty_points_and_time_lags_stay_right(name, flow):
    ends = np.cumsum(flow)
    history = filled(ends.tolist())
    behind = np.unique(np.geomspace(1, len(ends) - 1, 80).astype(int))
    committed = np.array([c for c in ends[-1 - behind] if c < ends[-1]])
    now_ms = (len(ends) - 1) * 10_000
    found = time_lag_s(history, np.zeros(len(committed), np.intp), committed, now_ms)
    assert not found.at_least.any()
    exact = np.array([exact_age_s(ends.tolist(), c) for c in committed])
    error = np.abs(found.seconds - exact) / np.maximum(exact, 10)
    assert np.quantile(error, 0.9) < 0.06
    assert error.max() < 0.15


def test_the_first_sample_is_never_forgotten():
    ends = np.cumsum(np.random.default_rng(1).poisson(9, 2000)).tolist()
    history = filled(ends, points=8)
    assert history.oldest_ends(ROW).tolist() == [ends[0]]
    assert history.newest_ends(ROW).tolist() == [ends[-1]]
    assert history.oldest_ages_s(ROW, 1999 * 10_000).tolist() == [19_990]


def test_an_idle_partition_needs_two_points_whatever_the_time():
    history = filled([5] * 1000 + [6])
    assert history.ends_at(ROW, 999 * 10_000 - 1).tolist() == [5]
    assert history._count.tolist() == [3]


def test_points_in_time_order_and_offset_order_always():
    rng = np.random.default_rng(3)
    history = EndHistory(40, points=8)
    ends = np.zeros(40, np.int64)
    for i in range(300):
        ends += rng.poisson(0.7, 40)
        ends[rng.random(40) < 0.01] = 0
        history.add_samples(np.arange(40), np.where(rng.random(40) < 0.1, UNKNOWN, ends), i * 1000)
        for row in range(40):
            count = history._count[row]
            assert (np.diff(history._offsets[:count, row]) >= 0).all()
            assert (np.diff(history._ticks[:count, row].astype(int)) >= 0).all()


def test_where_the_end_stood_is_interpolated_and_unknown_before_the_first_sample():
    history = filled([0, 100, 200, 200])
    asked = [-1, 0, 5_000, 10_000, 29_000, 30_000, 99_000]
    assert [history.ends_at(ROW, at).item() for at in asked] == [UNKNOWN, 0, 50, 100, 200, 200, 200]
    assert EndHistory(1).ends_at(ROW, 5).tolist() == [UNKNOWN]


def test_forgotten_rows_are_as_new():
    history = filled([0, 100, 200])
    history.clear(ROW)
    assert history.newest_ends(ROW).tolist() == history.oldest_ends(ROW).tolist() == [UNKNOWN]
    history.add_samples(ROW, np.array([50]), 90_000)
    assert history.oldest_ends(ROW).tolist() == [50]
    assert history.ends_at(ROW, 80_000).tolist() == [UNKNOWN]


def test_room_is_made_without_losing_anything():
    history = filled([0, 100, 200])
    history.grow(1000)
    assert len(history) >= 1000
    assert history.ends_at(ROW, 10_000).tolist() == [100]
    assert history.newest_ends(np.array([999])).tolist() == [UNKNOWN]


def test_a_round_without_offsets_is_no_round():
    history = EndHistory()
    history.add_samples(np.array([], np.intp), np.array([], np.int64), 5)
    history.add_samples(np.array([3]), np.array([UNKNOWN]), 5)
    assert len(history) == 0


@pytest.mark.parametrize("points", [7, 256])
def test_the_number_of_points_is_bounded(points):
    with pytest.raises(ValueError, match="points must be 8 to 255"):
        EndHistory(points=points)
