"""The options of `koff monitor` that choose what is served."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from koff.cli import monitor as command
from koff.monitor.conf import MonitorConf
from koff.serve import MetricsConf, Rule


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., MetricsConf]:
    """Runs `koff monitor` without a cluster: what of its configuration is about metrics."""
    given: list[MonitorConf] = []

    class Recorder:
        def __init__(self, conf: MonitorConf) -> None:
            given.append(conf)

        def run(self) -> None:
            pass

    monkeypatch.setattr(command, "Monitor", Recorder)
    # These are for the whole process.
    monkeypatch.setattr(command, "return_freed_memory", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)

    def run_monitor(*args: str) -> MetricsConf:
        result = CliRunner().invoke(
            command.monitor, ["--brokers", "a:1", *args], auto_envvar_prefix="KOFF_MONITOR"
        )
        assert result.exit_code == 0, result.output
        return given[0].metrics

    return run_monitor


def test_without_options_the_default_is_served(run: Callable[..., MetricsConf]) -> None:
    assert run() == MetricsConf()


def test_options_choose_families_granularity_names_and_the_limit(run: Callable[..., MetricsConf]) -> None:
    conf = run(
        *("--families", "koff_group_lag, koff_group_state", "--families", "koff_group_info"),
        *("--granularity", "topic", "--max-series", "5"),
        *("--groups", "exclude:^a", "--groups", "b", "--topics", "include:c:d"),
    )
    assert conf == MetricsConf(
        families=("koff_group_lag", "koff_group_state", "koff_group_info"),
        granularity="topic",
        groups=(Rule(re.compile("^a"), includes=False), Rule(re.compile("b"))),
        topics=(Rule(re.compile("c:d")),),
        max_series=5,
    )


def test_families_may_come_from_the_environment(
    run: Callable[..., MetricsConf], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOFF_MONITOR_FAMILIES", "default, koff_group_info")
    assert run().families == ("default", "koff_group_info")
