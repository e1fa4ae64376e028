"""What `koff monitor` makes of its options. tests/unit/config/test_settings.py has each of them."""

import gc
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from koff.cli import monitor as command
from koff.client import ClusterConf
from koff.monitor.conf import MonitorConf
from koff.serve.access import AccessConf
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.listening import ServeConf
from koff.serve.metrics.conf import MetricsConf
from koff.tracker import Rule, ShownNames


class Given(NamedTuple):
    """What the daemon gets."""

    monitor: MonitorConf
    serve: ServeConf
    metrics: MetricsConf
    standby_of: str | None


Run = Callable[..., Given]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `koff monitor` without a cluster."""
    given: list[Given] = []

    class Recorder:
        def __init__(
            self,
            read: Callable[[], Sequence[MonitorConf]],
            serve: ServeConf,
            metrics: MetricsConf,
            read_webhooks: Callable[[], Sequence[WebhookConf]],
            on_reload: Callable[[], None],
            standby_of: str | None,
        ) -> None:
            assert read_webhooks() == []
            given.append(Given(read()[0], serve, metrics, standby_of))

        def run(self) -> None:
            pass

    monkeypatch.setattr(command, "Daemon", Recorder)
    # These are for the whole process.
    monkeypatch.setattr(command, "return_freed_memory", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)

    def run_monitor(*args: str) -> Given:
        result = CliRunner().invoke(
            command.monitor, ["--brokers", "a:1", *args], auto_envvar_prefix="KOFF_MONITOR"
        )
        assert result.exit_code == 0, result.output
        return given.pop()

    return run_monitor


def test_without_options_all_is_as_the_classes_have_it(run: Run):
    assert run() == (MonitorConf(ClusterConf("a:1", {}), wait=True), ServeConf(), MetricsConf(), None)


def test_the_daemon_waits_for_kafka_unless_told_not_to(run: Run):
    assert run().monitor.wait
    assert not run("--no-wait").monitor.wait


def test_options_and_variables_choose_what_is_served_and_to_whom(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOFF_MONITOR_TOKENS_FILE", "tokens")
    given = run(
        *("--families", "koff_group_lag, koff_group_state", "--families", "koff_group_info"),
        *("--granularity", "topic", "--max-series", "5", "--compat", "kminion"),
        *("--groups", "exclude:^a", "--groups", "b", "--topics", "include:c:d"),
        *("--web.config.file", "web.yml", "--tokens-for", "all", "--standby-of", "http://koff-0:9850"),
    )
    assert given.standby_of == "http://koff-0:9850"
    assert given.metrics == MetricsConf(
        families=("koff_group_lag", "koff_group_state", "koff_group_info"),
        granularity="topic",
        max_series=5,
        compat=("kminion",),
    )
    assert given.monitor.display.names == ShownNames(
        groups=(Rule(re.compile("^a"), includes=False), Rule(re.compile("b"))),
        topics=(Rule(re.compile("c:d")),),
    )
    assert given.serve.access == AccessConf(Path("web.yml"), Path("tokens"), "all")


def test_families_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOFF_MONITOR_FAMILIES", "default, koff_group_info")
    assert run().metrics.families == ("default", "koff_group_info")


def test_a_pattern_without_a_label_is_a_usage_error():
    result = CliRunner().invoke(command.monitor, ["--brokers", "a:1", "--group-labels", "^a"])
    assert result.exit_code == 2
    assert "'^a' names no label: write (?P<LABEL>...)" in result.output
