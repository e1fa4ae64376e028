"""Reports of what all groups did in a period: as a page, as numbers, or as pictures."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koff.errors import ConfigError, KoffError
from koff.spark.report.history import History, Row
from koff.spark.report.page import render_page
from koff.spark.report.period import Period, format_iso
from koff.spark.report.queries import TABLES, compute_tables
from koff.spark.report.words import Numbers
from koff.view.csv_text import write_csv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMS", "report"]

FORMS = ("html", "json", "csv")
"""The formats that a report can be written in."""
WORST = 8
"""How many groups are shown one by one; the others are shown as a sum."""


def report(
    spark: SparkSession,
    tables: str,
    *,
    since_ms: int,
    until_ms: int,
    out: Path,
    form: str = "html",
    groups: str | None = None,
    deployed_ms: int | None = None,
    worst: int = WORST,
    progress: Callable[[str], None] = lambda _what: None,
) -> list[Path]:
    """Writes a report of `tables`, from `since_ms` to before `until_ms`, and returns the files that it wrote.

    `out` is the file of `html` and `json`, and the folder of `csv` (a file for each table). `groups` is a
    regular expression that may match anywhere in the name. With `deployed_ms`, groups are compared before and
    after that time. `progress` is called with a text for people as each step begins. Raises ConfigError for a
    wrong option, and KoffError if there are no tables or `out` cannot be written.
    """
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} is none of {', '.join(FORMS)}")
    if worst < 1:
        raise ConfigError(f"a report of the worst {worst} groups would be empty: give 1 or more")
    progress("reading the tables")
    history = History(spark, tables, Period(since_ms, until_ms), groups)
    numbers = compute_numbers(history, worst=worst, deployed_ms=deployed_ms, progress=progress)
    progress("writing the files")
    return write_report(numbers, history.period, out=out, form=form, groups=groups)


def compute_numbers(
    history: History,
    *,
    worst: int = WORST,
    deployed_ms: int | None = None,
    progress: Callable[[str], None] = lambda _table: None,
) -> Numbers:
    """All tables of the report, by name. `progress` is called with a text for people before each table."""
    numbers: Numbers = {}
    texts = [f"step {place} of {len(TABLES)}, {title}" for place, (title, _) in enumerate(TABLES.values(), 1)]
    progress(texts[0])
    for name, rows in compute_tables(history, worst=worst, moment_ms=deployed_ms):
        numbers[name] = rows
        progress(texts[min(len(numbers), len(texts) - 1)])
    return numbers


def write_report(
    numbers: Numbers, period: Period, *, out: Path, form: str, groups: str | None = None
) -> list[Path]:
    """Writes the files of a report with these numbers, and returns their paths. Raises KoffError."""
    files = {"html": _make_html, "json": _make_json, "csv": _make_csv}[form](numbers, period, groups)
    try:
        return [_write_file(out / name if name else out, content) for name, content in files]
    except OSError as error:
        raise KoffError(f"cannot write the report to {out}: {error.strerror or error}") from error


Files = Iterator[tuple[str, bytes]]
"""The name of each file below the folder, and its content. The name is "" if the report is one file."""


def _make_html(numbers: Numbers, period: Period, groups: str | None) -> Files:
    title = "Kafka consumer groups" + (f" {groups}" if groups else "")
    yield "", render_page(numbers, period, title=title, made_ms=int(time.time() * 1000)).encode()


def _make_json(numbers: Numbers, period: Period, groups: str | None) -> Files:
    header = {
        "since": format_iso(period.since_ms),
        "until": format_iso(period.until_ms),
        "step_s": period.step_ms / 1000,
        "groups": groups,
    }
    tables = {name: [_format_row(row) for row in rows] for name, rows in numbers.items()}
    yield "", json.dumps(header | tables, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _make_csv(numbers: Numbers, _period: Period, _groups: str | None) -> Files:
    for name, rows in numbers.items():
        text = io.StringIO()
        if rows:  # an empty table has no row that could name the columns: its file stays empty
            formatted = list(map(_format_row, rows))
            write_csv(text, formatted[0], (row.values() for row in formatted))
        yield f"{name}.csv", text.getvalue().encode()


def _format_row(row: Row) -> dict[str, Any]:
    """The row for JSON and CSV: times are ISO 8601 instead of milliseconds, without `_ms` in the name."""
    return {
        name.removesuffix("_ms"): format_iso(value) if name.endswith("_ms") and value is not None else value
        for name, value in row.items()
    }


def _write_file(path: Path, content: bytes) -> Path:
    """Writes the file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)  # atomic: a reader never sees half a file
    return path
