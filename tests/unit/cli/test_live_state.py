"""The keys of the live view."""

from __future__ import annotations

import pytest

from koff.cli.live_state import LiveState, Screen, Window, press_key

NAMES = [f"g{number}" for number in range(10)]
SCREEN = Screen(NAMES, 4, text_lines=20)


def press(*keys: str, state: LiveState | None = None, screen: Screen = SCREEN) -> LiveState:
    state = state or LiveState()
    for key in keys:
        state = press_key(state, key, key if len(key) == 1 else None, screen)
    return state


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ((), (0, 0)),
        (("down",), (0, 1)),
        (("up",), (0, 0)),
        (("down",) * 4, (1, 4)),
        (("pagedown",), (1, 4)),
        (("end",), (6, 9)),
        (("end", "down"), (6, 9)),
        (("end", "home"), (0, 0)),
        (("end", "k", "k", "k", "k"), (5, 5)),
    ],
)
def test_the_cursor_moves_within_the_list_and_takes_the_window_along(keys, window):
    assert press(*keys).window == window


def test_the_cursor_stays_with_its_group_while_the_order_changes():
    state = press("down", "down")
    assert state.follow(Screen(NAMES[::-1], 4)).window == Window(4, 7)
    assert state.follow(Screen(["g0"], 4)).window == Window(0, 0)


def test_the_first_line_is_followed_whatever_group_is_worst():
    assert press("down", "up").follow(Screen(NAMES[::-1], 4)).window == Window(0, 0)


@pytest.mark.parametrize("height", [-3, 0, 1, 50])
def test_a_list_of_any_size_fits_a_screen_of_any_height(height):
    for names in ([], ["a"], NAMES):
        for key in ("end", "pagedown", "home", "pageup", "enter"):
            window = press("down", key, screen=Screen(names, height)).window
            assert 0 <= window.top <= window.cursor < max(len(names), 1)


def test_s_goes_through_all_orders():
    assert [press(*["s"] * number).sort for number in range(5)] == ["lag", "time", "status", "name", "lag"]


def test_a_filter_is_typed_and_kept_or_cleared():
    assert press("slash", "q", "s", "x", "backspace").text == "qs"
    kept = press("slash", "a", "enter")
    assert (kept.text, kept.is_typing) == ("a", False)
    assert press("escape", state=kept).text == ""
    cleared = press("slash", "a", "escape")
    assert (cleared.text, cleared.is_typing) == ("", False)


def test_enter_opens_the_chosen_group_and_escape_goes_back():
    opened = press("down", "enter")
    assert (opened.page, opened.opened) == ("group", "g1")
    assert press("pagedown", "down", state=opened).scrolled.top == 5
    assert press("end", state=opened).scrolled.top == 16
    assert press("escape", state=opened).page == "groups"
    assert press("escape", state=opened).window.cursor == 1


def test_nothing_is_opened_in_an_empty_list():
    assert press("enter", screen=Screen([], 4)).page == "groups"


def test_the_help_opens_and_closes():
    assert press("question_mark").page == "help"
    assert press("question_mark", "question_mark").page == "groups"
    assert press("question_mark", "escape").page == "groups"


def test_a_key_without_a_meaning_changes_nothing():
    assert press("f5", "x") == LiveState()
