"""Samples of end offsets; unknown ones are null."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as Place

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.client.offsets.lister import OffsetLister
from koff.errors import ConnectError
from koff.kafkatest import KafkaCluster as Kafka
from koff.spark.job.end_offsets import EndOffsetSampler, fetch_offsets
from tests.fake_brokers import FakeBrokers
from tests.kafka_groups import produce


@pytest.mark.kafka
def test_a_sample_has_each_watched_partition_with_its_three_offsets(kafka: Kafka) -> None:
    orders, clicks = kafka.create_topic(partitions=3), kafka.create_topic(partitions=2)
    produce(kafka, orders, 5)
    produce(kafka, clicks, 4, partition=1)
    (deleted,) = kafka.admin.delete_records([Place(orders, 0, 2)]).values()
    deleted.result(60)
    producer = kafka.producer({"transactional.id": f"{clicks}-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(clicks, b"undecided", partition=0)
    assert producer.flush(60) == 0
    watched = [(orders, number) for number in range(4)] + [(clicks, 0), (clicks, 1), ("never-made", 0)]
    with Cluster(ClusterConf(kafka.bootstrap)) as cluster:
        rows = EndOffsetSampler(cluster.connect()).take_sample(watched)
    producer.abort_transaction(60)
    offsets = {each[1:3]: (each.start_offset, each.end_offset, each.stable_offset) for each in rows}
    assert offsets[orders, 0] == (2, 5, 5)
    assert offsets[clicks, 0] == (0, 1, 0)
    assert [each[1:3] for each in rows if each.gone] == sorted([(orders, 3), ("never-made", 0)])


def test_partitions_whose_leader_does_not_respond_are_unknown_and_the_rest_stays() -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    with FakeBrokers() as brokers, OffsetLister(brokers.conf) as lister:
        brokers.add_topic("t", [1, 2, 3])
        assert fetch_offsets(lister, partitions)[1][1] == (1, 1001, 1000)
        brokers.stop(2)
        _, found = fetch_offsets(lister, partitions)
        assert found == [(0, 1000, 999), (None, None, None), (2, 1002, 1001)]
        for number in (1, 3):
            brokers.stop(number)
        with pytest.raises(ConnectError):
            fetch_offsets(lister, partitions)
