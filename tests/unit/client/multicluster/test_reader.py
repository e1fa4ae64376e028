"""What a reader of many clusters makes of errors, pauses and offsets that are set. Needs no Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from koff.client import ClusterConf
from koff.client.errors import OffsetOutOfRange
from koff.client.multicluster import Reader, ReaderConf, ReadError, ReadErrors, Redelivery
from koff.client.multicluster.subscription import ReaderSubscription
from koff.errors import ConnectError
from koff.kafkatest import wait_until

CLUSTERS = {name: ClusterConf("127.0.0.1:1") for name in "ab"}


@pytest.fixture
def reader() -> Iterator[Reader]:
    with Reader(CLUSTERS, ReaderConf("t", fail_after_s=600)) as reader:
        yield reader


def find_partition(reader: Reader, i: int) -> Any:
    """The partition that reader `i` reads, once it reads it."""
    partition = reader._subscriptions[i].position
    assert partition is not None
    wait_until(lambda: partition.consumer is not None, what="a consumer")
    return partition


def put(reader: Reader, i: int, *offsets: int) -> None:
    """Has reader `i` fetch messages."""
    consumer = find_partition(reader, i).consumer
    with consumer.feed._changed:
        consumer.buffer.add_messages(
            [confluent_kafka.Message(topic="t", partition=0, offset=each, value=b"12") for each in offsets]
        )
        consumer.feed._changed.notify_all()


def report(reader: Reader, i: int, error: Exception) -> bool:
    subscription = reader._subscriptions[i]
    return reader._intakes[subscription]._report_error(subscription, error)


def test_errors_are_raised_once_and_only_when_all_readers_have_failed(reader: Reader):
    first, second = ReadError("first"), ReadError("second")
    report(reader, 0, first)
    assert reader.read_message(0) == []
    report(reader, 1, second)
    with pytest.raises(ReadErrors) as raised:
        reader.read_message(0)
    assert raised.value.errors == (first, second)
    assert reader.read_message(0) == []
    stats = reader.stats(0)
    assert (stats.failure, stats.errors) == ("first", 1)
    report(reader, 0, first)
    report(reader, 1, second)  # still
    with pytest.raises(ReadErrors):
        reader.read_message(0)


def test_a_reader_that_reads_again_has_not_failed(reader: Reader):
    report(reader, 0, ReadError("gone"))
    put(reader, 0, 7)
    assert [message.offset for message in reader.read_message(60)] == [7]
    assert reader.stats(0).failure == ""


def test_a_reader_has_failed_after_as_many_attempts_in_a_row_as_it_may_make():
    subscription = ReaderSubscription(ReaderConf("t", max_attempts=3), CLUSTERS["a"])
    gone = ReadError("gone")
    assert [subscription.report_error(gone) for _ in range(2)] == [False, False]
    subscription.clear_error()  # it can be read again
    assert [subscription.report_error(gone) for _ in range(4)] == [False, False, True, True]
    assert (subscription.failure, subscription.counts["errors"]) == (gone, 6)


def test_an_error_of_koffs_own_is_reported_and_reading_continues(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
):
    intake, faults = reader._intakes[reader._subscriptions[0]], [ZeroDivisionError("a bug")]

    def fail_once() -> None:
        if faults:
            raise faults.pop()

    monkeypatch.setattr(intake, "_step", fail_once)
    wait_until(lambda: "reading a failed: ZeroDivisionError('a bug')" in reader.stats(0).failure)
    put(reader, 0, 1)
    assert [message.offset for message in reader.read_message(60)] == [1]


def test_a_cluster_that_does_not_respond_is_an_error_after_a_while_and_again_after_the_same_time():
    with Reader({"a": CLUSTERS["a"]}, ReaderConf("t", fail_after_s=1.0)) as reader:
        for _ in range(2):
            with pytest.raises(ReadErrors, match=r"127\.0\.0\.1:1"):
                reader.read_message(60)
        assert reader.stats(0).errors == 2


def test_counts_offset_and_queue_follow_what_was_read(reader: Reader):
    put(reader, 0, 7, 8, 9)
    wait_until(lambda: reader.stats(0).queue_length == 3, what="the messages")
    assert reader.offset(0) < 0
    reader.read_message(60)
    stats = reader.stats(0)
    assert (stats.messages, stats.bytes, stats.offset, stats.lag, stats.queue_length) == (3, 6, 10, -1, 0)
    assert stats.wait_s.count == stats.read_s.count == 1


def test_after_an_offset_was_set_neither_messages_nor_errors_of_before_come(reader: Reader):
    put(reader, 0, 1)
    wait_until(lambda: reader.stats(0).queue_length, what="the message")
    former = find_partition(reader, 0)
    reader.set_offset(0, 50)
    intake = reader._intakes[reader._subscriptions[0]]
    assert not intake._report_error(reader._subscriptions[0], ConnectError("old"), former)
    put(reader, 0, 2, 50)
    assert [message.offset for message in reader.read_message(60)] == [50]
    assert (reader.offset(0), reader.stats(0).errors) == (51, 0)


@pytest.mark.parametrize(("offset", "resumed_at", "skipped"), [(2, 6, 4), (7, 7, 0)])
def test_a_reader_that_retention_has_overtaken_continues_at_the_log_start(
    reader: Reader, offset: int, resumed_at: int, skipped: int
):
    reader.set_offset(0, offset)
    consumer, errors = find_partition(reader, 0).consumer, [OffsetOutOfRange("t", 0, offset, 6, 20)]
    poll = consumer.poll_batch
    consumer.poll_batch = lambda most: _raise(errors.pop()) if errors else poll(most)
    wait_until(lambda: not errors and consumer.buffer.next_offset == resumed_at, what="the new position")
    put(reader, 0, resumed_at)
    assert [message.offset for message in reader.read_message(60)] == [resumed_at]
    assert reader.stats(0).skipped == skipped


def test_an_offset_beyond_the_end_is_an_error_until_another_one_is_set(reader: Reader):
    reader.set_offset(0, 500)
    consumer = find_partition(reader, 0).consumer
    consumer.poll_batch = lambda _: _raise(OffsetOutOfRange("t", 0, 500, 6, 20))
    wait_until(lambda: "is out of range, it has 6 to 20; set_offset" in reader.stats(0).failure)
    reader.set_offset(0, 10)
    put(reader, 0, 10)
    assert [message.offset for message in reader.read_message(60)] == [10]
    assert reader.stats(0).failure == ""


def test_messages_of_a_paused_reader_wait_and_do_not_fill_the_queue():
    subscription = ReaderSubscription(ReaderConf("t", group_id="g"), CLUSTERS["a"])
    for number in range(3):
        subscription.make_partition(number, 0).buffered.append(object())
    for paused, waiting in (({0, 2}, 1), ({None}, 0), (set(), 3)):
        subscription.paused = frozenset(paused)
        assert subscription.waiting == waiting


def test_resuming_a_reader_resumes_its_partitions_too_but_not_the_other_way_round(reader: Reader):
    reader.pause(0, [0])
    reader.pause(0)
    put(reader, 0, 1)
    reader.resume(0, [0])
    assert reader.read_message(0.3) == []
    reader.pause(0, [0])
    reader.resume()
    assert [message.offset for message in reader.read_message(60)] == [1]


def test_a_reader_without_a_group_gets_failed_messages_again_until_its_offset_is_set():
    conf = ReaderConf("t", fail_after_s=600, redelivery=Redelivery(first_s=0.0))
    with Reader({"a": CLUSTERS["a"]}, conf) as reader:
        put(reader, 0, 7, 8)
        first, second = wait_until(lambda: reader.read_message(0.1), what="the messages")
        second.ack()
        first.nack()
        (again,) = reader.read_message(60)
        assert (again.offset, reader.offset(0)) == (7, 9)  # not moved back
        again.nack()
        reader.set_offset(0, 8)
        put(reader, 0, 8)
        assert [message.offset for message in reader.read_message(60)] == [8]
        assert reader.stats(0).redelivery.redelivered == 1


def _raise(error: Exception) -> Any:
    raise error
