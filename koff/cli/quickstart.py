"""`koff quickstart`: checks a connection, and writes a first koff.yaml with what it found."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click import option

from koff.cli.doctor import Level, print_checks, run_checks
from koff.cli.log_lines import set_up_logs
from koff.cli.looks import take_looks
from koff.cli.options import SECONDS, connection_options, group_options, read_cluster, timeout_option
from koff.config.first_file import FirstFile
from koff.config.kinds import FILE
from koff.config.monitors import build_look
from koff.config.properties import PROPERTY_PREFIX, is_secret
from koff.config.settings import SETTINGS
from koff.errors import ConfigError, KoffError
from koff.lag.verdict import Verdict
from koff.monitor.conf import MonitorConf
from koff.view.cluster_view import ClusterView
from koff.view.wording import count, show

_INTERVAL_S = 2.0
_NAME = "kafka"
_MOST_NAMED = 5


@click.command()
@connection_options
@SETTINGS["name"].build_option(default=_NAME)
@group_options
@option("--output", default="koff.yaml", type=FILE, help="The file to write.")
@option("--force", is_flag=True, help="Overwrite the file if it is there.")
@option(
    "--seconds", "seconds_s", default=15.0, type=SECONDS, help="How long to look at the lags of the groups."
)
@timeout_option("How long the groups may take to be read.")
def quickstart(output: Path, force: bool, seconds_s: float, timeout_s: float, **_: Any) -> None:
    """Check a connection to Kafka, and write a koff.yaml for it.

    Does what `koff doctor` does, then looks at the lags of the groups, and writes a file with comments: the
    connection, and objectives that suit the groups. Passwords are not written: the file names their
    variables. Changes nothing in Kafka. The exit code is 1, and nothing is written, if a check failed.

    \b
    Examples:
      koff quickstart --brokers localhost:9092
      koff quickstart --brokers kafka:9093 --property-file client.properties --output europe.yaml
    """
    set_up_logs()
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already: give --force to overwrite it, or another --output")
    ctx = click.get_current_context()
    if not ctx.params["brokers"]:
        raise click.UsageError("give --brokers", ctx)
    chosen = read_cluster(ctx)
    conf = build_look(*chosen)
    if Level.FAILURE in print_checks(run_checks(conf, timeout_s)):
        raise KoffError(f"a check failed, so {output} was not written")
    click.echo(f"\nlooking at the groups for {seconds_s:g} s")
    late_s, found = _watch_groups(conf, seconds_s, timeout_s)
    properties = {
        name: _name_secret(name, ctx) if is_secret(name) else value
        for name, value in chosen.conf.properties.items()
    }
    cluster = _list_given({**chosen.settings, "name": ctx.params["name"], "properties": properties})
    _write(output, FirstFile(cluster, found, late_s, seconds_s).format(), force=force)
    click.echo(_describe_next(output, properties))


def _watch_groups(
    conf: MonitorConf, seconds_s: float, timeout_s: float
) -> tuple[dict[str, float], list[str]]:
    """How late each group was at the most, of those that do well, and what there is in the cluster."""
    until_s = time.monotonic() + seconds_s
    late_s: dict[str, float] = {}
    view = None
    for view in take_looks(
        conf,
        interval_s=_INTERVAL_S,
        timeout_s=timeout_s,
        is_stopped=lambda: time.monotonic() >= until_s,
    ):
        for total in view.snapshot.totals():
            if total.time_lag_s is not None:
                late_s[total.group.name] = max(late_s.get(total.group.name, 0.0), total.time_lag_s)
    return (_choose_well(view, late_s), _describe(view)) if view else ({}, [])


def _choose_well(view: ClusterView, late_s: Mapping[str, float]) -> dict[str, float]:
    """Those of the groups that have members and are not late."""
    totals = view.snapshot.totals()
    well = {each.group.name for each in totals if each.status is Verdict.OK and each.state != "Empty"}
    return {name: seconds for name, seconds in late_s.items() if name in well}


def _describe(view: ClusterView) -> list[str]:
    totals = view.snapshot.totals()
    partitions = count(sum(total.partitions for total in totals), "partition")
    late = [total for total in totals if total.status in (Verdict.WARN, Verdict.ERR)]
    names = ", ".join(show(name) for name in sorted(total.group.name for total in late)[:_MOST_NAMED])
    found = f"Found: cluster {view.cluster}, {count(len(totals), 'group')} with {partitions}"
    return [f"{found}; late: {len(late)} ({names})." if late else f"{found}."]


def _name_secret(name: str, ctx: click.Context) -> str:
    """What stands for a secret in the file: the file that it came from, or its variable."""
    for pair in ctx.params["properties"]:
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return f"file:{Path(value.strip().removeprefix('file:')).absolute()}"
    return f"${{{_name_variable(name)}}}"


def _name_variable(name: str) -> str:
    return PROPERTY_PREFIX + name.upper().replace(".", "_")


def _list_given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not what they are without the file, those that name the cluster first."""
    names = dict.fromkeys(("name", "brokers", *settings))
    return {
        name: settings[name]
        for name in names
        if name in ("name", "brokers") or settings[name] != SETTINGS[name].initial
    }


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise KoffError(f"cannot write {output}: {error.strerror}; choose another --output") from error


def _describe_next(output: Path, properties: Mapping[str, str]) -> str:
    unset = [
        _name_variable(name)
        for name, value in properties.items()
        if value == f"${{{_name_variable(name)}}}" and _name_variable(name) not in os.environ
    ]
    exports = "".join(f"  export {name}=...\n" for name in unset)
    url = f"http://localhost:{SETTINGS['listen'].default.rpartition(':')[2]}/"
    return f"""
{output} is written. Next:

{exports}  koff lag --config {output}            # every group, the worst first
  koff lag --config {output} --watch    # the same, live
  koff monitor --config {output}        # the page at {url}, and metrics for Prometheus"""
