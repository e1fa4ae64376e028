"""The report as one HTML page that loads nothing: tables, and charts that its own script draws."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from koff.spark.report.charts import Chart, find_data_span
from koff.spark.report.history import Row, Rows
from koff.spark.report.period import Period, format_span, format_time
from koff.spark.report.sections import SECTIONS, Section
from koff.spark.report.story import describe_period, name_clusters
from koff.spark.report.words import Numbers, clean_name, format_count, format_share
from koff.view.wording import show_duration

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="soft">{about}</p>
<p class="story">{story}</p>
{tiles}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{sections}</main>
<script type="application/json" id="charts">{charts}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def _read_parts() -> dict[str, str]:
    """Style, script, and the policy that allows only these: names that clients have chosen run nothing."""
    own, uplot = files(__package__), files("koff.serve.page") / "uplot"
    parts = {
        "style": (uplot / "uPlot.min.css").read_text() + (own / "report.css").read_text(),
        "script": (uplot / "uPlot.iife.min.js").read_text() + (own / "report.js").read_text(),
    }
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in parts.items()
    }
    allowed = "; ".join(f"{name}-src 'sha256-{each}'" for name, each in hashes.items())
    return {**parts, "policy": f"default-src 'none'; {allowed}"}


def render_page(numbers: Numbers, period: Period, *, title: str, made_ms: int) -> str:
    """The HTML of the page. `made_ms` is the time at which the report was made."""
    drawn = {section.title: list(section.draw_charts(numbers, period)) for section in SECTIONS}
    shown = [each for each in SECTIONS if drawn[each.title] or numbers.get(each.table)]
    sections = "".join(_render_section(section, numbers, drawn[section.title]) for section in shown)
    links = "".join(f'<li><a href="#{_anchor(each)}">{escape(each.title)}</a></li>' for each in shown)
    # Sections without data are one list at the end.
    if texts := list(dict.fromkeys(section.empty_text for section in SECTIONS if section not in shown)):
        sections += _render_empty(texts)
        links += '<li><a href="#nothing">Nothing to report</a></li>'
    charts = [_to_object(chart) for section in shown for chart in drawn[section.title]]
    return _PAGE.format(
        **_read_parts(),
        title=escape(title),
        about=_describe_origin(numbers, period, made_ms),
        story=escape(" ".join(describe_period(numbers))),
        tiles=_render_tiles(numbers),
        links=links,
        sections=sections,
        charts=json.dumps(charts).replace("<", "\\u003c"),
    )


def _to_object(chart: Chart) -> dict[str, Any]:
    """The chart for report.js."""
    return {**asdict(chart), "series": [series._asdict() for series in chart.series]}


def _describe_origin(numbers: Numbers, period: Period, made_ms: int) -> str:
    since, until = format_time(period.since_ms), format_time(period.until_ms)
    begin, end = find_data_span(numbers, period)
    parts = [f"{since} to {until}, in steps of {format_span(period.step_ms)}."]
    if begin - period.since_ms > period.step_ms or period.until_ms - end > period.step_ms:
        parts.append(f"There are samples from {format_time(begin)} to {format_time(end)} only.")
    parts.append(f"Made by koff at {format_time(made_ms)}.")
    if clusters := name_clusters(numbers):
        parts.append(f"{clusters}.")
    return escape(" ".join(parts))


def _render_tiles(numbers: Numbers) -> str:
    """The box of key figures at the top."""
    summary = numbers["summary"][0]
    longest = "unknown" if summary["longest_s"] is None else show_duration(summary["longest_s"])
    tiles = (
        (format_count(summary["groups"]), "groups with samples"),
        (format_count(summary["clusters"]), "clusters"),
        (format_count(summary["largest_lag"]), "records: the largest lag"),
        (longest, "the longest time lag"),
        (format_count(summary["consumed"]), "records consumed"),
        (format_count(summary["lost"]), "records lost to retention"),
        (format_count(numbers["resets_total"][0]["events"]), "rewinds and resets"),
        (
            format_count(sum(row["groups"] for row in numbers["idle_total"])),
            "groups that are dead or do not commit",
        ),
    )
    items = "".join(f"<li><b>{value}</b> {text}</li>" for value, text in tiles)
    return f'<ul class="tiles">{items}</ul>'


def _render_empty(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    title = '<h2 id="nothing-title">Nothing to report</h2>'
    return f'<section id="nothing" aria-labelledby="nothing-title">\n{title}\n<ul>{items}</ul></section>\n'


def _anchor(section: Section) -> str:
    return section.table or "flow"


def _render_section(section: Section, numbers: Numbers, charts: Sequence[Chart]) -> str:
    name, rest = _anchor(section), section.describe_rest(numbers)
    figures = "".join(
        f"<figure><figcaption>{escape(chart.title)}</figcaption>"
        f'<div role="img" aria-label="{escape(chart.text)}"></div></figure>\n'
        for chart in charts
    )
    rows = numbers.get(section.table, [])
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{escape(section.title)}</h2>\n<p>{escape(section.text)}</p>\n'
        f'<div class="figures">{figures}</div>{_render_table(section.columns, rows) if rows else ""}'
        f"{f'<p class=soft>{escape(rest)}</p>' if rest else ''}</section>\n"
    )


def _render_table(columns: Sequence[str], rows: Rows) -> str:
    numeric = [name for name in columns if all(isinstance(row[name], int | float | None) for row in rows)]
    bar = next(name for name in columns if name in numeric and name != "partition")
    classes = {name: ' class="n bar"' if name == bar else ' class="n"' for name in numeric}
    head = "".join(
        f'<th scope="col"{classes.get(name, "")}>{escape(column_heading(name))}</th>' for name in columns
    )
    body = "".join(
        f"<tr>{''.join(_render_cell(name, row, classes.get(name, '')) for name in columns)}</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n'
    )


def column_heading(name: str) -> str:
    """The column's name for people. Times and durations have their unit in the cells."""
    return _HEADINGS.get(name) or re.sub("_(ms|s|h)$", "", name).replace("_", " ")


_HEADINGS = {
    "longest_s": "longest time lag",
    "last_s": "time lag at the end",
    "last_lag": "lag at the end",
    "over_s": "over the allowance",
    "group_count": "groups",
    "worst_s": "longest time lag",
    "after_s": "time lag after",
    "before_s": "time lag before",
    "after_late_s": "late after",
    "before_late_s": "late before",
    "peak_per_s": "peak, records/s",
    "next_per_s": "next week, records/s",
    "per_member_per_s": "a member, records/s",
    "headroom": "head-room",
}
_SHARES = ("kept", "budget_left", "headroom", "share")


def _render_cell(name: str, row: Row, css: str) -> str:
    """The cell. A number has its exact value beside the text for people: tables are sorted by it."""
    exact = f' data-v="{row[name]}"' if css and row[name] is not None else ""
    return f"<td{css}{exact}>{_format_value(name, row[name])}</td>"


def _format_value(name: str, value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, int | float):
        return escape(clean_name(str(value)))
    if name == "week_ms":
        return format_time(int(value)).partition(" ")[0]
    if name.endswith("_ms"):
        return format_time(int(value))
    if name in _SHARES:
        return format_share(value)
    if name.endswith("_per_s"):
        return format_count(value)
    if isinstance(value, int):
        return f"{value:,}" if name != "partition" else str(value)
    if name.endswith(("_s", "_h")) or name == "hours":
        return show_duration(value * (1 if name.endswith("_s") else 3600))
    return f"{value:,.2f}"
