"""`koff pipeline status` and `koff pipeline check`: what the tables hold, and whether it is right."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click import option

from koff.cli.log_lines import set_up_logs
from koff.cli.options import clusters_options
from koff.cli.pipeline_options import SectionedCommand, tables_options
from koff.cli.pipeline_session import ChosenTables, read_watched_clusters
from koff.cli.text_table import format_table
from koff.cli.times import DURATION
from koff.config.kinds import count

if TYPE_CHECKING:
    from koff.config.clusters import WatchedCluster
    from koff.spark.job.table_checks import CheckResult
    from koff.spark.job.table_status import ClusterStatus, TableSize
    from koff.spark.tables.delta_tables import Tables

FAILED = 3
"""Exit code of `check`: a check failed."""


_FORMAT = option(
    "--format", "form", default="text", type=click.Choice(["text", "json"]), help="How to print."
)


@click.command(cls=SectionedCommand)
@tables_options
@_FORMAT
def status(form: str, **_: Any) -> None:
    """Show how fresh each cluster is, which process writes it, and how large the tables are.

    \b
    Example:
      koff pipeline status --tables lag-tables
    """
    set_up_logs()
    with ChosenTables.read().open_existing() as tables:
        print_status(tables, form)


@click.command(cls=SectionedCommand)
@clusters_options
@tables_options
@option("--max-age", default="5m", type=DURATION, help="The highest age of the newest sample of lag.")
@option(
    "--max-behind",
    default=100_000,
    type=count(0),
    help="How many offsets of the brokers the tables may lack (with --brokers or --config).",
)
@_FORMAT
def check(max_age: float, max_behind: int, form: str, **options: Any) -> None:
    """Check the tables: each row once, no gap in the offsets, and a fresh sample of lag.

    With --brokers or --config, also that the tables agree with what the brokers have. Exit code: 3 if a check
    failed.

    \b
    Examples:
      koff pipeline check --tables lag-tables
      koff pipeline check --tables lag-tables --config koff.yaml --max-age 10m --format json
    """
    set_up_logs()
    watched = read_watched_clusters() if options["brokers"] or options["config"] else []
    with ChosenTables.read().open_existing() as tables:
        print_checks(tables, watched, max_age_s=max_age, max_behind=max_behind, form=form)


def print_status(tables: Tables, form: str) -> None:
    """Prints the status of all clusters and the sizes of all tables."""
    from koff.spark.job.table_status import read_clusters_status, read_sizes

    clusters, sizes = read_clusters_status(tables), read_sizes(tables)
    if form == "json":
        found = {"clusters": [asdict(each) for each in clusters], "tables": [asdict(each) for each in sizes]}
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo(format_status(clusters, sizes, time.time_ns() // 1_000_000), nl=False)


def format_status(clusters: Sequence[ClusterStatus], sizes: Sequence[TableSize], now_ms: int) -> str:
    """The status for people: a table of clusters, and a table of tables."""
    if not clusters:
        text = "no cluster has rows yet\n"
    else:
        header = ("CLUSTER", "GROUPS", "SLOTS", "NEWEST COMMIT", "NEWEST SAMPLE", "WRITTEN BY")
        rows = [
            (
                each.cluster,
                each.groups,
                each.slots,
                _format_age(each.newest_commit_ms, now_ms),
                _format_age(each.newest_sample_ms, now_ms),
                each.writer or "no process",
            )
            for each in clusters
        ]
        text = format_table(header, rows)
    table = [(each.table, each.rows, each.files, round(each.size_bytes / 1e6, 1)) for each in sizes]
    return f"{text}\n{format_table(('TABLE', 'ROWS', 'FILES', 'MB'), table)}"


def _format_age(ms: int | None, now_ms: int) -> str | None:
    if ms is None:
        return None
    at = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{at} ({max(0, now_ms - ms) // 1000:,} s ago)"


def print_checks(
    tables: Tables, watched: Sequence[WatchedCluster], *, max_age_s: float, max_behind: int, form: str
) -> None:
    """Runs all checks and prints a line for each. Exits with `FAILED` if one failed."""
    results = run_checks(tables, watched, max_age_s=max_age_s, max_behind=max_behind)
    if form == "json":
        click.echo(json.dumps([asdict(each) for each in results], indent=1))
    else:
        for each in results:
            click.echo(f"{'ok' if each.ok else 'FAIL':<4} {each.name:<22} {each.of:<14} {each.text}")
    sys.exit(0 if all(each.ok for each in results) else FAILED)


def run_checks(
    tables: Tables, watched: Sequence[WatchedCluster], *, max_age_s: float, max_behind: int
) -> list[CheckResult]:
    """The results of all checks. The check against brokers is only of the clusters in `watched`."""
    from koff.spark.job import table_checks as checks
    from koff.spark.job.table_status import read_clusters_status
    from koff.spark.tables.progress import read_plans

    ends = dict(checks.fetch_log_ends(each) for each in watched)
    results = checks.check_keys(tables)
    now_ms = time.time_ns() // 1_000_000
    for each in read_clusters_status(tables):
        plans = read_plans(tables, each.cluster, 0)
        results.append(checks.check_offsets(plans))
        results.append(checks.check_groups(tables, plans))
        results.append(checks.check_commits(tables, plans))
        results.append(checks.check_freshness(each, now_ms, max_age_s))
        if each.cluster in ends:
            results.append(checks.check_against_log(plans, ends[each.cluster], max_behind))
    return results
