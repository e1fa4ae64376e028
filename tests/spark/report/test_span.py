"""The page says and shows only what has data."""

from __future__ import annotations

import pytest

from koff.spark.report.charts import find_data_span
from koff.spark.report.page import column_heading, render_page
from koff.spark.report.period import Period
from koff.spark.report.queries import TABLES
from koff.spark.report.sections import SECTIONS
from koff.spark.report.words import Numbers

HOUR_MS = 3_600_000
WEEK = Period(1_772_000_000_000 // HOUR_MS * HOUR_MS, 1_772_000_000_000 // HOUR_MS * HOUR_MS + 168 * HOUR_MS)


def make_numbers() -> Numbers:
    """The numbers of a report without any event."""
    numbers: Numbers = {name: [] for name in TABLES}
    totals = ("groups", "clusters", "largest_lag", "longest_s", "consumed", "lost", "losing_groups")
    numbers["summary"] = [dict.fromkeys(totals, 0)]
    numbers["changes_total"] = numbers["resets_total"] = [{"groups": 0, "events": 0}]
    return numbers


def make_idle() -> dict[str, object]:
    return {
        "cluster": "c",
        "group": "g",
        "kind": "silent",
        "type": "classic",
        "state": "Empty",
        "members": 0,
        "lag": 5,
        "commit_ms": WEEK.since_ms,
        "changed_ms": None,
        "silent_h": 36.0,
    }


def test_the_time_axis_is_that_of_the_data() -> None:
    numbers = make_numbers()
    assert find_data_span(numbers, WEEK) == (WEEK.since_ms, WEEK.until_ms)
    for hours in (30, 35):
        row = {"step_ms": WEEK.since_ms + hours * HOUR_MS, "cluster": "c", "group": "g", "lag": 1}
        numbers["lag_over_time"].append(row)
    begin, end = find_data_span(numbers, WEEK)
    assert (begin - WEEK.since_ms, end - WEEK.since_ms) == (30 * HOUR_MS, 36 * HOUR_MS)


def test_sections_without_data_are_a_list_at_the_end() -> None:
    numbers = make_numbers()
    numbers["idle"] = [make_idle()]
    page = render_page(numbers, WEEK, title="t", made_ms=WEEK.until_ms)
    assert [section.table for section in SECTIONS if f'<section id="{section.table}"' in page] == ["idle"]
    assert page.count("<section") == 2
    nothing = page.partition('<section id="nothing"')[2]
    assert nothing.count("<li>") == len({each.empty_text for each in SECTIONS if each.table != "idle"})
    assert '<td class="n bar" data-v="36.0">1 d 12 h</td>' in page
    assert "2026-" in page


@pytest.mark.parametrize(
    ("name", "heading"),
    [("last_ms", "last"), ("longest_s", "longest time lag"), ("silent_h", "silent"), ("lag", "lag")],
)
def test_headings_are_words(name: str, heading: str) -> None:
    assert column_heading(name) == heading
