"""The options of `koff monitor` that choose what is served."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from koff.cli import monitor as command
from koff.daemon.daemon import Daemon
from koff.monitor.conf import MonitorConf
from koff.serve.access import AccessConf
from koff.serve.events.webhook import WebhookConf
from koff.serve.listening import ServeConf
from koff.serve.metrics.conf import MetricsConf
from koff.tracker import Rule, ShownNames

Run = Callable[..., tuple[ShownNames, MetricsConf]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `koff monitor` without a cluster: what of its configuration is about what is shown."""
    given: list[tuple[MonitorConf, MetricsConf]] = []

    class Recorder:
        def __init__(
            self,
            read: Callable[[], Sequence[MonitorConf]],
            serve: ServeConf,
            metrics: MetricsConf,
            read_webhooks: Callable[[], Sequence[WebhookConf]],
        ) -> None:
            assert read_webhooks() == []
            given.append((read()[0], metrics))

        def run(self) -> None:
            pass

    monkeypatch.setattr(command, "Daemon", Recorder)
    # These are for the whole process.
    monkeypatch.setattr(command, "return_freed_memory", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)

    def run_monitor(*args: str) -> tuple[ShownNames, MetricsConf]:
        result = CliRunner().invoke(
            command.monitor, ["--brokers", "a:1", *args], auto_envvar_prefix="KOFF_MONITOR"
        )
        assert result.exit_code == 0, result.output
        conf, metrics = given[0]
        return conf.display.names, metrics

    return run_monitor


def test_without_options_the_default_is_served(run: Run) -> None:
    assert run() == (ShownNames(), MetricsConf())


def test_options_choose_families_granularity_names_and_the_limit(run: Run) -> None:
    shown, metrics = run(
        *("--families", "koff_group_lag, koff_group_state", "--families", "koff_group_info"),
        *("--granularity", "topic", "--max-series", "5", "--compat", "kminion"),
        *("--groups", "exclude:^a", "--groups", "b", "--topics", "include:c:d"),
    )
    assert metrics == MetricsConf(
        families=("koff_group_lag", "koff_group_state", "koff_group_info"),
        granularity="topic",
        max_series=5,
        compat=("kminion",),
    )
    assert shown == ShownNames(
        groups=(Rule(re.compile("^a"), includes=False), Rule(re.compile("b"))),
        topics=(Rule(re.compile("c:d")),),
    )


def test_families_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOFF_MONITOR_FAMILIES", "default, koff_group_info")
    assert run()[1].families == ("default", "koff_group_info")


def test_a_pattern_without_a_label_is_a_usage_error() -> None:
    result = CliRunner().invoke(command.monitor, ["--brokers", "a:1", "--group-labels", "^a"])
    assert result.exit_code == 2
    assert "'^a' names no label: write (?P<LABEL>...)" in result.output


def test_options_name_the_files_for_access(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    confs = []
    recorder = vars(command)["Daemon"]

    def record(
        read: Callable[[], Sequence[MonitorConf]],
        serve: ServeConf,
        metrics: MetricsConf,
        webhooks: Callable[[], Sequence[WebhookConf]],
    ) -> Daemon:
        confs.append(serve.access)
        return recorder(read, serve, metrics, webhooks)

    monkeypatch.setattr(command, "Daemon", record)
    monkeypatch.setenv("KOFF_MONITOR_TOKENS_FILE", "tokens")
    run("--web.config.file", "web.yml", "--tokens-for", "all")
    assert confs == [AccessConf(Path("web.yml"), Path("tokens"), "all")]
