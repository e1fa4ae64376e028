"""What becomes of the reports of one call: those that librdkafka makes but seldom."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from koff.client import ClusterConf, Message, ProduceError, ProducerConf
from koff.client.broker.produce_call import ProduceCall
from koff.client.broker.producer import PartitionProducer, _build_properties
from koff.client.message_check import read_columns


@dataclass
class Report:
    """What confluent-kafka hands to a delivery callback."""

    content: bytes
    place: int | None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.content

    def offset(self) -> int | None:
        return self.place


def call(*values: bytes) -> tuple[ProduceCall, list[Message]]:
    messages = [Message(value) for value in values]
    return ProduceCall("t", 0, messages, read_columns(messages)), messages


def test_a_retry_that_was_acknowledged_without_a_place_is_written_and_its_offset_stays_unknown():
    made, messages = call(b"a", b"b", b"c")
    told = made.make_delivery_callback()
    for report in (Report(b"a", None), Report(b"c", 8), Report(b"b", 7)):
        told(None, report)
    assert made.done
    made.match_reports()
    assert made.settle(acknowledged=True) is None
    assert [message.offset for message in messages] == [-1, 7, 8]


def test_places_without_an_offset_and_failures_are_told_apart():
    made, messages = call(b"a", b"b", b"c")
    told = made.make_delivery_callback()
    told(None, Report(b"a", 4))
    told(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Report(b"b", None))
    told(None, Report(b"c", None))
    made.match_reports()
    with pytest.raises(ProduceError) as failure:
        made.settle(acknowledged=True)
    assert [message.offset for message in messages] == [4, -1, -1]
    assert list(failure.value.errors) == [1]


def test_a_fatal_failure_is_known_as_soon_as_the_reports_are_matched():
    made, _ = call(b"a")
    made.make_delivery_callback()(KafkaError(KafkaError._FATAL, "fenced", True), Report(b"a", None))
    assert [error.fatal() for error in made.match_reports()] == [True]


def test_all_acknowledgements_as_a_plain_number_are_idempotent_too():
    conf: Any = ProducerConf
    properties = _build_properties(ClusterConf("a:1"), conf(required_acks=-1))
    assert properties["enable.idempotence"] is True
    assert properties["acks"] == -1


def test_a_short_timeout_without_retries_is_a_valid_configuration():
    conf = ProducerConf(request_timeout_s=0.5, retry_limit=0)
    PartitionProducer(ClusterConf("127.0.0.1:1"), conf, lambda topic, partition: None).close()


class RefusesOne:
    """A librdkafka producer that fails at the second message, with an error that is not Kafka's."""

    def __len__(self) -> int:
        return 0

    def produce(self, topic: str, value: bytes, *rest: object, **options: object) -> None:
        if value == b"b":
            raise OverflowError("too large")


def test_an_error_in_the_midst_of_a_call_is_the_error_of_its_message_only():
    messages = [Message(b"a"), Message(b"b"), Message(b"c")]
    made = ProduceCall("t", 0, messages, None)
    made.queue_messages(RefusesOne())
    assert {index: error.str() for index, error in made._errors.items()} == {1: "OverflowError: too large"}


class Silent:
    """A librdkafka producer that takes messages and never reports one."""

    def __len__(self) -> int:
        return 0

    def produce_batch(self, topic: str, messages: list[Any], **options: object) -> int:
        return len(messages)

    def list_topics(self, topic: str, timeout: float) -> Any:
        raise RuntimeError

    def flush(self, timeout: float) -> None:
        pass

    def purge(self) -> None:
        pass


def test_close_fails_the_futures_of_messages_that_nobody_reports(monkeypatch):
    monkeypatch.setattr("koff.client.broker.async_calls._CLOSE_S", 0.1)
    producer = PartitionProducer(ClusterConf("127.0.0.1:1"), ProducerConf(), lambda topic, partition: None)
    monkeypatch.setattr(producer, "_producer", Silent())
    closed_by_callback = producer.produce_async("t", 0, Message(b"a"), on_done=lambda _: producer.close())
    other = producer.produce_async("t", 0, Message(b"b"))
    producer.close()
    for future in (closed_by_callback, other):
        assert future.done()
        error = future.exception(0)
        assert isinstance(error, ProduceError)
        assert error.unknown == (0,)
    assert not other.cancel()


class RefusesAll(Silent):
    """A librdkafka producer that reports each message as too large."""

    def produce_batch(self, topic: str, messages: list[Any], **options: Any) -> int:
        for fields in messages:
            error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
            options["on_delivery"](error, Report(fields["value"], None))
        return len(messages)


def test_an_error_that_is_kept_does_not_keep_the_client_of_a_producer_that_is_closed(monkeypatch):
    monkeypatch.setattr("koff.client.broker.producer.new_client", lambda *_, **__: RefusesAll())
    producer = PartitionProducer(ClusterConf("a:1"), ProducerConf(), lambda topic, partition: None)
    client = weakref.ref(producer._producer)
    with pytest.raises(ProduceError) as caught:
        producer.produce("t", 0, Message(b"a"))
    producer.close()
    assert client() is None
    assert caught.value.failed == (0,)
