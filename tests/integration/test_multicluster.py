"""Two real clusters, of which one is killed, frozen or restarted while messages go in and out."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from koff.client import BrokerConf, cluster_conf, dial
from koff.client.cluster_conf import ClusterConf
from koff.client.errors import ProduceError
from koff.client.message import Message
from koff.client.multicluster import (
    PartitionError,
    Reader,
    ReaderConf,
    ReadErrors,
    Redelivery,
    RedeliveryCounts,
    RoundRobin,
    RWMode,
    WriteErrors,
    Writer,
    WriterConf,
)
from koff.errors import Closed
from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka

pytestmark = pytest.mark.kafka
PARTITIONS = 2
Two = tuple[LocalKafka, LocalKafka]


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    """Clusters a and b, both up at the start and at the end of each test."""
    with lend_kafka() as a, lend_kafka() as b:
        yield a, b


@pytest.fixture
def topic(two: Two) -> str:
    name = two[0].create_topic(partitions=PARTITIONS)
    return two[1].create_topic(name, partitions=PARTITIONS)


@contextmanager
def killed(*kafkas: LocalKafka) -> Iterator[None]:
    for kafka in kafkas:
        kafka.kill()
    try:
        yield
    finally:
        for kafka in kafkas:
            kafka.nodes[0].start()
        for kafka in kafkas:
            kafka.wait_until_up()


def clusters(two: Two) -> dict[str, ClusterConf]:
    return dict(zip("ab", (ClusterConf(kafka.bootstrap) for kafka in two), strict=True))


def fetch(reader: Reader, fetched: list[Message], count: int) -> bool:
    """Fetches once more; whether `fetched` has so many messages now."""
    fetched.extend(reader.fetch_message(0.2))
    return len(fetched) >= count


def log_of(kafka: LocalKafka, topic: str) -> dict[int, list[int]]:
    """The numbers in each partition, as they stand in the log."""
    consumer = kafka.consumer("log", {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    ended = set()

    def at_the_end() -> bool:
        for message in consumer.consume(1000, 0.1):
            error, partition = message.error(), message.partition()
            if error is None and partition is not None:
                found[partition].append(int(message.value() or b""))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
        return len(ended) == PARTITIONS

    wait_until(at_the_end, what=f"the end of {topic}")
    consumer.close()
    return found


class Writing:
    """A thread that writes numbers, ten a call, and keeps account of each until it is told to stop."""

    def __init__(self, writer: Writer) -> None:
        self.acknowledged: dict[int, Message] = {}
        self.failed: dict[int, bool] = {}
        self.errors: list[BaseException] = []
        self._writer = writer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        try:
            while not self._over.is_set():
                messages = [Message(b"%d" % n, key=b"%d" % (n % 7)) for n in range(number, number + 10)]
                self._account(number, messages)
                number += 10
        except BaseException as error:
            self.errors.append(error)

    def _account(self, number: int, messages: list[Message]) -> None:
        try:
            self._writer.write_messages(*messages)
            outcome: list = [None] * len(messages)
        except WriteErrors as errors:
            outcome = list(errors)
        for place, error in enumerate(outcome):
            if error is None:
                self.acknowledged[number + place] = messages[place]
            else:
                self.failed[number + place] = error.in_doubt

    def wait_for(self, more: int, cluster: str = "") -> None:
        """Until that many more were acknowledged, by that cluster if it is named."""

        def count() -> int:
            return sum(not cluster or each.cluster == cluster for each in list(self.acknowledged.values()))

        enough = count() + more
        wait_until(lambda: self.errors or count() >= enough, what=f"{more} messages {cluster}")

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        assert not self.errors

    def total(self, what: str) -> int:
        count: int = getattr(self._writer.stats(), what)
        return count


def test_no_acknowledged_message_is_lost_when_clusters_are_killed_frozen_and_restarted(two: Two, topic: str):
    a, b = two
    with Writer(clusters(two), WriterConf(topic, write_timeout_s=4.0)) as writer:
        writing = Writing(writer)
        writing.wait_for(300)
        with killed(a):
            writing.wait_for(300, "b")
        writing.wait_for(100, "a")
        with b.paused():
            writing.wait_for(300, "a")
        writing.wait_for(100, "b")
        writing.stop()
        duplicates, given_up = writing.total("possible_duplicates"), writing.total("errors")
    logs = [log_of(kafka, topic) for kafka in two]
    written = Counter(number for log in logs for numbers in log.values() for number in numbers)
    assert set(writing.acknowledged) <= set(written)
    in_doubt = {number for number, doubt in writing.failed.items() if doubt}
    assert set(written) <= set(writing.acknowledged) | in_doubt
    assert written.total() - len(written) <= duplicates <= 100
    assert given_up == len(writing.failed)
    assert writing.total("messages") == len(writing.acknowledged)
    places: dict[tuple[str, int], list[int]] = {}
    for number, message in sorted(writing.acknowledged.items()):
        assert logs["ab".index(message.cluster)][message.partition][message.offset] == number
        places.setdefault((message.cluster, message.partition), []).append(message.offset)
    assert all(offsets == sorted(offsets) for offsets in places.values())


def test_the_backup_is_written_to_only_while_the_primary_cannot_be(two: Two, topic: str):
    conf = WriterConf(topic, mode=RWMode.PRIMARY_BACKUP, write_timeout_s=6.0)
    with Writer(clusters(two), conf) as writer:
        first, second, third = Message(b"1"), Message(b"2"), Message(b"3")
        writer.write_messages(first)
        with two[0].paused():
            writer.write_messages(second)
            stats = writer.stats()
        wait_until(lambda: writer.stats().clusters["a"].reachable, what="the primary")
        writer.write_messages(third)
    assert [message.cluster for message in (first, second, third)] == ["a", "b", "a"]
    assert (stats.failovers, stats.possible_duplicates) == (1, 1)
    assert (first.topic, third.offset >= 0) == (topic, True)


@pytest.mark.thorough
@pytest.mark.parametrize("outage", ["frozen", "killed"])
def test_what_timeouts_say_of_each_message_is_what_the_log_has(two: Two, topic: str, outage: str):
    """Calls with short timeouts and calls without one share a writer whose cluster is away twice."""
    calls: list[tuple[list[int], WriteErrors | None]] = []
    over = threading.Event()

    def write(first: int, timeout_s: float | None) -> None:
        for start in itertools.count(first, 10_000):
            if over.is_set():
                return
            numbers = list(range(start, start + 20))
            try:
                writer.write_messages(*(Message(b"%d" % n, b"k") for n in numbers), timeout_s=timeout_s)
                calls.append((numbers, None))
            except WriteErrors as errors:
                calls.append((numbers, errors))

    target = {"a": ClusterConf(two[0].bootstrap)}
    with Writer(target, WriterConf(topic, batch_size=5, write_timeout_s=30.0)) as writer:
        writer.write_messages(Message(b"9999999", b"k"))
        threads = [
            threading.Thread(target=write, args=(1000 * index, timeout_s))
            for index, timeout_s in enumerate((None, 0.05, 0.1, None, 0.2))
        ]
        for thread in threads:
            thread.start()
        for _ in range(2):
            with two[0].paused() if outage == "frozen" else killed(two[0]):
                seen = len(calls)
                wait_until(lambda seen=seen: len(calls) >= seen + 10, what="timeouts")  # type: ignore[misc]  # a default argument binds the variable of the loop
            seen = len(calls)
            wait_until(lambda seen=seen: len(calls) >= seen + 100, what="calls")  # type: ignore[misc]  # the same
        over.set()
        for thread in threads:
            thread.join()
        stats = writer.stats()
    outcomes = [(numbers, errors or WriteErrors([None] * 20)) for numbers, errors in calls]
    written = {numbers[i] for numbers, errors in outcomes for i in errors.written}
    failed = {numbers[i] for numbers, errors in outcomes for i in errors.failed}
    unknown = {numbers[i] for numbers, errors in outcomes for i in errors.unknown}
    log = [number for each in log_of(two[0], topic).values() for number in each if number != 9999999]
    assert set(log) - unknown == written
    assert not failed & set(log)
    assert len(failed) > 0
    assert len(log) - len(set(log)) <= stats.possible_duplicates
    assert stats.errors == len(failed) + len(unknown)
    for first in (0, 3000):  # the calls without a timeout
        ours = [number for number in log if number % 10_000 // 1000 * 1000 == first]
        assert stats.possible_duplicates or ours == sorted(ours)
        assert not {number for number in failed if number % 10_000 // 1000 * 1000 == first}


def test_what_one_cluster_refuses_goes_to_another_and_doubles_nothing(two: Two):
    name = two[0].create_topic(partitions=PARTITIONS, config={"max.message.bytes": "1000"})
    two[1].create_topic(name, partitions=PARTITIONS)
    large: list[Message] = []
    with Writer(clusters(two), WriterConf(name)) as writer:

        def is_refused() -> bool:
            """Writes one more. The first ones go to the cluster that could be reached first."""
            large.append(Message(b"%01500d" % len(large)))
            writer.write_messages(large[-1])
            return len(large) >= 4 and writer.stats().failovers >= 1

        wait_until(is_refused, what="a refusal")
        stats = writer.stats()
    assert {message.cluster for message in large} == {"b"}
    assert (stats.messages, stats.possible_duplicates, stats.errors) == (len(large), 0, 0)


def test_only_the_message_that_every_cluster_refuses_has_an_error(two: Two):
    name = two[0].create_topic(partitions=PARTITIONS, config={"max.message.bytes": "1000"})
    two[1].create_topic(name, partitions=PARTITIONS, config={"max.message.bytes": "1000"})
    messages = [Message(b"1"), Message(b"%01500d" % 2), Message(b"3")]
    with Writer(clusters(two), WriterConf(name, batch_timeout_s=0.0)) as writer:
        with pytest.raises(WriteErrors) as raised:
            writer.write_messages(*messages)
        assert writer.stats().possible_duplicates == 0
    first, second, third = raised.value
    assert (first, third, second is not None and second.in_doubt) == (None, None, False)
    assert [message.offset >= 0 for message in messages] == [True, False, True]


def test_an_asynchronous_writer_tells_of_each_message_and_close_waits_for_all(two: Two, topic: str):
    told: list[tuple[int, bool]] = []

    def tell(messages: Sequence[Message], errors: WriteErrors | None) -> None:
        outcome = errors or [None] * len(messages)
        told.extend((int(m.value or b""), e is None) for m, e in zip(messages, outcome, strict=True))

    conf = WriterConf(topic, asynchronous=True, on_completion=tell, write_timeout_s=6.0)
    writer = Writer(clusters(two), conf)
    writer.write_messages(*(Message(b"%d" % number) for number in range(100)))
    wait_until(lambda: len(told) == 100, what="the first hundred")
    two[0].pause()
    for number in range(100, 1100):
        writer.write_messages(Message(b"%d" % number))
    assert len(told) < 1100
    writer.close()
    two[0].resume()
    with pytest.raises(Closed):
        writer.write_messages(Message(b"0"))
    assert sorted(told) == [(number, True) for number in range(1100)]
    duplicates = writer.stats().possible_duplicates
    written = Counter(n for kafka in two for numbers in log_of(kafka, topic).values() for n in numbers)
    assert set(written) == set(range(1100))
    assert written.total() - 1100 <= duplicates


def fill(kafka: LocalKafka, topic: str, numbers: range) -> None:
    """Writes numbers into the partitions in turn.

    After a pause, the controller fences the only broker for a moment, and metadata has no brokers then.
    librdkafka forgets all brokers for good (its issue 5301), and koff's producer replaces it after an error.
    """
    with dial(kafka.bootstrap, BrokerConf(patience_s=10.0)) as broker:
        producer = broker.producer()

        def write(partition: int, left: list[Message]) -> bool:
            try:
                producer.produce(topic, partition, *left)
            except ProduceError as error:
                left[:] = [left[index] for index in error.errors]
                return False
            return True

        for partition in range(PARTITIONS):
            own = (number for number in numbers if number % PARTITIONS == partition)
            messages = [Message(b"%d" % number, timestamp_ms=1_000_000 + number) for number in own]
            if messages:
                wait_until(partial(write, partition, messages), what="all messages to be written")


def confs(topic: str, **options: Any) -> list[ReaderConf]:
    return [
        ReaderConf(topic, partition=partition, cluster=name, **options)
        for name in "ab"
        for partition in range(PARTITIONS)
    ]


def read_until(reader: Reader, done: Callable[[], bool], take: Callable[[Message], None]) -> None:
    def more() -> bool:
        try:
            for message in reader.read_message(timeout_s=0.2):
                take(message)
        except ReadErrors:
            pass
        return done()

    wait_until(more, what="the messages")


class Readings:
    """What was read, by cluster and partition."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], list[int]] = {}

    def take(self, message: Message) -> None:
        at = self.numbers.setdefault((message.cluster, message.partition), [])
        at.append(int(message.value or b""))

    def has(self, cluster: str, count: int) -> bool:
        return sum(len(each) for (name, _), each in self.numbers.items() if name == cluster) >= count


def test_all_clusters_are_read_once_and_in_order_though_one_is_killed_and_one_frozen(two: Two, topic: str):
    a, b = two
    for kafka in two:
        fill(kafka, topic, range(1000))
    read = Readings()
    with Reader(clusters(two), confs(topic, queue_capacity=50, fail_after_s=1.0)) as reader:
        threads = threading.active_count()
        read_until(reader, lambda: read.has("a", 100) and read.has("b", 100), read.take)
        with killed(a):
            fill(b, topic, range(1000, 1500))
            read_until(reader, lambda: read.has("b", 1500), read.take)
            read_until(reader, lambda: bool(reader.stats(0).failure), read.take)
            wait_until(lambda: not reader.stats(2).failure, what="a cluster that is up")
        fill(a, topic, range(1000, 1500))
        with b.paused():
            read_until(reader, lambda: read.has("a", 1500), read.take)
            wait_until(lambda: not reader.stats(0).failure, what="a cluster that is up again")
        fill(b, topic, range(1500, 1600))
        read_until(reader, lambda: read.has("b", 1600), read.take)
        wait_until(lambda: threading.active_count() <= threads, what="the threads of attempts to end")
    for (name, partition), numbers in read.numbers.items():
        assert numbers == list(range(partition, 1500 if name == "a" else 1600, PARTITIONS))
    assert len(read.numbers) == 2 * PARTITIONS


def test_when_all_readers_have_failed_the_errors_of_all_are_raised_and_reading_goes_on_later(
    two: Two, topic: str
):
    with Reader(clusters(two), confs(topic, fail_after_s=8.0)) as reader:
        assert reader.read_message(timeout_s=1.0) == []
        with two[0].paused(), two[1].paused():
            with pytest.raises(ReadErrors, match="none of 4 readers can read: cannot reach Kafka") as raised:
                reader.read_message()
            assert len(raised.value.errors) == 4
            assert reader.stats(3).errors >= 1
        fill(two[1], topic, range(3))
        read = Readings()
        read_until(reader, lambda: read.has("b", 3), read.take)


def committed(kafka: LocalKafka, group: str, topic: str) -> list[int]:
    consumer = kafka.consumer(group)
    try:
        found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=60)
        return [each.offset for each in found]
    except KafkaException:
        return []
    finally:
        consumer.close()


def wait_for_commits(kafka: LocalKafka, group: str, expected: list[int]) -> None:
    seen: list[int] = []

    def has_committed() -> bool:
        seen[:] = committed(kafka, group, group)
        return seen == expected

    with suppress(TimeoutError):  # the assertion shows what was committed instead
        wait_until(has_committed)
    assert seen == expected


def test_a_message_that_fails_is_delivered_again_and_then_becomes_a_dead_letter(two: Two, topic: str):
    """Number 7 of each cluster always fails. What is acknowledged around it is committed in the end."""
    dead = f"{topic}-dead"
    for kafka in two:
        kafka.create_topic(dead, partitions=PARTITIONS)
        fill(kafka, topic, range(20))
    redelivery = Redelivery(first_s=0.1, dead_letter_topic=dead)
    conf = ReaderConf(topic, group_id=topic, redelivery=redelivery, max_redeliveries=2, commit_interval_s=0.1)
    deliveries: Counter[tuple[str, int]] = Counter()
    delivered = {(name, n): 3 if n == 7 else 1 for name in "ab" for n in range(20)}

    def process(message: Message) -> None:
        number = int(message.value or b"")
        deliveries[message.cluster, number] += 1
        if number == 7:
            message.nack(ValueError("seven"))
        else:
            message.ack()

    with Reader(clusters(two), conf) as reader:
        # The other partition may come after the last delivery of number 7.
        read_until(reader, lambda: deliveries == delivered, process)
        errors = list(itertools.islice(reader.errors(), 2))
        for kafka in two:
            wait_for_commits(kafka, topic, [10, 10])
        assert [reader.stats(i).redelivery for i in range(2)] == [RedeliveryCounts(2, 1, 1)] * 2
    assert deliveries == delivered
    failed = [error.message for error in errors if isinstance(error, PartitionError)]
    assert {message.cluster for message in failed if message} == {"a", "b"}
    for kafka in two:
        assert [*itertools.chain(*log_of(kafka, dead).values())] == [7]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_is_told_which_partitions_it_gets_and_gives_up(two: Two, topic: str, protocol: str):
    """The same with the classic protocol and with that of KIP-848, whose assignments are incremental."""
    target = {"a": ClusterConf(two[0].bootstrap, {"group.protocol": protocol})}
    owned: dict[str, set[int]] = {"first": set(), "second": set()}

    def conf(member: str) -> ReaderConf:
        def on_assigned(partitions: Sequence[cluster_conf.TopicPartition]) -> None:
            owned[member].update(each.partition for each in partitions)
            raise RuntimeError("a fault of the application")  # does not end the member

        def on_revoked(partitions: Sequence[cluster_conf.TopicPartition]) -> None:
            owned[member].difference_update(each.partition for each in partitions)

        return ReaderConf(
            topic,
            group_id=topic,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )

    fill(two[0], topic, range(10))
    with Reader(target, conf("first")) as first:
        fetched: list[Message] = []
        wait_until(partial(fetch, first, fetched, 10), what="fetched")
        assert owned == {"first": {0, 1}, "second": set()}
        with Reader(target, conf("second")):
            wait_until(lambda: [len(each) for each in owned.values()] == [1, 1], what="a partition each")
            assert owned["first"] | owned["second"] == {0, 1}
        wait_until(lambda: owned["first"] == {0, 1}, what="both partitions again")
    assert owned == {"first": set(), "second": set()}


def test_statistics_of_writer_and_readers_have_what_librdkafka_knows(two: Two, topic: str):
    often = {"statistics.interval.ms": "100"}
    targets = {name: ClusterConf(each.brokers, often) for name, each in clusters(two).items()}
    with Writer(targets, WriterConf(topic, balancer=RoundRobin)) as writer:
        wait_until(lambda: all(each.reachable for each in writer.stats().clusters.values()), what="clusters")
        for number in range(4):
            writer.write_messages(*(Message(b"%d" % number) for _ in range(10)))
        wait_until(
            lambda: writer.stats().client.batch_messages.total >= 40,
            what="librdkafka's report of all batches",
        )
        stats = writer.stats()
    for each in stats.clusters.values():
        client = each.client
        assert client.dials >= 1
        assert client.fetches == client.timeouts == 0
        assert 1 <= client.writes <= client.batch_messages.count  # a request may have both partitions
        assert client.batch_messages.total == each.messages > 0
        assert 1 <= client.batch_messages.minimum <= client.batch_messages.average <= 10
        assert client.batch_bytes.minimum > 20
        assert client.queue_s.count > 0
        assert 0 < client.rtt_s.average < 60
    assert (stats.write_s.count, stats.wait_s.count) == (40, 4)
    assert 0 < stats.write_s.minimum <= stats.write_s.average <= stats.write_s.maximum < 60

    def has_report(reader: Reader, i: int) -> bool:
        return reader.stats(i).client.batch_messages.total >= writer.stats().clusters["a"].messages

    names = {"a": targets["a"], "g": targets["a"]}
    one = ReaderConf(topic, partition=0, cluster="a")
    group = ReaderConf(topic, group_id=topic, cluster="g")
    read = Readings()
    count = stats.clusters["a"].messages
    with Reader(names, [one, replace(one, partition=1), group]) as reader:
        read_until(reader, lambda: read.has("a", count) and read.has("g", count), read.take)
        for i in range(3):
            wait_until(partial(has_report, reader, i), what="librdkafka's report")
            own, client = reader.stats(i), reader.stats(i).client
            assert client.dials >= 1
            assert client.fetches >= 1
            assert client.writes == 0
            assert client.batch_bytes.total > 0
            assert own.wait_s.count == own.read_s.count >= 1

        def look() -> tuple[int, int] | None:
            first, other, again = (reader.stats(i).client.fetches for i in (0, 1, 0))
            return (first, other) if first == again else None  # a report may come between two looks

        first, other = wait_until(look, what="looks without a report between them")
        assert first == other  # they share a client
