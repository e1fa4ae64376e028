"""A group's member whose partition is revoked and assigned to it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from koff.client.closing import Closing
from koff.client.message import Message
from koff.client.multicluster import CommitError, Reader, ReaderConf, ReadErrors, group_stream
from koff.errors import ConnectError, KoffError
from koff.kafkatest import wait_until


class Member:
    """A librdkafka consumer. Each entry of `script` is what one call of `consume` does and returns."""

    def __init__(self) -> None:
        self.script: list[Callable[[], list[Any]]] = []
        self.commits: list[tuple[int, int]] = []
        self.other_committed = -1
        self.committed_error: KoffError | None = None
        self.stored: list[tuple[int, int]] = []
        self.coordinator_responds = threading.Event()
        self.coordinator_responds.set()

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any) -> None:
        self.assign = lambda: on_assign(self, [TopicPartition("t", 0)])
        self.revoke = lambda: on_revoke(self, [TopicPartition("t", 0)])

    def consume(self, max_messages: int, timeout_s: float) -> list[Any]:
        return self.script.pop(0)() if self.script else []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        self.coordinator_responds.wait(60)
        self.commits += [(each.partition, each.offset) for each in offsets]
        return []

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [(each.partition, each.offset) for each in offsets]

    def list_topics(self, *names: str, timeout: float) -> None:
        return None

    def close(self) -> None:
        self.coordinator_responds.set()

    def then(self, *steps: Callable[[], list[Any]]) -> None:
        """Adds steps: each second one is the call for the messages behind the first message."""
        self.script += steps

    def records(self, *offsets: int, after: Callable[[], None] = lambda: None) -> Callable[[], list[Any]]:
        def consume() -> list[Any]:
            after()
            return [
                confluent_kafka.Message(topic="t", partition=0, offset=offset, value=b"v")
                for offset in offsets
            ]

        return consume


class Coordinator(Closing):
    """The group's coordinator: the offset that another member has committed, or that this one has."""

    def __init__(self, member: Member) -> None:
        self.member = member

    def offset(self, topic: str, partition: int) -> tuple[int, str]:
        if self.member.committed_error is not None:
            raise self.member.committed_error
        return max([self.member.other_committed, *(offset for _, offset in self.member.commits)]), ""

    def close(self) -> None:
        pass


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    made = Member()
    monkeypatch.setattr(group_stream, "new_client", lambda *args, **options: made)
    monkeypatch.setattr(group_stream, "GroupCoordinator", lambda *args: Coordinator(made))
    return made


@pytest.fixture
def reader(member: Member) -> Iterator[Reader]:
    with Reader([ReaderConf("127.0.0.1:1", "t", group_id="g", name="a", fail_after_s=60)]) as reader:
        yield reader


def fetched(reader: Reader, count: int) -> list[Message]:
    messages: list[Message] = []

    def enough() -> bool:
        messages.extend(reader.fetch_message(0.1))
        return len(messages) >= count

    wait_until(enough, what="the messages")
    return messages


def fetch_revoke_and_assign_again(member: Member, reader: Reader) -> list[Message]:
    """Three messages whose partition is revoked, and is assigned to this member again."""
    member.then(member.records(0, after=member.assign), member.records(1, 2))
    early = fetched(reader, 3)
    member.then(member.records(after=member.revoke), member.records(0, after=member.assign), member.records())
    fetched(reader, 1)
    return early


def test_a_message_of_an_earlier_assignment_does_not_set_back_what_another_member_has_committed(
    member: Member, reader: Reader
):
    early = fetch_revoke_and_assign_again(member, reader)
    member.other_committed = 100
    reader.commit_messages(*early)
    assert member.commits == []


def test_a_message_of_an_earlier_assignment_is_committed_if_nobody_has_committed_more(
    member: Member, reader: Reader
):
    """As in each rebalance of the eager protocol, which revokes the partitions that a member keeps, too."""
    early = fetch_revoke_and_assign_again(member, reader)
    reader.commit_messages(*early)
    assert member.commits == [(0, 3)]


def test_a_message_of_an_earlier_assignment_is_not_committed_if_the_committed_offset_is_not_known(
    member: Member, reader: Reader
):
    early = fetch_revoke_and_assign_again(member, reader)
    member.committed_error = ConnectError("not the coordinator")
    with pytest.raises(CommitError, match="not the coordinator"):
        reader.commit_messages(*early)
    assert member.commits == []


def test_a_message_of_a_revoked_partition_is_not_committed(member: Member, reader: Reader):
    member.then(member.records(0, after=member.assign), member.records(1, 2))
    early = fetched(reader, 3)
    revoked = threading.Event()

    def revoke() -> None:
        member.revoke()
        revoked.set()

    member.then(member.records(after=revoke))
    assert revoked.wait(60)
    with pytest.raises(CommitError, match=r"partitions \[0\]: other members have them now"):
        reader.commit_messages(*early)
    assert member.commits == []


def test_a_message_that_was_taken_before_the_revocation_is_not_handed_out_after_it(
    member: Member, reader: Reader
):
    """It comes with the first of two calls of `consume`, and the second call revokes its partition."""
    member.then(member.records(7, after=member.assign), member.records(after=member.revoke))
    member.then(member.records(9, after=member.assign), member.records())
    assert [message.offset for message in fetched(reader, 1)] == [9]


def test_a_commit_without_a_response_ends_at_its_timeout(member: Member, reader: Reader):
    member.then(member.records(0, after=member.assign), member.records())
    messages = fetched(reader, 1)
    member.coordinator_responds.clear()
    with pytest.raises(CommitError, match=r"coordinator of group g at a has not responded within 0.2 s"):
        reader.commit_messages(*messages, timeout_s=0.2)
    member.coordinator_responds.set()


def test_a_thread_that_ended_is_an_error_of_each_call(member: Member, reader: Reader):
    def fail() -> list[Any]:
        raise ZeroDivisionError("a bug")

    member.then(fail)
    for _ in range(2):
        with pytest.raises(ReadErrors, match="a bug"):
            reader.read_message(60)


def test_an_error_of_librdkafka_does_not_end_the_thread(
    member: Member, reader: Reader, monkeypatch: pytest.MonkeyPatch
):
    def fail() -> list[Any]:
        raise KafkaException(KafkaError(KafkaError._STATE, "not now"))

    member.then(fail, member.records(0, after=member.assign), member.records())
    with pytest.raises(ReadErrors, match="not now"):
        reader.read_message(60)
    assert [message.offset for message in fetched(reader, 1)] == [0]
