"""The files of deploy/ for one machine: Prometheus' configuration, and the unit of systemd."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from koff.cli.monitor import monitor
from tests.containers.compose import read_services
from tests.unit.deploy.test_rules import RULES, needs_promtool, run_promtool

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = DEPLOY / "compose"
UNIT = DEPLOY / "systemd" / "koff.service"
PROMETHEUS = (DEPLOY / "prometheus" / "prometheus.yml", DEPLOY / "compose" / "prometheus.yml")


@needs_promtool
def test_promtool_accepts_the_configuration_with_the_rules():
    run_promtool("check", "config", PROMETHEUS[0])


def test_prometheus_scrapes_koff_alike_on_a_machine_and_in_compose():
    alone, compose = (yaml.safe_load(path.read_text()) for path in PROMETHEUS)
    targets = [conf["scrape_configs"][0].pop("static_configs") for conf in (alone, compose)]
    assert targets == [[{"targets": ["localhost:9850"]}], [{"targets": ["koff:9850"]}]]
    assert alone["scrape_configs"] == compose["scrape_configs"]
    assert alone["rule_files"] == compose["rule_files"] == [RULES.name]


def test_each_cause_is_told_once_in_compose_too():
    files = DEPLOY / "prometheus" / "alertmanager.yml", DEPLOY / "compose" / "alertmanager.yml"
    alone, compose = (yaml.safe_load(path.read_text())["inhibit_rules"] for path in files)
    assert alone == compose


def test_compose_opens_no_port_to_other_machines():
    ports = [port for service in read_services().values() for port in service.get("ports", ())]
    assert len(ports) == 6
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_services_of_compose_find_each_other_and_their_files():
    services = read_services({})
    alertmanagers = yaml.safe_load(PROMETHEUS[1].read_text())["alerting"]["alertmanagers"]
    (source,) = yaml.safe_load((COMPOSE / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    named = [
        alertmanagers[0]["static_configs"][0]["targets"][0],
        source["url"].removeprefix("http://"),
        *services["koff"]["environment"]["KOFF_BROKERS"].split(","),
        *services["traffic"]["command"],
    ]
    assert {name.partition(":")[0] for name in named} <= services.keys()
    volumes = [volume for service in services.values() for volume in service.get("volumes", ())]
    assert [volume for volume in volumes if not (COMPOSE / volume.partition(":")[0]).exists()] == []
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (DEPLOY.parent / "grafana" / home.name).exists()


def test_the_traffic_of_compose_is_a_module_that_runs():
    program, *arguments = read_services({})["traffic"]["entrypoint"]
    assert program == "python"
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "usage: python -m koff.kafkatest.play HOST:PORT\n")


def test_the_unit_starts_koff_with_options_that_it_has():
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser documents it
    unit.read(UNIT)
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (program, command) == ("/opt/koff/bin/koff", "monitor")
    monitor.make_context("koff monitor", arguments)  # raises click's error for an option that there is not


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path):
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/koff/bin/koff", "/bin/true"))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_the_unit_well_confined():
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(UNIT)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
