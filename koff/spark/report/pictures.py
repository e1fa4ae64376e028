"""The pictures of a report.

Each function draws a table of the report on a canvas and returns the alternative text; "" if it has no data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from koff.spark.report.charts import (
    Canvas,
    bars_height_in,
    choose_time_unit,
    draw_bar_labels,
    draw_bars,
    format_count,
    format_count_axis,
    format_duration,
    list_first,
    shorten_name,
    to_datetimes,
)
from koff.spark.report.history import Row
from koff.spark.report.period import format_span, to_datetime
from koff.spark.report.story import describe_trend


def draw_worst_by_lag(canvas: Canvas) -> str:
    """Draws the largest and the mean lag of the worst groups."""
    rows = canvas.numbers["worst_by_lag"]
    if not rows:
        return ""
    names, largest = [canvas.label(row) for row in rows], [float(row["largest_lag"]) for row in rows]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)))
    draw_bars(canvas, axes, names, largest, label="largest", alpha=0.85)
    mean = [row["mean_lag"] or 0 for row in rows]
    axes.plot(mean, range(len(rows)), "D", color=canvas.style.text, markersize=5, linestyle="", label="mean")
    texts = [format_count(value) for value in largest]
    draw_bar_labels(
        axes,
        largest,
        [_describe_end(row, canvas, text) for row, text in zip(rows, texts, strict=True)],
        room=0.6,
    )
    axes.set(title="Worst groups by lag", xlabel="lag, records: bar = largest, diamond = mean of the period")
    format_count_axis(axes.xaxis)
    return f"Bar chart of the largest lag by group: {list_first(names, texts)}."


def _describe_end(row: Row, canvas: Canvas, largest: str) -> str:
    """The largest lag, the lag at the end and its trend."""
    if row["last_lag"] is None:
        return f"{largest}; at the end unknown"
    trend = describe_trend(row, canvas.numbers)
    return f"{largest}; at the end {format_count(row['last_lag'])}" + (f", {trend}" if trend else "")


def draw_worst_by_seconds(canvas: Canvas) -> str:
    """Draws the longest time lag of the worst groups, and their time lag at the end."""
    rows = canvas.numbers["worst_by_seconds"]
    if not rows:
        return ""
    size, unit = choose_time_unit(rows[0]["longest_s"])
    names, longest = [canvas.label(row) for row in rows], [row["longest_s"] / size for row in rows]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)))
    draw_bars(canvas, axes, names, longest, alpha=0.85)
    last = [math.nan if row["last_s"] is None else row["last_s"] / size for row in rows]
    axes.plot(last, range(len(rows)), "D", color=canvas.style.text, markersize=5, linestyle="")
    texts = [format_duration(row["longest_s"]) for row in rows]
    draw_bar_labels(axes, longest, texts)
    axes.set(
        title="Worst groups by time lag",
        xlabel=f"age of the oldest uncommitted record, {unit}: bar = longest, diamond = at the end",
    )
    return f"Bar chart of the longest time lag by group: {list_first(names, texts)}."


def draw_lag_over_time(canvas: Canvas) -> str:
    """Draws the lag of the worst groups and of the sum of the others, on a logarithmic scale."""
    curves = canvas.curves(canvas.numbers["lag_over_time"], "lag")
    if not any(value > 0 for curve in curves.values() for value in curve):
        return ""
    times = to_datetimes(canvas.steps())
    [axes] = canvas.create_axes(height_in=4.6)
    for name, curve in curves.items():
        line = ":" if name == "all others" else "-"
        axes.plot(times, curve, line, color=canvas.color(name), label=name)  # type: ignore[arg-type]  # dates work
        # A sample without neighbours has no line.
        alone = find_isolated(curve)
        at, values = [times[n] for n in alone], [curve[n] for n in alone]
        axes.plot(at, values, "o", color=canvas.color(name), markersize=4)  # type: ignore[arg-type]  # dates work
    shade = canvas.shade_unsampled(axes)
    axes.set_yscale("symlog", linthresh=10)  # linear below 10: a lag of 0 has no logarithm
    axes.set_ylim(bottom=0)
    format_count_axis(axes.yaxis)
    axes.grid(axis="both")
    canvas.format_time_axis(axes)
    step = format_span(canvas.period.step_ms)
    axes.set(
        title="Lag over time",
        ylabel="records (log scale)",
        xlabel=f"time (UTC), largest in each {step}{shade}",
    )
    canvas.figure.legend(loc="outside lower center", ncols=min(4, len(curves)))
    peaks = {name: max((v for v in curve if v == v), default=0) for name, curve in curves.items()}  # noqa: PLR0124 - NaN is not equal to itself
    texts = [f"up to {format_count(peak)}" for peak in peaks.values()]
    return f"Line chart of lag over time: {list_first(list(peaks), texts)}."


def find_isolated(curve: Sequence[float]) -> list[int]:
    """The places of the values that have NaN, or nothing, before and after them."""
    known = [False, *(not math.isnan(value) for value in curve), False]
    return [n for n in range(len(curve)) if known[n + 1] and not known[n] and not known[n + 2]]


def draw_lag_heat(canvas: Canvas) -> str:
    """Draws the lag of each of the worst groups in each step as a colour."""
    from matplotlib.colors import LogNorm

    curves = canvas.curves(canvas.numbers["lag_over_time"], "lag")
    curves.pop("all others", None)
    largest = max((value for curve in curves.values() for value in curve if value > 0), default=0)
    if not largest:
        return ""

    # A row for each group, the worst on top. A cell without a positive lag stays blank.
    order = [name for row in canvas.numbers["worst_by_lag"] if (name := canvas.label(row)) in curves]
    steps = canvas.steps()
    edges = to_datetimes([*steps, steps[-1] + canvas.period.step_ms])
    [axes] = canvas.create_axes(height_in=bars_height_in(len(order)) + 0.4)
    cells = [[value if value > 0 else math.nan for value in curves[name]] for name in order]
    norm = LogNorm(vmin=max(1.0, largest / 1e6), vmax=max(largest, 10.0), clip=True)
    mesh = axes.pcolormesh(
        edges,  # type: ignore[arg-type]  # dates work
        range(len(order) + 1),
        cells,
        norm=norm,
        cmap=canvas.style.heat,
        rasterized=True,  # as paths, every cell would be an element of the SVG
    )
    first, last = edges[0], edges[-1]
    axes.hlines(range(1, len(order)), first, last, color=canvas.style.back, linewidth=2)  # type: ignore[arg-type]  # dates
    axes.set_yticks([place + 0.5 for place in range(len(order))], order)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    canvas.format_time_axis(axes)

    step = format_span(canvas.period.step_ms)
    axes.set(title="When groups lag", xlabel=f"time (UTC), largest in each {step}; blank: no lag, or unknown")
    bar = canvas.figure.colorbar(mesh, ax=axes, label="lag, records", pad=0.015)
    format_count_axis(bar.ax.yaxis)
    most = f"{format_count(largest)} records ({order[0]})"
    return f"Heat map of lag by group and time, {step} for each cell, up to {most}."


def draw_flow(canvas: Canvas) -> str:
    """Draws records consumed and produced, with axes for each of the worst groups and one for the others."""
    rows = canvas.numbers["flow_over_time"]
    consumed, produced = canvas.curves(rows, "consumed"), canvas.curves(rows, "produced")
    if not consumed:
        return ""

    # Axes for each group, in two columns. Only whole steps: a part of a step would look like a slow one.
    step_s = canvas.period.step_ms / 1000
    whole = _find_whole_steps(canvas)
    steps = canvas.steps()
    times = to_datetimes([steps[place] for place in whole])
    lines = -(-len(consumed) // 2)
    grid = canvas.create_axes(height_in=1.0 + 1.75 * lines, rows=lines, columns=2, share=True)
    for axes, name in zip(grid, consumed, strict=False):
        for curves, color, label in (
            (produced, canvas.style.muted, "produced"),
            (consumed, canvas.style.cycle[0], "consumed"),
        ):
            values = [curves[name][place] / step_s for place in whole]
            axes.plot(times, values, color=color, linewidth=1.5, label=label)  # type: ignore[arg-type]  # dates work
        axes.set_title(name, fontsize=10)
        axes.set_ylim(bottom=0)
        format_count_axis(axes.yaxis)
        axes.grid(axis="both")
        canvas.format_time_axis(axes, most=5)

    # Shared axes have tick labels in the last row only, where the last axes may be empty: hide those, and
    # label the axes above.
    for axes in grid[len(consumed) - 2 : len(consumed)]:
        axes.tick_params(labelbottom=True)
    for axes in grid[len(consumed) :]:
        axes.set_visible(False)

    # Titles and one legend for all axes.
    canvas.figure.suptitle("Consumed against produced", x=0.01, ha="left", fontsize=12, fontweight="bold")
    canvas.figure.supylabel("records/s", fontsize=10)
    canvas.figure.supxlabel(f"time (UTC), mean of each {format_span(canvas.period.step_ms)}", fontsize=10)
    handles, labels = grid[0].get_legend_handles_labels()
    canvas.figure.legend(handles, labels, loc="outside upper right", ncols=2)
    texts = [
        f"{format_count(_sum_known(consumed[name]))} of {format_count(_sum_known(produced[name]))}"
        for name in consumed
    ]
    listed = list_first(list(consumed), texts)
    return f"Line charts of records consumed and produced per second by group: {listed}."


def _find_whole_steps(canvas: Canvas) -> list[int]:
    """The places of the steps that are whole in the period and have a step before them; all, if none is."""
    step, until = canvas.period.step_ms, canvas.period.until_ms
    places = [place for place, begin in enumerate(canvas.steps()) if place and begin + step <= until]
    return places or list(range(len(canvas.steps())))


def _sum_known(curve: list[float]) -> float:
    return sum(value for value in curve if not math.isnan(value))


def draw_changes(canvas: Canvas) -> str:
    """Draws rebalances, and members that joined and left, on a time line."""
    rows = canvas.numbers["changes_over_time"]
    totals = canvas.numbers["changes_by_group"]
    if not rows:
        return ""
    names = [canvas.label(row) for row in totals]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(names)) + 0.7)

    # A marker in the middle of each step for each kind of change; `shift` keeps the kinds apart.
    half = canvas.period.step_ms // 2
    markers = (
        ("rebalances", "rebalance", "o", canvas.style.cycle[0], 0.0),
        ("joined", "members joined", "^", canvas.style.cycle[2], -0.24),
        ("left", "members left", "v", canvas.style.cycle[1], 0.24),
    )
    for column, label, marker, color, shift in markers:
        changed = [row for row in rows if row[column]]
        axes.scatter(
            [to_datetime(row["step_ms"] + half) for row in changed],  # type: ignore[arg-type]  # dates work
            [names.index(canvas.label(row)) + shift for row in changed],
            s=[16 + 9 * min(row[column], 20) for row in changed],
            marker=marker,
            color=color,
            alpha=0.8,
            label=label,
        )
    _draw_timeline(canvas, names)
    axes.set_title("Rebalances and member changes")
    texts = [f"{row['rebalances']} rebalances" for row in totals]
    return f"Time line of rebalances and member changes by group: {list_first(names, texts)}."


def _draw_timeline(canvas: Canvas, names: list[str]) -> None:
    """Makes the only axes of the canvas a time line, with a row for each name and a legend."""
    [axes] = canvas.figure.axes
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="both")
    canvas.format_time_axis(axes)
    step = format_span(canvas.period.step_ms)
    axes.set_xlabel(f"time (UTC), a mark for each {step}; a larger mark means more")
    legend = canvas.figure.legend(loc="outside lower center", ncols=3)
    # In the legend, all markers have one size: there, size has no meaning.
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([45])


def draw_resets(canvas: Canvas) -> str:
    """Draws commits that went back, and commits that jumped ahead while the group had no members."""
    rows, totals = canvas.numbers["resets_over_time"], canvas.numbers["resets_by_group"]
    if not rows:
        return ""
    names = [canvas.label(row) for row in totals]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(names)) + 0.7)

    # A marker for each event; its size grows with the logarithm of the records.
    markers = (
        ("rewind", "rewound", "<", canvas.style.cycle[1]),
        ("skip", "skipped ahead", ">", canvas.style.cycle[0]),
        ("topic re-created", "topic re-created", "X", canvas.style.cycle[3]),
    )
    for kind, label, marker, color in markers:
        events = [row for row in rows if row["kind"] == kind]
        if events:
            axes.scatter(
                [to_datetime(row["at_ms"]) for row in events],  # type: ignore[arg-type]  # dates work
                [names.index(canvas.label(row)) for row in events],
                s=[40 + 12 * math.log10(max(row["records"], 1)) for row in events],
                marker=marker,
                color=color,
                label=label,
            )

    # The number of records beside each marker, as long as there is room for the texts.
    for row in rows if len(rows) <= 3 * len(names) else []:
        where = (to_datetime(row["at_ms"]), names.index(canvas.label(row)))
        axes.annotate(
            format_count(row["records"]), where, xytext=(9, 6), textcoords="offset points", fontsize=9
        )
    _draw_timeline(canvas, names)
    axes.set_title("Rewinds and resets, with the number of records")
    texts = [
        f"{format_count(row['rewound'])} rewound, {format_count(row['skipped'])} skipped" for row in totals
    ]
    return f"Time line of rewinds and resets by group, in records: {list_first(names, texts)}."


def draw_lost(canvas: Canvas) -> str:
    """Draws the records that retention deleted before they were committed, by step."""
    rows, totals = canvas.numbers["lost_over_time"], canvas.numbers["lost_by_group"]
    if not rows:
        return ""

    # Stacked bars. The width is in days: the unit of matplotlib's dates.
    curves = canvas.curves(rows, "lost")
    [axes] = canvas.create_axes(height_in=3.6)
    steps = canvas.steps()
    base = [0.0] * len(steps)
    width = canvas.period.step_ms / 86_400_000
    for name, curve in curves.items():
        heights = [0.0 if math.isnan(value) else value for value in curve]
        axes.bar(
            to_datetimes(steps),  # type: ignore[arg-type]  # dates work
            heights,
            width,
            bottom=base,
            align="edge",
            color=canvas.color(name),
            label=name,
        )
        base = [below + height for below, height in zip(base, heights, strict=True)]
    format_count_axis(axes.yaxis)
    axes.grid(axis="y")
    canvas.format_time_axis(axes)
    step = format_span(canvas.period.step_ms)
    axes.set(title="Records lost to retention", ylabel=f"records in each {step}", xlabel="time (UTC)")
    canvas.figure.legend(loc="outside lower center", ncols=min(4, len(curves)))
    names, texts = [canvas.label(row) for row in totals], [format_count(row["lost"]) for row in totals]
    return f"Bar chart over time of records lost to retention, by group: {list_first(names, texts)}."


def draw_idle(canvas: Canvas) -> str:
    """Draws the time since the last commit of groups that are dead or do not commit."""
    rows = canvas.numbers["idle"]
    if not rows:
        return ""
    size, unit = choose_time_unit(max(row["silent_h"] or 0 for row in rows) * 3600)
    names, silent = (
        [canvas.label(row) for row in rows],
        [(row["silent_h"] or 0) * 3600 / size for row in rows],
    )
    kinds = sorted({row["kind"] for row in rows})
    colors = {kind: canvas.style.cycle[place] for place, kind in enumerate(kinds)}
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)) + 0.4)
    draw_bars(canvas, axes, names, silent, color=[colors[row["kind"]] for row in rows])
    texts = [row["kind"] + (f", lag {format_count(row['lag'])}" if row["lag"] else "") for row in rows]
    draw_bar_labels(axes, silent, texts, room=0.5)
    axes.set(
        title="Groups that are dead or do not commit",
        xlabel=f"{unit} from the last commit to the end of the period",
    )
    return f"Bar chart of the time since the last commit: {list_first(names, texts)}."


def draw_hot_partitions(canvas: Canvas) -> str:
    """Draws the busiest partition of each topic, compared with the topic's mean."""
    rows = canvas.numbers["hot_partitions"]
    if not rows:
        return ""
    names = [shorten_name(f"{row['topic']}-{row['partition']}") for row in rows]
    times = [row["times_mean"] for row in rows]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)) + 0.3)
    draw_bars(canvas, axes, names, times, color=canvas.style.cycle[0])
    axes.axvline(1, color=canvas.style.text, linestyle="--", linewidth=1.2, label="mean of the topic")
    texts = [f"{time:.2g}x ({format_count(row['produced'])})" for time, row in zip(times, rows, strict=True)]
    draw_bar_labels(axes, times, texts)
    axes.set(title="Hot partitions", xlabel="records produced, as a multiple of the topic's mean partition")
    canvas.figure.legend(loc="outside lower right")
    return f"Bar chart of each topic's busiest partition compared with the mean: {list_first(names, texts)}."


def draw_skew(canvas: Canvas) -> str:
    """Draws the share of a group's lag on a topic that is in one partition."""
    rows = canvas.numbers["skewed_groups"]
    if not rows:
        return ""
    names = [shorten_name(f"{canvas.label(row)}: {row['topic']}-{row['partition']}") for row in rows]
    shares = [100 * row["share"] for row in rows]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)) + 0.3)
    draw_bars(canvas, axes, names, shares, color=canvas.style.cycle[2])
    even = [100 / row["partitions"] for row in rows]
    axes.plot(
        even,
        range(len(rows)),
        "|",
        color=canvas.style.text,
        markersize=16,
        markeredgewidth=2,
        label="an even share",
    )
    texts = [
        f"{share:.0f} % of {format_count(row['topic_lag'])}" for share, row in zip(shares, rows, strict=True)
    ]
    draw_bar_labels(axes, shares, texts)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlim(0, 122)
    axes.set(title="Lag in one partition", xlabel="share of the group's lag on the topic at the end, %")
    canvas.figure.legend(loc="outside lower right")
    return f"Bar chart of the share of a group's lag that is in one partition: {list_first(names, texts)}."


def draw_retention(canvas: Canvas) -> str:
    """Draws the hours until retention overtakes each group."""
    rows = canvas.numbers["retention"]
    if not rows:
        return ""
    names, hours = [canvas.label(row) for row in rows], [row["hours"] for row in rows]
    [axes] = canvas.create_axes(height_in=bars_height_in(len(rows)))
    colors = [canvas.style.bad if left < 24 else canvas.style.cycle[0] for left in hours]
    draw_bars(canvas, axes, names, hours, color=colors)
    texts = [f"{left:.3g} h" if left else "overtaken: losing records" for left in hours]
    draw_bar_labels(axes, hours, texts)
    axes.set(
        title="Time until retention overtakes a group",
        xlabel="hours, at the speed of the last day; red: less than a day",
    )
    return f"Bar chart of hours until retention overtakes a group: {list_first(names, texts)}."
