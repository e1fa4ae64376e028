"""The options of `koff pipeline`: their types, those that its commands share, and their order in --help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click import option

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SECTIONS = {
    "Cluster": (
        "brokers",
        "property",
        "property-file",
        "offsets-topic",
        "cluster-name",
        "config",
        "segments",
    ),
    "Tables": ("tables", "keep", "maintain-every"),
    "Spark": ("master", "spark-conf", "jars"),
    "Logs": ("log-format", "log-level"),
}
"""By the title in --help: the options in it. All others come before, under the title Options."""


class SectionedCommand(click.Command):
    """A command whose --help shows options in sections, and the rule of environment variables in one line."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections."""
        titles = {f"--{name}": title for title, names in _SECTIONS.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {"Options": [], **{title: [] for title in _SECTIONS}}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option):
                parameter.show_envvar = False  # the last line names them all
                record = parameter.get_help_record(ctx)
                if record is not None:
                    records[titles.get(max(parameter.opts, key=len), "Options")].append(record)
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        variable = next(str(each.envvar[0]) for each in self.params if each.name == "tables" and each.envvar)
        formatter.write_paragraph()
        formatter.write_text(f"Each option has an environment variable: --tables is {variable}.")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """The type of an option that takes a duration: seconds, or a number with a unit (30s, 5m, 12h, 90d)."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with click's error."""
        if isinstance(value, int | float):
            return float(value)
        number, unit = (value[:-1], value[-1]) if value[-1:] in _UNITS_S else (value, "s")
        try:
            seconds = float(number) * _UNITS_S[unit]
        except ValueError:
            self.fail(f"{value!r} is not a duration: write for example 30s, 5m, 12h or 90d", param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a duration above zero", param, ctx)
        return seconds


def tables_options(command: Any) -> Any:
    """Adds --tables and the options of Spark."""
    tables = option(
        "--tables",
        required=True,
        metavar="DIR",
        help="The folder of the tables, or another URL that Spark can write to (s3a://...).",
    )
    master = option(
        "--master",
        metavar="URL",
        help="The master URL of Spark.  [default: that of spark-submit, else local[*]]",
    )
    conf = option(
        "--spark-conf",
        "spark_conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark; repeatable.",
    )
    jars = option(
        "--jars",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A folder with Delta's jars, for a machine without a network.  [default: Spark downloads them]",
    )
    # As stacked decorators: --tables is the first in --help.
    return tables(master(conf(jars(command))))
