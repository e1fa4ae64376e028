"""A report of what all groups did in a time: a page, its numbers, or its pictures."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.charts import STYLES, Numbers, rendered
from koff.spark.report.events import event_numbers
from koff.spark.report.history import History, Row
from koff.spark.report.page import page
from koff.spark.report.period import Period, iso
from koff.spark.report.queries import lag_numbers
from koff.spark.report.sections import SECTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMS", "report"]

FORMS = ("html", "json", "csv", "png")
"""What a report can be written as."""
WORST = 8
"""How many groups are told apart."""


def report(
    spark: SparkSession,
    tables: str,
    *,
    since_ms: int,
    until_ms: int,
    out: Path,
    form: str = "html",
    groups: str | None = None,
    worst: int = WORST,
    progress: Callable[[str], None] = lambda _what: None,
) -> list[Path]:
    """The files that were written: the report of `tables` from `since_ms` to before `until_ms`.

    `out` is the file of `html` and `json`, and the folder of `csv` (a file for each table) and `png` (two
    for each picture, light and dark). `groups` is a regular expression that may match anywhere in the name.
    `progress` hears of each table that is done, and then `writing`. Raises ConfigError, or KoffError where
    there are no tables or `out` cannot be written.
    """
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} is none of {', '.join(FORMS)}")
    if worst < 1:
        raise ConfigError(f"a report of the worst {worst} groups has nothing in it: give 1 or more")
    history = History(spark, tables, Period(since_ms, until_ms), groups)
    found = numbers(history, worst=worst, progress=progress)
    progress("writing")
    return written(found, history.period, out=out, form=form, groups=groups)


def numbers(
    history: History, *, worst: int = WORST, progress: Callable[[str], None] = lambda _table: None
) -> Numbers:
    """All tables of the report, by name."""
    found: Numbers = {}
    for source in (lag_numbers, event_numbers):
        for name, rows in source(history, worst=worst):
            found[name] = rows
            progress(name)
    return found


def written(found: Numbers, period: Period, *, out: Path, form: str, groups: str | None = None) -> list[Path]:
    """The files that were written of these numbers."""
    files = {"html": _html, "json": _json, "csv": _csv, "png": _png}[form](found, period, groups)
    try:
        return [_put(out / name if name else out, content) for name, content in files]
    except OSError as failure:
        raise KoffError(f"cannot write the report to {out}: {failure.strerror or failure}") from failure


Files = Iterator[tuple[str, bytes]]
"""Names below the folder and contents; without a name where there is one file."""


def _html(found: Numbers, period: Period, groups: str | None) -> Files:
    drawn = {}
    for section in SECTIONS:
        for picture in section.pictures:
            both = {style.name: rendered(picture.draw, found, period, style, "svg") for style in STYLES}
            text = both["light"][1]
            if text:
                drawn[picture.name] = ({name: svg for name, (svg, _) in both.items()}, text)
    title = "Kafka consumer groups" + (f" {groups}" if groups else "")
    made_ms = int(time.time() * 1000)
    yield "", page(found, drawn, period, title=title, made_ms=made_ms).encode()


def _json(found: Numbers, period: Period, groups: str | None) -> Files:
    about = {
        "since": iso(period.since_ms),
        "until": iso(period.until_ms),
        "step_s": period.step_ms / 1000,
        "groups": groups,
    }
    tables = {name: [_plain(row) for row in rows] for name, rows in found.items()}
    yield "", json.dumps(about | tables, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _csv(found: Numbers, _period: Period, _groups: str | None) -> Files:
    for name, rows in found.items():
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, fieldnames=_plain(rows[0]).keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(_plain(row) for row in rows)
        yield f"{name}.csv", text.getvalue().encode()


def _png(found: Numbers, period: Period, _groups: str | None) -> Files:
    for section in SECTIONS:
        for picture in section.pictures:
            for style in STYLES:
                image, _ = rendered(picture.draw, found, period, style, "png")
                if image:
                    yield f"{picture.name}{'' if style.name == 'light' else '-dark'}.png", image


def _plain(row: Row) -> dict[str, Any]:
    """The row for machines: moments as ISO 8601 instead of milliseconds."""
    return {
        name.removesuffix("_ms"): iso(value) if name.endswith("_ms") and value is not None else value
        for name, value in row.items()
    }


def _put(path: Path, content: bytes) -> Path:
    """Writes the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
    return path
