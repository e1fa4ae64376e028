"""The page on narrow and wide screens, in light and dark: what fits, what can be touched, what axe finds."""

from pathlib import Path

import pytest

from tests.chromium import Tab
from tests.unit.serve.page.shown import open_page

AXE = (Path(__file__).parents[3] / "axe" / "axe.min.js").read_text()
ADDRESSES = ("", "/#/group/d/g", "/#/events", "/#/topics", "/#/topic/c/t", "/#/clusters")
WIDTHS = (320, 360, 768, 1024, 1440)
OPEN_ALL = (
    "document.querySelectorAll('details').forEach((each) => (each.open = true));"
    "document.querySelector('[data-more]')?.click()"
)
SMALL = (
    "[...document.querySelectorAll('button, select, summary, input, nav a, #strip a, .name a, .then')]"
    ".filter((each) => each.checkVisibility())"
    ".map((each) => (each.type === 'checkbox' ? each.closest('label') : each))"
    ".filter((each) => { const { width, height } = each.getBoundingClientRect();"
    " return width < 43.9 || height < 43.9; }).map((each) => each.outerHTML)"
)


MORE = "Math.max(0, ...[...document.querySelectorAll('td.more')].map((e) => e.getBoundingClientRect().right))"


def resize(tab: Tab, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    tab.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")


@pytest.fixture(params=["light", "dark"])
def colors(request):
    return str(request.param)


@pytest.fixture(params=ADDRESSES)
def opened(request, tab, page, colors):
    """A view of the page with all that can be opened in it."""
    open_page(tab, f"{page}{request.param}", colors=colors, width=WIDTHS[0])
    tab.evaluate(OPEN_ALL)
    yield f"{page}{request.param}"
    assert tab.complaints(page) == []


def test_everything_fits_and_is_large_enough_to_touch(tab, opened):
    for width in WIDTHS:
        resize(tab, width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, width
        assert tab.evaluate(MORE) <= width, width
        assert tab.evaluate(SMALL) == [], width


def test_axe_finds_nothing(tab, opened):
    tab.evaluate(f"(() => {{ {AXE}; }})()")
    for width in WIDTHS:
        resize(tab, width)
        found = tab.evaluate(
            "axe.run().then((run) => run.violations"
            ".map((each) => [each.id, each.nodes.map((node) => node.html)]))"
        )
        assert found == [], width


def test_axe_finds_nothing_in_the_help(tab, page, colors):
    open_page(tab, page, colors=colors)
    tab.evaluate("document.getElementById('keys').click()")
    tab.evaluate(f"(() => {{ {AXE}; }})()")
    assert tab.evaluate("axe.run().then((run) => run.violations.map((each) => each.id))") == []


def test_nothing_moves_for_those_who_want_no_motion(tab, page):
    open_page(tab, page)
    moving = "document.getElementById('skeleton').hidden = false; document.getAnimations().length"
    assert tab.evaluate(moving) > 0
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert tab.evaluate(moving) == 0
