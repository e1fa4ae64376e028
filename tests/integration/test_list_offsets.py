"""Offsets over koff's own connections are those that librdkafka lists, on a real Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from koff.client import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.offsets.lister import OffsetLister
from koff.errors import ConnectError, Denied
from koff.kafkatest import wait_until
from tests.clusters import lend_kafka, log_in


@pytest.fixture(scope="module")
def written(kafka) -> list[TopicPartition]:
    """Three partitions: a hundred records and an open transaction, no record, records that were deleted."""
    topic = kafka.create_topic(partitions=3)
    producer = kafka.producer()
    now = time.time_ns() // 1_000_000
    for number in range(100):
        producer.produce(topic, b"v", partition=0, timestamp=now - 100 + number)
        producer.produce(topic, b"v", partition=2)
    producer.flush()
    kafka.admin.delete_records([KafkaPartition(topic, 2, 40)])[KafkaPartition(topic, 2)].result(60)
    return [TopicPartition(topic, number) for number in range(3)]


@pytest.fixture
def open_transaction(kafka, written):
    producer = kafka.producer(
        {"transactional.id": f"of-{written[0].topic}", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(written[0].topic, b"open", partition=0)
    producer.flush()
    yield
    producer.abort_transaction(60)


SPECS: list[OffsetSpec | int] = [OffsetSpec.LATEST, OffsetSpec.EARLIEST, 0, 2**60]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_offsets_are_those_that_librdkafka_lists(kafka, written, open_transaction, isolation):
    conf = ClusterConf(kafka.bootstrap)
    specs = [*SPECS, time.time_ns() // 1_000_000 - 1000]
    with Cluster(conf) as cluster, OffsetLister(conf) as lister:
        for spec in specs:
            by_librdkafka = cluster.list_offsets(written, spec, isolation)
            assert lister.list_offsets(written, spec, isolation) == by_librdkafka, spec
        ends = lister.list_offsets(written, OffsetSpec.LATEST, isolation)
    first, *others = (each for each in ends.values() if not isinstance(each, str))
    assert [each.offset for each in others] == [0, 100]
    assert first.offset >= 100


def test_errors_name_their_partitions(kafka, written):
    wanted = [written[0], TopicPartition(written[0].topic, 3), TopicPartition("never-created", 0)]
    with OffsetLister(ClusterConf(kafka.bootstrap)) as lister:
        listed = lister.list_offsets(wanted)
    assert not isinstance(listed[wanted[0]], str)
    assert [listed[at] for at in wanted[1:]] == ["UNKNOWN_TOPIC_OR_PARTITION"] * 2
    assert "never-created" not in kafka.admin.list_topics(timeout=60).topics


def test_offsets_come_over_tls_and_after_a_log_in(more_kafka):
    kafka = more_kafka(security=True)
    topic = kafka.create_topic()
    at = TopicPartition(topic, 0)
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(kafka.ca_pem)}
    for conf in (ClusterConf(kafka.ssl_bootstrap, tls), ClusterConf(kafka.sasl_bootstrap, log_in("admin"))):
        with OffsetLister(conf) as lister:
            assert ends(lister, [at]) == [0]
    wrong = ClusterConf(kafka.sasl_bootstrap, log_in("admin", "wrong"))
    with OffsetLister(wrong) as lister, pytest.raises(Denied, match="refused the log-in"):
        lister.list_offsets([at])


@pytest.mark.kafka
def test_offsets_come_from_the_new_leader_after_a_broker_has_died():
    with lend_kafka(brokers=3) as kafka:
        topic = kafka.create_topic(partitions=6, replicas=3)
        wanted = [TopicPartition(topic, number) for number in range(6)]
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
        with OffsetLister(ClusterConf(kafka.bootstrap)) as lister:
            wait_until(lambda: all(each == 0 for each in ends(lister, wanted)), what="the leaders")
            for number in range(6):
                producer.produce(topic, b"v", partition=number)
            producer.flush()
            kafka.nodes[0].kill()
            wait_until(lambda: ends(lister, wanted) == [1] * 6, timeout_s=90, what="the new leaders")


def ends(lister: OffsetLister, wanted: list[TopicPartition]) -> list[int | str]:
    try:
        listed = lister.list_offsets(wanted, timeout_s=5)
    except ConnectError as error:
        return [str(error)] * len(wanted)
    return [each if isinstance(each, str) else each.offset for each in listed.values()]
