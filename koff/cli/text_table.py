"""Plain aligned tables for terminals and pipes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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


def format_columns(columns: Sequence[Column[Item]], items: Iterable[Item], width: int | None) -> str:
    """A table with a line for each item, as `format_table` returns it."""
    return format_table(
        [each.title for each in columns],
        [[each.cell(item) for each in columns] for item in items],
        width=width,
        dropped=[each.title for each in sorted(columns, key=lambda each: each.left_out) if each.left_out],
        shortened=[each.title for each in columns if each.is_name],
    )


def format_table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    width: int | None = None,
    dropped: Sequence[str] = (),
    shortened: Sequence[str] = (),
) -> str:
    """The header and the rows as text that ends in a newline.

    Columns of numbers are aligned to the right. None and "" are shown as "-". Where the table is wider than
    `width`, the columns `dropped` are left out, one by one in this order. Then the cells of the columns
    `shortened` lose their middle, and the end of the last column is cut.
    """
    columns = [
        [title, *map(_format_cell, column)]
        for title, column in zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True)
    ]
    is_number = [
        all(isinstance(cell, int | float | None) for cell in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(header))
    ]
    shown = list(range(len(header)))
    widths = [max(map(measure_text, column)) for column in columns]
    if width is not None:
        for title in dropped:
            if _measure_table([widths[i] for i in shown]) > width and title in header:
                shown.remove(header.index(title))
        for i, target in _choose_widths(header, shown, widths, shortened, width).items():
            columns[i] = [shorten_middle(cell, target) for cell in columns[i]]
            widths[i] = max(map(measure_text, columns[i]))
    lines = [
        _GAP.join(_pad(columns[i][line], widths[i], to_right=is_number[i]) for i in shown).rstrip()
        for line in range(len(rows) + 1)
    ]
    return "".join(f"{line if width is None else cut_end(line, width)}\n" for line in lines)


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


def _measure_table(widths: Sequence[int]) -> int:
    """How wide the table is at least. Of the last column, only a part must fit."""
    return sum(widths[:-1]) + min(widths[-1], _LEAST_TEXT) + len(_GAP) * (len(widths) - 1)


def _choose_widths(
    header: Sequence[str], shown: Sequence[int], widths: Sequence[int], titles: Sequence[str], width: int
) -> dict[int, int]:
    """The widths of the columns with these titles that are to be shortened, so that the table fits.

    The widest is shortened first, and not below `_LEAST_NAME`.
    """
    chosen = list(widths)
    names = [i for i in shown if header[i] in titles]
    while names and (excess := _measure_table([chosen[i] for i in shown]) - width) > 0:
        widest = max(names, key=lambda i: chosen[i])
        before = chosen[widest]
        if before <= _LEAST_NAME:
            break
        # Not below the next one at once: both are to lose as much.
        others = [chosen[i] for i in names if i != widest]
        chosen[widest] = max(before - excess, _LEAST_NAME, min(max(others, default=0), before - 1))
    return {i: chosen[i] for i in names if chosen[i] < widths[i]}


def _pad(cell: str, width: int, *, to_right: bool) -> str:
    padding = " " * (width - measure_text(cell))
    return padding + cell if to_right else cell + padding


def _format_cell(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    # A name may have control characters: the terminal must not act on them.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))
