"""Plain aligned tables for terminals and pipes."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | float | None


def format_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """The header and the rows as text that ends in a newline.

    Columns of numbers are aligned to the right. None and "" are shown as "-".
    """
    cells = [[_format_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in (header, *cells)
    ]
    return "\n".join(lines) + "\n"


def _format_cell(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    # A name may have control characters: the terminal must not act on them.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))
