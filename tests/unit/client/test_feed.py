"""What a feed makes of the messages and events that librdkafka hands over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from koff.client import ClusterConf
from koff.client.feed.feed import Feed
from koff.errors import ConfigError, ConnectError, Denied

DENIED = Message(
    topic="t", partition=1, offset=0, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")
)


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, key=b"k", value=b"v")


@pytest.fixture
def feed() -> Iterator[Feed]:
    with Feed(ClusterConf("127.0.0.1:1"), "t") as feed:
        feed.add({0: 5, 1: 0})
        yield feed


def hand_over(monkeypatch: pytest.MonkeyPatch, *fetches: list[Message]) -> None:
    waiting = iter(fetches)
    monkeypatch.setattr("koff.client.feed.source.consume_waiting", lambda *_: next(waiting))


def test_an_assignment_that_librdkafka_refuses_is_an_error_of_koff(feed: Feed) -> None:
    with pytest.raises(ConnectError, match=r"_CONFLICT|already"):
        feed.add({0: 5})
    with pytest.raises(ConfigError, match="cannot be read"):
        feed.add({2: 1 << 70})


def test_records_that_come_with_a_denial_are_returned_before_it_is_raised(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(monkeypatch, [record(5), DENIED, record(6)], [record(7)])
    assert [[each.offset() for each in run.messages] for run in feed.fetch(10, 0).runs] == [[5, 6]]
    with pytest.raises(Denied):
        feed.fetch(10, 0)
    assert [[each.offset() for each in run.messages] for run in feed.fetch(10, 0).runs] == [[7]]


def test_a_denial_alone_is_raised_at_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over(monkeypatch, [DENIED])
    with pytest.raises(Denied, match="grant this user READ"):
        feed.fetch(10, 0)
