"""koff's alerts in a real Prometheus with Alertmanager: what people would be told of, once.

The rules are those of deploy/, with patience of a second: `tests/unit/deploy/test_rules.py` has their times.
"""

import json
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from koff.kafkatest import free_ports, wait_until
from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.local_kafka import LocalKafka
from tests.http_receiver import HttpReceiver, run_receiver, send
from tests.kafka_groups import commit
from tests.koff_process import Monitor, monitoring
from tests.unit.deploy.rules_file import DEPLOY, RULES

PROGRAMS = [shutil.which(name) for name in ("prometheus", "prometheus-alertmanager")]
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.thorough,
    pytest.mark.skipif(
        None in PROGRAMS, reason="needs Prometheus: apt-get install prometheus prometheus-alertmanager"
    ),
]
TOLD_S = 90.0


class Alerting:
    """A Prometheus that scrapes koff, an Alertmanager, and who is told."""

    def __init__(self, prometheus: str, alertmanager: str) -> None:
        self._prometheus, self._alertmanager = prometheus, alertmanager
        self.pages: list[dict[str, str]] = []
        """The labels of each alert of each page: a notification of the receiver `pagerduty`."""
        self.told: list[dict[str, str]] = []
        """The same of the channel."""

    def query(self, expression: str) -> list[tuple[dict[str, str], str]]:
        """The labels and the value of each series."""
        found = read_json(f"{self._prometheus}/api/v1/query?query={urllib.parse.quote(expression)}")
        return [(each["metric"], each["value"][1]) for each in found["data"]["result"]]

    def list_states(self) -> dict[str, str]:
        """The state of each alert that Alertmanager has, by name and severity: active, or suppressed."""
        found = read_json(f"{self._alertmanager}/api/v2/alerts")
        return {
            f"{each['labels']['alertname']} {each['labels']['severity']}": each["status"]["state"]
            for each in found
        }

    def wait_for(self, states: dict[str, str]) -> None:
        """Waits until these are the states of all alerts."""
        wait_until(lambda: self.list_states() == states, timeout_s=TOLD_S, what=f"the alerts to be {states}")


def read_json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)
    except OSError:  # it is starting
        return {"data": {"result": []}} if "/query" in url else []


class AlertReceiver(HttpReceiver):
    """Notes what Alertmanager sends."""

    def __init__(self, alerting: Alerting) -> None:
        super().__init__()
        self.alerting = alerting

    def respond(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        told = json.loads(body)
        firing = [alert["labels"] for alert in told["alerts"] if alert["status"] == "firing"]
        (self.alerting.pages if told["receiver"] == "pagerduty" else self.alerting.told).extend(firing)
        send(request, 200)


@contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=log.parent, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


Watch = Callable[..., Alerting]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Starts Prometheus and Alertmanager, with the rules and the inhibition of deploy/."""
    with ExitStack() as open_:

        def start(*monitors: Monitor) -> Alerting:
            ports = free_ports(3)
            prometheus, alertmanager = (f"127.0.0.1:{port}" for port in ports[:2])
            alerting = Alerting(f"http://{prometheus}", f"http://{alertmanager}")
            hook = f"{open_.enter_context(run_receiver(AlertReceiver(alerting))).address}/"
            koffs = [urllib.parse.urlsplit(each.url).netloc for each in monitors]
            write_files(tmp_path, koffs, alertmanager, hook)
            open_.enter_context(
                running(
                    tmp_path / "alertmanager.log",
                    str(PROGRAMS[1]),
                    f"--config.file={tmp_path}/alertmanager.yml",
                    f"--storage.path={tmp_path}/alerts",
                    f"--web.listen-address={alertmanager}",
                    "--cluster.listen-address=",
                )
            )
            open_.enter_context(
                running(
                    tmp_path / "prometheus.log",
                    str(PROGRAMS[0]),
                    f"--config.file={tmp_path}/prometheus.yml",
                    f"--storage.tsdb.path={tmp_path}/metrics",
                    f"--web.listen-address={prometheus}",
                )
            )
            wait_until(
                lambda: [value for _, value in alerting.query("koff_up")] == ["1"] * len(monitors),
                timeout_s=TOLD_S,
                what="Prometheus to scrape koff",
            )
            return alerting

        yield start


def write_files(folder: Path, koffs: list[str], alertmanager: str, hook: str) -> None:
    """The configuration of deploy/, with other addresses, and without patience."""
    rules = re.sub(r"\b(for|keep_firing_for): \w+", r"\1: 1s", RULES.read_text())
    (folder / "rules.yml").write_text(rules)
    scrape = {"job_name": "koff", "static_configs": [{"targets": koffs}]}
    prometheus = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scrape],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus))
    config = yaml.safe_load((DEPLOY / "prometheus" / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "3s", "group_interval": "3s"}
    config["receivers"] = [
        {"name": each["name"], "webhook_configs": [{"url": hook}]} for each in config["receivers"]
    ]
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))


def test_people_are_told_once_that_koff_was_killed(kafka: KafkaCluster, watch: Watch):
    with monitoring(kafka.bootstrap, "--cluster-name", "east") as monitor:
        monitor.wait_until_ready()
        alerting = watch(monitor)
        monitor.process.send_signal(signal.SIGKILL)
        monitor.process.wait(60)
        alerting.wait_for({"KoffAbsent critical": "active", "KoffInstanceDown warning": "suppressed"})
        wait_until(lambda: alerting.pages, timeout_s=TOLD_S, what="the page")
    assert {page["alertname"] for page in alerting.pages} == {"KoffAbsent"}
    assert {page.get("cluster") for page in alerting.pages} == {"east"}


def test_people_are_told_once_that_the_cluster_is_gone_and_not_of_its_groups(
    more_kafka: Callable[..., LocalKafka], watch: Watch
):
    kafka = more_kafka()
    topic = kafka.create_topic()
    commit(kafka, "g", (topic, 0, 0))
    with monitoring(kafka.bootstrap, "--cluster-name", "east") as monitor:
        monitor.wait_until_ready()
        alerting = watch(monitor)
        kafka.nodes[0].stop()
        alerting.wait_for({"KoffBlind critical": "active", "KoffBlind warning": "suppressed"})
        wait_until(lambda: alerting.pages, timeout_s=TOLD_S, what="the page")
        assert {(page["alertname"], page["cluster"]) for page in alerting.pages} == {("KoffBlind", "east")}
        kafka.nodes[0].start()
        alerting.wait_for({})


def test_a_reload_that_failed_is_told_in_the_channel_until_the_file_is_right(
    kafka: KafkaCluster, watch: Watch, tmp_path: Path
):
    file, right = tmp_path / "koff.yaml", f"clusters: [{{name: east, brokers: '{kafka.bootstrap}'}}]\n"
    file.write_text(right)
    with monitoring(None, "--config", str(file)) as monitor:
        monitor.wait_until_ready()
        alerting = watch(monitor)
        file.write_text(right + "famlies: all\n")
        monitor.process.send_signal(signal.SIGHUP)
        alerting.wait_for({"KoffReloadFailed warning": "active"})
        wait_until(lambda: alerting.told, timeout_s=TOLD_S, what="the message")
        assert not alerting.pages
        file.write_text(right)
        monitor.process.send_signal(signal.SIGHUP)
        alerting.wait_for({})


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ((), {"KoffInstanceDown warning": "active"}),
        (("--shard",), {"KoffShardAbsent critical": "active", "KoffInstanceDown warning": "suppressed"}),
    ],
    ids=["replica", "shard"],
)
def test_of_two_koffs_that_share_the_work_or_not_one_is_killed(
    options: tuple[str, ...], states: dict[str, str], kafka: KafkaCluster, watch: Watch
):
    def monitor(number: int) -> AbstractContextManager[Monitor]:
        shard = [word for option in options for word in (option, f"{number}/2")]
        return monitoring(kafka.bootstrap, "--cluster-name", "east", *shard)

    with monitor(0) as first, monitor(1) as second:
        first.wait_until_ready()
        second.wait_until_ready()
        alerting = watch(first, second)
        second.process.send_signal(signal.SIGKILL)
        second.process.wait(60)
        alerting.wait_for(states)
        told = "KoffShardAbsent" if options else "KoffInstanceDown"
        wait_until(lambda: alerting.told, timeout_s=TOLD_S, what="the message")
        assert {each["alertname"] for each in alerting.told} == {told}
        assert bool(alerting.pages) == bool(options)
