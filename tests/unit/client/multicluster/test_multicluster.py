"""What many clusters need no Kafka for: balancers, configurations, and writers that reach nobody."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.cluster_conf import ClusterConf
from koff.client.message import NO_OFFSET, Message
from koff.client.multicluster import (
    CRC32,
    Balancer,
    Hash,
    LeastBytes,
    Murmur2,
    Reader,
    ReaderConf,
    RoundRobin,
    WriteError,
    WriteErrors,
    Writer,
    WriterConf,
)
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


def test_a_balancer_that_fails_or_points_beyond_the_partitions_fails_its_message_alone(
    producer: FakeProducer,
):
    class Lost:
        def balance(self, message: Message, partitions: int) -> int:
            chosen: dict[bytes | None, int] = {b"in": 0, b"out": partitions}
            return chosen[message.key]

    messages = [Message(b"1", b"in"), Message(b"2", b"out"), Message(b"3", b"?"), Message(b"4", b"in")]
    with new_writer(balancer=Lost) as writer, pytest.raises(WriteErrors) as raised:
        writer.write_messages(*messages)
    assert [error is None for error in raised.value] == [True, False, False, True]
    assert "KeyError" in str(raised.value[2])


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
