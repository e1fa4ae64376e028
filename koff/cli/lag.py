"""`koff lag`."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from koff.cli.options import (
    Regex,
    cluster_conf,
    cluster_options,
    exact_option,
    option,
    set_up_logs,
    zookeeper_option,
)
from koff.cli.text_table import table
from koff.monitor.conf import MonitorConf, Way
from koff.monitor.exact_time_lag import ExactConf
from koff.monitor.once import snapshots
from koff.monitor.zookeeper_groups import ZooKeeperGroupsConf
from koff.tail.reader import TailReaderConf
from koff.tracker import GroupTotal, PartitionLag

ABOVE, UNKNOWN = 3, 4
"""Exit codes of --fail-above."""


@click.command()
@cluster_options
@option("--group", type=Regex(), help="Only groups whose name matches (anywhere: anchor with ^ and $).")
@option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="How to print."
)
@option(
    "--fail-above",
    type=click.IntRange(min=0),
    metavar="N",
    help="Exit 3 when a group's total lag is above N, else 4 when one is not known (a partition without "
    "commit or end offset; no group matches).",
)
@option(
    "--start",
    "way",
    type=click.Choice(["snapshot", "replay"]),
    default="snapshot",
    help="snapshot: ask the coordinators, at once (needs DESCRIBE on groups). replay: read the whole log.",
)
@exact_option
@zookeeper_option
@option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@option(
    "--interval", default=2.0, type=click.FloatRange(min=0.1), metavar="SECONDS", help="Pause of --watch."
)
def lag(
    brokers: str,
    properties: tuple[str, ...],
    property_file: str | None,
    offsets_topic: str,
    group: re.Pattern[str] | None,
    form: str,
    fail_above: int | None,
    way: Way,
    exact_time_lag: re.Pattern[str] | None,
    zookeeper: str,
    watch: bool,
    interval: float,
) -> None:
    """Print the lag of all consumer groups, worst first.

    Lag is the end offset less the committed one; "-" is not known, and WHY says why: no_commit,
    topic_gone, end_unknown, topic_recreated (the commit was to an earlier topic of that name). Of known
    lags it says below_log_start (records left the log before the group read them) and ahead_of_log.
    SECONDS is the age of the oldest record not yet committed, shown with --exact-time-lag.
    Totals sum what is known, and say how many partitions are not.

    \b
    Examples:
      koff lag --brokers localhost:9092
      koff lag --brokers localhost:9092 --group '^payments$' --fail-above 1000
      koff lag --brokers localhost:9092 --format json | jq '.groups[] | select(.lag > 0)'
      koff lag --brokers localhost:9092 --watch
      koff lag --brokers localhost:9092 --exact-time-lag '^payments$'
    """
    set_up_logs()
    conf = MonitorConf(
        cluster=cluster_conf(brokers, properties, property_file),
        start=way,
        reader=TailReaderConf(topic=offsets_topic),
        exact=ExactConf(exact_time_lag),
        zookeeper=ZooKeeperGroupsConf(zookeeper),
    )
    wanted: Callable[[str], Any] = group.search if group else lambda name: True
    progress = _progress if sys.stderr.isatty() else lambda text: None
    for cluster, snapshot in snapshots(conf, interval_s=interval, progress=progress):
        if sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)
        if watch and form == "table" and sys.stdout.isatty():
            click.clear()
        rows = [row for row in snapshot.rows() if wanted(row.group)]
        totals = [total for total in snapshot.totals() if wanted(total.group.name)]
        _FORMATS[form](cluster, rows, totals)
        sys.stdout.flush()
        if not watch:
            sys.exit(_verdict(totals, fail_above))


def _progress(text: str) -> None:
    click.echo(f"\r\033[K{text}", nl=False, err=True)


def _verdict(totals: list[GroupTotal], fail_above: int | None) -> int:
    if fail_above is None:
        return 0
    above = [t for t in totals if t.lag is not None and t.lag > fail_above]
    unknown = [t for t in totals if t.unknown or t.lag is None]
    if above:
        click.echo(f"lag above {fail_above}: {', '.join(t.group.name for t in above)}", err=True)
        return ABOVE
    if unknown or not totals:
        names = ", ".join(t.group.name for t in unknown)
        click.echo(f"lag not known: {names}" if totals else "lag not known: no such group", err=True)
        return UNKNOWN
    return 0


def _member(row: PartitionLag) -> str | None:
    return f"{row.member.client_id}@{row.member.client_host}" if row.member else None


def _print_table(cluster: str, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    if not totals:
        click.echo(f"no consumer groups in cluster {cluster}")
        return
    seconds = ["SECONDS"] if any(r.time_lag_source == "record" for r in rows) else []
    click.echo(
        table(
            (*("GROUP", "STATE", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), *seconds, "MEMBER", "WHY"),
            [
                (
                    *(r.group, r.state, r.topic, r.partition, r.committed, r.end, r.published_lag),
                    *([r.time_lag_s] if seconds else []),
                    *(_member(r), " ".join(r.reasons.names)),
                )
                for r in rows
            ],
        )
    )
    click.echo(
        table(
            ("TOTAL OF GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "UNKNOWN"),
            [
                (
                    t.group.name,
                    t.group.type,
                    t.group.state,
                    len(t.group.members),
                    t.partitions,
                    t.lag,
                    t.unknown,
                )
                for t in totals
            ],
        ),
        nl=False,
    )


def _print_csv(cluster: str, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(_ROW)
    out.writerows([_row(cluster, row)[name] for name in _ROW] for row in rows)


def _print_json(cluster: str, rows: list[PartitionLag], totals: list[GroupTotal]) -> None:
    document = {
        "cluster": cluster,
        "groups": [
            {
                "group": t.group.name,
                "type": t.group.type,
                "state": t.group.state,
                "members": len(t.group.members),
                "partitions": t.partitions,
                "lag": t.lag,
                "unknown": t.unknown,
                "time_lag_s": t.time_lag_s,
                "status": t.status.name,
                "complete": t.complete,
                "consume_per_s": t.pace.consume_per_s,
                "catch_up_s": t.pace.catch_up_s,
                "never_catches_up": t.pace.never,
            }
            for t in totals
        ],
        "partitions": [_row(cluster, row) for row in rows],
    }
    click.echo(json.dumps(document, ensure_ascii=False))


_ROW = (
    *("cluster", "group", "state", "topic", "partition", "committed", "end", "lag"),
    *("readable", "lost", "lag_to_stable", "time_lag_s", "time_lag_source", "status", "reasons"),
    *("client_id", "client_host"),
    *("complete", "consume_per_s", "produce_per_s", "catch_up_s", "never_catches_up"),
)


def _row(cluster: str, row: PartitionLag) -> dict[str, str | float | None]:
    member = row.member
    values = (row.committed, row.end, row.published_lag, row.readable, row.lost, row.lag_to_stable)
    verdict = (row.time_lag_s, row.time_lag_source, row.status.name)
    name = (cluster, row.group, row.state, row.topic, row.partition)
    why = " ".join(row.reasons.names)
    who = (member.client_id, member.client_host) if member else (None, None)
    return dict(
        zip(
            _ROW,
            (*name, *values, *verdict, why, *who, row.complete, *row.pace),
            strict=True,
        )
    )


_FORMATS = {"table": _print_table, "csv": _print_csv, "json": _print_json}
