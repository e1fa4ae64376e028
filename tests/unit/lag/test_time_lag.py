"""Lag in seconds, from the history of end offsets. Times are seconds here, and samples ten of them apart."""

import math
from typing import Any

import numpy as np
import pytest

from koff.lag import (
    NO_RECORD,
    NO_TIMESTAMP,
    UNKNOWN,
    EndHistory,
    FirstRecords,
    refine_with_records,
    time_lag_s,
)

T0 = 1_700_000_000_000


def watched(*samples, points=60):
    """The history of one partition: (seconds, end offset)."""
    history = EndHistory(points=points)
    for at_s, end in samples:
        history.add_samples(np.array([0]), np.array([end]), T0 + round(at_s * 1000))
    return history


def age(history, committed, now_s, start=None, reach_s=None):
    """Seconds; None if unknown; a string such as ">= 30" if only bounded."""
    found = time_lag_s(
        history,
        np.array([0]),
        np.array([committed]),
        T0 + round(now_s * 1000),
        start=None if start is None else np.array([start]),
        reach_s=reach_s,
    )
    seconds = found.seconds.item()
    assert math.isfinite(seconds)
    assert seconds >= 0
    if not found.known[0]:
        assert (seconds, found.at_least[0]) == (0, False)
        return None
    return f">= {seconds:g}" if found.at_least[0] else seconds


STEADY = [(10 * i, 1000 * i) for i in range(7)]


IDLE_DAY = [(10 * i, 100) for i in range(8640)]
RESET = [*STEADY, (70, 40), (80, 50)]
BURST, LATE_BURST = [(0, 100), (10, 600)], [*IDLE_DAY, (86_400, 5100), (86_410, 10_100)]
ALMOST_IDLE = [(0, 1_000_000), (10, 1_000_001), (20, 1_000_001), (30, 1_000_002)]
FLAT = [(0, 5), (10, 5), (20, 5), (30, 5)]


def about(seconds, abs_s=0.1):
    return pytest.approx(seconds, abs=abs_s)


@pytest.mark.parametrize(
    ("samples", "now_s", "expected"),
    [
        # A group at the end is not late. Within the window, the age lies on the line between samples.
        (STEADY, 60, {6000: 0, 5999: about(0, 0.02), 5000: about(10), 4500: about(15), 1: about(60, 0.02)}),
        # It grows while nothing is committed.
        (STEADY, 64, {5000: about(14)}),
        # A single record counts as produced in the middle between samples.
        ([(0, 7), (10, 8)], 10, {7: about(5)}),
        # One sample knows the end, and bounds the rest.
        ([(0, 5)], 20, {5: 0, 4: ">= 20"}),
        # A burst before an idle hour is as old as the burst.
        (BURST + [(20 + 10 * i, 600) for i in range(360)], 3610, {100: about(3610), 599: about(3600)}),
        # A partition that could not be sampled keeps its history.
        ([(0, 0), (10, 100), (20, UNKNOWN), (30, 300)], 30, {200: about(10)}),
        # Equal times and a clock that goes back break nothing.
        ([(0, 5), (0, 6), (0, 9), (10, 19)], 10, {5: about(10), 9: about(10, 1)}),
        ([(0, 5), (100, 6), (50, 7), (110, 8)], 110, {7: about(5)}),
        ([(0, 5), (100, 6), (50, 7), (110, 8)], 40, {6: 0}),
        # The five known faults of kafka-lag-exporter (PEERS.md).
        # 138: a commit above the newest sample is no lag, and never negative.
        (STEADY, 60, {6010: 0, 10**15: 0}),
        # A flat table divides nothing by zero.
        (FLAT, 30, {0: ">= 30", 3: ">= 30", 4: ">= 30", 5: 0, 6: 0}),
        # An offset reset starts anew, and is not refused until passed.
        (RESET, 80, {50: 0, 40: about(10, 1), 30: ">= 10", 5000: 0}),
        # 496: below the window nothing is extrapolated, but bounded.
        (ALMOST_IDLE, 30, {0: ">= 30", 999_999: ">= 30", 1_000_000: about(25)}),
        # 121: a burst after an idle day is as old as the burst.
        (LATE_BURST, 86_410, {100: about(20), 5100: about(10), 99: ">= 86410"}),
    ],
)
def test_a_time_lag_is_the_age_of_the_next_record_or_a_bound_of_it(samples, now_s, expected):
    history = watched(*samples)
    assert {committed: age(history, committed, now_s) for committed in expected} == expected


def test_without_commit_or_sample_or_row_the_time_lag_is_unknown():
    assert age(watched(*STEADY), UNKNOWN, 60) is None
    assert age(EndHistory(), 5, 60) is None
    assert age(EndHistory(3), 5, 60) is None
    no_row = time_lag_s(watched(*STEADY), np.array([-1, 99]), np.array([5, 5]), T0)
    assert not no_row.known.any()
    assert no_row.seconds.tolist() == [0, 0]


def test_records_that_have_left_the_log_do_not_age():
    assert age(watched(*STEADY), 1000, 60, start=4000) == about(20, 0.02)
    assert age(watched(*STEADY), 1000, 60, start=6000) == 0
    assert age(watched(*STEADY), 4000, 60, start=UNKNOWN) == about(20, 0.02)


def test_partitions_do_not_mix_and_rounds_may_cover_some_only():
    history = EndHistory()
    history.add_samples(np.array([2, 0]), np.array([20, 0]), T0)
    history.add_samples(np.array([0]), np.array([100]), T0 + 10_000)
    history.add_samples(np.array([5, 2]), np.array([7, 40]), T0 + 20_000)
    found = time_lag_s(history, np.array([0, 2, 5, 2, 1]), np.array([0, 20, 7, 40, 0]), T0 + 20_000)
    assert found.seconds.round().tolist() == [20, 19, 0, 0, 0]
    assert found.known.tolist() == [True, True, True, True, False]


def test_many_rows_give_what_one_gives():
    history = EndHistory(50)
    rng = np.random.default_rng(4)
    ends = np.zeros(50, np.int64)
    for i in range(30):
        ends += rng.poisson(3, 50)
        history.add_samples(np.arange(50), ends, T0 + i * 10_000)
    rows = rng.integers(0, 50, 40_000)
    committed = rng.integers(-1, 120, 40_000)
    many = time_lag_s(history, rows, committed, T0 + 300_000)
    for i in range(0, 40_000, 997):
        one = time_lag_s(history, rows[i : i + 1], committed[i : i + 1], T0 + 300_000)
        assert [c[0].item() for c in one[:3]] == [c[i].item() for c in many[:3]]


# A history that is filled back to an age


def filled(history, *points):
    """With points in the past: (seconds, end offset)."""
    for at_s, end in points:
        history.add_past_points(np.array([0]), np.array([end]), T0 + round(at_s * 1000))
    return history


def test_until_the_history_is_filled_a_time_lag_before_it_is_unknown():
    history = watched(*STEADY)
    assert age(history, 3000, 60, reach_s=600) == pytest.approx(30, abs=0.1)
    assert age(history, 6000, 60, reach_s=600) == 0
    history = filled(watched((0, 1000), (5, 1000)), (-60, 500))
    assert age(history, 700, 5, reach_s=600) is None
    assert age(history, 400, 5, reach_s=600) is None
    assert age(history, 400, 5) == ">= 65"
    assert age(history, 700, 5) == pytest.approx(41, abs=0.1)


def test_a_filled_history_gives_the_time_lag_of_what_came_before_it():
    history = filled(watched((0, 1000), (5, 1000)), (-60, 500), (-50, 900), (-595, 100))
    assert age(history, 700, 5, reach_s=600) == pytest.approx(60, abs=0.1)
    assert age(history, 950, 5, reach_s=600) is None
    assert age(history, 300, 5, reach_s=600) is None


def test_what_is_older_than_the_oldest_age_asked_for_is_at_least_as_old():
    history = filled(watched((0, 1000)), (-600, 500))
    assert age(history, 499, 0, reach_s=600) == ">= 600"
    assert age(history, 499, 30, reach_s=600) == ">= 630"
    assert age(history, 499, 0, reach_s=601) is None


def test_records_that_have_left_the_log_do_not_count_in_a_filled_history_either():
    history = filled(watched((0, 1000)), (-60, 500), (-50, 600))
    assert age(history, 10, 0, start=500, reach_s=600) == pytest.approx(60, abs=0.2)
    assert age(history, 10, 0, start=1000, reach_s=600) == 0


# --- With records that were read -------------------------------------------------------------------------

RECORD: dict[str, Any] = {
    "committed": 50,
    "offset": 50,
    "at": 0.0,
    "later": NO_TIMESTAMP,
    "start": 0,
    "end": 2_000,
}


def refine(history: EndHistory, now_s: float, **given: Any) -> tuple[float, str]:
    """The seconds of one row, and where they are from: a record, the ends, or a lower bound.

    A record is at `offset`, was written at `at` (seconds; below 0: `NO_RECORD`, ...), and the next ones were
    written `later`. It was read for `committed`.
    """
    row: dict[str, Any] = RECORD | given
    times = [
        at if at in (NO_RECORD, NO_TIMESTAMP) else T0 + round(at * 1000) for at in (row["at"], row["later"])
    ]
    found = refine_with_records(
        history,
        np.array([0]),
        np.array([row["committed"]]),
        T0 + round(now_s * 1000),
        FirstRecords(*(np.array([value], np.int64) for value in (row["offset"], *times))),
        start=np.array([row["start"]]),
        end=np.array([row["end"]]),
    )
    assert found.exact is not None
    assert found.known[0]
    kind = "at least" if found.at_least[0] else "record" if found.exact[0] else "ends"
    return round(float(found.seconds[0])), kind


@pytest.fixture
def history():
    """Sampled since 1000 s, when 1,000 records were there. Since then one comes a second."""
    return watched(*((at, at) for at in range(1_000, 2_001, 10)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        # What came before the first sample is as old as its record, whatever the ends say.
        ({"at": 400}, (1_600, "record")),
        ({"at": 400, "later": 401}, (1_600, "record")),
        # A record that is not there any more; none is read.
        ({"at": 400, "start": 51}, (1_000, "at least")),
        ({"offset": UNKNOWN}, (1_000, "at least")),
        # Compaction has removed what was at the committed offset.
        ({"offset": 60, "at": 400}, (1_600, "record")),
        ({"offset": 1_990, "at": 3_000}, (9, "ends")),
        # What arrived since the first sample is as old as the samples say.
        ({"committed": 1_500, "offset": 1_500, "at": 400}, (499, "ends")),
        # Only control records are left, until something comes.
        ({"offset": 2_000, "at": NO_RECORD}, (0, "record")),
        ({"offset": 1_999, "at": NO_RECORD}, (1_000, "at least")),
        # A timestamp that is missing or far ahead: as old as the first sample at least.
        ({"at": NO_TIMESTAMP}, (1_000, "at least")),
        ({"at": 2_061}, (1_000, "at least")),
        ({"at": 1_997, "later": 2_059}, (3, "record")),
        # The producer's clock is ahead, as the next records tell.
        ({"at": 1_500, "later": 401}, (1_599, "ends")),
        ({"at": 9_999, "later": 401}, (1_599, "ends")),
    ],
)
def test_the_record_that_was_read_tells_what_the_samples_do_not(history, given, told):
    assert refine(history, 2_000, **given) == told


def test_a_record_that_is_out_of_order_does_not_count_if_the_ends_and_its_followers_are_younger():
    # 60 s before the first sample, 40 records were there, as requests by time say: the next came since then.
    history = filled(watched((0, 1000)), (-60, 40), (-50, 100))
    assert refine(history, 0, at=-3_600, later=-50, end=1_000) == (58, "ends")


def test_the_last_record_counts_though_one_before_it_was_dated_ahead():
    history = filled(watched((0, 1000)), (-4, 10), (-3, 900))
    assert refine(history, 0, at=-3_600, end=1_000) == (3_600, "record")


def test_until_the_next_record_is_read_the_last_one_says_how_far_the_ends_can_be_trusted():
    # A record that was dated ahead: requests by time say that all of this came a moment ago.
    history = filled(watched((0, 1000)), (-4, 10), (-3, 900))
    assert refine(history, 0, committed=70, offset=50, at=-3_600, end=1_000) == (0, "at least")
    assert refine(history, 0, committed=70, offset=50, at=-4, end=1_000) == (4, "ends")


def test_what_was_read_holds_as_long_as_asking_again_would_give_the_same():
    nothing = np.full(5, NO_TIMESTAMP)
    records = FirstRecords(
        np.array([50, 50, 50, 50, UNKNOWN]), np.array([5, 5, NO_TIMESTAMP, NO_RECORD, 5]), nothing
    )
    ends, oldest = np.array([51, 50, 51, 50, 51]), np.zeros(5, int)
    assert records.is_valid(oldest=oldest, end=ends).tolist() == [True, False, True, True, False]
    assert not records.is_valid(oldest=oldest + 51, end=ends + 50).any()
