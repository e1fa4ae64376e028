"""`koff.client.cluster.Cluster` against a real Kafka."""

from __future__ import annotations

import pytest

from koff.client import ClusterConf, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.errors import Closed
from tests.kafka_groups import produce

pytestmark = pytest.mark.kafka


def test_topic_ids_are_spelt_as_kafka_spells_them(kafka):
    """Two ids in three hold a character that the two base64 alphabets spell differently."""
    names = [kafka.create_topic() for _ in range(12)]
    printed = kafka.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        kafka.bootstrap,
        "--describe",
        "--topic",
        "t-.*",
    )
    with Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster:
        described = cluster.describe_topics(names)
    assert described.keys() == set(names)
    for topic in described.values():
        assert f"Topic: {topic.name}\tTopicId: {topic.topic_id}\t" in printed


def test_offsets_come_in_bulk_and_a_missing_partition_says_why(kafka):
    topic = kafka.create_topic(partitions=2)
    produce(kafka, topic, 5)
    at = [TopicPartition(topic, p) for p in (0, 1, 7)]
    with Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster:
        ends = cluster.fetch_offsets(at)
        assert (ends[at[0]], ends[at[1]]) == (5, 0)
        assert isinstance(ends[at[2]], str)
        assert cluster.fetch_offsets(at[:1], OffsetSpec.EARLIEST) == {at[0]: 0}


def test_asking_for_a_topic_that_is_not_there_does_not_create_it(kafka):
    with Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster:
        assert cluster.fetch_topic("never-made") is None
        assert "never-made" not in cluster.fetch_partition_counts()


def test_a_closed_cluster_says_so(kafka):
    cluster = Cluster(ClusterConf(kafka.bootstrap)).connect()
    cluster.close()
    cluster.close()
    with pytest.raises(Closed):
        cluster.fetch_partition_counts()


@pytest.mark.thorough
def test_a_cluster_is_reached_while_one_of_its_brokers_is_dead(more_kafka):
    """Whichever of the others is asked: some still name the dead one as the controller."""
    kafka = more_kafka(brokers=3)
    for node in kafka.nodes[1:]:
        node.kill()
        for _ in range(10):
            with Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster:
                assert cluster.id
        node.start()
        kafka.wait_until_up()
