"""The lines of the live view."""

from __future__ import annotations

import math
from typing import Any

import pytest

from koff.cli.live_lines import (
    describe_catch_up,
    describe_cluster,
    draw_trend,
    filter_totals,
    fit_encoding,
    format_live_groups,
)
from koff.cli.text_table import measure_text
from koff.lag.verdict import Verdict
from koff.tracker import Group, GroupTotal
from koff.tracker.rows import Pace

UNPACED = Pace(None, None, None, None)
UNKNOWN = math.nan


def total(name: str, **values: Any) -> GroupTotal:
    facts: dict[str, Any] = {
        "lag": 5,
        "partitions": 1,
        "unknown": 0,
        "time_lag_s": 1.5,
        "status": Verdict.OK,
        "pace": UNPACED,
    }
    return GroupTotal(group=Group(name), complete=1.0, **(facts | values))


@pytest.mark.parametrize(
    ("lags", "bars"),
    [
        ([], ""),
        ([0, 0], "▁▁"),
        ([0, 1, 50, 100], "▁▂▅█"),
        ([UNKNOWN, 7], " █"),
        ([UNKNOWN], " "),
        ([100, 0.1], "█▂"),  # a small lag is not none
    ],
)
def test_a_trend_is_bars_up_to_the_largest_lag(lags, bars):
    assert draw_trend(lags) == bars


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("▁▄█ a…b", "utf-8", "▁▄█ a…b"),
        ("▁▄█ a…b", "ascii", "_=@ a~b"),
        ("group 日", "ascii", "group \\u65e5"),
        ("caf\xe9 █", "latin-1", "caf\xe9 @"),
        ("plain", "ascii", "plain"),
    ],
)
def test_a_terminal_without_utf_8_gets_characters_that_it_has(text, encoding, shown):
    assert fit_encoding(text, encoding) == shown


@pytest.mark.parametrize(
    ("pace", "lag", "text"),
    [
        (Pace(1.0, None, 250.0, False), 5, "4 min 10 s"),
        (Pace(1.0, None, None, True), 5, "never"),
        (Pace(1.0, None, 0.0, False), 0, None),
        (UNPACED, 5, None),
    ],
)
def test_when_a_group_will_have_caught_up(pace, lag, text):
    assert describe_catch_up(total("g", pace=pace, lag=lag)) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [("", ["Pay-eu", "pay-us"]), ("PAY", ["Pay-eu", "pay-us"]), ("eu pay", ["Pay-eu"]), ("x", [])],
)
def test_a_filter_is_parts_of_the_name(text, found):
    assert [each.group.name for each in filter_totals([total("Pay-eu"), total("pay-us")], text)] == found


@pytest.mark.parametrize(
    ("age_s", "line"),
    [
        (None, "koff  c  connecting ..."),
        (0.4, "koff  now  c  3 groups: 1 ERR, 2 OK"),
        (75.0, "koff  1 min 15 s old  c  3 groups: 1 ERR, 2 OK"),
    ],
)
def test_the_summary_says_how_many_groups_are_bad_and_how_old_that_is(age_s, line):
    totals = [total("a"), total("b", status=Verdict.ERR), total("c")]
    assert describe_cluster("c", totals, age_s, 80) == line


@pytest.mark.parametrize("width", [58, 78, 158])
def test_each_line_fits_the_terminal_and_begins_with_the_status(width):
    totals = [
        total("a" * 200, status=Verdict.ERR, lag=10**12),
        total("日本語のグループ" * 9, status=Verdict.WARN),
        total("\x1b[2Jevil"),
    ]
    header, lines = format_live_groups(totals, {}, {"a" * 200: [1.0, 2.0]}, width)
    assert [measure_text(line) <= width for line in [header, *lines]] == [True] * 4
    assert [line.split()[0] for line in lines] == ["ERR", "WARN", "OK"]
    assert all(title in header for title in ("STATUS", "GROUP", "LAG", "WHY"))
    assert all(line.isprintable() for line in lines)


def test_a_wide_terminal_has_all_columns():
    header, (line,) = format_live_groups([total("g")], {}, {"g": [1.0, 2.0]}, 158)
    titles = header.replace("CATCHES UP", "CATCHES_UP").split()
    assert titles == ["STATUS", "GROUP", "LAG", "TREND", "SECONDS", "CATCHES_UP", "STATE", "MEMBERS", "WHY"]
    assert "▅█" in line
