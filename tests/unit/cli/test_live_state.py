"""The keys of the live view."""

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
    ("keys", "cursor"),
    [
        ((), 0),
        (("down",), 1),
        (("up",), 0),
        (("pagedown",), 4),
        (("end",), 9),
        (("end", "down"), 9),
        (("end", "home"), 0),
        (("end", "k", "k", "j"), 8),
        (("end", "pageup"), 5),
    ],
)
def test_the_cursor_moves_within_the_list(keys, cursor):
    assert press(*keys).window.cursor == cursor


@pytest.mark.parametrize(
    ("window", "heights", "height", "shown"),
    [
        (Window(0, 0), [1] * 10, 4, (0, 4)),
        (Window(0, 4), [1] * 10, 4, (1, 4)),  # the cursor takes the window along
        (Window(3, 2), [1] * 10, 4, (2, 4)),
        (Window(0, 2), [2] * 10, 5, (1, 2)),  # a row that would be cut is not shown
        (Window(0, 3), [2, 1, 2, 1, 2], 4, (1, 3)),
        (Window(8, 9), [2] * 10, 8, (6, 4)),  # the end of the list is at the end of the screen
        (Window(7, 8), [2] * 10, 8, (6, 4)),
        (Window(0, 2), [2] * 3, 8, (0, 3)),
        (Window(0, 1), [1, 9, 1], 4, (1, 1)),  # more than the screen
        (Window(0, 0), [], 4, (0, 1)),
    ],
)
def test_the_window_shows_whole_rows_and_the_one_with_the_cursor(window, heights, height, shown):
    settled, rows = window.settle(heights, 0, height)
    assert (settled.top, rows) == shown
    assert settled.cursor == window.cursor


def test_a_settled_window_stays_and_so_does_one_of_which_only_a_part_is_measured():
    settled, rows = Window(10, 12).settle([2] * 20, 5, 9)
    assert settled.settle([2] * 20, 5, 9) == (settled, rows) == (Window(10, 12), 4)


def test_the_cursor_stays_with_its_group_while_the_order_changes():
    state = press("down", "down")
    assert state.follow(NAMES[::-1]).window.cursor == 7
    assert state.follow(["g0"]).window.cursor == 0


def test_the_first_line_is_followed_whatever_group_is_worst():
    assert press("down", "up").follow(NAMES[::-1]).window.cursor == 0


@pytest.mark.parametrize("height", [-3, 0, 1, 50])
def test_a_list_of_any_size_fits_a_screen_of_any_height(height):
    for names in ([], ["a"], NAMES):
        for key in ("end", "pagedown", "home", "pageup", "enter"):
            window = press("down", key, screen=Screen(names, height)).window
            assert 0 <= window.cursor < max(len(names), 1)


def test_p_pauses_the_order_until_it_is_pressed_again():
    assert press("p").is_paused
    assert not press("p", "p").is_paused


def test_keys_of_the_list_do_nothing_on_a_page():
    opened = press("enter")
    assert press("s", "p", "l", "slash", state=opened) == opened


def test_escape_does_not_leave_the_page_of_the_only_group():
    state = LiveState(home="group", page="group", opened="g")
    assert press("escape", "backspace", state=state) == state
    assert press("question_mark", "escape", state=state) == state


def test_s_goes_through_all_orders():
    assert [press(*["s"] * number).sort for number in range(5)] == ["worst", "lag", "time", "name", "worst"]


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


@pytest.mark.parametrize(
    ("keys", "page"),
    [
        (("question_mark",), "help"),
        (("question_mark", "question_mark"), "groups"),
        (("question_mark", "escape"), "groups"),
        (("enter",), "groups"),  # nothing is opened in an empty list
    ],
)
def test_the_help_opens_and_closes_also_of_an_empty_list(keys, page):
    assert press(*keys, screen=Screen([], 4)).page == page


def test_a_key_without_a_meaning_changes_nothing():
    assert press("f5", "x") == LiveState()
