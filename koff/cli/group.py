"""`koff group`: everything about one group on a page."""

import json
import math
import re
import sys
import time
from typing import Any

import click
from click import option

from koff.cli.group_history import GroupHistory
from koff.cli.group_page import format_page
from koff.cli.lag import print_unknown
from koff.cli.log_lines import set_up_logs
from koff.cli.looks import take_looks
from koff.cli.options import (
    ChosenCluster,
    choose_end_interval_s,
    cluster_options,
    group_options,
    read_cluster,
    timeout_option,
    watch_options,
)
from koff.cli.standard_streams import find_width, has_terminal
from koff.config.kinds import number
from koff.config.monitors import build_look
from koff.config.settings import NAME
from koff.errors import KoffError
from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.lag_archive import LagArchive
from koff.records.topics import OFFSETS_TOPIC
from koff.serve.api.problems import Problem
from koff.serve.api.queries import find_group, show_group
from koff.tail.messages import OffsetsConsumer
from koff.view.cluster_view import ClusterView, Views
from koff.view.wording import show_duration

ABSENT, UNKNOWN = 3, 4
"""Exit codes: there is no such group; a lag could not be found out in time."""


@click.command()
@click.argument("name", type=NAME)
@cluster_options
@option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="text: a page. json: the object of the API for the group, and its `history`.",
)
@option(
    "--history",
    "history_s",
    default=3600.0,
    type=number("SECONDS", 0),
    help="How far back to look for commits, rebalances and resets in the log; 0: not at all.",
)
@option(
    "--accept",
    is_flag=True,
    help="Print lines for koff.yaml that accept the group's present lag in seconds, and half as much again.",
)
@group_options
@timeout_option("Show what is known after this time at the latest.")
@watch_options(
    "A live page on a terminal (? shows its keys); piped, or with --format json, repeat the output until "
    "Ctrl-C."
)
def group(
    name: str,
    form: str,
    history_s: float,
    accept: bool,
    timeout_s: float,
    watch: bool,
    interval: float,
    **_: Any,
) -> None:
    """Show everything about the group NAME: members, partitions, why it lags, what it did, and what helps.

    Reads only the group's partition of the offsets topic. Exit codes: 3 if there is no such group, 4 if a lag
    could not be found out in time.

    \b
    Examples:
      koff group payments --brokers localhost:9092
      koff group payments --brokers localhost:9092 --format json | jq '.group.causes'
      koff group payments --brokers localhost:9092 --history 86400
      koff group nightly-load --brokers localhost:9092 --accept
      koff group payments --brokers localhost:9092 --watch
    """
    if watch and accept:
        raise click.UsageError("--accept prints lines once, and --watch does not end: use one of them")
    set_up_logs()
    cluster = read_cluster(click.get_current_context())
    # The log of the group's partition shows rates and statuses, which coordinators do not know.
    start = "snapshot" if cluster.settings["source"] == "coordinators" else "replay"
    conf = build_look(
        *cluster,
        start=start,
        only=ChosenPartitions(group=name),
        end_interval_s=choose_end_interval_s(interval, watch=watch),
        records_per_s=None,
    )
    if watch and form == "text" and has_terminal():
        from koff.cli.live_view import LiveConf, run_live_view  # textual takes 0.2 s to import

        shows = LiveConf(conf.cluster.brokers, is_selected=name.__eq__, group=name)
        sys.exit(run_live_view(conf, interval, timeout_s, shows))
    erases = watch and form == "text"
    state_dir = cluster.settings["state_dir"]
    archive = None if state_dir is None else LagArchive(state_dir)
    for view in take_looks(conf, interval_s=interval, timeout_s=timeout_s, erases=erases):
        view.activity.archive = archive
        try:
            found = _find_group(view, name)
        except Problem as problem:
            click.echo(f"{problem.detail}: koff lag lists all groups", err=True)
            if watch:
                continue
            sys.exit(ABSENT if view.readiness.ready else UNKNOWN)
        if accept:
            sys.exit(_accept(name, found["group"]["time_lag_s"]))
        shard = find_group(view, name).shard
        history = _read_history(name, cluster, view, shard, history_s, timeout_s) if history_s else None
        _print_page(found | {"history": history}, form, cluster.conf.brokers)
        rows = [row for row in view.snapshot.rows() if row.group == name]
        totals = [total for total in view.snapshot.totals() if total.group.name == name]
        is_unknown = print_unknown(view, rows, totals)
        if not watch:
            sys.exit(UNKNOWN if is_unknown else 0)


def _find_group(view: ClusterView, name: str) -> dict[str, Any]:
    """What the API says of the group. Raises `Problem` if there is no such group."""
    if view.cluster is None:
        raise KoffError(view.readiness.text)
    return show_group(Views.from_one(view), {"cluster": view.cluster, "group": name}, {})


def _print_page(found: dict[str, Any], form: str, brokers: str) -> None:
    if form == "json":
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(format_page(found, brokers, find_width()), nl=False)
    sys.stdout.flush()


def _accept(name: str, time_lag_s: float | None) -> int:
    """Prints an objective that the group keeps as it is now. Returns the exit code."""
    if time_lag_s is None:
        click.echo("it is not known how late the group is: nothing can be accepted", err=True)
        return UNKNOWN
    seconds = max(1, math.ceil(time_lag_s * 1.5 / 60)) * 60
    click.echo(
        f"# It is {show_duration(time_lag_s)} late now: with this, {show_duration(seconds)} are accepted.\n"
        f"objectives:\n  - {{groups: {json.dumps(f'^{re.escape(name)}$')}, seconds: {seconds}}}"
    )
    return 0


def _read_history(
    name: str, cluster: ChosenCluster, view: ClusterView, partition: int, seconds: float, timeout_s: float
) -> dict[str, Any] | None:
    """What the log says of the last seconds; None if the group is not in the log, or koff cannot read it.

    Ends after `timeout_s` with what was read: a partition without a leader has no end that could be reached.
    """
    if view.stats.source != "log" or partition < 0:
        return None
    topic = cluster.settings["offsets_topic"]
    history, now_s = GroupHistory(), time.time()
    try:
        with OffsetsConsumer(
            cluster.conf.brokers,
            False,
            properties=cluster.conf.properties,
            topic=None if topic == OFFSETS_TOPIC else topic,
            partitions=[partition],
            start=max(0, round((now_s - seconds) * 1000)),
            until_ms=round((now_s + timeout_s) * 1000),
        ) as messages:
            for batch in messages.batches():
                history.add((record.timestamp_ms, each) for record, each in batch if each.consumer == name)
                if time.time() > now_s + timeout_s:
                    break
    except KoffError as error:  # the page is worth more than its history
        click.echo(f"the history cannot be read: {error}", err=True)
        return None
    return {"seconds": seconds, **history.to_json()}
