"""What all pictures share: colours for light and dark, axes, numbers as people read them; SVG and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from koff.spark.report.history import Row, Rows
from koff.spark.report.period import Period, utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.0
_LONGEST_LABEL = 38
_DRAWABLE = 0x530  # Latin, Greek, Cyrillic


@dataclass(frozen=True, slots=True)
class Style:
    """Colours. `cycle` tells groups apart, also for eyes that confuse red and green."""

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
"""The tables of a report by name."""


@dataclass(slots=True)
class Canvas:
    """A figure to draw on, with the numbers, the period and the colours."""

    numbers: Numbers
    period: Period
    style: Style
    figure: Figure
    places: dict[str, int] = field(default_factory=dict)

    def axes(self, *, height_in: float, rows: int = 1, columns: int = 1, share: bool = False) -> list[Axes]:
        """That many axes, in a figure of that height."""
        self.figure.set_size_inches(WIDTH_IN, height_in)
        found = self.figure.subplots(rows, columns, sharex=share, squeeze=False)
        return list(found.flat)

    def label(self, row: Row) -> str:
        """The group's name, with its cluster where there are several."""
        if row["group"] is None:
            return "all others"
        several = (self.numbers["summary"][0]["clusters"] or 0) > 1
        return shown(f"{row['cluster']} / {row['group']}" if several else row["group"])

    def color(self, label: str) -> str:
        """The group's colour: the same in all pictures of the report."""
        if not self.places:
            for row in (*self.numbers["worst_by_lag"], *self.numbers["worst_by_seconds"]):
                self.places.setdefault(self.label(row), len(self.places))
        if label == "all others":
            return self.style.muted
        place = self.places.setdefault(label, len(self.places))
        return self.style.cycle[place % len(self.style.cycle)]

    def steps(self) -> list[int]:
        """Where each step of the period begins."""
        step = self.period.step_ms
        return list(range(self.period.since_ms // step * step, self.period.until_ms, step))

    def curves(self, rows: Rows, column: str) -> dict[str, list[float]]:
        """The column by group over `steps`, not a number where there is none; the worst first."""
        place = {step: number for number, step in enumerate(self.steps())}
        found: dict[str, list[float]] = {}
        for row in rows:
            curve = found.setdefault(self.label(row), [math.nan] * len(place))
            if row[column] is not None:
                curve[place[row["step_ms"]]] = float(row[column])
        ranks = {self.label(row): place for place, row in enumerate(self.numbers["worst_by_lag"])}
        return {name: found[name] for name in sorted(found, key=lambda name: ranks.get(name, len(ranks)))}

    def time_axis(self, axes: Axes, *, most: int = 8) -> None:
        """The period, in UTC."""
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator,
            tz=UTC,
            formats=["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
            zero_formats=["%Y", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
            show_offset=False,
        )
        axes.xaxis.set_major_formatter(dates)
        axes.set_xlim(utc(self.period.since_ms), utc(self.period.until_ms))  # type: ignore[arg-type]  # dates work


Drawing = Callable[[Canvas], str]
"""Draws on the canvas and gives the text for those who do not see it; empty without data."""


def rendered(draw: Drawing, numbers: Numbers, period: Period, style: Style, form: str) -> tuple[bytes, str]:
    """The picture as `svg` or `png` with its alternative text; both empty where there is nothing to draw."""
    from matplotlib.figure import Figure

    with _settings(style):
        canvas = Canvas(numbers, period, style, Figure(layout="constrained"))
        text = draw(canvas)
        if not text:
            return b"", ""
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        canvas.figure.savefig(out, format=form, dpi=144, metadata=metadata)
        return out.getvalue(), text


@contextmanager
def _settings(style: Style) -> Iterator[None]:
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


def bars(canvas: Canvas, axes: Axes, names: Sequence[str], values: Sequence[float], **options: Any) -> None:
    """Bars to the right, the first on top."""
    options.setdefault("color", [canvas.color(name) for name in names])
    axes.barh(range(len(names)), values, height=0.62, **options)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlim(left=0)


def bar_labels(axes: Axes, values: Sequence[float], texts: Sequence[str], *, room: float = 0.22) -> None:
    """A text at the end of each bar, and room for it."""
    axes.set_xlim(0, (max(values, default=0) or 1) * (1 + room))
    for place, (value, text) in enumerate(zip(values, texts, strict=True)):
        axes.annotate(text, (value, place), xytext=(7, 0), textcoords="offset points", va="center")


def bars_height_in(count: int) -> float:
    """Room for that many bars."""
    return 1.5 + 0.36 * max(count, 2)


def printable(name: str) -> str:
    """A name that any client may have chosen, without what moves or hides text."""
    return "".join(c if c.isprintable() else "?" for c in name) or '""'


def shown(name: str) -> str:
    """The same for pictures: of bounded length, without scripts that matplotlib's own font lacks."""
    drawable = "".join(c if ord(c) < _DRAWABLE or c == "…" else "?" for c in printable(name))
    if len(drawable) <= _LONGEST_LABEL:
        return drawable
    half = (_LONGEST_LABEL - 1) // 2
    return f"{drawable[:half]}…{drawable[-half:]}"


def count(value: float | None) -> str:
    """`7.8 M`; `-` when not known."""
    if value is None or math.isnan(value):
        return "-"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return (
                f"{value / size:.3g} {unit}" if abs(value) < 999.5 * size else f"{value / size:,.0f} {unit}"
            )
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))


def time_unit(longest_s: float) -> tuple[int, str]:
    """Seconds of the unit to draw in, and its name."""
    return next(((size, name) for size, name in _UNITS if longest_s >= 2 * size), _UNITS[-1])


def duration(seconds: float | None) -> str:
    """`9 d`, `1.5 h`; `-` when not known."""
    if seconds is None:
        return "-"
    size, name = time_unit(seconds)
    return f"{seconds / size:.3g} {'min' if name == 'minutes' else name[0]}"


def moments(steps_ms: Sequence[int]) -> list[datetime]:
    """For time axes."""
    return [utc(ms) for ms in steps_ms]


def counted_axis(axis: Any) -> None:
    """Ticks as `7.8 M`."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _place: count(value)))


def listed(names: Sequence[str], texts: Sequence[str]) -> str:
    """The first few, for the alternative text."""
    said = ", ".join(f"{name} {text}" for name, text in list(zip(names, texts, strict=True))[:3])
    return f"{said} and {len(names) - 3} more" if len(names) > 3 else said
