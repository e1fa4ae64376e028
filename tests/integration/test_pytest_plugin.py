"""The fixtures that koff gives to pytest, in a test run of somebody else's."""

import subprocess
import sys
from pathlib import Path

import pytest

from koff.kafkatest.kafka_cluster import KafkaCluster

THEIRS = """
from koff.client import ClusterConf, ConsumerConf, Message, dial
from koff.client.multicluster import ReaderConf


def copy(client, source, target):
    for message in client.consumer(ConsumerConf(source, retry_limit=0)):
        client.producer().produce(target, 0, Message(message.value))


def read(client, topic):
    return [message.value for message in client.consumer(ConsumerConf(topic, retry_limit=0))]


def test_in_memory(koff_memory_broker):
    for topic in ("source", "target"):
        koff_memory_broker.create_topic(topic)
    koff_memory_broker.producer().produce("source", 0, Message(b"one"), Message(b"two"))
    copy(koff_memory_broker, "source", "target")
    assert read(koff_memory_broker, "target") == [b"one", b"two"]


def test_a_group_in_memory(koff_memory_broker, koff_memory_zookeeper):
    koff_memory_broker.create_topic("source")
    koff_memory_broker.producer().produce("source", 0, Message(b"one"))
    with koff_memory_zookeeper.join_consumer_group("g", ["source"]) as group:
        for message in group.messages():
            message.ack()
            break
    assert koff_memory_zookeeper.offsets == {("g", "source", 0): 1}


def test_clusters_in_memory(koff_memory_clusters):
    koff_memory_clusters.create_topic("t")
    koff_memory_clusters["west:9092"].producer().produce("t", 0, Message(b"one"))
    with koff_memory_clusters.reader({"west": ClusterConf("west:9092")}, ReaderConf("t")) as reader:
        assert [message.value for message in reader.read_message()] == [b"one"]


def test_on_a_real_kafka(koff_kafka, koff_topic):
    source, target = koff_topic(), koff_topic()
    with dial(koff_kafka.bootstrap) as broker:
        broker.producer().produce(source, 0, Message(b"one"), Message(b"two"))
        copy(broker, source, target)
        assert read(broker, target) == [b"one", b"two"]


def test_on_a_real_zookeeper(koff_zookeeper):
    assert koff_zookeeper.hosts
"""


@pytest.mark.kafka
def test_the_fixtures_serve_a_test_of_somebody_else(tmp_path: Path, kafka: KafkaCluster, monkeypatch):
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    monkeypatch.setenv("KOFF_TEST_BROKERS", kafka.bootstrap)
    ended = run(tmp_path, "-q")
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout


def test_the_plugin_costs_other_tests_no_import(tmp_path: Path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\n"
        "def test_imports():\n"
        "    assert {'confluent_kafka', 'numpy', 'kio'}.isdisjoint(sys.modules)\n"
    )
    ended = run(tmp_path, "-q", "-p", "no:hypothesispytest", "-p", "no:schemathesis")
    assert ended.returncode == 0, ended.stdout


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=170)
