"""A history from a real broker is what librdkafka's consumer returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as At

from koff.client import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.history.history_fetch import HistoryFetch, HistoryStart
from koff.client.offsets.lister import Listed, OffsetLister
from koff.kafkatest import KafkaCluster, wait_until

Found = dict[int, list[tuple[int, bytes | None, bytes | None]]]


@pytest.fixture
def lister(kafka: KafkaCluster) -> Iterator[OffsetLister]:
    with (
        Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster,
        OffsetLister(cluster.conf) as made,
    ):
        yield made


def refuse(*args: object, **options: object) -> Listed:
    raise AssertionError("librdkafka is not needed")


def produce(kafka: KafkaCluster, topic: str, partition: int, values: range, *, codec: str = "none") -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "batch.num.messages": 70}
    )
    for number in values:
        key = None if number % 7 == 0 else b"k" * (number % 90)
        producer.produce(topic, None if number % 5 == 0 else b"%d" % number, key, partition)
    assert producer.flush(60) == 0


def transact(kafka: KafkaCluster, topic: str, partition: int, values: range, *, commits: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{partition}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in values:
        producer.produce(topic, b"%d" % number, b"k", partition)
    if commits:
        producer.commit_transaction(60)
    else:
        producer.flush(60)
        producer.abort_transaction(60)


def read_by_librdkafka(kafka: KafkaCluster, topic: str, partitions: int) -> Found:
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": "x", "enable.partition.eof": True}
    consumer = Consumer({**conf, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([At(topic, partition, 0) for partition in range(partitions)])
    found: Found = {partition: [] for partition in range(partitions)}
    ends: set[int | None] = set()

    def is_done() -> bool:
        message: Any  # the stubs type all fields as optional
        for message in consumer.consume(1000, 0.1):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition())
            elif not message.error():
                found[message.partition()].append((message.offset(), message.key(), message.value()))
        return len(ends) == partitions

    wait_until(is_done, timeout_s=60, every_s=0.0)
    consumer.close()
    return found


def read_history(lister: OffsetLister, topic: str, partitions: int) -> tuple[Found, dict[int, int]]:
    """The records, and where each partition ended."""
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    starts = lister.list_offsets(places, OffsetSpec.EARLIEST)
    ends = lister.list_offsets(places, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
    found: Found = {partition: [] for partition in range(partitions)}
    ended: dict[int, int] = {}
    with HistoryFetch(lister, topic) as history:
        wanted = {at.partition: HistoryStart(starts[at].offset, ends[at].offset) for at in places}
        assert history.add(wanted) == set(range(partitions))

        def is_done() -> bool:
            fetched = history.fetch(0.1)
            for run in fetched.runs:
                found[run.partition] += zip(run.offsets, run.keys, run.values, strict=True)
            ended.update({partition: position for partition, (position, _) in fetched.ended.items()})
            return not history.partitions

        wait_until(is_done, timeout_s=60, every_s=0.0)
    return found, ended


def test_a_history_is_what_librdkafka_returns(
    kafka: KafkaCluster, make_topic: Callable[..., str], lister: OffsetLister
) -> None:
    topic = make_topic(partitions=7)
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(kafka, topic, partition, range(30_000), codec=codec)
    produce(kafka, topic, 5, range(500))
    transact(kafka, topic, 5, range(300), commits=True)
    produce(kafka, topic, 5, range(500))
    found, ended = read_history(lister, topic, 7)
    assert found == read_by_librdkafka(kafka, topic, 7)
    assert sum(map(len, found.values())) == 5 * 30_000 + 1300
    assert ended == {**dict.fromkeys(range(5), 30_000), 5: 1301, 6: 0}


def test_a_history_ends_before_an_aborted_transaction(
    kafka: KafkaCluster, make_topic: Callable[..., str], lister: OffsetLister
) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(kafka, topic, partition, range(90_000))
    transact(kafka, topic, 1, range(300), commits=False)
    produce(kafka, topic, 1, range(500))
    found, ended = read_history(lister, topic, 2)
    expected = read_by_librdkafka(kafka, topic, 2)
    assert found[0] == expected[0]
    assert 0 < ended[1] <= 90_000
    assert found[1] == [record for record in expected[1] if record[0] < ended[1]]
