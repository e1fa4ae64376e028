"""When a measured difference between two clocks is corrected."""

import pytest

from koff.monitor.duties.end_times import RISE_MS, TOLERANCE_MS, BrokerClock


@pytest.fixture
def clock():
    return BrokerClock()


@pytest.mark.parametrize("skew_ms", [0, TOLERANCE_MS, -TOLERANCE_MS])
def test_a_small_difference_is_not_corrected(clock, skew_ms):
    assert not clock.note(skew_ms, 0)
    assert (clock.ahead_ms, clock.is_known) == (0, True)


@pytest.mark.parametrize("skew_ms", [90_000, -90_000])
def test_the_first_measurement_is_corrected_at_once(clock, skew_ms):
    assert clock.note(skew_ms, 0)
    assert clock.ahead_ms == -skew_ms
    assert not clock.note(skew_ms, 1)


def test_a_lower_measurement_is_better_and_counts_at_once(clock):
    clock.note(90_000, 0)
    assert clock.note(80_000, 1)
    assert clock.ahead_ms == -80_000


def test_a_higher_measurement_may_be_of_slow_reads_and_has_to_last(clock):
    clock.note(0, 0)
    assert not clock.note(90_000, 1)
    assert not clock.note(90_000, RISE_MS)
    assert clock.ahead_ms == 0
    assert clock.note(90_000, RISE_MS + 1)
    assert clock.ahead_ms == -90_000


def test_a_higher_measurement_that_did_not_last_is_forgotten(clock):
    clock.note(0, 0)
    clock.note(90_000, 1)
    clock.note(0, 2)
    assert not clock.note(90_000, RISE_MS + 1)
