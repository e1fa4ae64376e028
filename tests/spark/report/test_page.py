"""The report's page in a real browser, in light and dark."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs koff[spark]")

from PIL import Image

from koff.spark.report import write_report
from koff.spark.report.charts import DARK, LIGHT, STYLES, Style, format_count, format_duration, shorten_name
from koff.spark.report.period import Period, format_span
from koff.spark.report.sections import SECTIONS
from tests.chromium import Tab, browser
from tests.chromium import found as chromium
from tests.spark.report.conftest import PERIOD

pytestmark = pytest.mark.timeout(600)  # the first waits for Spark, the tables and the report
FIGURES = sum(len(section.pictures) for section in SECTIONS)
_IMAGES = """
Promise.all([...document.images].map(image => image.decode().then(() => {
  const box = image.getBoundingClientRect();
  return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, alt: image.alt};
})))
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


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_every_figure_is_drawn_in_the_colours_of_the_reader(
    page: Path, tab: Tab, style: Style, tmp_path: Path
) -> None:
    tab.open(page, colors=style.name)
    images: list[dict[str, Any]] = tab.evaluate(_IMAGES)
    assert len(images) == FIGURES
    for image in images:
        assert len(image.pop("alt")) > 30
        shot = Image.open(io.BytesIO(tab.screenshot(image))).convert("RGB")
        counted: Any = shot.getcolors(shot.width * shot.height)
        colors = sorted(counted, reverse=True)
        assert "#%02x%02x%02x" % colors[0][1] == style.back  # noqa: UP031 - of a tuple
        assert len(colors) > 20
    keep = Path(os.environ.get("KOFF_TEST_SCREENSHOTS", tmp_path))
    (keep / f"report-{style.name}.png").write_bytes(tab.screenshot())
    assert tab.complaints() == []


@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_is_never_wider_than_the_window(page: Path, tab: Tab, width: int) -> None:
    tab.open(page, colors="light", width=width)
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []


def test_names_that_clients_chose_are_only_ever_text(found: dict[str, Any], tab: Tab, tmp_path: Path) -> None:
    wicked = '<script>alert(1)</script>$\\frac{"&\x00\u202e\u6f22'
    found = copy.deepcopy(found)
    for rows in found.values():
        for row in rows:
            if row.get("group") == "search-index":
                row["group"] = wicked
    [path] = write_report(found, PERIOD, out=tmp_path / "report.html", form="html")
    tab.open(path, colors="dark")
    assert tab.evaluate("document.scripts.length") == 1  # koff's own
    assert len(tab.evaluate(_IMAGES)) == FIGURES
    assert wicked.replace("\x00", "?").replace("\u202e", "?") == tab.evaluate(
        "document.querySelector('td:nth-child(2)').textContent"
    )
    assert tab.complaints() == []


_HEADING = "document.querySelector('#worst th:nth-child({}) button')"
_COLUMN = "[...document.querySelectorAll('#worst table')[0].tBodies[0].rows].map(r => r.cells[{}].dataset.v)"


def test_a_click_on_a_heading_sorts_the_table(page: Path, tab: Tab) -> None:
    tab.open(page, colors="light")
    column = tab.evaluate(
        "[...document.querySelectorAll('#worst table')[0].tHead.rows[0].cells]"
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


def test_every_picture_is_written_twice_as_png(found: dict[str, Any], tmp_path: Path) -> None:
    files = write_report(found, PERIOD, out=tmp_path, form="png")
    assert len(files) == 2 * FIGURES
    for path in files:
        with Image.open(path) as image:
            style = DARK if path.stem.endswith("-dark") else LIGHT
            corner: Any = image.convert("RGB").getpixel((2, 2))
            assert "#%02x%02x%02x" % corner == style.back  # noqa: UP031 - of a tuple


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_count(None), "-"),
        (format_count(0), "0"),
        (format_count(1234), "1.23 k"),
        (format_count(999_999), "1,000 k"),
        (format_count(7_751_238), "7.75 M"),
        (format_duration(90), "90 s"),
        (format_duration(7200), "2 h"),
        (format_duration(150), "2.5 min"),
        (format_duration(9 * 86_400), "9 d"),
        (format_span(1_800_000), "30 min"),
        (format_span(7_200_000), "2 h"),
        (shorten_name("a" * 100), "a" * 18 + "…" + "a" * 18),
        (shorten_name(""), '""'),
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
