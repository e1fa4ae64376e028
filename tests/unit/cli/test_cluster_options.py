"""Which cluster `koff lag` and `koff printer` connect to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koff.cli import printer as printer_command
from koff.cli.root import main
from koff.client import ClusterConf
from koff.monitor.conf import MonitorConf

TWO = """\
clusters:
  - name: production
    brokers: prod:9092
    offsets_topic: copied
    zookeeper: zoo:2181
    source: coordinators
    properties: {client.rack: a, security.protocol: SSL}
  - name: test
    brokers: test:9092
"""
ONE = "clusters: [{name: only, brokers: 'only:9092'}]\n"
Run = Callable[..., MonitorConf]


class Reached(Exception):
    """`koff lag` would connect with this configuration."""


@pytest.fixture
def lag(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `koff lag` until it would connect."""

    def reach(conf: MonitorConf, **_: Any) -> None:
        raise Reached(conf)

    monkeypatch.setattr("koff.cli.looks.take_views", reach)
    return lambda *args: CliRunner().invoke(main, ["lag", *map(str, args)])


@pytest.fixture
def run(lag: Callable[..., Result]) -> Run:
    """Runs `koff lag` until it would connect, and returns its configuration."""

    def run_lag(*args: object) -> MonitorConf:
        result = lag(*args)
        assert isinstance(result.exception, Reached), result.output
        conf: MonitorConf = result.exception.args[0]
        return conf

    return run_lag


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (path := tmp_path / "koff.yaml").write_text(TWO)
    return path


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (path := tmp_path / "one.yaml").write_text(ONE)
    return path


def test_a_cluster_of_the_file_is_chosen_by_its_name(run: Run, two: Path):
    conf = run("--config", two, "--cluster", "production")
    assert conf.cluster == ClusterConf("prod:9092", {"client.rack": "a", "security.protocol": "SSL"})
    assert (conf.offsets_topic, conf.zookeeper.hosts, conf.source) == ("copied", "zoo:2181", "coordinators")
    assert run("--config", two, "--cluster", "test").cluster == ClusterConf("test:9092")


def test_the_only_cluster_of_the_file_needs_no_name(run: Run, one: Path):
    assert run("--config", one).cluster.brokers == "only:9092"


def test_options_override_the_file(run: Run, two: Path):
    conf = run(
        *("--config", two, "--cluster", "production", "--property", "client.rack=b"),
        *("--source", "log", "--zookeeper", "other:2181", "--offsets-topic", "mine"),
    )
    assert conf.cluster.properties == {"client.rack": "b", "security.protocol": "SSL"}
    assert (conf.offsets_topic, conf.zookeeper.hosts, conf.source) == ("mine", "other:2181", "log")


def test_brokers_on_the_command_line_win_over_a_file_of_the_environment(
    run: Run, two: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KOFF_CONFIG", str(two))
    assert run("--brokers", "a:1").cluster == ClusterConf("a:1")
    assert run("--cluster", "test").cluster == ClusterConf("test:9092")


def test_a_file_on_the_command_line_wins_over_brokers_of_the_environment(
    run: Run, one: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KOFF_BROKERS", "a:1")
    assert run("--config", one).cluster.brokers == "only:9092"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "give --brokers, or --config with a file that names clusters"),
        (["--cluster", "test"], "give --brokers, or --config with a file that names clusters"),
        (
            ["--brokers", "a:1", "--config", "koff.yaml"],
            "--brokers names a cluster, and so does --config: give one of them",
        ),
    ],
)
def test_options_that_name_no_cluster_or_two_are_refused(
    lag: Callable[..., Result], args: list[str], text: str
):
    result = lag(*args)
    assert (result.exit_code, text in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "has 2 clusters: choose one with --cluster (production, test)"),
        (["--cluster", "nosuch"], "has no cluster nosuch: it has production, test"),
    ],
)
def test_a_file_with_several_clusters_needs_the_name_of_one(
    lag: Callable[..., Result], two: Path, args: list[str], text: str
):
    result = lag("--config", two, *args)
    assert (result.exit_code, result.output) == (2, f"Error: {two} {text}\n")


def test_the_printer_takes_them_as_well(one: Path, monkeypatch: pytest.MonkeyPatch):
    def reach(brokers: str, *_: Any, **__: Any) -> None:
        raise Reached(brokers)

    monkeypatch.setattr(printer_command, "OffsetsConsumer", reach)
    result = CliRunner().invoke(main, ["printer", "--config", str(one)])
    assert isinstance(result.exception, Reached), result.output
    assert result.exception.args == ("only:9092",)
