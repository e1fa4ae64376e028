"""The pictures: each draws a table of the report and says in words what it shows."""

from __future__ import annotations

import math

from koff.spark.report.charts import (
    Canvas,
    bar_labels,
    bars,
    bars_height_in,
    count,
    counted_axis,
    duration,
    listed,
    moments,
    shown,
    time_unit,
)
from koff.spark.report.period import span, utc


def worst_by_lag(canvas: Canvas) -> str:
    """Largest and mean lag of the worst groups."""
    rows = canvas.numbers["worst_by_lag"]
    if not rows:
        return ""
    names, largest = [canvas.label(row) for row in rows], [float(row["largest_lag"]) for row in rows]
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)))
    bars(canvas, axes, names, largest, label="largest", alpha=0.85)
    mean = [row["mean_lag"] or 0 for row in rows]
    axes.plot(mean, range(len(rows)), "D", color=canvas.style.text, markersize=5, linestyle="", label="mean")
    texts = [count(value) for value in largest]
    bar_labels(axes, largest, texts)
    axes.set(title="Worst groups by lag", xlabel="lag, records: bar = largest, diamond = mean of the period")
    counted_axis(axes.xaxis)
    return f"Bar chart of the largest lag by group: {listed(names, texts)}."


def worst_by_seconds(canvas: Canvas) -> str:
    """Longest time lag of the worst groups, and the last."""
    rows = canvas.numbers["worst_by_seconds"]
    if not rows:
        return ""
    size, unit = time_unit(rows[0]["longest_s"])
    names, longest = [canvas.label(row) for row in rows], [row["longest_s"] / size for row in rows]
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)))
    bars(canvas, axes, names, longest, alpha=0.85)
    last = [math.nan if row["last_s"] is None else row["last_s"] / size for row in rows]
    axes.plot(last, range(len(rows)), "D", color=canvas.style.text, markersize=5, linestyle="")
    texts = [duration(row["longest_s"]) for row in rows]
    bar_labels(axes, longest, texts)
    axes.set(
        title="Worst groups by time lag",
        xlabel=f"age of the oldest record not read, {unit}: bar = longest, diamond = at the end",
    )
    return f"Bar chart of the longest time lag by group: {listed(names, texts)}."


def lag_over_time(canvas: Canvas) -> str:
    """Lag of the worst groups and the sum of the others, on a logarithmic scale."""
    curves = canvas.curves(canvas.numbers["lag_over_time"], "lag")
    if not any(value > 0 for curve in curves.values() for value in curve):
        return ""
    times = moments(canvas.steps())
    [axes] = canvas.axes(height_in=4.6)
    for name, curve in curves.items():
        line = ":" if name == "all others" else "-"
        axes.plot(times, curve, line, color=canvas.color(name), label=name)  # type: ignore[arg-type]  # dates work
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    counted_axis(axes.yaxis)
    axes.grid(axis="both")
    canvas.time_axis(axes)
    step = span(canvas.period.step_ms)
    axes.set(
        title="Lag over time", ylabel="records (log scale)", xlabel=f"time (UTC), largest in each {step}"
    )
    canvas.figure.legend(loc="outside lower center", ncols=min(4, len(curves)))
    peaks = {name: max((v for v in curve if v == v), default=0) for name, curve in curves.items()}  # noqa: PLR0124 - not NaN
    texts = [f"up to {count(peak)}" for peak in peaks.values()]
    return f"Line chart of lag over time: {listed(list(peaks), texts)}."


def lag_heat(canvas: Canvas) -> str:
    """Lag of each of the worst groups by step, as colour."""
    from matplotlib.colors import LogNorm

    curves = canvas.curves(canvas.numbers["lag_over_time"], "lag")
    curves.pop("all others", None)
    largest = max((value for curve in curves.values() for value in curve if value > 0), default=0)
    if not largest:
        return ""
    order = [name for row in canvas.numbers["worst_by_lag"] if (name := canvas.label(row)) in curves]
    steps = canvas.steps()
    edges = moments([*steps, steps[-1] + canvas.period.step_ms])
    [axes] = canvas.axes(height_in=bars_height_in(len(order)) + 0.4)
    cells = [[value if value > 0 else math.nan for value in curves[name]] for name in order]
    norm = LogNorm(vmin=max(1.0, largest / 1e6), vmax=max(largest, 10.0), clip=True)
    mesh = axes.pcolormesh(
        edges,  # type: ignore[arg-type]  # dates work
        range(len(order) + 1),
        cells,
        norm=norm,
        cmap=canvas.style.heat,
        rasterized=True,
    )
    axes.hlines(range(1, len(order)), edges[0], edges[-1], color=canvas.style.back, linewidth=2)  # type: ignore[arg-type]
    axes.set_yticks([place + 0.5 for place in range(len(order))], order)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    canvas.time_axis(axes)
    step = span(canvas.period.step_ms)
    axes.set(
        title="When groups lag", xlabel=f"time (UTC), largest in each {step}; blank: no lag, or not known"
    )
    bar = canvas.figure.colorbar(mesh, ax=axes, label="lag, records", pad=0.015)
    counted_axis(bar.ax.yaxis)
    return f"Heat map of lag by group and time, {step} a cell, up to {count(largest)} records ({order[0]})."


def flow(canvas: Canvas) -> str:
    """Consumed against produced, an axis for each of the worst groups and one for the others."""
    rows = canvas.numbers["flow_over_time"]
    consumed, produced = canvas.curves(rows, "consumed"), canvas.curves(rows, "produced")
    if not consumed:
        return ""
    step_s = canvas.period.step_ms / 1000
    whole = _whole_steps(canvas)
    steps = canvas.steps()
    times = moments([steps[place] for place in whole])
    lines = -(-len(consumed) // 2)
    grid = canvas.axes(height_in=1.0 + 1.75 * lines, rows=lines, columns=2, share=True)
    for axes, name in zip(grid, consumed, strict=False):
        for curves, color, what in (
            (produced, canvas.style.muted, "produced"),
            (consumed, canvas.style.cycle[0], "consumed"),
        ):
            values = [curves[name][place] / step_s for place in whole]
            axes.plot(times, values, color=color, linewidth=1.5, label=what)  # type: ignore[arg-type]  # dates work
        axes.set_title(name, fontsize=10)
        axes.set_ylim(bottom=0)
        counted_axis(axes.yaxis)
        axes.grid(axis="both")
        canvas.time_axis(axes, most=5)
    for axes in grid[len(consumed) - 2 : len(consumed)]:
        axes.tick_params(labelbottom=True)
    for axes in grid[len(consumed) :]:
        axes.set_visible(False)
    canvas.figure.suptitle("Consumed against produced", x=0.01, ha="left", fontsize=12, fontweight="bold")
    canvas.figure.supylabel("records/s", fontsize=10)
    canvas.figure.supxlabel(f"time (UTC), mean of each {span(canvas.period.step_ms)}", fontsize=10)
    handles, labels = grid[0].get_legend_handles_labels()
    canvas.figure.legend(handles, labels, loc="outside upper right", ncols=2)
    texts = [f"{count(_sum(consumed[name]))} of {count(_sum(produced[name]))}" for name in consumed]
    return f"Line charts of records consumed and produced a second by group: {listed(list(consumed), texts)}."


def _whole_steps(canvas: Canvas) -> list[int]:
    """Steps that lie in the period whole and have one before them."""
    step, until = canvas.period.step_ms, canvas.period.until_ms
    places = [place for place, begin in enumerate(canvas.steps()) if place and begin + step <= until]
    return places or list(range(len(canvas.steps())))


def _sum(curve: list[float]) -> float:
    return sum(value for value in curve if not math.isnan(value))


def changes(canvas: Canvas) -> str:
    """Rebalances, and members that came and went, on a time line."""
    rows = canvas.numbers["changes_over_time"]
    totals = canvas.numbers["changes_by_group"]
    if not rows:
        return ""
    names = [canvas.label(row) for row in totals]
    [axes] = canvas.axes(height_in=bars_height_in(len(names)) + 0.7)
    half = canvas.period.step_ms // 2
    looks = (
        ("rebalances", "rebalance", "o", canvas.style.cycle[0], 0.0),
        ("joined", "members joined", "^", canvas.style.cycle[2], -0.24),
        ("left", "members left", "v", canvas.style.cycle[1], 0.24),
    )
    for column, label, marker, color, shift in looks:
        some = [row for row in rows if row[column]]
        axes.scatter(
            [utc(row["step_ms"] + half) for row in some],  # type: ignore[arg-type]  # dates work
            [names.index(canvas.label(row)) + shift for row in some],
            s=[16 + 9 * min(row[column], 20) for row in some],
            marker=marker,
            color=color,
            alpha=0.8,
            label=label,
        )
    _timeline(canvas, names)
    axes.set_title("Rebalances and member changes")
    texts = [f"{row['rebalances']} rebalances" for row in totals]
    return f"Time line of rebalances and member changes by group: {listed(names, texts)}."


def _timeline(canvas: Canvas, names: list[str]) -> None:
    [axes] = canvas.figure.axes
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="both")
    canvas.time_axis(axes)
    step = span(canvas.period.step_ms)
    axes.set_xlabel(f"time (UTC), a mark for each {step}; larger: more")
    legend = canvas.figure.legend(loc="outside lower center", ncols=3)
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([45])


def resets(canvas: Canvas) -> str:
    """Commits that went back, and those that jumped while nobody was a member."""
    rows, totals = canvas.numbers["resets_over_time"], canvas.numbers["resets_by_group"]
    if not rows:
        return ""
    names = [canvas.label(row) for row in totals]
    [axes] = canvas.axes(height_in=bars_height_in(len(names)) + 0.7)
    looks = (
        ("rewind", "rewound", "<", canvas.style.cycle[1]),
        ("skip", "skipped ahead", ">", canvas.style.cycle[0]),
        ("topic re-created", "topic re-created", "X", canvas.style.cycle[3]),
    )
    for kind, label, marker, color in looks:
        some = [row for row in rows if row["kind"] == kind]
        if some:
            axes.scatter(
                [utc(row["at_ms"]) for row in some],  # type: ignore[arg-type]  # dates work
                [names.index(canvas.label(row)) for row in some],
                s=[40 + 12 * math.log10(max(row["records"], 1)) for row in some],
                marker=marker,
                color=color,
                label=label,
            )
    for row in rows if len(rows) <= 3 * len(names) else []:
        where = (utc(row["at_ms"]), names.index(canvas.label(row)))
        axes.annotate(count(row["records"]), where, xytext=(9, 6), textcoords="offset points", fontsize=9)
    _timeline(canvas, names)
    axes.set_title("Rewinds and resets, with the records that they moved by")
    texts = [f"{count(row['rewound'])} rewound, {count(row['skipped'])} skipped" for row in totals]
    return f"Time line of rewinds and resets by group, in records: {listed(names, texts)}."


def lost(canvas: Canvas) -> str:
    """Records that retention removed unread, by step."""
    rows, totals = canvas.numbers["lost_over_time"], canvas.numbers["lost_by_group"]
    if not rows:
        return ""
    curves = canvas.curves(rows, "lost")
    [axes] = canvas.axes(height_in=3.6)
    steps = canvas.steps()
    base = [0.0] * len(steps)
    width = canvas.period.step_ms / 86_400_000
    for name, curve in curves.items():
        heights = [0.0 if math.isnan(value) else value for value in curve]
        axes.bar(
            moments(steps),  # type: ignore[arg-type]  # dates work
            heights,
            width,
            bottom=base,
            align="edge",
            color=canvas.color(name),
            label=name,
        )
        base = [below + height for below, height in zip(base, heights, strict=True)]
    counted_axis(axes.yaxis)
    axes.grid(axis="y")
    canvas.time_axis(axes)
    step = span(canvas.period.step_ms)
    axes.set(title="Records lost to retention", ylabel=f"records in each {step}", xlabel="time (UTC)")
    canvas.figure.legend(loc="outside lower center", ncols=min(4, len(curves)))
    names, texts = [canvas.label(row) for row in totals], [count(row["lost"]) for row in totals]
    return f"Bar chart over time of records that left the log before they were read: {listed(names, texts)}."


def idle(canvas: Canvas) -> str:
    """How long groups that are dead or silent have not committed."""
    rows = canvas.numbers["idle"]
    if not rows:
        return ""
    size, unit = time_unit(max(row["silent_h"] or 0 for row in rows) * 3600)
    names, silent = (
        [canvas.label(row) for row in rows],
        [(row["silent_h"] or 0) * 3600 / size for row in rows],
    )
    kinds = sorted({row["kind"] for row in rows})
    colors = {kind: canvas.style.cycle[place] for place, kind in enumerate(kinds)}
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)) + 0.4)
    bars(canvas, axes, names, silent, color=[colors[row["kind"]] for row in rows])
    texts = [row["kind"] + (f", lag {count(row['lag'])}" if row["lag"] else "") for row in rows]
    bar_labels(axes, silent, texts, room=0.5)
    axes.set(
        title="Groups that are dead or silent", xlabel=f"{unit} from the last commit to the end of the period"
    )
    return f"Bar chart of the time since the last commit: {listed(names, texts)}."


def hot_partitions(canvas: Canvas) -> str:
    """The busiest partition of each topic, against the mean."""
    rows = canvas.numbers["hot_partitions"]
    if not rows:
        return ""
    names = [shown(f"{row['topic']}-{row['partition']}") for row in rows]
    times = [row["times_mean"] for row in rows]
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)) + 0.3)
    bars(canvas, axes, names, times, color=canvas.style.cycle[0])
    axes.axvline(1, color=canvas.style.text, linestyle="--", linewidth=1.2, label="the mean of its topic")
    texts = [f"{time:.2g}x ({count(row['produced'])})" for time, row in zip(times, rows, strict=True)]
    bar_labels(axes, times, texts)
    axes.set(title="Hot partitions", xlabel="records produced, as a multiple of the topic's mean partition")
    canvas.figure.legend(loc="outside lower right")
    return f"Bar chart of each topic's busiest partition against the mean: {listed(names, texts)}."


def skew(canvas: Canvas) -> str:
    """How much of a group's lag lies in one partition."""
    rows = canvas.numbers["skewed_groups"]
    if not rows:
        return ""
    names = [shown(f"{canvas.label(row)}: {row['topic']}-{row['partition']}") for row in rows]
    shares = [100 * row["share"] for row in rows]
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)) + 0.3)
    bars(canvas, axes, names, shares, color=canvas.style.cycle[2])
    fair = [100 / row["partitions"] for row in rows]
    axes.plot(
        fair,
        range(len(rows)),
        "|",
        color=canvas.style.text,
        markersize=16,
        markeredgewidth=2,
        label="an even share",
    )
    texts = [f"{share:.0f} % of {count(row['topic_lag'])}" for share, row in zip(shares, rows, strict=True)]
    bar_labels(axes, shares, texts)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlim(0, 122)
    axes.set(title="Lag in one partition", xlabel="share of the group's lag on the topic at the end, %")
    canvas.figure.legend(loc="outside lower right")
    return f"Bar chart of the share of a group's lag that lies in one partition: {listed(names, texts)}."


def retention(canvas: Canvas) -> str:
    """Hours that are left."""
    rows = canvas.numbers["retention"]
    if not rows:
        return ""
    names, hours = [canvas.label(row) for row in rows], [row["hours"] for row in rows]
    [axes] = canvas.axes(height_in=bars_height_in(len(rows)))
    colors = [canvas.style.bad if left < 24 else canvas.style.cycle[0] for left in hours]
    bars(canvas, axes, names, hours, color=colors)
    texts = [f"{left:.3g} h" if left else "overtaken: losing records" for left in hours]
    bar_labels(axes, hours, texts)
    axes.set(
        title="Time until retention overtakes a group",
        xlabel="hours at the last day's speed; red: less than a day",
    )
    return f"Bar chart of hours until retention overtakes a group: {listed(names, texts)}."
