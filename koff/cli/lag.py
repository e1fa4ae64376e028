"""`koff lag`: prints the lag of all consumer groups."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from koff.cli.options import (
    FiniteRange,
    Regex,
    cluster_options,
    exact_option,
    option,
    read_cluster,
    set_up_logs,
    source_option,
    zookeeper_option,
)
from koff.cli.text_table import format_table
from koff.lag import WITHHELD
from koff.monitor.conf import MonitorConf
from koff.monitor.plan import Way
from koff.monitor.watch import take_views
from koff.monitor.zookeeper import ZooKeeperConf
from koff.serve import ClusterView
from koff.serve.api.group_columns import GroupPlace, find_group_causes
from koff.serve.api.group_objects import GROUP, ExplainedTotal
from koff.serve.cause_texts import Finding
from koff.tracker import GroupTotal, PartitionLag

_NAMED = 5
ABOVE, UNKNOWN = 3, 4
"""Exit codes: a lag is above the limit of --fail-above; a lag is unknown. Without --fail-above, only a lag
that koff could not find out in time counts as unknown."""


@click.command()
@cluster_options
@option("--group", type=Regex(), help="Only groups whose name matches (anywhere in it: anchor with ^ and $).")
@option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    help="The format of the output.",
)
@option(
    "--fail-above",
    type=click.IntRange(min=0),
    metavar="N",
    help="Exit with code 3 if the total lag of a group is above N; else with code 4 if a lag is unknown (a "
    "partition without commit or end offset), or if no group matches.",
)
@option(
    "--start",
    "way",
    type=click.Choice(["snapshot", "replay"]),
    default="snapshot",
    help="snapshot: ask the coordinators, which is fast (needs DESCRIBE on the groups). replay: read "
    "the whole log.",
)
@source_option
@exact_option
@zookeeper_option
@option(
    "--timeout",
    "timeout_s",
    default=30.0,
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Print what is known after this time at the latest. If a lag could not be found out until then, say "
    "why on standard error, and exit with code 4.",
)
@option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@option(
    "--interval",
    default=2.0,
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Time between two outputs of --watch.",
)
def lag(
    group: re.Pattern[str] | None,
    form: str,
    fail_above: int | None,
    way: Way,
    exact_time_lag: re.Pattern[str] | None,
    timeout_s: float,
    watch: bool,
    interval: float,
    **_: Any,
) -> None:
    """Print the lag of all consumer groups, the highest first.

    Lag is the end offset minus the committed offset. An unknown lag is shown as "-", and the column WHY names
    the reason: no_commit, topic_gone, end_unknown, or topic_recreated (the commit belongs to an earlier topic
    with the same name). With commits_not_current or end_not_current, koff could not find out the present
    offset, and shows no total of the group. For a known lag, WHY may be below_log_start (retention deleted
    records before the group read them) or ahead_of_log (the commit is beyond the end offset). SECONDS, shown
    with --exact-time-lag, is the age of the oldest record that is not committed. A total is the sum of the
    known lags; UNKNOWN is the number of partitions without one. WHY of a group without a total is
    commits_not_current, rows_missing (koff does not know all partitions of a share group), lags_withheld,
    lags_unknown or no_partitions. The last table says why groups lag, as far as koff sees it in this
    moment: `koff monitor` sees more (docs/causes.md).

    \b
    Examples:
      koff lag --brokers localhost:9092
      koff lag --brokers localhost:9092 --group '^payments$' --fail-above 1000
      koff lag --brokers localhost:9092 --format json | jq '.groups[] | select(.lag > 0)'
      koff lag --brokers localhost:9092 --watch
      koff lag --config koff.yaml --cluster production
      koff lag --brokers localhost:9092 --exact-time-lag '^payments$'
    """
    set_up_logs()
    cluster = read_cluster(click.get_current_context())
    conf = MonitorConf(
        cluster=cluster.conf,
        start=way,
        source=cluster.settings["source"],
        offsets_topic=cluster.settings["offsets_topic"],
        end_interval_s=min(max(interval, 1.0), 5.0) if watch else 5.0,
        exact_groups=exact_time_lag,
        exact_per_s=None,
        zookeeper=ZooKeeperConf(cluster.settings["zookeeper"]),
    )
    is_selected: Callable[[str], Any] = group.search if group else lambda name: True
    progress = _show_progress if sys.stderr.isatty() else lambda text: None
    # One output, or with --watch one for each view
    for view in take_views(conf, interval_s=interval, timeout_s=timeout_s, progress=progress):
        if sys.stderr.isatty():
            _show_progress("")
        if watch and form == "table" and sys.stdout.isatty():
            click.clear()
        rows = [row for row in view.snapshot.rows() if is_selected(row.group)]
        totals = [total for total in view.snapshot.totals() if is_selected(total.group.name)]
        _FORMATS[form](view, rows, totals)
        sys.stdout.flush()
        is_unknown = _print_unknown(view, rows, totals)
        if not watch:
            sys.exit(_check_limit(totals, fail_above) or (UNKNOWN if is_unknown else 0))


def _print_unknown(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> bool:
    """Whether koff could not find out a lag. Prints how many and why on standard error."""
    causes = [] if view.readiness.ready else [view.readiness.text]
    withheld = [row for row in rows if row.reasons & WITHHELD]
    if withheld:
        names = sorted({name for row in withheld for name in (row.reasons & WITHHELD).names})
        causes.append(f"{len(withheld)} of {len(rows)} lags are not known ({', '.join(names)})")
    causes += view.stats.missing
    shares = sorted(total.group.name for total in totals if not total.whole)
    if shares:
        named = ", ".join([*shares[:_NAMED], *(["..."] if len(shares) > _NAMED else [])])
        why = f": {view.stats.missing_shares_why}" if view.stats.missing_shares_why else ""
        causes.append(f"lags of {len(shares)} share groups are missing ({named}){why}")
    if causes:
        click.echo(f"not all is known: {'; '.join(causes)}", err=True)
    return bool(causes)


def _show_progress(text: str) -> None:
    # \r\033[K: back to the start of the line, and erase it
    click.echo(f"\r\033[K{text}", nl=False, err=True)


def _check_limit(totals: list[GroupTotal], fail_above: int | None) -> int:
    """The exit code. Prints the names of the groups that cause it on standard error."""
    if fail_above is None:
        return 0
    above = [t for t in totals if t.lag is not None and t.lag > fail_above]
    unknown = [t for t in totals if t.unknown or t.lag is None]
    if above:
        click.echo(f"lag above {fail_above}: {', '.join(t.group.name for t in above)}", err=True)
        return ABOVE
    if unknown or not totals:
        named = ", ".join(f"{t.group.name} ({t.reason or 'lags_unknown'})" for t in unknown)
        click.echo(f"lag unknown: {named or 'no group found; check --group'}", err=True)
        return UNKNOWN
    return 0


def _format_member(row: PartitionLag) -> str | None:
    return f"{row.member.client_id}@{row.member.client_host}" if row.member else None


def _print_table(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    if not totals:
        click.echo(f"no consumer groups to show in cluster {view.cluster or ''}")
        return
    # Partitions, with the column SECONDS only if there is an exact lag in seconds
    seconds = ["SECONDS"] if any(r.time_lag_source == "record" for r in rows) else []
    click.echo(
        format_table(
            (*("GROUP", "STATE", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), *seconds, "MEMBER", "WHY"),
            [
                (
                    *(r.group, r.state, r.topic, r.partition, r.committed, r.end, r.published_lag),
                    *([r.time_lag_s if r.time_lag_source == "record" else None] if seconds else []),
                    *(_format_member(r), " ".join(r.reasons.names)),
                )
                for r in rows
            ],
        )
    )
    # Groups, with the column WHY only if there is a group without a total
    why = ["WHY"] if any(t.reason for t in totals) else []
    click.echo(
        format_table(
            ("TOTAL OF GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "UNKNOWN", *why),
            [
                (
                    t.group.name,
                    t.group.type,
                    t.state,
                    t.member_count,
                    t.partitions,
                    t.lag,
                    t.unknown,
                    *([t.reason] if why else []),
                )
                for t in totals
            ],
        ),
        nl=False,
    )
    # Why groups lag: the cause that explains most.
    causes = _find_causes(view)
    explained = [(t.group.name, found[0].text) for t in totals if (found := causes[t.group.name])]
    if explained:
        click.echo(f"\n{format_table(('LAGGING GROUP', 'LIKELY CAUSE'), explained)}", nl=False)


def _find_causes(view: ClusterView) -> dict[str, list[Finding] | None]:
    """By group, why it lags."""
    return {
        group.name: find_group_causes(GroupPlace(view, number, place))
        for number, shard in view.snapshot.shards.items()
        for place, group in enumerate(shard.groups)
    }


def _print_csv(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows(_row_fields(view.cluster or "", row).values() for row in rows)


def _print_json(view: ClusterView, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    causes = _find_causes(view)
    document = {
        "cluster": view.cluster or "",
        "groups": [GROUP.build(ExplainedTotal(t, causes[t.group.name])) for t in totals],
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
