"""Errors that koff does not know, in the threads and callbacks of a writer, reach the caller."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.message import Message
from koff.client.multicluster import WriteErrors, write_target
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_producer import FakeProducer, Given, Rescue, new_writer


def test_an_error_in_the_retry_thread_fails_the_messages_that_wait(producer, monkeypatch):
    writer = new_writer()

    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("a bug")

    writer.write_messages(Message(b"0"))
    monkeypatch.setattr(writer._retries, "_send_due", fail)
    producer.set_responding(False)
    call = Rescue(lambda: writer.write_messages(Message(b"1"), Message(b"2")))
    wait_until(lambda: len(producer.given) == 2, what="the messages in librdkafka")
    monkeypatch.setattr(producer, "produce", lambda *args, **options: (_ for _ in ()).throw(refusal()))
    second = Rescue(lambda: writer.write_messages(Message(b"3")))
    assert "a bug" in str(second.wait())
    producer.fail(KafkaError._TIMED_OUT)
    error = call.wait()
    assert isinstance(error, WriteErrors)
    assert [each is not None and each.in_doubt for each in error] == [True, True]
    assert Rescue(writer.close).wait() is None


def refusal() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._STATE, "not now"))


def test_an_error_in_a_delivery_report_fails_its_message_only(producer):
    def spoil(given: Given) -> None:
        if given.value == b"1":
            first.value = 7  # type: ignore[assignment]  # the application changes a message meanwhile

    first, second = Message(b"1"), Message(b"2")
    producer.before_report = spoil
    writer = new_writer()
    error = Rescue(lambda: writer.write_messages(first, second)).wait()
    assert isinstance(error, WriteErrors)
    assert [each is None for each in error] == [False, True]
    assert error[0] is not None
    assert error[0].in_doubt
    assert "unexpected error: TypeError" in str(error[0])
    assert Rescue(writer.close).wait() is None


def test_on_completion_may_raise_whatever_it_likes(producer):
    def leave(messages: Sequence[Message], errors: WriteErrors | None) -> None:
        sys.exit(1)

    writer = new_writer(on_completion=leave)
    for _ in range(2):
        assert Rescue(lambda: writer.write_messages(Message(b"1"))).wait() is None
    assert Rescue(writer.close).wait() is None


def test_a_call_that_is_interrupted_while_it_sends_leaves_nothing_to_wait_for(producer, monkeypatch):
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    writer = new_writer()
    writer.write_messages(Message(b"0"))
    monkeypatch.setattr(producer, "produce", interrupt)
    assert isinstance(Rescue(lambda: writer.write_messages(Message(b"1"))).wait(), KeyboardInterrupt)
    assert Rescue(writer.close).wait() is None


def test_a_replaced_producer_is_served_until_it_has_reported_everything(monkeypatch):
    """Its results come late: the thread does not forget it after some time."""

    class Slow(FakeProducer):
        polls = 0

        def poll(self, timeout: float) -> int:
            self.polls += 1
            return super().poll(timeout) if self.polls > 20 else 0

    class Fatal(KafkaError):
        def fatal(self) -> bool:
            return True

    made: list[FakeProducer] = []

    def make(*args: Any, **options: Any) -> FakeProducer:
        made.append(FakeProducer() if made else Slow())
        return made[-1]

    monkeypatch.setattr(write_target, "new_client", make)
    writer = new_writer()
    made[0].set_responding(False)
    call = Rescue(lambda: writer.write_messages(Message(b"1")))
    wait_until(lambda: made[0].given, what="the message in librdkafka")
    writer._targets[0]._on_client_error(Fatal(KafkaError._FATAL))
    assert call.wait() is None
    assert made[-1].written == [b"1"]
    writer.close()


def test_an_error_while_messages_are_taken_back_delays_those_of_other_calls_only(producer, monkeypatch):
    writer = new_writer()
    writer.write_messages(Message(b"0"))
    producer.set_responding(False)
    other = Rescue(lambda: writer.write_messages(Message(b"1"), Message(b"2"), Message(b"3")))
    wait_until(lambda: len(producer.given) == 3, what="the messages in librdkafka")
    poll = producer.poll

    def fail_once(timeout: float) -> int:
        served = poll(timeout)
        if timeout == 0 and not served:
            monkeypatch.setattr(producer, "poll", poll)
            raise ZeroDivisionError("a bug")
        return served

    monkeypatch.setattr(producer, "poll", fail_once)
    with pytest.raises(ZeroDivisionError):
        writer.write_messages(Message(b"4"), timeout_s=2.0)
    producer.set_responding(True)
    assert other.wait() is None
    assert Rescue(writer.close).wait() is None
    assert producer.written == [b"0", b"1", b"2", b"3"]
