"""Many consumers of one connection: they share a librdkafka client, and leave nothing behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from koff.client import Broker, ClusterConf, ConsumerConf, Message, NoData, dial
from koff.client.broker.consumer import PartitionConsumer
from koff.client.multicluster import Writer, WriterConf
from koff.kafkatest import wait_until
from tests.process_threads import count_threads, wait_for_threads

pytestmark = pytest.mark.kafka


def read_rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def fill(broker: Broker, topic: str, count: int, size: int = 100) -> None:
    broker.producer().produce(topic, 0, *(Message(b"%d" % n, bytes(size)) for n in range(count)))


def test_consumers_at_different_offsets_of_a_partition_share_a_client_and_lose_nothing(kafka):
    topic, count = kafka.create_topic(), 3_000
    starts = (0, 1, 500, 1_700, 2_999)
    seen: dict[int, list[int]] = {start: [] for start in starts}
    with dial(kafka.bootstrap) as broker:
        fill(broker, topic, count, size=2_000)
        first = broker.consumer(ConsumerConf(topic, retry_limit=1, max_fetch_bytes=100_000))
        first.consume()
        before = count_threads()
        consumers = {
            start: broker.consumer(
                ConsumerConf(topic, start_offset=start, retry_limit=1, max_fetch_bytes=100_000)
            )
            for start in starts
        }
        # A message of each consumer in turn: the client reads at another position again and again.
        ended: set[int] = set()
        while len(ended) < len(starts):
            for start in set(starts) - ended:
                try:
                    seen[start] += consumers[start].consume_batch(40).offsets()
                except NoData:
                    ended.add(start)
        wait_for_threads(before)
    assert seen == {start: list(range(start, count)) for start in starts}


def test_threads_that_read_the_same_partition_from_different_offsets_lose_nothing(kafka):
    topic, count = kafka.create_topic(), 20_000
    seen: dict[int, list[int]] = {}
    with dial(kafka.bootstrap) as broker:
        fill(broker, topic, count)

        def read(start: int) -> None:
            conf = ConsumerConf(topic, start_offset=start, retry_limit=2, max_fetch_bytes=50_000)
            with broker.consumer(conf) as consumer:
                seen[start] = [message.offset for message in consumer]

        readers = [threading.Thread(target=read, args=(start,)) for start in (0, 7, 5_000, 15_000)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
    assert seen == {start: list(range(start, count)) for start in (0, 7, 5_000, 15_000)}


def test_consumers_at_the_end_of_a_partition_all_get_its_next_message(kafka):
    topic = kafka.create_topic()
    seen: list[int] = []
    with dial(kafka.bootstrap) as broker:
        fill(broker, topic, 10)
        consumers = [broker.consumer(ConsumerConf(topic, start_offset=start)) for start in (0, 5, 10)]

        def read(consumer: PartitionConsumer) -> None:
            while consumer.consume().offset < 10:
                pass
            seen.append(10)

        readers = [threading.Thread(target=read, args=(consumer,)) for consumer in consumers]
        for reader in readers:
            reader.start()
        wait_until(lambda: [each.buffer.end_offset for each in consumers] == [10] * 3, what="the end")
        fill(broker, topic, 1)
        for reader in readers:
            reader.join(60)
    assert seen == [10, 10, 10]


def test_consumers_that_are_closed_leave_the_threads_of_one_client_at_most(kafka):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        fill(broker, topic, 1)

        def read_once(fetch_bytes: int) -> None:
            conf = ConsumerConf(topic, retry_limit=1, max_fetch_bytes=fetch_bytes)  # a client of its own
            with broker.consumer(conf) as consumer:
                assert consumer.consume().value is not None

        read_once(100_000)
        threads = count_threads()
        for number in range(1, 15):
            read_once(100_000 + number)
        wait_for_threads(threads)
        read_once(100_000)  # also of a client that was closed


def test_a_writer_that_is_closed_leaves_no_thread_also_while_it_is_kept(kafka):
    topic = kafka.create_topic()
    threads = count_threads()
    writer = Writer({"east": ClusterConf(kafka.bootstrap)}, WriterConf(topic))
    writer.write_messages(Message(b"x"))
    writer.close()
    writer.close()
    wait_for_threads(threads)


def drop_consumers(broker: Broker, topic: str, count: int) -> None:
    """Opens consumers of the partition, reads with each, and drops them all without `close`."""
    consumers = [broker.consumer(ConsumerConf(topic, retry_limit=1)) for _ in range(count)]
    assert [consumer.consume().offset for consumer in consumers] == [0] * count
    with pytest.warns(ResourceWarning, match=f"Consumer of {topic}/0> was not closed") as warned:
        consumers.clear()
    assert sum("was not closed" in str(each.message) for each in warned) == count


@pytest.mark.parametrize(("rounds", "count"), [(10, 5), pytest.param(20, 50, marks=pytest.mark.long)])
def test_consumers_that_are_dropped_leave_nothing_behind(kafka, rounds, count):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        fill(broker, topic, 100)
        drop_consumers(broker, topic, count)
        threads, rss_mib = count_threads(), read_rss_mib()
        for _ in range(rounds - 1):
            drop_consumers(broker, topic, count)
        with broker.consumer(ConsumerConf(topic, retry_limit=1)) as last:
            assert last.consume().offset == 0
            assert [last.buffer] == last.feed._partitions[topic, 0].buffers
        wait_for_threads(threads)
        assert read_rss_mib() - rss_mib < 10


def test_a_consumer_that_the_connection_has_closed_may_be_dropped(kafka, recwarn):
    topic = kafka.create_topic()
    with dial(kafka.bootstrap) as broker:
        consumer = broker.consumer(ConsumerConf(topic))
    del consumer
    assert not [each for each in recwarn.list if "Consumer of" in str(each.message)]
