"""The live view on a screen of textual's pilot, with views that the test hands out."""

import io
import os
import re
import sys
from dataclasses import replace

import pytest
from textual.widgets import Static

from koff.cli.live_view import LiveConf, LiveView, run_live_view
from koff.cli.text_table import measure_text
from koff.client import ClusterConf
from koff.errors import ConnectError
from koff.monitor.conf import MonitorConf
from koff.view.cluster_view import MonitorStats, Readiness
from tests.unit.builders import commit
from tests.unit.cli.live_screen import HOSTILE, show, take_view_of_many, wait_for, wait_until
from tests.unit.view.test_causes import Life


@pytest.fixture
def stuck() -> Life:
    life = Life()
    life.pass_s(240, reads={1: 0})
    return life


def test_the_list_shows_status_lag_and_why(stuck):
    async def use(screen, pilot):
        assert "connecting" in screen.text
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "ERR")
        assert "> ERR" in screen.text
        assert "2400" in screen.text
        assert "t-1 stands at offset 3,000" in screen.text

    show(use, size=(160, 24))


def test_enter_opens_the_group_and_escape_goes_back(stuck):
    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "> ERR")
        await pilot.press("enter")
        await wait_for(screen, pilot, "stuck_partition (100% of the lag)")
        await pilot.press("end")
        await wait_for(screen, pilot, "--reset-offsets --dry-run")
        await pilot.press("escape")
        await wait_for(screen, pilot, "> ERR")

    show(use)


def test_typing_filters_and_q_is_then_a_letter(stuck):
    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "> ERR")
        await pilot.press("slash", "q")
        await wait_for(screen, pilot, "no group matches")
        await pilot.press("backspace", "g", "enter")
        await wait_for(screen, pilot, "filter: g")
        assert "> ERR" in screen.text

    show(use)


def test_the_help_names_the_keys():
    async def use(screen, pilot):
        await pilot.press("question_mark")
        await wait_for(screen, pilot, "only groups with a lag, or all")

    show(use, size=(80, 24))


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_the_keys_that_end_it(key, code):
    async def use(screen, pilot):
        await pilot.press(key)

    assert show(use).return_value == code


def test_what_is_not_known_is_said_and_goes_when_it_is_known_again(stuck):
    lost = replace(
        stuck.take_view(),
        readiness=Readiness(False, "not ready: no broker responds"),
        stats=MonitorStats(missing=("the coordinators do not respond",)),
    )

    async def use(screen, pilot):
        screen.views.put(lost)
        await wait_for(screen, pilot, "UTC: not ready: no broker responds; the coordinators")
        assert "! not all is known since " in screen.text
        screen.views.put(stuck.take_view())
        await wait_until(pilot, lambda: "!" not in screen.text)

    show(use)


def test_what_happens_is_told_below_the_list_and_on_the_page_of_the_group(stuck):
    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "> ERR")
        stuck.join({"c": (0, 1, 2, 3)})
        stuck.sample()
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "group g: rebalanced")
        await pilot.press("enter", "end")
        await wait_for(screen, pilot, "What koff saw")

    show(use)


def test_each_line_fits_also_after_the_size_has_changed(stuck):
    def check(screen, width):
        assert max(map(measure_text, screen.text.splitlines())) <= width

    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "PARTITIONS")
        check(screen, 200)
        await pilot.resize_terminal(60, 10)
        await wait_until(pilot, lambda: "PARTITIONS" not in screen.text)
        check(screen, 60)
        assert "ERR" in screen.text
        await pilot.press("enter")
        await wait_for(screen, pilot, "group     g")
        check(screen, 60)

    show(use, size=(200, 50))


def test_the_size_is_that_of_the_terminal_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    seen: dict[str, str] = {}
    monkeypatch.setattr(LiveView, "run", lambda _, **__: seen.update(os.environ))
    assert run_live_view(MonitorConf(ClusterConf("b:1")), 1.0, 1.0, LiveConf("b:1")) == 0
    assert seen
    assert not {"COLUMNS", "LINES"} & seen.keys()


BY_LAG = LiveConf("b:1", sort="lag")


SIZES = [(20, 5), (1, 1), (160, 50), (80, 24)]
MORE_SIZES = [(60, 12), (200, 1), (1, 50), (80, 24)]
KEYS = (
    "enter",
    "down",
    "end",
    "home",
    "pagedown",
    "escape",
    "end",
    "enter",
    "question_mark",
    "escape",
    "s",
    "l",
)


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(MORE_SIZES, marks=pytest.mark.thorough)])
def test_no_name_and_no_size_of_the_terminal_breaks_the_view(sizes):
    async def use(screen, pilot):
        screen.views.put(take_view_of_many())
        await wait_for(screen, pilot, "613 groups")
        rows = [line for line in screen.text.splitlines() if re.match("[> ] UNKNOWN ", line)]
        assert all(shown in line for shown, line in zip(HOSTILE.values(), rows, strict=True))
        for width, height in sizes:
            await pilot.resize_terminal(width, height)
            await pilot.press(*KEYS, *reversed(KEYS))
            await pilot.press("escape", "escape", "home")
            if width >= 20:
                shown = screen.text.split("\n")
                assert max(map(measure_text, shown)) <= width
                assert len(shown) <= max(
                    height, 4
                )  # the head, the columns, a group and the foot are always there
        await wait_for(screen, pilot, "by lag")
        assert screen.app.error is None

    assert show(use, size=(100, 30), conf=BY_LAG).return_value is None


def test_a_line_is_one_line_whatever_textual_takes_for_its_width(stuck):
    """textual takes some characters for wider than koff does, and must not wrap the line."""

    async def use(screen, pilot):
        screen.views.put(take_view_of_many())
        await wait_for(screen, pilot, "613 groups")
        body = screen.app.query_one("#body", Static)

        def is_shown_line_by_line() -> bool:
            wanted = [line[:10] for line in str(body.content).splitlines()]
            blank = [" " * 10] * (body.size.height - len(wanted))  # of a group that would be cut
            shown = [body.render_line(y).text[:10] for y in range(body.size.height)]
            return len(blank) < 3 and shown == wanted + blank

        await wait_until(pilot, is_shown_line_by_line)

    show(use, size=(46, 24))


def test_a_terminal_without_utf_8_shows_no_escape_but_in_names(monkeypatch):
    monkeypatch.setattr(sys, "__stderr__", io.TextIOWrapper(io.BytesIO(), "ascii"))

    async def use(screen, pilot):
        screen.views.put(take_view_of_many())
        await wait_for(screen, pilot, "613 groups")
        assert screen.text.isascii()
        assert max(map(measure_text, screen.text.splitlines())) <= 80
        assert "\\u65e5" in screen.text
        assert "\\u2026" not in screen.text

    show(use, size=(80, 24), conf=BY_LAG)


def test_incidents_are_told_also_of_many_groups():
    life = Life()

    async def use(screen, pilot):
        for number in range(600):
            life.apply([commit(f"other-{number:03}", "idle", 0, 1000, at=life.now_ms)])
        life.tracker.add_samples(ends={("idle", 0): 1000})
        screen.views.put(life.take_view())
        await wait_for(screen, pilot, "601 groups")
        life.pass_s(240, reads={1: 0, 3: 0})
        screen.views.put(life.take_view())
        await wait_for(screen, pilot, "group g: ERR: ")

    show(use, size=(160, 24))


def test_an_error_ends_the_view_and_is_handed_on():
    async def use(screen, pilot):
        screen.views.put(ConnectError("no broker responds"))
        await wait_until(pilot, lambda: screen.app.error is not None)

    assert isinstance(show(use).error, ConnectError)


def test_without_color_nothing_is_styled_with_a_color(stuck, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "> ERR")
        styles = {str(span.style) for span in screen.app.query_one("#body", Static).content.spans}
        assert styles <= {"bold", "reverse"}

    show(use)
