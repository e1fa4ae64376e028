"""The report's page in a real browser, in light and dark."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koff.spark.report import write_report
from koff.spark.report.period import Period, format_span
from koff.spark.report.sections import SECTIONS
from koff.spark.report.words import clean_name, format_count, list_first
from tests.chromium import Tab, browser
from tests.chromium import found as chromium
from tests.spark.report.conftest import PERIOD

pytestmark = pytest.mark.timeout(600)  # the first waits for Spark, the tables and the report
_FIGURES = """
[...document.querySelectorAll("figure")].map((figure) => {
  const canvas = figure.querySelector("canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = new Set();
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at + 3] === 255) colors.add(pixels.slice(at, at + 3).join());
  }
  const text = figure.querySelector("[role=img]").ariaLabel;
  return { title: figure.querySelector("figcaption").innerText, text, colors: [...colors] };
})
"""


@pytest.fixture(scope="module")
def page(found: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    [path] = write_report(found, PERIOD, out=tmp_path_factory.mktemp("report") / "report.html", form="html")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if chromium() is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def read_charts(page: Path) -> list[dict[str, Any]]:
    found = re.search(r'id="charts">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    charts: list[dict[str, Any]] = json.loads(found[1])
    return charts


@pytest.mark.parametrize(("style", "grid"), [("light", "217,221,226"), ("dark", "51,58,65")])
def test_every_chart_is_drawn_in_the_colours_of_the_reader(
    page: Path, tab: Tab, style: str, grid: str, tmp_path: Path
) -> None:
    tab.open(page, colors=style)
    figures = tab.evaluate(_FIGURES)
    assert [(each["title"], each["text"]) for each in figures] == [
        (chart["title"], chart["text"]) for chart in read_charts(page)
    ]
    for figure in figures:
        assert len(figure["text"]) > 30
        assert grid in figure["colors"]
        assert len(figure["colors"]) > 10
    keep = Path(os.environ.get("KOFF_TEST_SCREENSHOTS", tmp_path))
    (keep / f"report-{style}.png").write_bytes(tab.screenshot())
    assert tab.complaints() == []


def test_each_section_with_data_is_shown_with_a_chart_or_with_bars(page: Path, tab: Tab) -> None:
    tab.open(page, colors="light")
    shown = tab.evaluate("[...document.querySelectorAll('main section h2')].map((each) => each.innerText)")
    assert shown == [each.title for each in SECTIONS]
    part = "(each) => parseFloat(each.style.getPropertyValue('--part'))"
    parts = tab.evaluate(f"[...document.querySelectorAll('td.bar')].map({part})")
    known = [part for part in parts if part is not None]
    assert 0 <= min(known) < 50 < max(known) == 100
    assert len(known) > len(parts) / 2


def test_a_chart_has_the_values_of_its_groups(page: Path, found: dict[str, Any]) -> None:
    lag = read_charts(page)[0]
    worst = found["worst_by_lag"][0]
    series = {each["label"]: each["values"] for each in lag["series"]}
    assert next(iter(series)) == worst["group"]
    assert list(series)[-1] == "all others"
    assert max(series[worst["group"]]) == worst["largest_lag"]
    assert all(len(values) == len(lag["times"]) == 7 * 24 for values in series.values())
    ended = series["old-etl"]  # deleted on the sixth day: its line ends
    assert ended[5 * 24 - 1] is not None
    assert ended[5 * 24 :] == [None] * 48


@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_is_never_wider_than_the_window(page: Path, tab: Tab, width: int) -> None:
    tab.open(page, colors="light", width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []


def test_names_that_clients_chose_are_only_ever_text(found: dict[str, Any], tab: Tab, tmp_path: Path) -> None:
    wicked = '</script><script>alert(1)</script>$\\frac{"&\x00\u202e\u6f22'
    found = copy.deepcopy(found)
    for rows in found.values():
        for row in rows:
            if row.get("group") == "search-index":
                row["group"] = wicked
    [path] = write_report(found, PERIOD, out=tmp_path / "report.html", form="html")
    tab.open(path, colors="dark")
    assert tab.evaluate("document.scripts.length") == 2  # the data, and koff's own
    assert len(tab.evaluate(_FIGURES)) == len(read_charts(path))
    assert wicked.replace("\x00", "?").replace("\u202e", "?") == tab.evaluate(
        "document.querySelector('.wide td:nth-child(2)').textContent"
    )
    assert tab.complaints() == []


_HEADING = "document.querySelector('#worst_by_lag .wide th:nth-child({}) button')"
_ROWS = "[...document.querySelector('#worst_by_lag .wide table').tBodies[0].rows]"
_COLUMN = _ROWS + ".map(row => row.cells[{}].dataset.v)"


def test_a_click_on_a_heading_sorts_the_table(page: Path, tab: Tab) -> None:
    tab.open(page, colors="light")
    column = tab.evaluate(
        "[...document.querySelectorAll('#worst_by_lag .wide table')[0].tHead.rows[0].cells]"
        ".findIndex(each => each.textContent === 'largest lag')"
    )
    before = [float(value) for value in tab.evaluate(_COLUMN.format(column))]
    assert len(set(before)) > 2
    button = _HEADING.format(column + 1)
    tab.evaluate(f"{button}.click()")
    assert [float(value) for value in tab.evaluate(_COLUMN.format(column))] == sorted(before, reverse=True)
    tab.evaluate(f"{button}.click()")
    assert [float(value) for value in tab.evaluate(_COLUMN.format(column))] == sorted(before)
    assert tab.evaluate(f"{button}.parentNode.getAttribute('aria-sort')") == "ascending"
    tab.evaluate(f"{_HEADING.format(2)}.click()")  # a column of names, from A on
    names = tab.evaluate(_COLUMN.format(1).replace("dataset.v", "textContent"))
    assert names == sorted(names)
    assert tab.complaints() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_count(None), "-"),
        (format_count(0), "0"),
        (format_count(1234), "1.23 k"),
        (format_count(999_999), "1,000 k"),
        (format_count(7_751_238), "7.75 M"),
        (format_span(1_800_000), "30 min"),
        (format_span(7_200_000), "2 h"),
        (clean_name(""), '""'),
        (list_first(["a", "b", "c", "d"]), "a, b, c and 1 more"),
    ],
)
def test_numbers_and_names_are_short_for_people(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("days", "step_s"), [(1 / 24, 60), (1, 600), (7, 3600), (30, 14_400), (365, 172_800)]
)
def test_a_period_has_at_most_two_hundred_steps(days: float, step_s: int) -> None:
    period = Period(0, int(days * 86_400_000))
    assert period.step_ms >= days * 86_400_000 / 200
    assert period.step_ms <= step_s * 1000
