"""The charts of a report as plain data, which report.js draws with uPlot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from koff.spark.report.history import Row, Rows
from koff.spark.report.period import Period, format_span
from koff.spark.report.words import Numbers, format_count, list_first, name_group


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `kind` is one of report.js, and `text` is for people who do not see it.

    `times` and the `span` of the time axis are in seconds. `rows` are names on the other axis: values are
    their numbers.
    """

    kind: str
    title: str
    text: str
    times: list[float]
    series: list[Series]
    span: tuple[float, float]
    rows: list[str] = field(default_factory=list)


class Series(NamedTuple):
    """The values of a line or of marks, one for each time (None: unknown)."""

    label: str
    values: list[float | None]


def find_data_span(numbers: Numbers, period: Period) -> tuple[int, int]:
    """The part of the period that has samples or events, in milliseconds; the whole period without any."""
    begins = [row["step_ms"] for rows in numbers.values() for row in rows if "step_ms" in row]
    if not begins:
        return period.since_ms, period.until_ms
    begin, end = max(period.since_ms, min(begins)), min(period.until_ms, max(begins) + period.step_ms)
    return begin, max(end, begin + 1)


def chart_lag(numbers: Numbers, period: Period) -> Iterator[Chart]:
    """The lag of the worst groups, and of the sum of the others."""
    rows = numbers["lag_over_time"]
    if not any(row["lag"] for row in rows):
        return
    series = _list_series(numbers, period, rows, "lag")
    highest = {each.label: max(filter(None, each.values), default=0) for each in series}
    peaks = [f"{label} up to {format_count(value)}" for label, value in highest.items()]
    text = f"Line chart of lag over time: {list_first(peaks)}."
    title = f"Lag in records (log scale), the largest in each {format_span(period.step_ms)}"
    yield Chart("log", title, text, _list_times(numbers, period), series, _measure_span(numbers, period))


def chart_flow(numbers: Numbers, period: Period) -> Iterator[Chart]:
    """Records consumed and produced a second: a chart for each worst group, and one for the others."""
    step_s, rows, times = period.step_ms / 1000, numbers["flow_over_time"], _list_times(numbers, period)
    # A step that is not whole would look like a slow one. The first has no sample before it.
    whole = slice(1, len(times) - (times[-1] + step_s > period.until_ms / 1000))
    produced, consumed = (_list_series(numbers, period, rows, name) for name in ("produced", "consumed"))
    for made, read in zip(produced, consumed, strict=True):
        read_sum, made_sum = (format_count(sum(filter(None, each.values))) for each in (read, made))
        text = f"{made.label}: consumed {read_sum} of {made_sum} records."
        series = [
            Series(label, [value and value / step_s for value in each.values[whole]])
            for label, each in (("produced", made), ("consumed", read))
        ]
        title, span = f"{made.label}, records/s", _measure_span(numbers, period)
        yield Chart("small", title, text, times[whole], series, span)


def chart_lost(numbers: Numbers, period: Period) -> Iterator[Chart]:
    """The records that retention deleted before they were committed, of all groups together."""
    lost = Counter[float]()
    for row in numbers["lost_over_time"]:
        lost[row["step_ms"] / 1000] += row["lost"]
    if lost:
        times, title = _list_times(numbers, period), f"Lost records in each {format_span(period.step_ms)}"
        text = f"Bar chart of lost records over time: {format_count(lost.total())} in all."
        series = [Series("lost", [lost.get(time) for time in times])]
        yield Chart("bars", title, text, times, series, _measure_span(numbers, period))


def chart_changes(numbers: Numbers, period: Period) -> Iterator[Chart]:
    """When groups were rebalanced, and members joined and left."""
    marks = [
        (row["step_ms"], row, label)
        for row in numbers["changes_over_time"]
        for column, label in (("rebalances", "rebalance"), ("joined", "joined"), ("left", "left"))
        if row[column]
    ]
    yield from _chart_marks(numbers, period, "Rebalances, and members that joined and left", marks)


def chart_resets(numbers: Numbers, period: Period) -> Iterator[Chart]:
    """When commits went back, or ahead while the group had no members."""
    marks = [(row["at_ms"], row, row["kind"]) for row in numbers["resets_over_time"]]
    yield from _chart_marks(numbers, period, "Rewinds, skips and topics that were created again", marks)


def _chart_marks(
    numbers: Numbers, period: Period, title: str, marks: Sequence[tuple[int, Row, str]]
) -> Iterator[Chart]:
    """A time line with a row for each group. A mark is a time, a row of its group, and a kind."""
    if not marks:
        return
    names = list(dict.fromkeys(name_group(row, numbers) for _, row, _ in marks))
    times = sorted({at for at, _, _ in marks})
    found: dict[tuple[str, str], list[float | None]] = {}
    for at, row, kind in marks:
        name = name_group(row, numbers)
        values = found.setdefault((kind, name), [None] * len(times))
        values[times.index(at)] = names.index(name)
    series = [Series(kind, values) for (kind, _), values in sorted(found.items())]
    text, times_s = f"Time line of {len(marks)} marks: {list_first(names)}.", [at / 1000 for at in times]
    yield Chart("marks", title, text, times_s, series, _measure_span(numbers, period), names)


def _measure_span(numbers: Numbers, period: Period) -> tuple[float, float]:
    begin, end = find_data_span(numbers, period)
    return begin / 1000, end / 1000


def _list_times(numbers: Numbers, period: Period) -> list[float]:
    """The begin of each step that has data, and of those between."""
    begin, end = find_data_span(numbers, period)
    return [ms / 1000 for ms in range(begin // period.step_ms * period.step_ms, end, period.step_ms)]


def _list_series(numbers: Numbers, period: Period, rows: Rows, column: str) -> list[Series]:
    """The values of `column` by group, worst group first; the others last."""
    places = {time: place for place, time in enumerate(_list_times(numbers, period))}
    found: dict[str, list[float | None]] = {name_group(row, numbers): [] for row in numbers["worst_by_lag"]}
    for row in rows:
        values = found.setdefault(name_group(row, numbers), [])
        values += [None] * (len(places) - len(values))
        values[places[row["step_ms"] / 1000]] = row[column]
    return [Series(name, values) for name, values in found.items() if values]
