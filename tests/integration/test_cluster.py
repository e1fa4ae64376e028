"""`koff.client.cluster.Cluster` against a real Kafka."""

import pytest

from koff.client import ClusterConf
from koff.client.cluster import Cluster

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
        described = [cluster.fetch_topic(name) for name in names]
    for topic in described:
        assert f"Topic: {topic.name}\tTopicId: {topic.topic_id}\t" in printed


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
