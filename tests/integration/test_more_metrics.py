"""Metrics that are off by default, on a real Kafka: other exporters, idle topics, and the sizes of logs."""

import os

import pytest

from koff.kafkatest import wait_until
from tests.kafka_groups import commit
from tests.koff_process import monitoring

pytestmark = pytest.mark.kafka
PAYLOAD = 100_000


def test_families_of_other_exporters_idle_topics_sizes_and_labels_of_groups_are_served(kafka):
    topic, idle = kafka.create_topic(), kafka.create_topic(partitions=2)
    producer = kafka.producer()
    producer.produce(topic, b"v", partition=0)
    for partition, count in ((0, 3), (1, 4)):
        for _ in range(count):
            producer.produce(idle, os.urandom(PAYLOAD), partition=partition)
    assert producer.flush(60) == 0
    commit(kafka, f"pay.{topic}", (topic, 0, 0))
    options = ["--compat", "kminion", "--compat", "kafka_exporter", "--watch-topics", "all", "--log-sizes"]
    with monitoring(kafka.bootstrap, *options, "--group-labels", r"^(?P<team>[^.]+)\.") as monitor:
        monitor.wait_until_ready()
        cluster, group = kafka.cluster_id, f"pay.{topic}"

        def served(name: str) -> dict[tuple[str, ...], float]:
            return monitor.metrics().get(name, {})

        row = cluster, group, "pay", topic, "0"
        wait_until(lambda: served("kafka_consumergroup_lag").get(row) == 1, what="the lag")
        assert served("kminion_kafka_consumer_group_topic_partition_lag")[row] == 1
        high, low = (f"kminion_kafka_topic_{which}_water_mark_sum" for which in ("high", "low"))
        wait_until(lambda: served(high).get((cluster, idle)) == 7, what="the ends of the idle topic")
        ends = served("koff_partition_end_offset")
        assert (ends[cluster, idle, "0"], ends[cluster, idle, "1"]) == (3, 4)
        wait_until(lambda: served(low).get((cluster, idle)) == 0, what="its starts")
        producer.produce(idle, b"v", partition=0)
        assert producer.flush(60) == 0
        wait_until(lambda: served("koff_topic_messages_total").get((cluster, idle)) == 1, what="a new record")

        wait_until(lambda: served("koff_topic_log_size_bytes"), what="sizes")
        (size,) = [n for labels, n in served("koff_topic_log_size_bytes").items() if labels[1] == idle]
        assert 7 * PAYLOAD < size < 8 * PAYLOAD
        assert served("kminion_kafka_topic_log_dir_size_total_bytes")[cluster, idle] == size
        (total,) = served("koff_broker_log_size_bytes").values()
        assert total > size
