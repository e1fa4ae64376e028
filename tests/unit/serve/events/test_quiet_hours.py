"""Hours in which notices are held back."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from koff.serve.events.quiet_hours import QuietHours


def hold(hours: str, *local: str, zone: str = "UTC") -> list[bool]:
    """Whether these hours hold back notices at these times. The 21st of November 2026 is a Saturday."""
    found = QuietHours.parse(hours)
    assert str(found) == hours
    times = [datetime.fromisoformat(f"2026-{each}").replace(tzinfo=ZoneInfo(zone)) for each in local]
    return [found.hold(time.timestamp()) for time in times]


def test_hours_begin_with_their_first_minute_and_end_before_their_last():
    found = hold("09:00-17:30", "11-21T08:59:59", "11-21T09:00", "11-21T17:29:59", "11-21T17:30")
    assert found == [False, True, True, False]


def test_hours_may_reach_into_the_next_day():
    times = ("11-21T21:59", "11-21T22:00", "11-22T06:59", "11-22T07:00", "11-22T12:00")
    assert hold("22:00-07:00", *times) == [False, True, True, False, False]


def test_hours_are_of_the_day_on_which_they_begin():
    times = ("11-21T06:00", "11-21T22:00", "11-22T06:00", "11-22T22:00", "11-23T06:00")
    assert hold("sat 22:00-07:00", *times) == [False, True, True, False, False]
    assert hold("sat,sun 22:00-07:00", *times) == [False, True, True, True, True]


@pytest.mark.parametrize("whole", ["sat,sun 00:00-24:00", "sat,sun 00:00-00:00"])
def test_days_may_be_whole(whole):
    times = ("11-20T23:59", "11-21T00:00", "11-22T23:59", "11-23T00:00")
    assert hold(whole, *times) == [False, True, True, False]


def test_a_time_zone_keeps_its_own_summer_time():
    berlin = "22:00-07:00 Europe/Berlin"
    assert hold(berlin, "01-10T20:59", "01-10T21:00", "07-10T19:59", "07-10T20:00") == [
        *(False, True),
        *(False, True),
    ]
    assert hold(berlin, "03-29T02:30", "10-25T02:30", "10-25T07:00", zone="Europe/Berlin") == [
        *(True, True),
        False,
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("at night", "must be "),
        ("22-7", "must be "),
        ("24:01-07:00", "has a time that no day has"),
        ("22:00-07:60", "has a time that no day has"),
        ("sat,someday 22:00-07:00", "has the day 'someday': use mon, tue,"),
        ("22:00-07:00 Europe", "has the time zone 'Europe'"),
        ("22:00-07:00 Nowhere/At_all", "has the time zone"),
        ("22:00-07:00 ../../etc/passwd", "has the time zone"),
    ],
)
def test_what_is_no_time_is_refused(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        QuietHours.parse(text)
