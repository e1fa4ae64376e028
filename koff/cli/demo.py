"""`koff demo`: runs a real Kafka with live consumer groups, and `koff monitor` on it."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from click import option

from koff.cli.log_lines import set_up_logs
from koff.cli.standard_streams import has_terminal
from koff.config.kinds import number
from koff.errors import KoffError

if TYPE_CHECKING:
    from koff.kafkatest import KafkaCluster
    from koff.kafkatest.incidents import ScriptedIncident
    from koff.monitor.conf import MonitorConf

_PORT = 9850
_REFRESH_S = 2.0
_READY_S = 30.0
_ALL, _OBJECTIVE_S = re.compile("."), 15.0  # an incident of the demo lasts for a minute
_END_INTERVAL_S = 1.0  # with the default, 5 s, the lag on the screen jumps


@click.command()
@option(
    "--rate",
    default=200.0,
    type=number("N", 0),
    help="Messages written per second, over all topics.",
)
@option(
    "--port",
    type=click.IntRange(1, 65_535),
    help=f"Port of koff monitor.  [default: {_PORT}, or a free port if that is in use]",
)
@option(
    "--seconds",
    type=number("N", 0),
    help="End after this many seconds of traffic, and not only at Ctrl-C.",
)
@option(
    "--incident",
    metavar="GROUP",
    help="Only what goes wrong in this group, and soon (settlement: a transaction hangs).  "
    "[default: something goes wrong each minute]",
)
@option("--calm", is_flag=True, help="Nothing goes wrong.")
@option(
    "--groups",
    "many",
    type=click.IntRange(0, 20_000),
    default=0,
    help="So many more groups, without members, to show koff at size.",
)
@option(
    "--partitions",
    type=click.IntRange(1, 200_000),
    help="How many partitions these groups read in all.  [default: 10 each]",
)
@option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def demo(
    rate: float,
    port: int | None,
    seconds: float | None,
    incident: str | None,
    calm: bool,
    many: int,
    partitions: int | None,
    opens: bool,
) -> None:
    """Show koff at work on a real Kafka with live groups.

    Starts Apache Kafka on free loopback ports (its jars are downloaded once, into a cache), writes messages,
    runs groups that keep up, fall behind or stop, and starts `koff monitor`. A line announces each thing that
    goes wrong, so that you see koff find it. On a terminal, it then shows the
    live view of `koff lag --watch`; piped, a table every two seconds. Ctrl-C stops all of it and removes its
    files; the jars stay in the cache.

    \b
    Examples:
      koff demo
      koff demo --rate 2000 --port 9900
      koff demo --incident settlement --open
      koff demo --groups 2000 --partitions 20000
    """
    set_up_logs()
    with _interrupt_on_signals() as ignore_signals, ExitStack() as started:
        try:
            shape = DemoShape(rate, _choose_incidents(incident, calm), many, partitions or 10 * many)
            _run_demo(started, shape, port, seconds, opens)
        except KeyboardInterrupt:
            click.echo()
        finally:
            ignore_signals()
            click.echo("stopping", err=True)


@contextmanager
def _interrupt_on_signals() -> Iterator[Callable[[], None]]:
    """Raises `KeyboardInterrupt` at Ctrl-C, SIGTERM and a closed terminal.

    This holds even if the shell that started koff made koff ignore these signals.

    Yields a function that makes koff ignore these signals: another Ctrl-C must not interrupt the cleanup.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def ignore() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _choose_incidents(group: str | None, calm: bool) -> "Sequence[ScriptedIncident]":
    """The schedule for the options --incident and --calm."""
    from koff.kafkatest.incidents import GROUPS, SCHEDULE, play_one

    if calm and group:
        raise click.UsageError("--calm is without incidents, and --incident is one: give one of the two")
    if not group:
        return () if calm else SCHEDULE
    if not (schedule := play_one(group)):
        raise click.UsageError(
            f"--incident {group} is none of {', '.join(sorted(each.name for each in GROUPS))}"
        )
    return schedule


@dataclass(frozen=True, slots=True)
class DemoShape:
    """What runs on the Kafka of the demo. `many` groups without members read `partitions` in all."""

    rate: float
    schedule: "Sequence[ScriptedIncident]"
    many: int
    partitions: int


def _run_demo(
    started: ExitStack, shape: DemoShape, port: int | None, seconds: float | None, opens: bool
) -> None:
    """Runs the demo to its end. `started` gets everything that the demo starts, and stops it."""
    from koff.client.cluster_conf import ClusterConf
    from koff.kafkatest import LocalKafka, ProgressLine, incidents, traffic
    from koff.kafkatest.archive import making_archive
    from koff.monitor.conf import MonitorConf
    from koff.monitor.requests import Display
    from koff.tracker import Objective

    click.echo(
        "This starts a real Kafka, consumer groups that keep up, fall behind or stop, and koff monitor."
    )
    schedule = shape.schedule
    groups = traffic.GROUPS + (incidents.GROUPS if schedule else ())
    topics = traffic.TOPICS | (incidents.TOPICS if schedule else {})
    with ProgressLine(sys.stdout) as line:
        kafka = started.enter_context(LocalKafka(progress=line))
        # koff starts while the topics are created.
        monitor = started.enter_context(_start_monitor(kafka.bootstrap, port or _choose_port()))
        line("starting traffic")
        running = started.enter_context(traffic.Traffic(kafka, rate=shape.rate, topics=topics, groups=groups))
        if shape.many:
            _add_many_groups(started, kafka, shape)
        _wait_until_ready(monitor, line)
    notes = [f"page: {monitor.url}/   Kafka: {kafka.bootstrap}   q stops all of it", ""]
    click.echo(_format_introduction(kafka.bootstrap, monitor, {group.name: group.about for group in groups}))
    display = Display(objectives=(Objective(_ALL, _OBJECTIVE_S),))
    conf = MonitorConf(ClusterConf(kafka.bootstrap), end_interval_s=_END_INTERVAL_S, display=display)
    announce = partial(notes.__setitem__, 1) if has_terminal() else click.echo
    started.enter_context(incidents.Incidents(kafka, running, schedule, announce))
    started.enter_context(making_archive(kafka))
    if opens:
        click.launch(f"{monitor.url}/")
    if has_terminal():
        _show_live_view(conf, notes, seconds)
    else:
        _print_tables(conf, monitor, seconds)


def _add_many_groups(started: ExitStack, kafka: "KafkaCluster", shape: DemoShape) -> None:
    from koff.kafkatest import many_groups, traffic

    groups = many_groups.share_out(shape.many, shape.partitions)
    topics = many_groups.list_topics(groups)
    started.enter_context(traffic.Traffic(kafka, rate=shape.rate, topics=topics, groups=()))
    started.enter_context(many_groups.ManyGroups(kafka.bootstrap, groups))


def _show_live_view(conf: "MonitorConf", notes: Sequence[str], seconds: float | None) -> None:
    """The live view of `koff lag --watch`, until the user quits, or `seconds` have passed."""
    from koff.cli.live_view import LiveConf, run_live_view

    live = LiveConf(conf.cluster.brokers, notes=notes, seconds=seconds)
    run_live_view(conf, _REFRESH_S, _READY_S, live)


def _print_tables(conf: "MonitorConf", monitor: "DemoMonitor", seconds: float | None) -> None:
    """Prints the table of `koff lag` every two seconds until `seconds` have passed."""
    from koff.cli.group_order import sort_totals
    from koff.cli.lag_tables import format_groups
    from koff.cli.looks import take_looks
    from koff.cli.view_facts import describe_groups

    end_s = math.inf if seconds is None else time.monotonic() + seconds
    for view in take_looks(
        conf,
        interval_s=_REFRESH_S,
        timeout_s=_READY_S,
        is_stopped=lambda: time.monotonic() >= end_s,
    ):
        monitor.check()
        totals = sort_totals(view.snapshot.totals())
        click.echo(format_groups(totals, describe_groups(view, totals), None))


@dataclass(frozen=True, slots=True)
class DemoMonitor:
    """A running `koff monitor`."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path
    config: Path

    def check(self) -> None:
        """Raises `KoffError` with the end of its log if the process has ended."""
        if self.process.poll() is not None:
            log_end = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise KoffError(
                f"koff monitor ended with code {self.process.returncode}; the end of its log:\n{log_end}"
            )

    def get(self, path: str) -> str | None:
        """The body at `path`, or None if the response is not 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as response:  # noqa: S310 - our own http://
                return str(response.read(), "utf-8")
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def _start_monitor(brokers: str, port: int) -> Iterator[DemoMonitor]:
    """Runs `koff monitor` as a process of its own, as an operator would."""
    from koff.kafkatest import GUARD, reap, spawn

    # A folder for its log, which is removed even if this process is killed
    folder = Path(tempfile.mkdtemp(prefix="koff-demo-"))
    GUARD.register("folder", folder)
    listen = f"127.0.0.1:{port}"
    cluster = {"name": "demo", "brokers": brokers, "end_offset_interval": _END_INTERVAL_S}
    objectives = [{"groups": _ALL.pattern, "seconds": _OBJECTIVE_S}]
    config = folder / "koff.yaml"
    config.write_text(json.dumps({"clusters": [cluster | {"objectives": objectives}]}))  # JSON is YAML, too
    command = [sys.executable, "-m", "koff", "monitor", "--config", str(config), "--listen", listen]
    # Options and properties in the environment are for the user's own clusters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOFF_")}
    with (folder / "monitor.log").open("wb") as log:
        process = spawn(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield DemoMonitor(process, f"http://{listen}", folder / "monitor.log", config)
    finally:
        reap(process, signal_number=signal.SIGTERM, timeout_s=5.0)
        shutil.rmtree(folder, ignore_errors=True)
        GUARD.unregister("folder", folder)


def _choose_port() -> int:
    from koff.kafkatest import free_ports, is_free

    return _PORT if is_free(_PORT) else free_ports(1)[0]


def _wait_until_ready(monitor: DemoMonitor, line: Callable[[str], None]) -> None:
    from koff.kafkatest import wait_until

    began = time.monotonic()

    def is_ready() -> bool:
        monitor.check()
        line(f"starting koff monitor: {time.monotonic() - began:.0f} s")
        return monitor.get("/readyz") is not None

    try:
        wait_until(is_ready, timeout_s=_READY_S, what="koff monitor to be ready", every_s=0.2)
    except TimeoutError as error:
        log_end = monitor.log.read_text(errors="replace")[-1000:]
        raise KoffError(f"{error}; the end of its log:\n{log_end}") from error


def _format_introduction(brokers: str, monitor: DemoMonitor, groups: dict[str, str]) -> str:
    url = monitor.url
    # The command as the user can type it: if no script is installed, `python -m koff`
    koff = "koff" if shutil.which("koff") else f"{os.path.relpath(sys.executable)} -m koff"
    about = "".join(f"  {name:<16}{text}\n" for name, text in groups.items())
    return f"""
  Kafka         {brokers}
  page          {url}/
  metrics       {url}/metrics (alert on koff_group_status{{status="ERR"}} == 1)
  API           {url}/api
  ready         {url}/readyz

From another terminal:
  {koff} lag --config {monitor.config}
  {koff} printer --brokers {brokers}

Groups:
{about}
Here a group is late after {_OBJECTIVE_S:g} s, its objective in koff.yaml; else after two minutes or more.
Ctrl-C stops everything.
"""
