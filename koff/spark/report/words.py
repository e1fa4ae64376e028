"""Names and numbers of a report as people read them."""

from koff.spark.report.history import Row, Rows

Numbers = dict[str, Rows]
"""The tables of a report, by name."""


def clean_name(name: str) -> str:
    """The name with `?` for characters that move or hide text. Any client may choose any name."""
    return "".join(c if c.isprintable() else "?" for c in name) or '""'


def name_group(row: Row, numbers: Numbers) -> str:
    """The group of a row, with its cluster if the report has several. None is the sum of groups not shown."""
    if row["group"] is None:
        return "all others"
    several = (numbers["summary"][0]["clusters"] or 0) > 1
    name = clean_name(row["group"])
    return f"{name} of {clean_name(row['cluster'])}" if several else name


def format_count(value: float | None) -> str:
    """The number as `7.8 M`; `-` if it is unknown."""
    if value is None:
        return "-"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            return f"{scaled:.3g} {unit}" if abs(scaled) < 999.5 else f"{scaled:,.0f} {unit}"
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


def format_share(value: float) -> str:
    """A part of one, in percent: `99.95 %`."""
    return f"{100 * value:,.2f} %"


def list_first(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
