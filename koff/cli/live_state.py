"""The state of the live view, and how each key changes it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from koff.cli.group_order import SORTS, Sort

HELP = """\
Keys

  up, down, j, k      choose a group, or scroll
  page up, page down  a screen at once
  home, end           the first, the last
  enter               everything about the chosen group
  escape, backspace   back to the list
  s                   sort: the worst first, or by lag, time, name
  p                   pause the order, or go on: the numbers stay fresh
  l                   only groups with a lag, or all
  /                   filter: parts of the name, or ERR, WARN, ...; enter keeps it, escape clears it
  ?                   this help
  q, ctrl-c           quit

STATUS is the verdict: OK; WARN: late, it may recover by itself; ERR: it will not recover by itself, or
records are lost; UNKNOWN: koff does not know how late it is. TREND is the lag of the last three minutes.
CATCHES UP is when the lag will be gone at the present rates. A dash is a number that is not known.
Times are UTC. A row moves when its verdict changes, every ten seconds at most, and not while you move
the cursor."""


class Window(NamedTuple):
    """The part of a list that is on the screen: lines or rows from `top` on, one of them with the cursor."""

    top: int = 0
    cursor: int = 0

    def move(self, rows: int, total: int) -> Window:
        """The window after the cursor went down by so many rows (up, if negative) in a list of `total`."""
        return Window(self.top, min(max(self.cursor + rows, 0), max(total - 1, 0)))

    def settle(self, heights: Sequence[int], first: int, height: int) -> tuple[Window, int]:
        """The window on a screen of `height` lines, and how many rows are on it: all rows are whole.

        `heights` are the lines of the rows from `first` on: of all rows that may be on the screen.
        """
        top = last = self.cursor - first
        left = height - heights[top] if heights else 0

        def fits(row: int) -> bool:
            nonlocal left
            if not 0 <= row < len(heights) or heights[row] > left:
                return False
            left -= heights[row]
            return True

        while top > self.top - first and fits(top - 1):
            top -= 1
        while fits(last + 1):
            last += 1
        while last + 1 == len(heights) and fits(top - 1):  # the end of the list is at the end of the screen
            top -= 1
        return Window(first + top, self.cursor), last - top + 1

    def scroll(self, lines: int, total: int, height: int) -> Window:
        """The window of a text without a cursor, moved down by so many lines (up, if negative)."""
        return Window(min(max(self.top + lines, 0), max(total - height, 0)))


_TOP = Window()


class Screen(NamedTuple):
    """What is on the screen: the names of all groups of the list, or how many lines a text has.

    `height` is how many groups, or lines of the text, are on the screen at once.
    """

    names: Sequence[str]
    height: int
    text_lines: int = 0


Page = Literal["groups", "group", "help"]


@dataclass(frozen=True, slots=True)
class LiveState:
    """What the user has chosen. `opened` is the group of which everything is shown.

    `home` is the page to which escape returns.
    """

    sort: Sort = "worst"
    is_lagging: bool = False
    is_paused: bool = False
    text: str = ""
    is_typing: bool = False
    home: Page = "groups"
    page: Page = "groups"
    opened: str = ""
    chosen: str | None = None
    """The group with the cursor: the cursor stays with it while the order changes. None: the first line."""
    window: Window = _TOP
    scrolled: Window = _TOP

    def follow(self, names: Sequence[str]) -> LiveState:
        """The cursor on the chosen group in a new list, or as near as can be."""
        place = self.window.cursor
        if self.chosen is None:
            place = 0
        elif self.chosen in names:
            place = names.index(self.chosen)
        return replace(self, window=self.window.move(place - self.window.cursor, len(names)))


def press_key(state: LiveState, key: str, character: str | None, screen: Screen) -> LiveState:
    """The state after a key, by textual's name of it. Keys without a meaning change nothing."""
    if state.is_typing:
        return _type_filter(state, key, character)
    if key in MOVES:
        return _move(state, MOVES[key], screen)
    if action := _ACTIONS.get(key):
        return action(state, screen)
    if state.page == "groups" and (choose := _CHOICES.get(key)):
        return choose(state)
    return state


def _type_filter(state: LiveState, key: str, character: str | None) -> LiveState:
    match key:
        case "enter":
            return replace(state, is_typing=False)
        case "escape":
            return replace(state, is_typing=False, text="")
        case "backspace":
            return replace(state, text=state.text[:-1])
        case _ if character and character.isprintable():
            return replace(state, text=state.text + character, chosen=None)
        case _:
            return state


_END = 10**9
MOVES: dict[str, Callable[[int], int]] = {
    "up": lambda height: -1,
    "k": lambda height: -1,
    "down": lambda height: 1,
    "j": lambda height: 1,
    "pageup": lambda height: -height,
    "pagedown": lambda height: height,
    "home": lambda height: -_END,
    "end": lambda height: _END,
}
"""How far a key moves, by the height of the list."""


def _move(state: LiveState, measure: Callable[[int], int], screen: Screen) -> LiveState:
    lines = measure(max(screen.height, 1))
    if state.page != "groups":
        return replace(state, scrolled=state.scrolled.scroll(lines, screen.text_lines, screen.height))
    window = state.window.move(lines, len(screen.names))
    # On the first line, the cursor stays there: who looks at the worst group wants the worst.
    chosen = screen.names[window.cursor] if screen.names and window.cursor else None
    return replace(state, window=window, chosen=chosen)


def _open(state: LiveState, screen: Screen) -> LiveState:
    if state.page != "groups" or not screen.names:
        return state
    name = screen.names[min(state.window.cursor, len(screen.names) - 1)]
    return replace(state, page="group", opened=name, chosen=name, scrolled=_TOP)


def _go_back(state: LiveState, _screen: Screen) -> LiveState:
    if state.page != "groups":
        return replace(state, page=state.home)
    return replace(state, text="", chosen=None) if state.text else state


def _toggle_help(state: LiveState, _screen: Screen) -> LiveState:
    return replace(state, page=state.home if state.page == "help" else "help", scrolled=_TOP)


_ACTIONS: dict[str, Callable[[LiveState, Screen], LiveState]] = {
    "enter": _open,
    "escape": _go_back,
    "backspace": _go_back,
    "question_mark": _toggle_help,
}


def _sort_next(state: LiveState) -> LiveState:
    return replace(state, sort=SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)], chosen=None)


_CHOICES: dict[str, Callable[[LiveState], LiveState]] = {
    "s": _sort_next,
    "p": lambda state: replace(state, is_paused=not state.is_paused),
    "l": lambda state: replace(state, is_lagging=not state.is_lagging, chosen=None),
    "slash": lambda state: replace(state, is_typing=True),
}
"""Keys of the list."""
