"""The format `koff` against a real Kafka: every record once, and nothing that was aborted or is undecided."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from confluent_kafka import Producer

from koff.errors import ConfigError, ConnectError, KoffError
from koff.spark import DataLost, decode, find_koff_error
from koff.spark.rows.spans import Span, count_offsets, limit_offsets, split_spans
from koff.spark.source.kafka import KafkaOptions, KafkaReader
from tests.spark.test_decoding import EVERY, decode_batch, raw
from tests.unit.builders import commit

pytestmark = pytest.mark.kafka


def write(kafka, topic: str, *pairs, partition: int = 0) -> None:
    producer = kafka.producer()
    for key, value in pairs:
        producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0


def transact(kafka, topic: str, name: str, *pairs, end: str | None, partition: int = 0) -> Producer:
    """Writes in a transaction; the producer, whose transaction is open without an `end`."""
    # One request in flight: with more, a batch that the partition refused may be reported as delivered.
    producer = kafka.producer({"transactional.id": f"{topic}-{name}", "max.in.flight": 1})
    producer.init_transactions(60)
    producer.begin_transaction()
    for key, value in pairs:
        producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0
    if end:
        getattr(producer, f"{end}_transaction")(30)
    return producer


def reader(spark, kafka, log: str, **options: object):
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("koff").options(
        brokers=kafka.bootstrap, cluster="blue", offsetsTopic=log, **given
    )


def committed(reading) -> list[int]:
    return sorted(row[0] for row in reading.load().select("committed").collect())


def test_all_golden_records_come_out_of_kafka_as_they_are_decoded_alone(spark, kafka):
    topic = kafka.create_topic(partitions=2)
    write(kafka, topic, *EVERY[::2], partition=0)
    write(kafka, topic, *EVERY[1::2], partition=1)
    columns = [name for name in decode_batch(raw(EVERY), "").schema.names if "timestamp" not in name]
    columns = [name for name in columns if name not in ("offsets_partition", "log_offset")]
    rows = reader(spark, kafka, topic).load().orderBy("log_offset", "offsets_partition").collect()
    assert len(rows) == len(EVERY)
    for row, expected in zip(rows, decode_batch(raw(EVERY), "blue").to_pylist(), strict=True):
        assert {name: row[name] for name in columns} == {name: expected[name] for name in columns}


def test_aborted_commits_never_come_and_those_of_an_open_transaction_and_behind_it_wait(spark, kafka):
    topic = kafka.create_topic()
    write(kafka, topic, commit("g", "t", 0, 1))
    transact(kafka, topic, "a", commit("g", "t", 0, 2), commit("g", "t", 1, 2), end="abort")
    transact(kafka, topic, "b", commit("g", "t", 0, 3), end="commit")
    held = transact(kafka, topic, "c", commit("g", "t", 0, 4), end=None)
    write(kafka, topic, commit("g", "t", 0, 5))
    assert committed(reader(spark, kafka, topic)) == [1, 3]
    held.commit_transaction(60)
    assert committed(reader(spark, kafka, topic)) == [1, 3, 4, 5]


def test_groups_topics_and_times_are_filtered(spark, kafka):
    topic = kafka.create_topic()
    pairs = [commit("pays", "orders", 0, 1), commit("web", "clicks", 0, 1), commit("pays", "clicks", 0, 1)]
    producer = kafka.producer()
    for number, (key, value) in enumerate(pairs):
        producer.produce(topic, value, key, 0, timestamp=1_700_000_000_000 + 1000 * number)
    assert producer.flush(60) == 0

    def offsets(**options: object) -> list[int]:
        rows = reader(spark, kafka, topic, **options).load().select("log_offset").collect()
        return sorted(row[0] for row in rows)

    assert offsets(group="^pay") == [0, 2]
    assert offsets(topic="clicks", group="web") == [1]
    since = {"from": "2023-11-14T22:13:21Z"}
    assert offsets(**since) == [1, 2]
    assert offsets(until=1_700_000_001_000) == [0]
    assert offsets(starting="latest") == []


def test_records_that_were_deleted_are_an_error_that_says_so_or_are_passed_over(spark, kafka):
    topic = kafka.create_topic(config={"cleanup.policy": "delete"})
    write(kafka, topic, *(commit("g", "t", 0, n) for n in range(20)))
    _delete_before(kafka, topic, 15)

    def read(**options: str) -> list[int]:
        """What a task reads of offsets 10 to 19."""
        given = {"brokers": kafka.bootstrap, "cluster": "blue", "offsetsTopic": topic, **options}
        reader = KafkaReader(replace(KafkaOptions.parse(given), spans=((0, 10, 20, -1),)))
        rows = spark.sparkContext.parallelize(reader.partitions(), 1).flatMap(reader.read)
        return rows.flatMap(lambda batch: batch.column("committed").to_pylist()).collect()

    with pytest.raises(Exception, match="offsets 10 to 14 are deleted") as raised:
        read()
    failure = find_koff_error(raised.value)
    assert isinstance(failure, DataLost)
    assert str(failure).startswith(f"cluster blue: partition 0 of {topic} now starts at 15: offsets 10 to 14")
    assert "failOnDataLoss" in str(failure)
    assert read(failOnDataLoss="false") == [*range(15, 20)]


def _delete_before(kafka, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    kafka.admin.delete_records([TopicPartition(topic, 0, offset)])[TopicPartition(topic, 0)].result(60)


def test_frames_that_came_another_way_are_decoded_too(spark):
    pairs = [*EVERY[:50], (None, b"no key")]
    frame = spark.createDataFrame(
        [(number, key, value) for number, (key, value) in enumerate(pairs)],
        "offset LONG, key BINARY, value BINARY",
    )
    rows = decode(frame, "green").orderBy("log_offset").collect()
    expected = decode_batch(raw(pairs), "green").to_pylist()
    for name in ("kind", "group", "topic", "committed", "tombstone", "reason", "key"):
        assert [row[name] for row in rows] == [row[name] for row in expected], name
    assert {row["offsets_partition"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"broker": "x"}, "has no option 'broker'"),
        ({"starting": "soon"}, "option starting: 'soon' is not a time"),
        ({"tasks": "0"}, "'0' is not a whole number above zero"),
    ],
)
def test_what_an_option_cannot_be_is_said(spark, options, message):
    with pytest.raises(Exception, match=message) as raised:
        spark.read.format("koff").options(brokers="127.0.0.1:1", **options).load()
    assert isinstance(find_koff_error(raised.value), ConfigError)


def test_a_cluster_that_cannot_be_reached_is_named_in_one_line(spark):
    source = spark.read.format("koff").options(brokers="127.0.0.1:1", cluster="blue")
    with pytest.raises(Exception, match="cannot reach Kafka") as raised:
        source.load().count()
    failure = find_koff_error(raised.value)
    assert isinstance(failure, ConnectError)
    assert str(failure).startswith("cluster blue: cannot reach Kafka at 127.0.0.1:1")
    assert "\n" not in str(failure)


def test_errors_that_are_not_koffs_have_no_name():
    assert find_koff_error(ValueError("koff was here")) is None
    assert isinstance(find_koff_error(KoffError("x")), KoffError)


def test_a_batch_takes_so_many_offsets_in_all_and_as_many_of_each_partition_as_it_can():
    assert limit_offsets({0: 100, 1: 10, 2: 0}, 50) == {2: 0, 1: 10, 0: 40}
    assert limit_offsets({0: 100, 1: 100, 2: 100}, 100) == {0: 33, 1: 33, 2: 34}
    assert limit_offsets({0: 5, 1: 3}, 100) == {0: 5, 1: 3}
    assert sum(limit_offsets(dict.fromkeys(range(50), 7), 2).values()) == 2  # each batch goes on
    assert limit_offsets({}, 5) == {}


def test_shares_hold_every_offset_once_and_are_alike_in_size():
    spans = [Span(0, 5, 1_000_005), Span(1, 0, 10), Span(2, 0, 300_000)]
    shares = split_spans(spans, 8)
    assert len(shares) == 8
    for whole in spans:
        pieces = sorted(each for share in shares for each in share if each.partition == whole.partition)
        assert pieces[0].start == whole.start
        assert pieces[-1].end == whole.end
        assert all(a.end == b.start for a, b in pairwise(pieces))
    sizes = [count_offsets(share) for share in shares]
    assert max(sizes) < 2 * min(sizes)
    assert split_spans([Span(0, 0, 3), Span(1, 0, 4)], 16) == [[Span(0, 0, 3), Span(1, 0, 4)]]
    assert split_spans([], 4) == []
