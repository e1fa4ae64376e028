"""What stays in place on the screen of the live view, what moves, and what is said in place."""

import re
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import Static

from koff.cli.live_view import REST_S, LiveConf
from koff.lag import Reason
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.unit.builders import commit
from tests.unit.cli.live_screen import Screen, show, take_view_of_many, wait_for, wait_until
from tests.unit.serve.views import withhold_rows
from tests.unit.view.test_causes import Life


def list_groups(screen: Screen) -> list[str]:
    """The groups in the order of the screen."""
    return re.findall(r"^[> ] (?:ERR|WARN|UNKNOWN|OK) +(\S+)", screen.text, re.MULTILINE)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the view, which moves by hand."""
    moved = SimpleNamespace(now_s=1000.0, time_ns=time.time_ns)
    moved.monotonic = lambda: moved.now_s
    monkeypatch.setattr("koff.cli.live_view.time", moved)
    return moved


@pytest.fixture
def life() -> Life:
    """The group g, which is OK, and before it in the order z, of which not enough is known."""
    life = Life()
    life.apply([commit("z", "idle", 0, 1000, at=life.now_ms)])
    life.tracker.add_samples(ends={("idle", 0): 1000})
    life.pass_s(10)
    return life


@pytest.fixture
def stuck() -> Life:
    life = Life()
    life.pass_s(240, reads={1: 0})
    return life


def test_a_group_that_becomes_worse_moves_but_not_while_the_cursor_is_moved(clock, life):
    async def use(screen, pilot):
        screen.views.put(life.take_view())
        await wait_until(pilot, lambda: list_groups(screen) == ["z", "g"])
        assert "order paused" not in screen.text
        clock.now_s += 60
        await pilot.press("down")
        await wait_for(screen, pilot, "order paused")
        life.pass_s(240, reads={1: 0})
        screen.views.put(life.take_view())
        await wait_for(screen, pilot, "1 ERR")
        assert list_groups(screen) == ["z", "g"]
        clock.now_s += REST_S + 1  # no key was pressed since
        await wait_until(pilot, lambda: list_groups(screen) == ["g", "z"])
        assert "> ERR" in screen.text  # the cursor is on the same group
        assert "order paused" not in screen.text

    show(use)


def test_p_pauses_the_order_and_the_numbers_stay_fresh(clock, life):
    async def use(screen, pilot):
        screen.views.put(life.take_view())
        await wait_until(pilot, lambda: list_groups(screen) == ["z", "g"])
        await pilot.press("p")
        clock.now_s += 60
        life.pass_s(240, reads={1: 0})
        screen.views.put(life.take_view())
        await wait_for(screen, pilot, "2400")
        assert list_groups(screen) == ["z", "g"]
        assert "order paused" in screen.text
        await pilot.press("p")
        await wait_until(pilot, lambda: list_groups(screen) == ["g", "z"])

    show(use)


def test_a_withheld_lag_is_a_dash_with_the_last_that_was_known_and_since_when(clock, life):
    clock.time_ns = lambda: life.now_ms * 1_000_000

    async def use(screen, pilot):
        life.pass_s(240, reads={1: 0})
        screen.views.put(life.take_view())
        await wait_for(screen, pilot, "2400")
        life.pass_s(60, reads={1: 0})
        view = life.take_view()
        places = {("g", "t", partition): Reason.END_NOT_CURRENT for partition in range(4)}
        snapshot = withhold_rows(view.snapshot, places)
        screen.views.put(replace(view, snapshot=snapshot, stats=replace(view.stats, withheld=4)))
        await wait_for(screen, pilot, "1 withheld")
        await wait_for(screen, pilot, "Withheld: 2,900 records waited 30 s ago, when koff last knew. Late")
        await wait_for(screen, pilot, "! not all is known since ")
        (line,) = [line for line in screen.text.splitlines() if re.match(r"[> ] \w+ +g ", line)]
        assert line.split()[3 if line[0] == ">" else 2] == "-"
        await pilot.press("enter")
        await wait_for(screen, pilot, "why       Withheld: 2,900 records waited")

    show(use, size=(100, 40))


def test_a_cluster_of_which_nothing_is_known_has_no_count_that_is_zero():
    view = ClusterView(
        "c", Tracker().take_snapshot(), Readiness(False, "not ready: no broker"), MonitorStats()
    )

    async def use(screen, pilot):
        screen.views.put(view)
        await wait_for(screen, pilot, "groups unknown")
        assert not re.search(r"\b0\b", screen.text)
        assert "no group is known" in screen.text

    show(use)


def test_the_live_page_of_one_group_has_no_list_behind_it(stuck):
    async def use(screen, pilot):
        assert "nothing is known of group g at present" in screen.text
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "why       Stuck: t-1 stands at offset 3,000")
        await pilot.press("escape", "s", "slash", "question_mark")
        await wait_for(screen, pilot, "pause the order")
        await pilot.press("escape")
        await wait_for(screen, pilot, "group     g")
        assert "esc back" not in screen.text

    show(use, conf=LiveConf("b:1", is_selected="g".__eq__, group="g"), size=(160, 50))


@pytest.mark.parametrize("size", [(60, 10), (80, 24), (200, 50)])
def test_the_groups_are_whole_and_the_cursor_is_on_the_screen_wherever_it_is(size):
    async def use(screen, pilot):
        screen.views.put(take_view_of_many())
        await wait_for(screen, pilot, "613 groups")
        for key in ("end", "up", "pageup", "home", "pagedown", "down"):
            await pilot.press(key)
            rows = list_rows(screen)
            assert [row[0][0] for row in rows].count(">") == 1
            assert len({len(row) for row in rows}) == 1  # all have the same sentence, whole or with a sign
            assert sum(map(len, rows)) >= size[1] - 10

    show(use, size=size)


def list_rows(screen: Screen) -> list[list[str]]:
    """The lines of each group."""
    rows: list[list[str]] = []
    for line in str(screen.app.query_one("#body", Static).content).splitlines()[1:]:
        if re.match(r"[> ] (ERR|WARN|UNKNOWN|OK) ", line):
            rows.append([])
        rows[-1].append(line)
    return rows


def test_what_has_not_changed_is_not_drawn_again(stuck, monkeypatch):
    async def use(screen, pilot):
        screen.views.put(stuck.take_view())
        await wait_for(screen, pilot, "> ERR")
        body = screen.app.query_one("#body", Static)
        drawn: list[Any] = []
        update = body.update

        def update_and_note(text: Any) -> None:  # what is shown changes: else the clock would draw it again
            drawn.append(text)
            update(text)

        monkeypatch.setattr(body, "update", update_and_note)
        await pilot.press("up", "f5", "home")
        assert drawn == []
        await pilot.press("question_mark")
        assert len(drawn) == 1

    show(use)
