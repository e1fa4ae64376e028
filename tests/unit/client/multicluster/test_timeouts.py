"""Calls of a writer that end before all of their messages were acknowledged."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from koff.client.message import NO_OFFSET, Message
from koff.client.multicluster import WriteErrors, Writer, write_target
from koff.errors import Closed
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_producer import FakeProducer, Rescue, new_writer

SOON_S = 2.0
"""Long enough for a busy machine to give the messages to librdkafka before."""
SHORT_S = 0.5
"""Where no message is given to librdkafka."""


@pytest.fixture
def writer(producer: FakeProducer) -> Iterator[Writer]:
    """One that has written a message; from now on the cluster does not respond."""
    with new_writer() as writer:
        writer.write_messages(Message(b"0"))
        producer.set_responding(False)
        yield writer
        producer.set_responding(True)


def messages(*values: bytes) -> list[Message]:
    return [Message(value) for value in values]


def wait_for(producer: FakeProducer, *values: bytes) -> None:
    wait_until(lambda: [given.value for given in producer.given] == [*values], what=f"{values} in librdkafka")


def outcome(error: BaseException | None) -> tuple[Any, Any, Any]:
    assert isinstance(error, WriteErrors)
    return error.written, error.failed, error.unknown


def test_a_timeout_names_what_was_acknowledged_what_failed_and_what_is_unknown(writer, producer):
    producer.allowed = 1
    producer.set_responding(True)
    sent = messages(b"1", b"2", b"3", b"4")
    with pytest.raises(WriteErrors, match=r"timeout_s \(2 s\) has passed") as raised:
        writer.write_messages(*sent, timeout_s=SOON_S)
    assert outcome(raised.value) == ((0,), (2, 3), (1,))  # the second was in flight
    assert [each.offset for each in sent] == [1, NO_OFFSET, NO_OFFSET, NO_OFFSET]
    stats = writer.stats()
    assert (stats.messages, stats.errors, stats.in_doubt, stats.retries) == (2, 3, 1, 0)


def test_nothing_that_failed_is_sent_later_and_a_late_acknowledgement_changes_nothing(writer, producer):
    sent = messages(b"1", b"2")
    with pytest.raises(WriteErrors):
        writer.write_messages(*sent, timeout_s=SOON_S)
    producer.set_responding(True)
    writer.write_messages(Message(b"3"))
    assert producer.written == [b"0", b"1", b"3"]  # the first was in flight
    assert [each.cluster for each in sent] == ["", ""]
    assert writer.stats().messages == 2


def test_messages_of_other_calls_keep_their_order_when_a_call_is_given_up(writer, producer):
    first = Rescue(lambda: writer.write_messages(*messages(b"1", b"2")))
    wait_for(producer, b"1", b"2")
    given_up = Rescue(lambda: writer.write_messages(*messages(b"3", b"4"), timeout_s=SOON_S))
    wait_for(producer, b"1", b"2", b"3", b"4")
    second = Rescue(lambda: writer.write_messages(*messages(b"5", b"6")))
    assert outcome(given_up.wait()) == ((), (0, 1), ())
    wait_for(producer, b"1", b"2", b"5", b"6")
    third = Rescue(lambda: writer.write_messages(Message(b"7")))
    wait_for(producer, b"1", b"2", b"5", b"6", b"7")
    producer.set_responding(True)
    assert [each.wait() for each in (first, second, third)] == [None, None, None]
    assert producer.written == [b"0", b"1", b"2", b"5", b"6", b"7"]
    assert writer.stats().possible_duplicates == 0


def test_a_message_that_librdkafka_may_have_sent_before_is_unknown(writer, producer):
    """After an error of the connection, librdkafka queues again what it had sent. It does not say so."""
    other = Rescue(lambda: writer.write_messages(Message(b"1")))
    wait_for(producer, b"1")
    producer.in_flight = 0
    writer._targets[0]._on_client_error(KafkaError(KafkaError._TRANSPORT, "reset"))
    with pytest.raises(WriteErrors) as raised:
        writer.write_messages(Message(b"2"), timeout_s=SOON_S)
    assert outcome(raised.value) == ((), (), (0,))
    producer.set_responding(True)
    assert other.wait() is None
    assert producer.written == [b"0", b"1"]
    assert writer.stats().possible_duplicates == 1  # of the other call


def test_a_message_that_was_taken_back_again_and_again_has_still_its_write_timeout(producer):
    with new_writer(write_timeout_s=0.1, max_attempts=1) as writer:
        writer.write_messages(Message(b"0"))
        producer.set_responding(False)
        producer.in_flight = 0
        other = Rescue(lambda: writer.write_messages(Message(b"1")))
        wait_for(producer, b"1")
        with pytest.raises(WriteErrors):
            writer.write_messages(Message(b"2"), timeout_s=SOON_S)
        assert outcome(other.wait()) == ((), (0,), ())


def test_while_no_cluster_can_be_reached_a_timeout_fails_all_messages(producer, monkeypatch):
    def fail(*args: Any, **options: Any) -> None:
        raise KeyError("no metadata")

    monkeypatch.setattr(producer, "list_topics", fail)
    with new_writer() as writer:
        with pytest.raises(WriteErrors, match=r"has passed; a: KeyError.*gave up after 0 attempts") as raised:
            writer.write_messages(*messages(b"1", b"2"), timeout_s=SHORT_S)
        assert outcome(raised.value) == ((), (0, 1), ())
        monkeypatch.undo()
    assert producer.written == []


def test_messages_that_find_no_room_in_time_were_not_sent(producer):
    with new_writer(queue_capacity=1) as writer:
        writer.write_messages(Message(b"0"))
        producer.set_responding(False)
        first = Rescue(lambda: writer.write_messages(Message(b"1")))
        wait_for(producer, b"1")
        with pytest.raises(WriteErrors, match=r"no room for it within 0\.5 s, 1 messages are in") as raised:
            writer.write_messages(*messages(b"2", b"3"), timeout_s=SHORT_S)
        assert outcome(raised.value) == ((), (0, 1), ())
        producer.set_responding(True)
        assert first.wait() is None
    assert producer.written == [b"0", b"1"]


def test_a_thread_that_sends_for_long_does_not_delay_a_timeout(writer, producer, monkeypatch):
    monkeypatch.setattr(write_target, "_TAKE_BACK_S", 0.1)
    target = writer._targets[0]
    with target._send_lock:
        call = Rescue(lambda: writer.write_messages(Message(b"1"), timeout_s=SHORT_S))
        assert outcome(call.wait()) == ((), (0,), ())
    assert not producer.given


def test_close_with_a_timeout_cancels_the_calls_of_other_threads(writer, producer):
    calls = [Rescue(lambda: writer.write_messages(*messages(b"1", b"2"))) for _ in range(2)]
    wait_until(lambda: len(producer.given) == 4, what="the messages in librdkafka")
    assert Rescue(lambda: writer.close(0)).wait() is None
    for call in calls:
        assert "the writer was closed" in str(call.wait())
    assert sorted(outcome(call.wait()) for call in calls) == [((), (0, 1), ()), ((), (1,), (0,))]
    with pytest.raises(Closed):
        writer.write_messages(Message(b"3"))
    assert [given.value for given in producer.given] == [b"1"]  # in flight


def test_close_with_a_timeout_gives_up_what_an_asynchronous_writer_has_not_written(producer):
    results: list[WriteErrors | None] = []
    writer = new_writer(asynchronous=True, on_completion=lambda _, errors: results.append(errors))
    producer.set_responding(False)
    writer.write_messages(*messages(b"1", b"2"), timeout_s=0.001)  # only of the wait for room
    wait_for(producer, b"1", b"2")
    assert results == []
    writer.close(0)
    assert [outcome(each) for each in results] == [((), (1,), (0,))]


def test_ctrl_c_takes_back_what_was_not_sent(writer, producer):
    def interrupt() -> None:
        wait_for(producer, b"1", b"2")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]  # it runs

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        writer.write_messages(*messages(b"1", b"2"))
    interrupting.join()
    producer.set_responding(True)
    writer.close()
    assert producer.written == [b"0", b"1"]  # it was in flight
