"""The common parts of all pictures: light and dark colours, axes, numbers for people, SVG and PNG output."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from koff.spark.report.history import Row, Rows
from koff.spark.report.period import Period, to_datetime

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.0
_LONGEST_LABEL = 38
_DRAWABLE = 0x530
"""The first code point that matplotlib's own font may lack; below are Latin, Greek and Cyrillic."""


@dataclass(frozen=True, slots=True)
class Style:
    """The colours of a picture. `cycle` has one for each group; people who confuse red and green can tell
    them apart."""

    name: str
    back: str
    text: str
    muted: str
    grid: str
    bad: str
    heat: str
    cycle: tuple[str, ...]


LIGHT = Style(
    name="light",
    back="#ffffff",
    text="#1c252e",
    muted="#5d6975",
    grid="#dde2e7",
    bad="#b3261e",
    heat="YlOrRd",
    cycle=("#0072b2", "#d55e00", "#00845f", "#b8559a", "#a67c00", "#3a97d3", "#6f4aa8", "#8c564b"),
)
DARK = Style(
    name="dark",
    back="#14181d",
    text="#e8ebee",
    muted="#a3adb8",
    grid="#343c46",
    bad="#ff8a80",
    heat="plasma",
    cycle=("#4fa8e0", "#ff8a4c", "#3ccb9b", "#e79bc4", "#e6c34a", "#a5d8f7", "#b79ce0", "#cf9f8f"),
)
STYLES = (LIGHT, DARK)

Numbers = dict[str, Rows]
"""The tables of a report, by name."""


@dataclass(slots=True)
class Canvas:
    """A figure to draw on, with the numbers, the period and the colours.

    `places` gives each group a number, and so its colour in the cycle.
    """

    numbers: Numbers
    period: Period
    style: Style
    figure: Figure
    places: dict[str, int] = field(default_factory=dict)

    def create_axes(
        self, *, height_in: float, rows: int = 1, columns: int = 1, share: bool = False
    ) -> list[Axes]:
        """`rows` times `columns` axes, in a figure of this height. With `share` they have one time axis."""
        self.figure.set_size_inches(WIDTH_IN, height_in)
        grid = self.figure.subplots(rows, columns, sharex=share, squeeze=False)
        return list(grid.flat)

    def label(self, row: Row) -> str:
        """The group's name for pictures, with its cluster if the report has several clusters.

        The row without a group is the sum of the groups that are not shown one by one.
        """
        if row["group"] is None:
            return "all others"
        several = (self.numbers["summary"][0]["clusters"] or 0) > 1
        return shorten_name(f"{row['cluster']} / {row['group']}" if several else row["group"])

    def color(self, label: str) -> str:
        """The group's colour, which is the same in all pictures of the report."""
        # The worst groups get their numbers first, in an order that does not depend on the picture.
        if not self.places:
            for row in (*self.numbers["worst_by_lag"], *self.numbers["worst_by_seconds"]):
                self.places.setdefault(self.label(row), len(self.places))
        if label == "all others":
            return self.style.muted
        place = self.places.setdefault(label, len(self.places))
        return self.style.cycle[place % len(self.style.cycle)]

    def steps(self) -> list[int]:
        """The begin of each step of the period, in milliseconds."""
        step = self.period.step_ms
        return list(range(self.period.since_ms // step * step, self.period.until_ms, step))

    def curves(self, rows: Rows, column: str) -> dict[str, list[float]]:
        """The values of `column` by group, one for each of `steps`, NaN without one; worst group first."""
        place = {step: number for number, step in enumerate(self.steps())}
        curves: dict[str, list[float]] = {}
        for row in rows:
            curve = curves.setdefault(self.label(row), [math.nan] * len(place))
            if row[column] is not None:
                curve[place[row["step_ms"]]] = float(row[column])
        ranks = {self.label(row): rank for rank, row in enumerate(self.numbers["worst_by_lag"])}
        return {name: curves[name] for name in sorted(curves, key=lambda name: ranks.get(name, len(ranks)))}

    def shade_unsampled(self, axes: Axes) -> str:
        """Shades the steps without a sample. Returns what the shade means; "" if there are none."""
        sampled = {row["step_ms"] for row in self.numbers["lag_over_time"]}
        first, last = find_data_span(self.numbers, self.period)
        empty = [step for step in self.steps() if step not in sampled and first <= step < last]
        if not sampled or not empty:
            return ""
        for step in empty:
            begin, end = to_datetime(step), to_datetime(step + self.period.step_ms)
            axes.axvspan(begin, end, color=self.style.grid, linewidth=0, alpha=0.6, zorder=0)  # type: ignore[arg-type]  # dates work
        return "; shaded: no samples"

    def format_time_axis(self, axes: Axes, *, most: int = 8) -> None:
        """Makes the x axis the time that has data, in UTC, with at most about `most` ticks."""
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=most)  # type: ignore[no-untyped-call]  # untyped
        axes.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(  # type: ignore[no-untyped-call]  # untyped in matplotlib
            locator,
            tz=UTC,
            formats=["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
            zero_formats=["%Y", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
            show_offset=False,
        )
        axes.xaxis.set_major_formatter(dates)
        since, until = map(to_datetime, find_data_span(self.numbers, self.period))
        axes.set_xlim(since, until)  # type: ignore[arg-type]  # dates work


def find_data_span(numbers: Numbers, period: Period) -> tuple[int, int]:
    """The part of the period that has samples or events, in milliseconds; the whole period without any."""
    begins = [row["step_ms"] for rows in numbers.values() for row in rows if "step_ms" in row]
    begins += [row["at_ms"] for row in numbers.get("resets_over_time", ())]
    if not begins:
        return period.since_ms, period.until_ms
    begin, end = max(period.since_ms, min(begins)), min(period.until_ms, max(begins) + period.step_ms)
    return begin, max(end, begin + 1)


Drawing = Callable[[Canvas], str]
"""Draws on the canvas and returns the alternative text; returns "" if there is no data to draw."""


def render(draw: Drawing, numbers: Numbers, period: Period, style: Style, form: str) -> tuple[bytes, str]:
    """The picture in `form` (`svg` or `png`) and its alternative text; both empty without data to draw."""
    from matplotlib.figure import Figure

    with _apply_style(style):
        canvas = Canvas(numbers, period, style, Figure(layout="constrained"))
        text = draw(canvas)
        if not text:
            return b"", ""
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None  # the same numbers give the same bytes
        canvas.figure.savefig(out, format=form, dpi=144, metadata=metadata)
        return out.getvalue(), text


@contextmanager
def _apply_style(style: Style) -> Iterator[None]:
    from matplotlib import rc_context

    colors: dict[Any, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), style.text)
    colors |= dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), style.text)
    colors |= dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor", "grid.color"), style.grid)
    colors |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), style.back)
    shape: dict[Any, Any] = {
        "text.parse_math": False,  # a group may be called $a$
        "svg.hashsalt": "koff",
        "font.size": 10,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
    }
    with rc_context({**colors, **shape}):
        yield


def draw_bars(
    canvas: Canvas, axes: Axes, names: Sequence[str], values: Sequence[float], **options: Any
) -> None:
    """Draws horizontal bars, the first on top. `options` are those of `Axes.barh`."""
    options.setdefault("color", canvas.style.cycle[0])  # one colour: the length is what counts
    axes.barh(range(len(names)), values, height=0.62, **options)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlim(left=0)


def draw_bar_labels(axes: Axes, values: Sequence[float], texts: Sequence[str], *, room: float = 0.22) -> None:
    """Writes a text at the end of each bar. `room` is the share of the width that is added for the texts."""
    axes.set_xlim(0, (max(values, default=0) or 1) * (1 + room))
    for place, (value, text) in enumerate(zip(values, texts, strict=True)):
        axes.annotate(text, (value, place), xytext=(7, 0), textcoords="offset points", va="center")


def bars_height_in(count: int) -> float:
    """The height of a figure with this number of bars."""
    return 1.5 + 0.36 * max(count, 2)


def clean_name(name: str) -> str:
    """The name with `?` for characters that move or hide text. Any client may choose any name."""
    return "".join(c if c.isprintable() else "?" for c in name) or '""'


def shorten_name(name: str) -> str:
    """The clean name for pictures: of limited length, with `?` for scripts that matplotlib's font lacks."""
    drawable = "".join(c if ord(c) < _DRAWABLE or c == "…" else "?" for c in clean_name(name))
    if len(drawable) <= _LONGEST_LABEL:
        return drawable
    half = (_LONGEST_LABEL - 1) // 2
    return f"{drawable[:half]}…{drawable[-half:]}"


def format_count(value: float | None) -> str:
    """The number as `7.8 M`; `-` if it is unknown."""
    if value is None or math.isnan(value):
        return "-"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return (
                f"{value / size:.3g} {unit}" if abs(value) < 999.5 * size else f"{value / size:,.0f} {unit}"
            )
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))


def choose_time_unit(longest_s: float) -> tuple[int, str]:
    """The unit for an axis that ends at `longest_s`: its length in seconds, and its name."""
    return next(((size, name) for size, name in _UNITS if longest_s >= 2 * size), _UNITS[-1])


def format_duration(seconds: float | None) -> str:
    """The duration as `9 d` or `1.5 h`; `-` if it is unknown."""
    if seconds is None:
        return "-"
    size, name = choose_time_unit(seconds)
    return f"{seconds / size:.3g} {'min' if name == 'minutes' else name[0]}"


def to_datetimes(steps_ms: Sequence[int]) -> list[datetime]:
    """The times for an axis, from milliseconds."""
    return [to_datetime(ms) for ms in steps_ms]


def format_count_axis(axis: Any) -> None:
    """Writes the ticks of the axis as `7.8 M`."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _place: format_count(value)))


def list_first(names: Sequence[str], texts: Sequence[str]) -> str:
    """The first three names with their texts, and how many more there are, for an alternative text."""
    first = ", ".join(f"{name} {text}" for name, text in list(zip(names, texts, strict=True))[:3])
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first
