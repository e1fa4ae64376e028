"""The state of the live view, and how each key changes it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from koff.cli.lag_tables import SORTS, Sort

HELP = """\
Keys

  up, down, j, k      choose a group, or scroll
  page up, page down  a screen at once
  home, end           the first, the last
  enter               everything about the chosen group
  escape, backspace   back to the list
  s                   sort by lag, time, status, name
  l                   only groups with a lag, or all
  /                   filter: type parts of the name; enter keeps the filter, escape clears it
  ?                   this help
  q, ctrl-c           quit

STATUS is Burrow's verdict: OK; WARN: the lag grows; ERR: a partition stands still, or went back.
TREND is the lag of the last three minutes. CATCHES UP is when the lag will be gone at the present rates.
WHY is the likely cause of the lag. A dash is a number that is not known."""


class Window(NamedTuple):
    """The part of a list that is on the screen: lines from `top` on, one of them with the cursor."""

    top: int = 0
    cursor: int = 0

    def move(self, lines: int, total: int, height: int) -> Window:
        """The window after the cursor went down by so many lines (up, if negative) in a list of `total`."""
        height = max(height, 1)
        cursor = min(max(self.cursor + lines, 0), max(total - 1, 0))
        top = min(max(self.top, cursor - height + 1), cursor, max(total - height, 0))
        return Window(top, cursor)

    def scroll(self, lines: int, total: int, height: int) -> Window:
        """The window of a text without a cursor, moved down by so many lines (up, if negative)."""
        return Window(min(max(self.top + lines, 0), max(total - height, 0)))


_TOP = Window()


class Screen(NamedTuple):
    """What is on the screen: the names of all groups of the list, or how many lines a text has."""

    names: Sequence[str]
    height: int
    text_lines: int = 0


@dataclass(frozen=True, slots=True)
class LiveState:
    """What the user has chosen. `opened` is the group of which everything is shown."""

    sort: Sort = "lag"
    is_lagging: bool = False
    text: str = ""
    is_typing: bool = False
    page: Literal["groups", "group", "help"] = "groups"
    opened: str = ""
    chosen: str | None = None
    """The group with the cursor: the cursor stays with it while the order changes. None: the first line."""
    window: Window = _TOP
    scrolled: Window = _TOP

    def follow(self, screen: Screen) -> LiveState:
        """The cursor on the chosen group in a new list, or as near as can be."""
        place = self.window.cursor
        if self.chosen is None:
            place = 0
        elif self.chosen in screen.names:
            place = screen.names.index(self.chosen)
        window = self.window.move(place - self.window.cursor, len(screen.names), screen.height)
        return replace(self, window=window)


def press_key(state: LiveState, key: str, character: str | None, screen: Screen) -> LiveState:
    """The state after a key, by textual's name of it. Keys without a meaning change nothing."""
    if state.is_typing:
        return _type_filter(state, key, character)
    if key in _MOVES:
        return _move(state, _MOVES[key], screen)
    if action := _ACTIONS.get(key):
        return action(state, screen)
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
_MOVES: dict[str, Callable[[int], int]] = {
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
    window = state.window.move(lines, len(screen.names), screen.height)
    # On the first line, the cursor stays there: who looks at the worst group wants the worst.
    chosen = screen.names[window.cursor] if screen.names and window.cursor else None
    return replace(state, window=window, chosen=chosen)


def _open(state: LiveState, screen: Screen) -> LiveState:
    if state.page != "groups" or not screen.names:
        return state
    name = screen.names[min(state.window.cursor, len(screen.names) - 1)]
    return replace(state, page="group", opened=name, chosen=name, scrolled=_TOP)


def _go_back(state: LiveState, screen: Screen) -> LiveState:
    if state.page != "groups":
        return replace(state, page="groups")
    return replace(state, text="", chosen=None) if state.text else state


def _sort_next(state: LiveState, screen: Screen) -> LiveState:
    return replace(state, sort=SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)], chosen=None)


_ACTIONS: dict[str, Callable[[LiveState, Screen], LiveState]] = {
    "enter": _open,
    "escape": _go_back,
    "backspace": _go_back,
    "s": _sort_next,
    "l": lambda state, screen: replace(state, is_lagging=not state.is_lagging, chosen=None),
    "slash": lambda state, screen: replace(state, is_typing=True, page="groups"),
    "question_mark": lambda state, screen: replace(
        state, page="groups" if state.page == "help" else "help", scrolled=_TOP
    ),
}
