"""`koff lag`: prints the lag of all consumer groups."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import click
from click import option

from koff.cli.group_order import SORTS, Sort, select_lagging, sort_totals
from koff.cli.lag_tables import format_groups, format_partitions
from koff.cli.log_lines import set_up_logs
from koff.cli.looks import take_looks
from koff.cli.options import (
    GROUP_FILTER,
    choose_end_interval_s,
    cluster_options,
    group_options,
    read_cluster,
    timeout_option,
    watch_options,
)
from koff.cli.standard_streams import find_width, has_terminal
from koff.cli.view_facts import describe_groups, find_causes, list_unknown
from koff.config.kinds import count
from koff.config.monitors import build_look
from koff.monitor.plan import Way
from koff.serve.api.group_objects import build_group
from koff.tracker import GroupTotal, PartitionLag
from koff.view.cluster_view import ClusterView
from koff.view.csv_text import write_csv
from koff.view.wording import show

ABOVE, UNKNOWN = 3, 4
"""Exit codes: a lag is above the limit of --fail-above; a lag is unknown. Without --fail-above, only a lag
that koff could not find out in time counts as unknown."""


@click.command()
@cluster_options
@GROUP_FILTER
@option("--partitions", is_flag=True, help="Also a table of the partitions. Implied by --group.")
@option(
    "--sort",
    type=click.Choice(SORTS),
    default="worst",
    help="The order of the groups. worst: by verdict, then by time lag as a share of what "
    "is allowed. time: the age of the oldest record that is not committed.",
)
@option("--lagging", is_flag=True, help="Only groups with a lag, or whose lag is not known.")
@option("--top", type=count(1), help="Only the first N groups.")
@option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    help="The format of the output.",
)
@option(
    "--fail-above",
    type=count(0),
    help="Exit with code 3 if the total lag of a group is above N; else with code 4 if a lag is unknown (a "
    "partition without commit or end offset), or if no group matches.",
)
@option(
    "--start",
    "way",
    type=click.Choice(["snapshot", "replay"]),
    default="snapshot",
    help="snapshot: ask the coordinators, and read the newest commits, which is fast (needs DESCRIBE on the "
    "groups). replay: read the whole log.",
)
@group_options
@timeout_option(
    "Print what is known after this time at the latest. If a lag could not be found out until then, say "
    "why on standard error, and exit with code 4."
)
@watch_options(
    "A live view on a terminal (? shows its keys); piped, or with --partitions or another --format, repeat "
    "the output until Ctrl-C."
)
def lag(
    group: re.Pattern[str] | None,
    form: str,
    fail_above: int | None,
    way: Way,
    timeout_s: float,
    watch: bool,
    interval: float,
    partitions: bool,
    sort: Sort,
    lagging: bool,
    top: int | None,
    **_: Any,
) -> None:
    """Print the lag of all consumer groups, the worst first, and what is wrong with them.

    Lag is the end offset minus the committed offset. The lag of a group is the sum of its known lags; UNKNOWN
    is the number of partitions without one. WHY is one sentence: what is wrong, as far as one look shows it
    (`koff monitor` sees more), and how much waits; or why the lag is not known.

    In the table of partitions, an unknown lag is "-", and WHY is the reason: no_commit, topic_gone,
    end_unknown, or topic_recreated (the commit belongs to an earlier topic with the same name). With
    commits_not_current or end_not_current, koff could not find out the present offset. For a known lag, WHY
    may be below_log_start (retention deleted records before the group read them) or ahead_of_log (the commit
    is beyond the end offset). SECONDS is the age of the oldest record that is not committed.

    On a narrow terminal, the sentence is below the numbers, columns are left out and names shortened; piped,
    the table has all of them.

    \b
    Examples:
      koff lag --brokers localhost:9092
      koff lag --brokers localhost:9092 --lagging --top 10 --sort time
      koff lag --brokers localhost:9092 --group '^payments$' --fail-above 1000
      koff lag --brokers localhost:9092 --format json | jq '.groups[] | select(.lag > 0)'
      koff lag --brokers localhost:9092 --watch
      koff lag --config koff.yaml --cluster production
    """
    if watch and fail_above is not None:
        raise click.UsageError("--fail-above ends koff with a code, which --watch does not: use one of them")
    set_up_logs()
    cluster = read_cluster(click.get_current_context())
    end_interval_s = choose_end_interval_s(interval, watch=watch)
    conf = build_look(*cluster, start=way, end_interval_s=end_interval_s, records_per_s=None)
    is_selected: Callable[[str], Any] = group.search if group else lambda name: True
    if watch and form == "table" and not partitions and has_terminal():
        from koff.cli.live_view import LiveConf, run_live_view  # textual takes 0.2 s to import

        shows = LiveConf(
            conf.cluster.brokers, is_selected=is_selected, sort=sort, is_lagging=lagging, top=top
        )
        sys.exit(run_live_view(conf, interval, timeout_s, shows))
    erases = watch and form == "table"
    for view in take_looks(conf, interval_s=interval, timeout_s=timeout_s, erases=erases):
        every = view.snapshot.totals()
        found = [total for total in every if is_selected(total.group.name)]
        totals = select_lagging(sort_totals(found, sort), is_lagging=lagging)[:top]
        shown = {total.group.name: number for number, total in enumerate(totals)}
        found_rows = [row for row in view.snapshot.rows() if is_selected(row.group)]
        rows = sorted((row for row in found_rows if row.group in shown), key=lambda row: shown[row.group])
        is_short = form == "table" and not partitions and group is None
        _FORMATS[form](view, [] if is_short else rows, totals)
        sys.stdout.flush()
        _print_left_out(view, group, every=len(every), found=len(found), shown=len(totals))
        is_unknown = print_unknown(view, found_rows, found)
        if not watch:
            sys.exit(_check_limit(found, fail_above) or (UNKNOWN if is_unknown else 0))


def _print_left_out(
    view: ClusterView, group: re.Pattern[str] | None, *, every: int, found: int, shown: int
) -> None:
    """Says on standard error why there is no group, or that there are more."""
    where = f"in cluster {view.cluster or ''}"
    if not every:
        known = "no consumer groups" if view.knows_groups else "no group is known"
        click.echo(f"{known} {where}", err=True)
    elif not found and group is not None:
        click.echo(f"no group matches --group {group.pattern}: there are {every} groups {where}", err=True)
    elif shown < found:
        click.echo(f"{shown} of {found} groups", err=True)


def print_unknown(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> bool:
    """Whether koff could not find out a lag. Prints how many and why on standard error."""
    causes = list_unknown(view, rows, totals)
    if causes:
        click.echo(f"not all is known: {'; '.join(causes)}", err=True)
    return bool(causes)


def _check_limit(totals: list[GroupTotal], fail_above: int | None) -> int:
    """The exit code. Prints the names of the groups that cause it on standard error."""
    if fail_above is None:
        return 0
    above = [t for t in totals if t.lag is not None and t.lag > fail_above]
    unknown = [t for t in totals if t.unknown or t.lag is None]
    if above:
        click.echo(f"lag above {fail_above}: {', '.join(show(t.group.name) for t in above)}", err=True)
        return ABOVE
    if unknown or not totals:
        named = ", ".join(f"{show(t.group.name)} ({t.reason or 'lags_unknown'})" for t in unknown)
        click.echo(f"lag unknown: {named or 'no group found; check --group'}", err=True)
        return UNKNOWN
    return 0


def _print_table(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    if not totals:
        return
    width = find_width()
    click.echo(str(format_groups(totals, describe_groups(view, totals), width)), nl=False)
    if rows:
        named = [{**_row_fields("", row), "reasons": row.reasons.names} for row in rows]
        click.echo(f"\n{format_partitions(named, width)}", nl=False)


def _print_csv(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    write_csv(sys.stdout, _FIELDS, (_row_fields(view.cluster or "", row).values() for row in rows))


def _print_json(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    causes = find_causes(view, totals)
    document = {
        "cluster": view.cluster or "",
        "groups": [build_group(t, causes[t.group.name], view.owners.find(t.group.name)) for t in totals],
        "partitions": [_row_fields(view.cluster or "", row) for row in rows],
    }
    click.echo(json.dumps(document, ensure_ascii=False))


_FIELDS = (
    *("cluster", "group", "state", "topic", "partition", "committed", "end", "lag"),
    *("readable", "lost", "lag_to_stable", "time_lag_s", "time_lag_source", "at_least", "status", "reasons"),
    *("client_id", "client_host"),
    *("complete", "consume_per_s", "produce_per_s", "catch_up_s", "never_catches_up"),
)


def _row_fields(cluster: str, row: PartitionLag) -> dict[str, str | float | None]:
    """A row of JSON or CSV: the values of `_FIELDS`, in that order."""
    member = row.member
    key = (cluster, row.group, row.state, row.topic, row.partition)
    lags = (row.committed, row.end, row.published_lag, row.readable, row.lost, row.lag_to_stable)
    time_lag = (row.time_lag_s, row.time_lag_source, row.at_least)
    reasons = " ".join(row.reasons.names)
    client = (member.client_id, member.client_host) if member else (None, None)
    values = (*key, *lags, *time_lag, row.status.name, reasons, *client, row.complete, *row.pace)
    return dict(zip(_FIELDS, values, strict=True))


_FORMATS = {"table": _print_table, "csv": _print_csv, "json": _print_json}
