"""What many clusters need no Kafka for: balancers, errors, statistics, what waits to be read."""

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.cluster_conf import ClusterConf
from koff.client.message import NO_OFFSET, Message
from koff.client.multicluster import (
    CRC32,
    Balancer,
    ClientStats,
    Hash,
    LeastBytes,
    Murmur2,
    Reader,
    ReaderConf,
    ReadError,
    ReadErrors,
    RoundRobin,
    WriteError,
    WriteErrors,
    Writer,
    WriterConf,
)
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.subscription import ReaderSubscription
from koff.errors import ConfigError
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_producer import NOWHERE, FakeProducer, new_writer

A = {"a": ClusterConf(NOWHERE)}


def test_round_robin_goes_through_all_partitions_and_begins_again():
    balancer = RoundRobin()
    assert [balancer.balance(Message(), 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_stays_in_range_when_partitions_are_fewer_at_another_cluster():
    balancer = RoundRobin()
    assert [balancer.balance(Message(), count) for count in (5, 5, 5, 5, 2, 2)] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize(
    ("balancer", "partition"),
    [
        (Hash(), ((1 << 32) - 0xBF9CF968) % 7),  # Go takes it as int32, and the remainder without its sign
        (Murmur2(), (-790332482 & 0x7FFFFFFF) % 7),
        (CRC32(), 0x9EF61F95 % 7),
    ],
)
def test_a_key_goes_where_other_clients_put_it(balancer: Balancer, partition: int):
    """Codes of "foobar" as FNV-1a's authors, Kafka's own tests and the definition of CRC-32 have them."""
    assert balancer.balance(Message(key=b"foobar"), 7) == partition


@pytest.mark.parametrize("balancer", [Hash(), Murmur2(), CRC32()])
def test_messages_without_a_key_are_spread_by_hash(balancer: Balancer):
    assert {balancer.balance(Message(b"v"), 4) for _ in range(4)} == {0, 1, 2, 3}


def test_least_bytes_makes_up_for_a_large_message():
    balancer = LeastBytes()
    chosen = [balancer.balance(Message(b"v" * size), 3) for size in (90, 30, 30, 30, 30, 1)]
    assert chosen == [0, 1, 2, 1, 2, 1]


def test_write_errors_stand_at_the_places_of_their_messages():
    error = WriteError("a: too large", in_doubt=False)
    errors = WriteErrors([None, error, None])
    assert (errors.count(), len(errors), list(errors), errors[1]) == (1, 3, [None, error, None], error)
    assert str(errors) == "1 of 3 messages were not written: a: too large"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ReaderConf("t", partition=1, group_id="g"), "not both"),
        (lambda: ReaderConf("t", group_id="g", start_offset=7), "FIRST_OFFSET or LAST_OFFSET"),
        (lambda: ReaderConf("t", start_offset=-7), "no offset"),
        (lambda: ReaderConf("t", max_attempts=0), "max_attempts must each be at least 1"),
        (lambda: ReaderConf("a b"), "'a b' cannot be the name of a topic"),
        (lambda: Reader(A, [ReaderConf("t"), ReaderConf("t", partition=0)]), "two configurations read t"),
        (lambda: Reader(A, []), "at least"),
        (lambda: Reader({}, ReaderConf("t")), "at least"),
        (lambda: Reader(A, ReaderConf("t", cluster="b")), "no cluster is named 'b': use one of a"),
        (lambda: WriterConf("t", mode="backup"), "mode 'backup' is not valid"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: WriterConf("t", compression="tar"), "compression"),  # type: ignore[arg-type]  # the same
        (lambda: WriterConf("\ud800"), "cannot be the name of a topic"),
        (
            lambda: Writer({"a": ClusterConf(NOWHERE, {"acks": "1"})}, WriterConf("t")),
            "acks is the writer's own",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(make: Callable[[], object], reason: str):
    with pytest.raises(ConfigError, match=reason):
        make()


def test_a_writer_that_reaches_nobody_gives_up_surely_unwritten_messages():
    conf = WriterConf("t", give_up_after_s=0.5)
    quick = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "10"}
    with Writer({"a": ClusterConf(NOWHERE, quick, connect_timeout_s=0.1)}, conf) as writer:
        with pytest.raises(WriteErrors, match=r"2 of 2 .* a: .*gave up after 0 attempts in ") as raised:
            writer.write_messages(Message(b"1"), Message(b"2"))
        stats = writer.stats()
    assert [error is not None and error.in_doubt for error in raised.value] == [False, False]
    assert (stats.errors, stats.in_doubt, stats.messages, stats.possible_duplicates) == (2, 0, 0, 0)
    assert not stats.clusters["a"].reachable
    assert writer.stats().errors == 2  # counts stay


def test_an_outage_uses_up_no_attempts(producer: FakeProducer):
    is_noticed = threading.Event()

    def fail_at_first() -> None:
        if not is_noticed.is_set() or faults.pop():
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    faults = [False, True, True]
    producer.before_metadata = fail_at_first
    cluster = ClusterConf(NOWHERE, connect_timeout_s=0.0)
    with Writer({"a": cluster}, WriterConf("t", max_attempts=1)) as writer:
        wait_until(lambda: not writer.stats().clusters["a"].reachable, what="the outage")
        is_noticed.set()
        message = Message(b"v")
        writer.write_messages(message)
    assert message.cluster == "a"


def test_a_write_thread_survives_an_error_that_nobody_expected(producer: FakeProducer):
    faults: list[Exception] = [KeyError("t"), ValueError("odd")]

    def fail_at_first() -> None:
        if faults:
            raise faults.pop()

    producer.before_metadata = fail_at_first
    with new_writer() as writer:
        message = Message(b"v")
        writer.write_messages(message)
    assert message.cluster == "a"


def test_the_offset_of_an_acknowledgement_without_an_offset_is_unknown(producer: FakeProducer):
    producer.knows_offsets = False
    message = Message(b"v")
    with new_writer() as writer:
        writer.write_messages(message)
    assert (message.cluster, message.partition, message.offset) == ("a", 0, NO_OFFSET)


def _subscriptions(*names: str, **options: Any) -> list[ReaderSubscription]:
    conf = ReaderConf("t", **{"queue_capacity": 3, **options})
    return [_start(ReaderSubscription(conf, ClusterConf(NOWHERE, name=name), 0)) for name in names]


def _start(subscription: ReaderSubscription) -> ReaderSubscription:
    for partition in range(3 if subscription.conf.group_id else 1):
        subscription.start_partition(partition)
    return subscription


def _batch(subscription: ReaderSubscription, *offsets: int, end: int = 100, partition: int = 0) -> InboxBatch:
    cluster = subscription.cluster
    messages = [Message(b"12", b"3", "t", partition, offset, cluster=cluster) for offset in offsets]
    return InboxBatch(subscription, subscription.partitions[partition], messages, end_offset=end)


def test_the_lag_is_unknown_while_the_end_of_the_partition_is():
    (subscription,) = subscriptions = _subscriptions("a")
    inbox = Inbox(subscriptions)
    for end, lag in ((-1, -1), (10, 9)):
        inbox.put_batches([_batch(subscription, 0, end=end)])
        inbox.take_messages(0)
        assert subscription.lag == lag


def test_each_cluster_has_its_turn():
    a, b = subscriptions = _subscriptions("a", "b")
    inbox = Inbox(subscriptions)
    inbox.put_batches([_batch(a, 1), _batch(a, 2)])
    inbox.put_batches([_batch(b, 1)])
    inbox.put_batches([_batch(a, 3)])
    taken = [[message.cluster for message in inbox.take_messages(0)] for _ in range(3)]
    assert taken == [["a", "a"], ["b"], ["a"]]


def test_a_reader_stands_after_the_last_message_taken():
    (subscription,) = subscriptions = _subscriptions("a")
    inbox = Inbox(subscriptions)
    inbox.put_batches([_batch(subscription, 7, 8, 9, end=12)])
    assert (subscription.offset, subscription.lag, inbox.wait_for_room(subscriptions, 0)) == (0, -1, 0)
    inbox.take_messages(0)
    assert (subscription.offset, subscription.lag, inbox.wait_for_room(subscriptions, 0)) == (10, 2, 3)
    stats = subscription.build_stats(ClientStats())
    assert (stats.messages, stats.bytes, stats.offset, stats.lag) == (3, 9, 10, 2)
    assert subscription.build_stats(ClientStats()) == stats  # counts stay


def test_what_was_fetched_before_an_offset_was_set_never_arrives():
    (subscription,) = subscriptions = _subscriptions("a")
    inbox = Inbox(subscriptions)
    before = _batch(subscription, 1)
    inbox.put_batches([before])
    subscription.start_partition(0, start_at=50)
    inbox.drop_former_batches()
    inbox.put_batches([before, _batch(subscription, 2)])
    subscription.partitions[0].start_at = None  # the thread has moved there
    inbox.put_batches([_batch(subscription, 50)])
    assert subscription.build_stats(ClientStats()).queue_length == 1
    assert _take_all(inbox) == [("a", 50)]


def _take_all(inbox: Inbox) -> list[tuple[str, int]]:
    taken = chain.from_iterable(iter(lambda: inbox.take_messages(0), []))
    return [(message.cluster, message.offset) for message in taken]


def test_messages_of_a_paused_reader_wait_in_their_order_and_do_not_fill_the_queue():
    a, b = subscriptions = _subscriptions("a", "b")
    inbox = Inbox(subscriptions)
    inbox.put_batches([_batch(a, 1), _batch(b, 1), _batch(a, 2)])
    inbox.set_paused(a, None, paused=True)
    inbox.put_batches([_batch(a, 3), _batch(b, 2)])
    assert inbox.wait_for_room(subscriptions, 0) == 4  # of six, b has used two
    assert _take_all(inbox) == [("b", 1), ("b", 2)]
    assert a.build_stats(ClientStats()).queue_length == 3
    inbox.set_paused(a, None, paused=False)
    inbox.put_batches([_batch(a, 4)])
    assert (a.build_stats(ClientStats()).queue_length, inbox.wait_for_room([a], 0)) == (4, 0)
    assert _take_all(inbox) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_single_partitions_may_be_paused_and_resuming_the_reader_resumes_all():
    (subscription,) = subscriptions = _subscriptions("a", group_id="g")
    inbox = Inbox(subscriptions)

    def put() -> None:
        inbox.put_batches([_batch(subscription, 7, partition=partition) for partition in range(3)])

    def take() -> list[int]:
        return sorted(m.partition for taken in iter(lambda: inbox.take_messages(0), []) for m in taken)

    inbox.set_paused(subscription, [0, 2], paused=True)
    put()
    assert take() == [1]
    inbox.set_paused(subscription, [2], paused=False)
    assert take() == [2]
    inbox.set_paused(subscription, None, paused=True)
    put()
    inbox.set_paused(subscription, [1], paused=False)  # the whole reader is still paused
    assert take() == []
    inbox.set_paused(subscription, None, paused=False)
    assert take() == [0, 0, 1, 2]


def test_what_waits_of_a_paused_reader_is_dropped_with_the_rest():
    a, b = subscriptions = _subscriptions("a", "b")
    inbox = Inbox(subscriptions)
    inbox.put_batches([_batch(a, 1), _batch(b, 2)])
    inbox.set_paused(a, None, paused=True)
    inbox.put_batches([_batch(a, 2)])
    a.start_partition(0)
    inbox.drop_former_batches()
    assert a.build_stats(ClientStats()).queue_length == 0
    inbox.set_paused(a, None, paused=False)
    assert _take_all(inbox) == [("b", 2)]


def test_errors_are_told_once_and_only_when_all_readers_failed():
    a, b = subscriptions = _subscriptions("a", "b")
    inbox = Inbox(subscriptions)
    first, second = ReadError("first"), ReadError("second")
    inbox.report_error(a, first)
    assert inbox.take_messages(0) == []
    inbox.report_error(b, second)
    with pytest.raises(ReadErrors) as raised:
        inbox.take_messages(0)
    assert raised.value.errors == (first, second)
    assert inbox.take_messages(0) == []
    stats = a.build_stats(ClientStats())
    assert (stats.failure, stats.errors) == ("first", 1)


def test_a_reader_has_failed_after_as_many_attempts_in_a_row_as_it_may_make():
    (subscription,) = subscriptions = _subscriptions("a", max_attempts=3)
    inbox = Inbox(subscriptions)
    gone = ReadError("gone")
    assert [inbox.report_error(subscription, gone) for _ in range(2)] == [False, False]
    inbox.put_batches([_batch(subscription, 1)])  # it can be read again
    inbox.take_messages(0)
    assert [inbox.report_error(subscription, gone) for _ in range(2)] == [False, False]
    assert (inbox.take_messages(0), subscription.failure) == ([], None)
    assert inbox.report_error(subscription, gone)
    with pytest.raises(ReadErrors, match="gone"):
        inbox.take_messages(0)
    stats = subscription.build_stats(ClientStats())
    assert (stats.failure, stats.errors) == ("gone", 5)
    assert inbox.report_error(subscription, gone)  # still


def test_what_waits_is_read_before_errors_are_told():
    (subscription,) = subscriptions = _subscriptions("a")
    inbox = Inbox(subscriptions)
    inbox.put_batches([_batch(subscription, 1)])
    inbox.report_error(subscription, ReadError("gone"))
    assert len(inbox.take_messages(0)) == 1
    with pytest.raises(ReadErrors, match="gone"):
        inbox.take_messages(0)
