"""Plain aligned tables for terminals and pipes."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

Cell = str | float | None
Item = TypeVar("Item")
_GAP = "  "
_LEAST_NAME, _LEAST_TEXT = 12, 24
"""A name is shortened to so many columns of the terminal at least; a text at the end to so many."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a table: its title, and the function that gives the cell of an item.

    On a terminal that is too narrow, columns with a `left_out` are left out, the lowest number first. Then
    the cells of names lose their middle.
    """

    title: str
    cell: Callable[[Item], Cell]
    left_out: int = 0
    is_name: bool = False


def format_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """The header and the rows as text that ends in a newline."""
    return format_columns([Column(title, itemgetter(i)) for i, title in enumerate(header)], rows, None)


def format_columns(columns: Sequence[Column[Item]], items: Iterable[Item], width: int | None) -> str:
    """The titles, and a line for each item, as text that ends in a newline.

    Columns of numbers are aligned to the right. None and "" are shown as "-". Where the table is wider than
    `width`, columns are left out and names shortened, and at last the end of each line is cut.
    """
    items = list(items)
    drawn = [_Drawn(column, items) for column in columns]
    if width is not None:
        for each in sorted((d for d in drawn if d.column.left_out), key=lambda d: d.column.left_out):
            if _measure_table(drawn) > width:
                drawn.remove(each)
        _shorten_names(drawn, width)
    lines = [_GAP.join(each.pad(line) for each in drawn).rstrip() for line in range(len(items) + 1)]
    return "".join(f"{line if width is None else cut_end(line, width)}\n" for line in lines)


class _Drawn:
    """A column with the cells of all items, and its width."""

    def __init__(self, column: Column[Any], items: Sequence[Any]) -> None:
        cells = [column.cell(item) for item in items]
        self.column = column
        self.is_number = all(isinstance(cell, int | float | None) for cell in cells)
        self.cells = [column.title, *map(_format_cell, cells)]
        self.width = max(map(measure_text, self.cells))

    def shorten(self, width: int) -> None:
        self.cells = [shorten_middle(cell, width) for cell in self.cells]
        self.width = max(map(measure_text, self.cells))

    def pad(self, line: int) -> str:
        cell = self.cells[line]
        padding = " " * (self.width - measure_text(cell))
        return padding + cell if self.is_number else cell + padding


def _measure_table(drawn: Sequence[_Drawn]) -> int:
    """How wide the table is at least. Of the last column, only a part must fit."""
    widths = [each.width for each in drawn]
    return sum(widths[:-1]) + min(widths[-1], _LEAST_TEXT) + len(_GAP) * (len(widths) - 1)


def _shorten_names(drawn: Sequence[_Drawn], width: int) -> None:
    """Shortens names so that the table fits: the widest first, and not below `_LEAST_NAME`."""
    names = [each for each in drawn if each.column.is_name]
    while names and (excess := _measure_table(drawn) - width) > 0:
        widest = max(names, key=lambda each: each.width)
        if widest.width <= _LEAST_NAME:
            break
        # Not below the next one at once: both are to lose as much.
        others = max((each.width for each in names if each is not widest), default=0)
        widest.width = max(widest.width - excess, _LEAST_NAME, min(others, widest.width - 1))
    for each in names:
        each.shorten(each.width)


def measure_text(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():  # as a rule, and much faster
        return len(text)
    return sum(map(_measure_character, text))


def shorten_middle(text: str, width: int) -> str:
    """The text, or its start and its end if it takes more than `width` columns."""
    if measure_text(text) <= width:
        return text
    start = text[: _count_fitting(text, width // 2)]
    end = _count_fitting(text[::-1], width - 1 - measure_text(start))
    return f"{start}…{text[len(text) - end :]}"


def cut_end(line: str, width: int) -> str:
    """The line, or its start if it takes more than `width` columns."""
    return line if measure_text(line) <= width else f"{line[: _count_fitting(line, width - 1)]}…"


def wrap_text(text: str, width: int, most: int | None = None) -> list[str]:
    """The text in lines that fit, split at spaces if possible. Of `most` lines, the last is cut."""
    lines: list[str] = []
    while measure_text(text) > width and len(lines) + 1 != most:
        fitting = max(_count_fitting(text, width), 1)
        end = text.rfind(" ", 1, fitting + 1)
        end = end if end > 0 else fitting
        lines.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*lines, cut_end(text, width)]


def _count_fitting(text: str, width: int) -> int:
    """How many characters from the start take `width` columns at most."""
    for number, character in enumerate(text):
        width -= _measure_character(character)
        if width < 0:
            return number
    return len(text)


def _measure_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _format_cell(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    # A name may have control characters: the terminal must not act on them.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))
