"""The tables of docs/metrics.md. `python -m tests.unit.serve.metrics_page` writes them into the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from koff.serve.families import FAMILIES, Family

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
BLOCK = re.compile(r"(<!-- families of a (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""Where the families of a level are, between two comments."""


def render_table(level: str) -> Iterator[str]:
    """The lines of the table of a level."""
    yield "| family | labels | meaning | unit | absent if | example |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        if family.level == level:
            yield _render_row(family)


def _render_row(family: Family) -> str:
    name = f"`{family.name}`" + (" **default**" if family.default and family.level != "cluster" else "")
    query = family.query.replace("|", "\\|")
    labels = ", ".join(family.labels)
    return f"| {name} | {labels} | {family.text} | {family.unit} | {family.absent} | `{query}` |"


def fill_page(page: str) -> str:
    """The page with the tables of the code."""
    return BLOCK.sub(lambda found: found[1] + "\n".join([*render_table(found[2]), found[3]]), page)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text()))
