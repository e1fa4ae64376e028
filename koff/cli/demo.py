"""`koff demo`: a real Kafka with live consumer groups, and koff watching it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

import click

from koff.errors import KoffError

_PORT = 9850
_REFRESH_S = 2.0
_WINDOW_S = 10.0  # over which the change of lag is told
_READY_S = 30.0


@click.command()
@click.option("--rate", default=200.0, show_default=True, help="Messages written a second, over all topics.")
@click.option(
    "--port", type=int, help=f"Port of koff monitor; without it {_PORT}, or a free one if that is taken."
)
@click.option("--seconds", type=float, help="End after so many seconds of traffic, rather than with Ctrl-C.")
def demo(rate: float, port: int | None, seconds: float | None) -> None:
    """Show koff at work on a real Kafka with live groups.

    Starts Apache Kafka on free loopback ports (its jars are fetched once, by Maven, into a cache), writes
    messages, runs groups that keep up, fall behind and stop, and starts `koff monitor` on it. Ctrl-C stops
    all of it and leaves nothing behind.

    \b
    Examples:
      koff demo
      koff demo --rate 2000 --port 9900
    """
    with _interruptible() as no_more_interrupts, ExitStack() as started:
        try:
            _run(started, rate, port, seconds)
        except KeyboardInterrupt:
            click.echo()
        finally:
            no_more_interrupts()
            click.echo("stopping", err=True)


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Ctrl-C, SIGTERM and a closed terminal raise `KeyboardInterrupt`, also where a shell had it ignored.

    Until what it yields is called: taking everything down must not be cut short by another Ctrl-C.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def no_more() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in endings}
    try:
        yield no_more
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(started: ExitStack, rate: float, port: int | None, seconds: float | None) -> None:
    """The demo from the first line to the end; what it starts goes on `started`."""
    from koff.kafkatest import LocalKafka, ProgressLine
    from koff.kafkatest.traffic import GROUPS, Traffic

    click.echo(
        "This starts a real Kafka, consumer groups that keep up, fall behind and stop, and koff watching."
    )
    with ProgressLine(sys.stdout) as line:
        kafka = started.enter_context(LocalKafka(progress=line))
        line("starting traffic")
        started.enter_context(Traffic(kafka, rate=rate))
        monitor = started.enter_context(_monitor(kafka.bootstrap, port or _monitor_port()))
        _wait_until_ready(monitor, line)
    click.echo(_introduction(kafka.bootstrap, monitor.url, {group.name: group.about for group in GROUPS}))
    _show(monitor, sys.stdout, seconds)


@dataclass(frozen=True, slots=True)
class DemoMonitor:
    """A running `koff monitor`."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def check(self) -> None:
        """Raises `KoffError` with its last words when it has ended."""
        if self.process.poll() is not None:
            words = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise KoffError(f"koff monitor ended with code {self.process.returncode}; it said last:\n{words}")

    def get(self, path: str) -> str | None:
        """The body at `path`, or None when it does not answer with 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:  # noqa: S310 - our own http://
                return str(answer.read(), "utf-8")
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def _monitor(brokers: str, port: int) -> Iterator[DemoMonitor]:
    """`koff monitor` as a process of its own, as an operator would run it."""
    from koff.kafkatest import GUARD, reap, spawn

    folder = Path(tempfile.mkdtemp(prefix="koff-demo-"))
    GUARD.keep("folder", folder)
    listen = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "koff", "monitor", "--brokers", brokers, "--listen", listen]
    command += ["--end-offset-interval", "1"]  # the default of 5 s would look jumpy beside live commits
    # Options and properties in the environment are meant for the user's own clusters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOFF_")}
    with (folder / "monitor.log").open("wb") as log:
        process = spawn(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield DemoMonitor(process, f"http://{listen}", folder / "monitor.log")
    finally:
        reap(process, signal_number=signal.SIGTERM, timeout_s=5.0)
        shutil.rmtree(folder, ignore_errors=True)
        GUARD.release("folder", folder)


def _monitor_port() -> int:
    from koff.kafkatest import free_ports, is_free

    return _PORT if is_free(_PORT) else free_ports(1)[0]


def _wait_until_ready(monitor: DemoMonitor, line: Callable[[str], None]) -> None:
    from koff.kafkatest import wait_until

    began = time.monotonic()

    def ready() -> bool:
        monitor.check()
        line(f"starting koff monitor: {time.monotonic() - began:.0f} s")
        return monitor.get("/readyz") is not None

    try:
        wait_until(ready, timeout_s=_READY_S, what="koff monitor to be ready", every_s=0.2)
    except TimeoutError as error:
        raise KoffError(f"{error}; its log: {monitor.log.read_text(errors='replace')[-1000:]}") from error


def _introduction(brokers: str, url: str, groups: dict[str, str]) -> str:
    koff = "koff" if shutil.which("koff") else f"{os.path.relpath(sys.executable)} -m koff"
    about = "".join(f"  {name:<14}{what}\n" for name, what in groups.items())
    return f"""
  Kafka         {brokers}
  metrics       {url}/metrics
  ready         {url}/readyz

From another terminal:
  {koff} lag --brokers {brokers}
  {koff} printer --brokers {brokers}

Groups:
{about}
Ctrl-C stops everything.
"""


@dataclass(frozen=True, slots=True)
class DemoRow:
    """What the monitor's metrics say about one group."""

    group: str
    state: str
    members: int | None
    lag: int | None
    topics: dict[str, int]


def _rows(exposition: str) -> list[DemoRow]:
    """The groups in a /metrics body, by name."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[tuple[str, str], float] = {}
    states: dict[str, str] = {}
    topics: dict[str, dict[str, int]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            group = sample.labels.get("group", "")
            if sample.name in ("koff_group_total_lag", "koff_group_members"):
                values[sample.name, group] = sample.value
            elif sample.name == "koff_group_topic_lag":
                topics.setdefault(group, {})[sample.labels["topic"]] = int(sample.value)
            elif sample.name == "koff_group_state" and sample.value == 1:
                states[group] = sample.labels["state"]

    def value(name: str, group: str) -> int | None:
        found = values.get((name, group))
        return None if found is None else int(found)

    return [
        DemoRow(
            group,
            states.get(group, "-"),
            value("koff_group_members", group),
            value("koff_group_total_lag", group),
            topics.get(group, {}),
        )
        for group in sorted({group for _, group in values} | states.keys())
    ]


class RecentLags:
    """The lag of each group over the last few seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, now_s: float, rows: list[DemoRow]) -> None:
        for row in rows:
            seen = self._seen.setdefault(row.group, deque())
            if row.lag is None:
                seen.clear()
                continue
            seen.append((now_s, row.lag))
            while now_s - seen[0][0] > _WINDOW_S:
                seen.popleft()

    def change(self, group: str) -> float | None:
        """How fast the lag grows, in messages a second; None before there are two figures."""
        seen = self._seen.get(group)
        if not seen or len(seen) < 2:
            return None
        (before_s, before), (now_s, now) = seen[0], seen[-1]
        return (now - before) / (now_s - before_s)


_LINE = "{:<14}  {:<20}  {:>7}  {:>9}  {:>9}  {}"


def _table(rows: list[DemoRow], history: RecentLags) -> list[str]:
    def text(value: float | None, form: str = "") -> str:
        return "-" if value is None else format(value, form)

    lines = [_LINE.format("GROUP", "STATE", "MEMBERS", "LAG", "CHANGE/S", "LAG BY TOPIC")]
    for row in rows:
        change = text(history.change(row.group), "+.1f")
        by_topic = ", ".join(f"{topic} {lag}" for topic, lag in sorted(row.topics.items()))
        lines.append(_LINE.format(row.group, row.state, text(row.members), text(row.lag), change, by_topic))
    return lines


def _show(monitor: DemoMonitor, stream: TextIO, seconds: float | None) -> None:
    """Shows the table, in place on a terminal and appended elsewhere, until `seconds` are over."""
    history, shown = RecentLags(), 0
    ends = None if seconds is None else time.monotonic() + seconds
    while True:
        monitor.check()
        body = monitor.get("/metrics")
        rows = _rows(body) if body else []
        history.add(time.monotonic(), rows)
        lines = _table(rows, history) if rows else ["(koff monitor has no groups to show yet)"]
        if stream.isatty():
            width = shutil.get_terminal_size().columns
            lines = [line[: width - 1] for line in lines]  # a wrapped line would break going back up
            stream.write(f"\x1b[{shown}F\x1b[J" if shown else "")
            shown = len(lines)
        else:
            lines.append("")
        stream.write("\n".join(lines) + "\n")
        stream.flush()
        left = _REFRESH_S if ends is None else min(_REFRESH_S, ends - time.monotonic())
        if left <= 0:
            return
        time.sleep(left)
