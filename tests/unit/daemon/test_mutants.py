"""Mutants of koff.yaml: `check`, a start and a reload say what is wrong, and nothing else happens."""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from koff.cli import main
from koff.cli import monitor as command
from koff.cli.monitor import monitor
from koff.daemon import daemon as daemon_module
from koff.daemon.daemon import Daemon
from koff.kafkatest import wait_until
from koff.view.cluster_view import ClusterView
from tests.unit.config.mutants import build_right_file, write_mutant
from tests.unit.daemon.test_daemon import ANY_PORT, FakeMonitor

A_BATCH = 500


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a mutant may name a folder for the state. Nothing is done for the process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "set_up_logs", lambda form, level: None)
    monkeypatch.setattr(command, "return_freed_memory", lambda: None)
    monkeypatch.setattr(daemon_module, "Monitor", Unreachable)
    return tmp_path


class Unreachable(FakeMonitor):
    """A monitor whose cluster is not there."""

    def take_view(self) -> ClusterView:
        return self.build_empty_view("cannot reach Kafka")


class StartedDaemon(Daemon):
    """A daemon that ends as soon as it has been made."""

    def run(self) -> None:
        pass


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def start(file: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`koff monitor`, up to the moment at which it would serve."""
    with monkeypatch.context() as patched:
        patched.setattr(command, "Daemon", StartedDaemon)
        patched.setattr(signal, "signal", lambda *_: None)
        patched.setattr(gc, "freeze", lambda: None)
        patched.setattr(gc, "set_threshold", lambda *_: None)
        return run("monitor", "--config", str(file))


def check_end(result: Result, seed: int) -> None:
    """A command ends in order: with 0, or with 2 and lines that say why."""
    assert result.exception is None or isinstance(result.exception, SystemExit), (seed, result.exc_info)
    assert result.exit_code in (0, 2), (seed, result.output)
    assert "Traceback" not in result.output, seed


@pytest.fixture
def reload(folder: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """Lets a running koff read `folder/koff.yaml` again. Returns what it logs of that."""
    file = folder / "koff.yaml"
    file.write_text(yaml.safe_dump(build_right_file(folder)))
    read = command._Configuration(monitor.make_context("koff monitor", ["--config", str(file)]))
    daemon = Daemon(read.read_monitors, ANY_PORT, None, read.read_webhooks, read.note_reload)
    with capture_logs() as logs:
        thread = threading.Thread(target=daemon.run)
        thread.start()

        def reload_daemon() -> dict[str, Any]:
            seen = len(logs)

            def find() -> list[Any]:
                return [line for line in list(logs)[seen:] if "the configuration" in line["event"]]

            daemon.reload()
            wait_until(lambda: find() or not thread.is_alive(), what="the reload", every_s=0.001)
            assert thread.is_alive(), logs[-3:]
            assert "fault of koff" not in str(logs[seen:]), logs[seen:]
            return dict(find()[0])

        try:
            yield reload_daemon
        finally:
            daemon.stop()
            thread.join(60)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first == 0 else [pytest.mark.thorough])
        for first in range(0, 10_000, A_BATCH)
    ],
)
def test_no_mutant_gives_a_traceback_or_ends_a_running_koff(
    first: int, folder: Path, reload: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    right, file, other = build_right_file(folder), folder / "koff.yaml", folder / "start.yaml"
    applied = "the configuration was read again"
    assert reload()["event"] == applied
    counts = {True: 0, False: 0}
    for seed in range(first, first + A_BATCH):
        text = write_mutant(seed, right)
        for path in (file, other):
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        checked = run("config", "check", str(other))
        check_end(checked, seed)
        is_right = checked.exit_code == 0
        counts[is_right] += 1
        started = start(other, monkeypatch)
        check_end(started, seed)
        told = reload()
        # What `check` accepts, koff starts with and reloads. Only koff tries to write to a folder.
        ended = 0 if "--state-dir" in str(told.get("why")) else (started.exit_code, told["event"])
        assert not is_right or ended in (0, (0, applied)), (seed, started.output, told)
    assert min(counts.values()) > A_BATCH // 20, counts  # neither all right nor all wrong
    file.write_text(yaml.safe_dump(right))
    assert reload()["event"] == applied
