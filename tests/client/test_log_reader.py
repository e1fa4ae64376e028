"""What is read from a real broker is what librdkafka's consumer returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as At

from koff.client import ClusterConf, Isolation, OffsetSpec, TopicPartition
from koff.client.cluster import Cluster
from koff.client.log_reader import LogReader, LogStart
from koff.kafkatest import KafkaCluster, wait_until

Found = dict[int, list[tuple[int, bytes | None, bytes | None]]]


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


def read_log(kafka: KafkaCluster, topic: str, partitions: int) -> tuple[Found, dict[int, int]]:
    """The records, and where each partition ends."""
    found: Found = {partition: [] for partition in range(partitions)}
    positions: dict[int, int] = {}
    with (
        Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster,
        LogReader(cluster.lister, topic) as reader,
    ):
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        ends = cluster.fetch_offsets(places, OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        reader.add(dict.fromkeys(range(partitions), LogStart(0)))

        def is_done() -> bool:
            read = reader.fetch(0.1)
            assert not read.lost
            for run in read.runs:
                found[run.partition] += zip(run.offsets, run.keys, run.values, strict=True)
            positions.update(read.positions)
            return positions == {at.partition: end for at, end in ends.items()}

        wait_until(is_done, timeout_s=60, every_s=0.0)
    return found, positions


def test_records_are_those_that_librdkafka_returns(
    kafka: KafkaCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=8)
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(kafka, topic, partition, range(30_000), codec=codec)
    for partition, commits in ((5, True), (6, False)):
        produce(kafka, topic, partition, range(500))
        transact(kafka, topic, partition, range(300), commits=commits)
        produce(kafka, topic, partition, range(500))
    transact(kafka, topic, 6, range(300), commits=True)
    found, positions = read_log(kafka, topic, 8)
    assert found == read_by_librdkafka(kafka, topic, 8)
    assert sum(map(len, found.values())) == 5 * 30_000 + 1300 + 1300
    assert positions == {**dict.fromkeys(range(5), 30_000), 5: 1301, 6: 1602, 7: 0}
