"""The report as one HTML page that loads nothing: pictures for light and dark, with tables below them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape

from koff.spark.report.charts import Numbers, clean_name, find_data_span, format_count, format_duration
from koff.spark.report.history import Row, Rows
from koff.spark.report.period import Period, format_span, format_time
from koff.spark.report.sections import SECTIONS, Section
from koff.spark.report.story import describe_period, name_clusters

DrawnPictures = Mapping[str, tuple[Mapping[str, bytes], str]]
"""For each picture's name: its SVG by the name of the style, and its alternative text. Only pictures with
data are in it."""

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c252e; --muted: #5d6975; --line: #dde2e7;
        --box: #f5f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181d; --text: #e8ebee; --muted: #a3adb8; --line: #343c46; --box: #1c2229 }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--back); color: var(--text);
       font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif }
h1 { margin: 0; font-size: 1.7rem } h2 { margin: 2.5rem 0 .25rem; font-size: 1.25rem }
p { margin: .25rem 0 .75rem } .muted { color: var(--muted) } a { color: inherit }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .75rem;
         margin: 1.25rem 0; padding: 0; list-style: none }
.tiles li { background: var(--box); border: 1px solid var(--line); border-radius: .5rem;
            padding: .6rem .8rem }
.tiles b { display: block; font-size: 1.4rem; line-height: 1.3 }
.story { margin: 1rem 0; font-size: 1.1rem }
nav ul { columns: 2; padding-left: 1.2rem }
figure { margin: 0 0 1rem } figure img { display: block; width: 100%; height: auto }
details { margin-bottom: .75rem } summary { cursor: pointer; color: var(--muted) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .87rem; width: 100% }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
th { color: var(--muted); font-weight: 600 }
th button { all: unset; cursor: pointer } th button:focus-visible { outline: 2px solid }
th[aria-sort=ascending] button::after { content: " \\2191" }
th[aria-sort=descending] button::after { content: " \\2193" }
.n { text-align: right; font-variant-numeric: tabular-nums }
@media print { details { display: none } }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button"), isNumber = head.className === "n";
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : isNumber;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const read = row => row.cells[column].dataset.v ?? (isNumber ? null : row.cells[column].textContent);
      const compare = (a, b) => isNumber ? a - b : a.localeCompare(b);
      const rows = [...body.rows].map(row => [read(row), row]);
      // Unknown numbers are last in both directions.
      rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
                                                       : compare(a, b) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
"""
"""Sorts a table by the column whose heading is clicked. Without it, the page is the same, unsorted."""
_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
"""The page loads nothing and runs no script but its own, whatever names clients have chosen for groups."""


def render_page(numbers: Numbers, drawn: DrawnPictures, period: Period, *, title: str, made_ms: int) -> str:
    """The HTML of the page. `made_ms` is the time at which the report was made."""
    summary = numbers["summary"][0]
    shown = [section for section in SECTIONS if _has_data(section, numbers, drawn)]
    sections = "".join(_render_section(section, numbers, drawn) for section in shown)
    links = "".join(f'<li><a href="#{section.name}">{escape(section.title)}</a></li>' for section in shown)
    # Sections without data are one list at the end.
    texts = dict.fromkeys(section.empty_text for section in SECTIONS if section not in shown)
    if texts:
        sections += _render_empty(list(texts))
        links += '<li><a href="#nothing">Nothing to report</a></li>'
    since, until = format_time(period.since_ms), format_time(period.until_ms)
    span = _describe_span(numbers, period)
    clusters, story = escape(name_clusters(numbers)), escape(" ".join(describe_period(numbers)))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="muted">{since} to {until}, in steps of {format_span(period.step_ms)}.{span}
Made by koff at {format_time(made_ms)}.{f" {clusters}." if clusters else ""}</p>
<p class="story">{story}</p>
{_render_tiles(summary, numbers)}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{sections}</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _describe_span(numbers: Numbers, period: Period) -> str:
    """A sentence about the time that has data, if that is less than the period by more than a step."""
    begin, end = find_data_span(numbers, period)
    if begin - period.since_ms <= period.step_ms and period.until_ms - end <= period.step_ms:
        return ""
    return f" There are samples from {format_time(begin)} to {format_time(end)} only."


def _render_tiles(summary: Row, numbers: Numbers) -> str:
    """The box of key figures at the top."""
    tiles = (
        (format_count(summary["groups"]), "groups with samples"),
        (format_count(summary["clusters"]), "clusters"),
        (format_count(summary["largest_lag"]), "records: the largest lag"),
        (_format_longest(summary), "the longest time lag"),
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


def _format_longest(summary: Row) -> str:
    return "unknown" if summary["longest_s"] is None else format_duration(summary["longest_s"])


def _has_data(section: Section, numbers: Numbers, drawn: DrawnPictures) -> bool:
    has_picture = any(picture.name in drawn for picture in section.pictures)
    return has_picture or any(numbers[name] for name, _, _ in section.tables)


def _render_empty(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    title = '<h2 id="nothing-title">Nothing to report</h2>'
    return f'<section id="nothing" aria-labelledby="nothing-title">\n{title}\n<ul>{items}</ul></section>\n'


def _render_section(section: Section, numbers: Numbers, drawn: DrawnPictures) -> str:
    figures = "".join(
        _render_figure(*drawn[picture.name]) for picture in section.pictures if picture.name in drawn
    )
    tables = "".join(
        _render_table(title, columns, numbers[name])
        for name, title, columns in section.tables
        if numbers[name]
    )
    rest = section.describe_rest(numbers)
    note = f'<p class="muted">{escape(rest)}</p>\n' if rest else ""
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">\n'
        f'<h2 id="{section.name}-title">{escape(section.title)}</h2>\n<p>{escape(section.text)}</p>\n'
        f"{figures}{tables}{note}</section>\n"
    )


def _render_figure(pictures: Mapping[str, bytes], text: str) -> str:
    light, dark = _data_url(pictures["light"]), _data_url(pictures["dark"])
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{escape(text)}"></picture></figure>\n'
    )


def _data_url(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _render_table(title: str, columns: Sequence[str], rows: Rows) -> str:
    numeric = {name: all(isinstance(row[name], int | float | None) for row in rows) for name in columns}
    head = "".join(
        f'<th scope="col"{_cell_class(numeric[name])}>{escape(column_heading(name))}</th>' for name in columns
    )
    body = "".join(
        "<tr>" + "".join(_render_cell(name, row[name], numeric=numeric[name]) for name in columns) + "</tr>\n"
        for row in rows
    )
    return (
        f'<details><summary>Table: {escape(title)}</summary><div class="wide"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div></details>\n"
    )


def _cell_class(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def column_heading(name: str) -> str:
    """The column's name for people. Times and durations have their unit in the cells."""
    return _HEADINGS.get(name) or re.sub("_(ms|s|h)$", "", name).replace("_", " ")


_HEADINGS = {"longest_s": "longest time lag", "last_s": "time lag at the end", "last_lag": "lag at the end"}


def _render_cell(name: str, value: object, *, numeric: bool) -> str:
    """The cell. A number has its exact value beside the text for people: tables are sorted by it."""
    exact = f' data-v="{value}"' if numeric and value is not None else ""
    return f"<td{_cell_class(numeric)}{exact}>{_format_value(name, value)}</td>"


def _format_value(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int | float):
        if name.endswith("_ms"):
            return format_time(int(value))
        if name.endswith("_s"):
            return format_duration(value)
        if name.endswith("_h") or name == "hours":
            return format_duration(value * 3600)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and name != "partition" else escape(clean_name(str(value)))
