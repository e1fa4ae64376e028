"""Offsets over koff's own connections are those that librdkafka lists, on a real Kafka."""

import time

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec as AdminSpec

from koff.client import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.offsets.lister import OffsetLister


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


def list_by_librdkafka(kafka, partitions, spec, isolation):
    named = {OffsetSpec.LATEST: AdminSpec.latest(), OffsetSpec.EARLIEST: AdminSpec.earliest()}
    wanted = named[spec] if isinstance(spec, OffsetSpec) else AdminSpec.for_timestamp(spec)
    level = IsolationLevel[isolation.name]
    listed = kafka.admin.list_offsets(
        {KafkaPartition(*at): wanted for at in partitions}, isolation_level=level
    )
    return {TopicPartition(at.topic, at.partition): each.result(60).offset for at, each in listed.items()}


SPECS: list[OffsetSpec | int] = [OffsetSpec.LATEST, OffsetSpec.EARLIEST, 0, 2**60]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_offsets_are_those_that_librdkafka_lists(kafka, written, open_transaction, isolation):
    specs = [*SPECS, time.time_ns() // 1_000_000 - 1000]
    with OffsetLister(ClusterConf(kafka.bootstrap)) as lister:
        for spec in specs:
            listed = lister.list_offsets(written, spec, isolation)
            offsets = {at: each if isinstance(each, str) else each.offset for at, each in listed.items()}
            assert offsets == list_by_librdkafka(kafka, written, spec, isolation), spec
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
