"""The options of `koff pipeline`: their types, those that its commands share, and their order in --help."""

from pathlib import Path
from typing import Any

import click
from click import option

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
