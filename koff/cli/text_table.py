"""Plain aligned tables for terminals and pipes."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | float | None


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """The rows under the header, numbers to the right; None is shown as "-". Ends in a newline."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    right = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (header, *cells)
    ]
    return "\n".join(lines) + "\n"


def _text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))
