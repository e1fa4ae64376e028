"""End offsets are the same whether the driver asks or tasks do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition as Place

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster
from koff.errors import ConnectError
from koff.kafkatest import KafkaCluster as Kafka
from koff.kafkatest import free_ports
from koff.spark.job import end_offsets as samples
from koff.spark.job.end_offsets import EndOffsetSampler, merge_task_results
from tests.kafka_groups import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.kafka
def test_tasks_give_the_rows_that_the_driver_gives(spark: SparkSession, kafka: Kafka) -> None:
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
        drivers = EndOffsetSampler(cluster).take_sample(watched)
        tasks = EndOffsetSampler(cluster, spark, sharded_above=4, partitions_per_task=2).take_sample(watched)
    producer.abort_transaction(60)
    assert [each[1:] for each in tasks] == [each[1:] for each in drivers]
    offsets = {each[1:3]: (each.start_offset, each.end_offset, each.stable_offset) for each in tasks}
    assert offsets[orders, 0] == (2, 5, 5)
    assert offsets[clicks, 0] == (0, 1, 0)
    assert [each[1:3] for each in tasks if each.gone] == sorted([(orders, 3), ("never-made", 0)])


def test_what_a_task_was_not_told_is_unknown_and_the_rest_stays() -> None:
    shares = [[TopicPartition("t", 0)], [TopicPartition("t", 1), TopicPartition("t", 2)]]
    found = merge_task_results(shares, [[(0, 5, 5)], "cannot reach Kafka"])
    assert found == [(0, 5, 5), (None, None, None), (None, None, None)]


def test_a_cluster_that_no_task_reaches_is_silent() -> None:
    conf = ClusterConf(f"127.0.0.1:{free_ports(1)[0]}", connect_timeout_s=0.5)
    shares = [[TopicPartition("t", number)] for number in range(2)]
    with pytest.raises(ConnectError, match="cannot reach Kafka"):
        merge_task_results(shares, [samples._fetch_in_task(conf, share) for share in shares])
