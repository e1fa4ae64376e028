"""The compose file: Kafka, koff and Prometheus started from it, and a lag queried from Prometheus."""

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any, NamedTuple

import docker
import pytest
import yaml

from koff.kafkatest import wait_until
from koff.kafkatest.kafka_cluster import KafkaCluster
from koff.kafkatest.ports import free_ports
from tests.containers import compose, images
from tests.containers.outside import LONGEST_S, commit, get, wait_for_cluster
from tests.kafka_groups import produce
from tests.unit.deploy.test_rules import RULES

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900), pytest.mark.thorough]


class Stack(NamedTuple):
    """The services of the compose file, without the second broker, Alertmanager and Grafana."""

    cluster: KafkaCluster
    prometheus: str
    """Its address."""


@pytest.fixture(scope="module")
def stack(koff_image: str, engine: docker.DockerClient, network: str) -> Iterator[Stack]:
    services = compose.read_services({"KOFF_IMAGE": koff_image, "KAFKA_IMAGE": images.KAFKA})
    images.ensure_kafka(engine)
    images.ensure_prometheus(engine, services["prometheus"]["image"])
    inside = (9090, 9094, 9850)
    ports = dict(zip(inside, free_ports(len(inside)), strict=True))
    # The port on this machine is another one, so that tests disturb nobody.
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert "OUTSIDE://localhost:9094" in listeners
    services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] = listeners.replace(
        "localhost:9094", f"127.0.0.1:{ports[9094]}"
    )

    with (
        compose.start(engine, network, "koff", services["koff"], ports),
        compose.start(engine, network, "prometheus", services["prometheus"], ports),
        compose.start(engine, network, "kafka", services["kafka"], ports) as kafka,
        compose.start(engine, network, "traffic", services["traffic"], ports),
    ):
        yield Stack(wait_for_cluster(f"127.0.0.1:{ports[9094]}", kafka), f"http://127.0.0.1:{ports[9090]}")


def query(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """The series of an instant query; none while Prometheus does not respond."""
    status, body = get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return json.loads(body)["data"]["result"] if status == 200 else []


def test_prometheus_of_the_compose_file_has_the_lags_of_koff(stack: Stack):
    topic = stack.cluster.create_topic(timeout_s=LONGEST_S)
    produce(stack.cluster, topic, 10)
    commit(stack.cluster, topic, 4)

    def has_lag() -> bool:
        lags = query(stack.prometheus, 'koff_group_lag{group="billing"}')
        return [lag["value"][1] for lag in lags] == ["6"]

    wait_until(has_lag, timeout_s=LONGEST_S, what="Prometheus to have a lag of 6")
    assert [up["value"][1] for up in query(stack.prometheus, 'up{job="koff"}')] == ["1"]


def test_the_traffic_of_the_compose_file_is_in_prometheus(stack: Stack):
    lags = 'max(koff_group_lag{group="falls-behind"}) > 5'
    wait_until(
        lambda: query(stack.prometheus, lags),
        timeout_s=LONGEST_S,
        what="Prometheus to have the lag of a group of the traffic",
    )


def test_prometheus_of_the_compose_file_evaluates_the_rules(stack: Stack):
    groups = yaml.safe_load(RULES.read_text())["groups"]
    names = {rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]}

    def evaluated() -> dict[str, str]:
        status, body = get(f"{stack.prometheus}/api/v1/rules")
        groups = json.loads(body)["data"]["groups"] if status == 200 else []
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    wait_until(
        lambda: evaluated() == dict.fromkeys(names, "ok"),
        timeout_s=LONGEST_S,
        what="all rules to be evaluated",
    )
