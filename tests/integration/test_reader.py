"""The reader against a real Kafka, where its answers are easier to see than through a process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import NewPartitions

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.kafkatest import KafkaCluster, wait_until
from koff.tail.reader import TailReader, TailReaderConf
from tests.integration.test_monitor import write
from tests.unit.builders import commit

pytestmark = pytest.mark.kafka


@contextmanager
def reading(kafka: KafkaCluster, conf: TailReaderConf) -> Iterator[TailReader]:
    with Cluster(ClusterConf(kafka.bootstrap)).connect() as cluster, TailReader(cluster, conf) as reader:
        yield reader


def read_until(reader: TailReader, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of the next `count` records."""
    seen: list[tuple[int, int]] = []

    def enough() -> bool:
        for run in reader.poll(0.2).runs:
            seen.extend((record.partition, record.offset) for record in run)
        return len(seen) >= count

    wait_until(enough, what=f"{count} records")
    return seen


def test_partitions_that_are_added_later_are_read_too(kafka):
    offsets = kafka.create_topic(partitions=1)
    write(kafka.bootstrap, offsets, commit("g", "t", 0, 0))
    with reading(kafka, TailReaderConf(topic=offsets, growth_interval_s=0.2)) as reader:
        assert read_until(reader, 1) == [(0, 0)]
        kafka.admin.create_partitions([NewPartitions(offsets, 2)])[offsets].result(60)
        wait_until(lambda: reader.poll(0.1) and reader.partitions == [0, 1], what="the partition")
        write(kafka.bootstrap, offsets, commit("late", "t", 0, 0), partition=1)
        assert read_until(reader, 1) == [(1, 0)]


def test_it_is_not_caught_up_before_it_has_looked_and_then_is_where_there_is_nothing(kafka):
    offsets = kafka.create_topic(partitions=2)
    with reading(kafka, TailReaderConf(topic=offsets, missing_topic_interval_s=0.2)) as reader:
        assert not reader.caught_up

        def is_caught_up() -> bool:  # the leader of a new partition may not know yet that it leads
            reader.poll(0.1)
            return reader.caught_up

        wait_until(is_caught_up, what="the bounds of both partitions")


def test_how_far_it_is_can_be_told_all_along(kafka):
    offsets = kafka.create_topic(partitions=2)
    write(kafka.bootstrap, offsets, *(commit("g", "t", 0, n) for n in range(100)))
    with reading(kafka, TailReaderConf(topic=offsets)) as reader:
        seen = 0
        while not reader.caught_up:
            seen += sum(map(len, reader.poll(0.5).runs))
            assert reader.behind == 100 - seen
        assert seen == 100


def test_a_partition_whose_position_was_cut_off_starts_anew_and_says_so(kafka):
    """Retention or a truncation passed the reader by: what it had of that partition must be forgotten."""
    offsets = kafka.create_topic(partitions=2)
    write(kafka.bootstrap, offsets, *(commit("g", "t", 0, n) for n in range(5)))
    write(kafka.bootstrap, offsets, commit("h", "t", 0, 1), partition=1)
    with reading(kafka, TailReaderConf(topic=offsets)) as reader:
        read_until(reader, 6)
        kafka.admin.delete_topics([offsets])[offsets].result(60)
        wait_until(lambda: offsets not in kafka.admin.list_topics(timeout=60).topics, what="deletion")
        kafka.create_topic(offsets, partitions=2)
        write(kafka.bootstrap, offsets, commit("new", "t", 0, 1))
        lost: set[int] = set()
        known: dict[int, list[int]] = {0: [0, 1, 2, 3, 4], 1: [0]}

        def anew() -> bool:
            """A lost partition takes along what it said; it may be lost more than once on the way."""
            polled = reader.poll(0.2)
            for run in polled.runs:
                known.setdefault(run.partition, []).extend(record.offset for record in run)
            for partition in polled.lost:
                known.pop(partition, None)
            lost.update(polled.lost)
            return lost == {0, 1} and reader.caught_up and known == {0: [0]}

        wait_until(anew, timeout_s=60, what="both partitions to start anew")
