"""Fetched messages become `Message`s with all their attributes."""

from __future__ import annotations

from dataclasses import fields

import confluent_kafka
import pytest

from koff.client.batch import Batch
from koff.client.message import Message, read_timestamp


def fetch(count: int) -> Batch:
    raw = [
        confluent_kafka.Message(
            topic="t", partition=3, offset=offset, key=b"k", value=b"%d" % offset, timestamp=(1, 7)
        )
        for offset in range(count)
    ]
    return Batch("t", 3, raw=raw, cluster="east")


def read_attributes(message: Message) -> list[object]:
    return [getattr(message, field.name) for field in fields(Message)]


def test_a_fetched_message_has_every_attribute_of_a_message():
    (built,) = fetch(1)
    expected = Message(b"0", b"k", "t", 3, 0, timestamp_ms=7, cluster="east")
    assert read_attributes(built) == read_attributes(expected)


def test_a_message_without_a_timestamp_has_none_however_that_was_written():
    raw = [confluent_kafka.Message(timestamp=each) for each in ((0, 0), (1, -1), (1, 0), (2, 5))]
    expected = [None, None, 0, 5]
    assert [message.timestamp_ms for message in Batch("t", 0, raw=raw)] == expected
    assert [read_timestamp(each) for each in raw] == expected


@pytest.mark.parametrize("is_built", [False, True])
def test_the_parts_of_a_batch_have_its_messages_as_they_are_now(is_built):
    batch = fetch(3)
    if is_built:
        batch[1].value = b"changed"
    first, rest = batch.split(2)
    assert first.values() == [b"0", b"changed" if is_built else b"1"]
    assert [(message.offset, message.cluster) for message in rest] == [(2, "east")]
    assert (rest.topic, rest.partition, rest.next_offset) == ("t", 3, 3)
    assert len(batch.split(3)[1]) == 0
