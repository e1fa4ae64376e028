"""`koff demo` as a user runs it: a process that shows lag, ends when told, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from koff.kafkatest import kafka_jars, wait_until
from tests.terminal import koff_in_terminal

pytestmark = pytest.mark.kafka


class Demo:
    """Starts demos whose every child carries a mark in its environment and writes below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"DEMO_TEST_MARK={uuid.uuid4().hex}"

    def start(self, *args: str) -> "subprocess.Popen[str]":
        name, value = self.mark.split("=")
        return subprocess.Popen(
            [sys.executable, "-m", "koff", "demo", *args],
            env={**os.environ, name: value, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[int]:
        """Whatever descends from the demo and still runs."""
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environment.read_bytes():
                    found.append(int(environment.parent.name))
            except OSError:  # it ended meanwhile, or is not ours to look at
                continue
        return found

    def check_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes(), what="the demo's processes to go")
        left = [path for path in self.folder.iterdir() if path.name.startswith("koff-")]
        assert left == []


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    kafka_jars()
    return Demo(tmp_path)


def lags(output: str, group: str) -> list[int]:
    """The LAG column of `group` in each table shown."""
    return [int(lag) for lag in re.findall(rf"^\w+ +{group} +(\d+) ", output, re.MULTILINE)]


def shows_who_falls_behind(output: str) -> bool:
    behind, up, stopped = (lags(output, group) for group in ("falls-behind", "keeps-up", "stopped"))
    return (
        len(behind) >= 3
        and behind[-1] > behind[0] + 100  # 50 a second
        and bool(up and stopped)
        and up[-1] < behind[-1] < stopped[-1]
        and re.search(r"^\w+ +two-members .* Stable +2 ", output, re.MULTILINE) is not None
        and re.search(r"^\w+ +stopped .* Empty +0 ", output, re.MULTILINE) is not None
        and re.search(r"^\w+ +new-protocol .* \w+ +1 ", output, re.MULTILINE) is not None
    )


def test_the_demo_shows_who_falls_behind_and_leaves_nothing(demo: Demo):
    output = ""
    with demo.start("--rate", "300") as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                output += line
                if shows_who_falls_behind(output):
                    break
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
        finally:
            running.kill()
    assert shows_who_falls_behind(output), output
    assert running.returncode == 0, output
    demo.check_nothing_is_left()


@pytest.mark.thorough
def test_the_demo_ends_after_the_seconds_that_it_is_given(demo: Demo):
    with demo.start("--seconds", "3") as running:
        output, _ = running.communicate(timeout=240)
    assert running.returncode == 0, output
    assert lags(output, "stopped"), output
    demo.check_nothing_is_left()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("at", "number"),
    [("starting Apache Kafka", signal.SIGINT), ("\\w+ +falls-behind .* \\d", signal.SIGTERM)],
)
def test_a_signal_ends_the_demo_at_any_time(demo: Demo, at: str, number: signal.Signals):
    with demo.start() as running:
        assert running.stdout is not None
        seen = []
        for line in running.stdout:
            seen.append(line)
            if re.match(at, line):
                break
        running.send_signal(number)
        rest, _ = running.communicate(timeout=60)
    assert running.returncode == 0, "".join(seen) + rest
    assert "Traceback" not in rest
    demo.check_nothing_is_left()


def test_a_demo_that_is_killed_leaves_nothing(demo: Demo):
    with demo.start() as running:
        wait_until(lambda: "starting koff monitor" in (running.stdout.readline() if running.stdout else ""))
        running.kill()
    demo.check_nothing_is_left()


@pytest.mark.thorough
def test_in_a_terminal_the_demo_is_the_live_view_with_the_address_of_the_page(demo: Demo):
    name, value = demo.mark.split("=")
    with koff_in_terminal("demo", env={name: value, "TMPDIR": str(demo.folder)}) as terminal:
        terminal.wait_for("page: http://127.0.0.1:")
        terminal.wait_for("invoice-mailer")
        terminal.press(b"q")
        assert terminal.wait_for_end() == 0
    demo.check_nothing_is_left()
