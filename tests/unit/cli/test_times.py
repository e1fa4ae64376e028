"""Points in time and durations as users write them."""

import time

import pytest

from koff.cli.times import DURATION, when


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31T12:00", 1769860800000),
        ("2026-01-31T12:00:00+01:00", 1769857200000),
        ("1769860800123", 1769860800123),
    ],
)
def test_times_are_iso_8601_in_utc_or_milliseconds(text, ms):
    assert when().parse(text) == ms


def test_times_may_be_relative():
    began_ms = time.time_ns() // 1_000_000
    hour, day = when().parse("-1h"), when().parse("-1d")
    ended_ms = time.time_ns() // 1_000_000
    for found, hours in ((hour, 1), (day, 24)):
        assert began_ms - 1 <= found + hours * 3_600_000 <= ended_ms + 1


def test_a_word_stays_as_it_is():
    assert when("latest").parse("latest") == "latest"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("12h", 43_200), ("90d", 7_776_000), ("7", 7)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text, seconds):
    assert DURATION.parse(text) == seconds


@pytest.mark.parametrize("text", ["never", "-1s", "0", "inf", "nan", "s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        DURATION.parse(text)
