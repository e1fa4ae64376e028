"""Checks of `koff doctor` on what clusters and people may give it."""

from types import SimpleNamespace
from typing import Any

import pytest

from koff.cli import doctor
from koff.cli.doctor import Level
from koff.client.cluster_conf import ClusterConf
from koff.client.metadata import Metadata, Node, PartitionMetadata
from koff.monitor.conf import MonitorConf
from koff.records.topics import OFFSETS_TOPIC
from tests.fake_brokers import FakeBrokers

CLUSTER: Any = None
METADATA = Metadata("c", 1, (Node(1, "b", 9092),), {})


def test_a_name_that_cannot_be_one_is_a_warning():
    (check,) = doctor._check_addresses(ClusterConf("a..b:9092"))
    assert check.level is Level.WARNING
    assert check.text.startswith("a..b has no address: ")


def test_an_advertised_name_that_cannot_be_one_is_a_failure():
    (check,) = doctor._check_listeners([Node(1, "a..b", 9092)])
    assert check.level is Level.FAILURE
    assert "broker 1 at a..b:9092" in check.text


@pytest.mark.parametrize(
    ("settings", "level", "text"),
    [
        ({}, Level.NOTE, "does not say"),
        ({"offsets.retention.minutes": "x"}, Level.NOTE, "does not say"),
        ({"offsets.retention.minutes": "1440"}, Level.WARNING, "expire after 1 day ("),
        ({"offsets.retention.minutes": "10080"}, Level.OK, "expire after 7 days ("),
    ],
)
def test_the_retention_is_said_only_if_the_broker_says_it(monkeypatch, settings, level, text):
    monkeypatch.setattr(doctor, "fetch_broker_settings", lambda conf, broker: settings)
    (check,) = doctor._check_settings(CLUSTER, METADATA)
    assert check.level is level
    assert text in check.text


def test_one_broker_is_one_broker():
    assert "1 broker, 0 topics that" in doctor._describe_cluster(METADATA).text


def test_leaderless_partitions_are_cured_by_the_brokers_that_have_their_replicas():
    partitions = (PartitionMetadata(0, 1, (1, 2)), PartitionMetadata(1, -1, (2, 3)))
    metadata = Metadata("c", 1, (Node(1, "b", 9092),), {"t": partitions, "gone": partitions[:1]})
    rows: Any = [SimpleNamespace(topic=topic, committed=5, end=None) for topic in ("t", "hidden", "gone")]
    checks = list(doctor._check_ends(ClusterConf("b:9092"), metadata, rows))
    said = {check.text: check.cure for check in checks}
    leaderless = said["end offsets of t are not known: partitions have no leader"]
    assert leaderless == "start the brokers that have the replicas: 2, 3"
    assert "kafka-acls.sh" in said["end offsets of hidden are not known"]
    assert "longer --timeout" in said["end offsets of gone are not known"]


def test_a_managed_service_is_named_before_anything_may_fail(monkeypatch):
    monkeypatch.setattr(doctor, "_check_addresses", lambda conf: iter(()))
    checks = doctor.run_checks(MonitorConf(ClusterConf("a.servicebus.windows.net:9093")), 1.0)
    first = next(checks)
    assert (first.level, first.name) == (Level.NOTE, "service")
    assert first.text.startswith("Azure Event Hubs: use --source coordinators")
    assert first.cure == "see docs/managed/event-hubs.md"


def test_the_brokers_may_name_the_service_and_need_not_support_every_request(monkeypatch):
    """Brokers that are not Apache Kafka lack requests, here DescribeCluster and DescribeConfigs."""
    monkeypatch.setattr(doctor, "_check_groups", lambda *_: iter(()))
    with FakeBrokers(1) as brokers:
        brokers[1].cluster_id = "redpanda.1"
        brokers.add_topic(OFFSETS_TOPIC, [1])
        checks = list(doctor.run_checks(MonitorConf(brokers.conf), 30.0))
    assert [check.text.partition(":")[0] for check in checks if check.name == "service"] == ["Redpanda"]
    assert Level.FAILURE not in {check.level for check in checks}, checks
    said = {check.name: check.text for check in checks}
    assert said["rights"] == "the brokers do not say what this user may do"
    assert said["retention"].startswith("the settings of a broker are not known: ")
