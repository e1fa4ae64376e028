"""The history of end offsets: what it keeps, and how far back it sees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.lag import UNKNOWN, Curves, EndHistory, time_lag_s
from koff.lag.end_history import PAST_MS, TICK_MS

ROW = np.array([0])
DAY_MS = 24 * 3_600_000
TIMES = st.one_of(
    st.integers(-100_000, 100_000),
    st.integers(-(10**13), 10**13),
    st.sampled_from([0, PAST_MS, 2**32 * TICK_MS, 2**63, -(2**63), 10**40]),
)


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


# Points in the past


def add_past(history, offset, at_ms):
    history.add_past_points(ROW, np.array([offset]), at_ms)


def points_of(history, row=0):
    """(seconds since the first time of the history, end offset), oldest first."""
    count = int(history._count[row])
    ticks = history._ticks[:count, row].astype(int) - PAST_MS // TICK_MS
    return list(zip((ticks * TICK_MS / 1000).tolist(), history._offsets[:count, row].tolist(), strict=True))


def test_points_before_the_first_sample_lengthen_the_history():
    history = filled([100, 110])
    add_past(history, 40, -3_600_000)
    add_past(history, 90, -60_000)
    assert points_of(history) == [(-3600, 40), (-60, 90), (0, 100), (10, 110)]
    assert history.oldest_ends(ROW).tolist() == [40]
    assert history.oldest_ages_s(ROW, 10_000).tolist() == [3610]
    assert history.record_ages(ROW, np.array([95]), 10_000).seconds == pytest.approx(37, abs=1)


def test_points_in_the_past_may_come_before_any_sample():
    history = EndHistory()
    for offset, at_ms in ((40, 1_000_000), (90, 4_000_000), (70, 2_000_000), (5, -80_000_000)):
        add_past(history, offset, at_ms)
    assert history.newest_ends(ROW).tolist() == [UNKNOWN]
    assert history.ends_at(ROW, 3_000_000).tolist() == [UNKNOWN]
    history.add_samples(ROW, np.array([100]), 4_600_000)
    assert [offset for _, offset in points_of(history)] == [5, 40, 70, 90, 100]
    assert history.newest_ends(ROW).tolist() == [100]


def test_a_first_sample_below_points_in_the_past_drops_them():
    history = EndHistory()
    add_past(history, 40, 1_000_000)
    history.add_samples(ROW, np.array([30]), 1_060_000)
    assert history.oldest_ends(ROW).tolist() == [30]


def test_a_point_may_have_the_offset_of_the_next_one():
    history = filled([100, 150])
    add_past(history, 100, -3_600_000)
    add_past(history, 40, -7_200_000)
    add_past(history, 40, -9_000_000)
    assert points_of(history)[:3] == [(-9000, 40), (-7200, 40), (-3600, 100)]
    add_past(history, 100, -1_000_000)  # between two equal ends
    assert len(points_of(history)) == 5


def test_an_offset_that_contradicts_the_samples_gives_way():
    history = filled([100, 150])
    add_past(history, 180, -60_000)  # records came late, with early timestamps
    assert points_of(history) == [(-60, 100), (0, 100), (10, 150)]
    history = filled([100, 150])
    add_past(history, 60, 5_000)  # records came early, with late timestamps
    assert points_of(history) == [(-0.1, 60), (0, 100), (10, 150)]


@pytest.mark.parametrize("at_ms", [0, 10_000, 10_001, 10**9, 10**30, -PAST_MS - 1, -(10**30)])
def test_points_at_a_known_time_or_out_of_reach_are_ignored(at_ms):
    history = filled([100, 150])
    add_past(history, 120, at_ms)
    assert points_of(history) == [(0, 100), (10, 150)]


def test_rates_and_the_end_some_time_ago_are_of_samples_only():
    history = filled([100, 110])
    add_past(history, 0, -60_000)
    assert [column.tolist() for column in history.growth(ROW, 300)] == [[10], [10]]
    assert history.ends_at(ROW, -30_000).tolist() == [UNKNOWN]


@pytest.mark.parametrize("points", [8, 9, 60])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_points_are_added_curves_stay_in_order_and_keep_their_reach(points, seed):
    rng = np.random.default_rng(seed)
    history, rows = EndHistory(30, points=points), np.arange(30)
    ends = np.zeros(30, np.int64)
    for i in range(150):
        now_ms = i * 30_000
        ends += rng.poisson(0.7, 30)
        ends[rng.random(30) < 0.01] = 0
        history.add_samples(rows, np.where(rng.random(30) < 0.1, UNKNOWN, ends), now_ms)
        at_ms = now_ms - int(rng.integers(0, DAY_MS))
        some = rng.permutation(30)[:20]
        newest = history.newest_ends(some)
        history.add_past_points(some, rng.integers(0, np.maximum(newest, 0) + 30), at_ms)
        assert (history.newest_ends(some) == newest).all()
        for row in range(30):
            count = history._count[row]
            assert (np.diff(history._offsets[:count, row]) >= 0).all()
            assert (np.diff(history._ticks[:count, row].astype(int)) >= 0).all()
            assert not history._gaps[count:, row].any()
            assert history._has_gaps[row] or not history._gaps[:, row].any()
    before = history.oldest_ends(rows).tolist()
    for i in range(3 * points):
        history.add_samples(rows, ends + i, now_ms + i * 30_000)
    kept = history.oldest_ends(rows)
    assert [a for a, b in zip(before, kept, strict=True) if b != UNKNOWN] == kept[kept != UNKNOWN].tolist()


def test_a_filled_gap_is_precise_and_stays_so_when_the_curve_is_thinned():
    history = filled([10_000])
    at_s, offset = -600_000.0, 0
    while at_s < -6:
        offset += 100
        add_past(history, offset, round(at_s * 1000))
        at_s /= 1.15
    asked = np.arange(100, offset, 50)

    def precise(now_ms):
        return history.record_ages(np.zeros(len(asked), np.intp), asked, now_ms).precise

    for i in range(1, 200):
        history.add_samples(ROW, np.array([10_000 + i * i]), i * 10_000)
    assert precise(2_000_000).all()


def test_a_full_curve_loses_no_gap():
    history = filled([1_000], points=8)
    for i in range(10, 0, -1):
        add_past(history, 1_000 - 10 * i, -(2**i) * 60_000)
    asked = np.arange(history.oldest_ends(ROW).item(), 1_000)
    assert not history.record_ages(np.zeros(len(asked), np.intp), asked, 0).precise.any()
    history = filled([1_000], points=8)
    for at_s, offset in (
        *((-10_000, 0), (-5_000, 100), (-4_995, 110), (-2_500, 200), (-2_495, 210)),
        *((-1_000, 300), (-995, 310)),
    ):
        add_past(history, offset, at_s * 1000)
    history.add_samples(ROW, np.array([1_001]), 5_000)
    asked = np.array([50, 150, 250, 500])
    assert not history.record_ages(np.zeros(4, np.intp), asked, 5_000).precise.any()


def test_a_full_curve_keeps_the_points_beside_a_gap_as_long_as_it_can():
    history = EndHistory(points=9)
    for i, end in enumerate((1_000, 1_000, 1_700, 1_750, 2_000, 2_001)):
        history.add_samples(ROW, np.array([end]), i * 10_000)
    add_past(history, 0, -DAY_MS)
    add_past(history, 900, -DAY_MS // 10)
    add_past(history, 990, -DAY_MS // 100)
    history.add_samples(ROW, np.array([3_000]), 60_000)
    assert [offset for _, offset in points_of(history)][:4] == [0, 900, 990, 1_000]


def test_a_first_sample_long_after_a_point_in_the_past_ends_a_gap():
    history = EndHistory(gap_ms=30_000)
    add_past(history, 0, -20_000)
    history.add_samples(ROW, np.array([100]), 0)
    assert not history.record_ages(ROW, np.array([50]), 0).precise[0]


def test_a_wide_gap_is_not_precise_until_it_is_old_enough():
    history = filled([100, 200])
    add_past(history, 0, -100_000)
    asked = np.array([50])
    assert not history.record_ages(ROW, asked, 10_000).precise[0]
    assert not history.record_ages(ROW, asked, 499_000).precise[0]
    assert history.record_ages(ROW, asked, 501_000).precise[0]
    assert history.record_ages(ROW, np.array([150]), 10_000).precise[0]


def test_a_pause_between_samples_is_a_gap():
    history = EndHistory(gap_ms=30_000)
    for at_ms, end in ((0, 10), (30_000, 20), (60_100, 30), (70_000, 30), (900_000, 30), (905_000, 40)):
        history.add_samples(ROW, np.array([end]), at_ms)
    asked, rows = np.array([15, 25, 35]), np.zeros(3, np.intp)
    assert history.record_ages(rows, asked, 70_000).precise.tolist() == [True, False, True]


def test_where_the_end_stood_in_a_gap_is_that_before_the_gap_and_may_be_known_better_later():
    history = EndHistory(gap_ms=30_000)
    for at_ms, end in ((0, 10), (20_000, 20), (220_000, 120), (240_000, 140)):
        history.add_samples(ROW, np.array([end]), at_ms)
    asked = [10_000, 20_000, 21_000, 219_900, 220_000, 230_000]
    assert [history.ends_at(ROW, at).item() for at in asked] == [15, 20, 20, 20, 120, 130]
    history.add_past_points(ROW, np.array([70]), 120_000)
    assert [history.ends_at(ROW, at).item() for at in asked[2:]] == [20, 70, 120, 130]


# Clocks


@pytest.mark.parametrize("step_ms", [61_000, 3_600_000, 30 * 365 * DAY_MS, 10**40])
def test_after_the_clock_was_set_back_ages_begin_anew_and_do_not_stand_still(step_ms):
    history = filled([100, 200, 300])
    now_ms = 20_000 - step_ms
    history.add_samples(ROW, np.array([400]), now_ms)
    history.add_samples(ROW, np.array([500]), now_ms + 10_000)
    assert history.oldest_ages_s(ROW, now_ms + 10_000).tolist() == [10]
    assert history.record_ages(ROW, np.array([400]), now_ms + 10_000).seconds == pytest.approx(10, abs=0.2)


def test_samples_that_come_out_of_order_keep_their_times_where_they_can():
    history = EndHistory(2)
    history.add_samples(np.array([0]), np.array([5]), 50_000)
    history.add_samples(np.array([1]), np.array([5]), 20_000)
    history.add_samples(np.array([0]), np.array([9]), 40_000)
    assert history.oldest_ages_s(np.array([0, 1]), 60_000).tolist() == [10, 40]
    assert history.newest_ends(np.array([0, 1])).tolist() == [9, 5]


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 50), TIMES), max_size=12), TIMES)
def test_no_time_raises(calls, now_ms):
    history = EndHistory(points=8)
    for is_past, offset, at_ms in calls:
        add = history.add_past_points if is_past else history.add_samples
        add(ROW, np.array([offset]), at_ms)
        history.grow(1)
        for row in (ROW, np.array([], np.intp)):
            history.ends_at(row, now_ms)
            history.growth(row, 300)
            found = time_lag_s(history, row, row * 0 + 3, now_ms, reach_s=60)
            assert (found.seconds >= 0).all()


def test_a_first_sample_near_1970_is_one_as_any_other():
    history = EndHistory()
    history.add_samples(ROW, np.array([5]), 1_000)
    history.add_samples(ROW, np.array([9]), 1_790_000_000_000)
    history.add_samples(ROW, np.array([19]), 1_790_000_010_000)
    assert history.ends_at(ROW, 0).tolist() == [UNKNOWN]
    assert history.record_ages(ROW, np.array([9]), 1_790_000_010_000).seconds == pytest.approx(10, abs=1)


# What was saved


def saved(history, rows=ROW):
    curves = history.save(rows)
    assert curves is not None
    restored = EndHistory()
    restored.restore(rows, curves)
    return restored


def test_a_restored_history_has_the_same_points_gaps_and_samples():
    history = filled([100, 200])
    add_past(history, 0, -100_000)
    restored = saved(history)
    assert points_of(restored) == points_of(history)
    for each in (history, restored):
        assert not each.record_ages(ROW, np.array([50]), 10_000).precise[0]
        assert each.record_ages(ROW, np.array([150]), 10_000).precise[0]
        assert each.ends_at(ROW, -1).tolist() == [UNKNOWN]
        assert each.ends_at(ROW, 0).tolist() == [100]
        assert each.growth(ROW, 300)[1].tolist() == [10]


def test_a_history_without_room_before_its_first_sample_gets_it_when_it_is_restored():
    history = EndHistory()
    ticks = np.array([0, 100], np.uint32)
    history.restore(ROW, Curves(0, 100, np.array([2], np.uint8), np.array([100, 200]), ticks))
    add_past(history, 50, -7 * DAY_MS)
    assert history.oldest_ages_s(ROW, 10_000).tolist() == [7 * 86_400 + 10]
    assert history.record_ages(ROW, np.array([150]), 10_000).precise[0]
    assert history.ends_at(ROW, 5_000).tolist() == [150]


def test_restored_points_from_the_future_do_not_stop_the_ages():
    history = filled([100, 200], interval_ms=3_600_000)
    restored = saved(history)
    restored.add_samples(ROW, np.array([300]), 60_000)
    restored.add_samples(ROW, np.array([400]), 70_000)
    assert restored.oldest_ages_s(ROW, 70_000).tolist() == [10]
