"""The tables of docs/metrics.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.scrape import fill_tracker, take_view
from koff.serve.metrics.conf import Granularity, MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.families import FAMILIES
from koff.serve.metrics.family import Family

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"
BLOCK = re.compile(r"(<!-- families of a (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""Where the families of a level are, between two comments."""
SIZES = re.compile(r"(<!-- sizes -->\n).*?(<!-- end -->)", re.DOTALL)
GRANULARITIES: tuple[Granularity, ...] = ("partition", "topic", "group")
GROUPS, PARTITIONS = 1_000, 10
NOW_MS = 1_800_000_011_000


def render_table(level: str) -> Iterator[str]:
    """The lines of the table of a level."""
    yield "| family | labels | meaning | unit | absent if | example |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        if family.level == level:
            yield _render_row(family)


def _render_row(family: Family[Any]) -> str:
    name = f"`{family.name}`" + (" **default**" if family.default and family.level != "cluster" else "")
    query = family.query.replace("|", "\\|")
    labels = ", ".join(family.labels)
    return f"| {name} | {labels} | {family.text} | {family.unit} | {family.absent} | `{query}` |"


def render_sizes() -> Iterator[str]:
    """The lines of the table of series and bytes, without koff's own."""
    view = take_view(fill_tracker(GROUPS * PARTITIONS), NOW_MS)
    yield "| families | granularity | series | bytes |"
    yield "| --- | --- | --- | --- |"
    for families in ("default", "all"):
        for granularity in GRANULARITIES:
            exposition = Exposition(MetricsConf(families=(families,), granularity=granularity))
            size = sum(len(chunk) for chunk in exposition.render_chunks(view))
            series = exposition.count_series()["bench"].series
            yield f"| `{families}` | `{granularity}` | {series:,} | {size / 1e6:.2f} MB |"


def fill_page(page: str) -> str:
    """The page with the tables of the code."""
    page = SIZES.sub(lambda found: found[1] + "\n".join([*render_sizes(), found[2]]), page)
    return BLOCK.sub(lambda found: found[1] + "\n".join([*render_table(found[2]), found[3]]), page)
