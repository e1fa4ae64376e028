"""Containers as this machine sees them: commits to a broker, responses over HTTP."""

import urllib.error
import urllib.request

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from docker.models.containers import Container
from prometheus_client.parser import text_string_to_metric_families

from koff.kafkatest import wait_until
from koff.kafkatest.kafka_cluster import KafkaCluster

LONGEST_S = 300


def wait_for_cluster(brokers: str, container: Container) -> KafkaCluster:
    """The cluster at `brokers`, once it responds. An error has the state and the log of the container."""
    cluster = KafkaCluster(brokers)
    last: KafkaException | None = None

    def responds() -> bool:
        nonlocal last
        container.reload()
        if container.status == "exited":
            raise RuntimeError("the container of the broker ended")
        try:
            return bool(cluster.admin.list_topics(timeout=5).brokers)
        except KafkaException as error:
            last = error
            return False

    try:
        wait_until(responds, timeout_s=LONGEST_S, what="the broker in the container to respond")
    except Exception as error:
        error.add_note(f"last error: {last}")
        error.add_note(f"state: {container.attrs['State']}, ports: {container.ports}")
        error.add_note(container.logs(tail=100).decode(errors="replace"))
        raise
    return cluster


def commit(cluster: KafkaCluster, topic: str, offset: int, *, group: str = "billing") -> None:
    """Commits for a group. The first commit of all waits until Kafka has made its offsets topic."""
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])

    def is_committed() -> bool:
        try:
            result = cluster.admin.alter_consumer_group_offsets([offsets])[group].result(10)
        except KafkaException:
            return False
        return all(partition.error is None for partition in result.topic_partitions)

    wait_until(is_committed, timeout_s=LONGEST_S, what="a commit")


def get(url: str) -> tuple[int, str]:
    """Status and body; status 0 if nothing responds."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def read_lag(url: str, group: str) -> float | None:
    status, body = get(f"{url}/metrics")
    for family in text_string_to_metric_families(body) if status == 200 else ():
        for sample in family.samples:
            if sample.name == "koff_group_lag" and sample.labels["group"] == group:
                return sample.value
    return None
