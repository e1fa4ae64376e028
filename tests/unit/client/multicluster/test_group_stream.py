"""A group's member whose partition is revoked and assigned to it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster import CommitError, Reader, ReaderConf, ReadErrors
from koff.errors import ConnectError
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_member import Member, fetched


@pytest.fixture
def reader(member: Member) -> Iterator[Reader]:
    with Reader({"a": ClusterConf("127.0.0.1:1")}, ReaderConf("t", group_id="g", fail_after_s=60)) as reader:
        yield reader


def fetch_revoke_and_assign_again(member: Member, reader: Reader) -> list[Message]:
    """Three messages whose partition is revoked, and is assigned to this member again."""
    member.then(member.records(0, after=member.assign), member.records(1, 2))
    early = fetched(reader, 3)
    member.then(member.records(after=member.revoke), member.records(0, after=member.assign), member.records())
    fetched(reader, 1)
    return early


def revoke_after(member: Member, *steps: Callable[[], list[Any]]) -> None:
    revoked = threading.Event()

    def revoke() -> None:
        member.revoke()
        revoked.set()

    member.then(*steps, member.records(after=revoke))
    assert revoked.wait(60)


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
    revoke_after(member)
    with pytest.raises(CommitError, match=r"partitions \[0\]: other members have them now"):
        reader.commit_messages(*early)
    assert member.commits == []


def test_what_was_read_before_a_revocation_is_committed_and_the_rest_is_dropped(
    member: Member, reader: Reader
):
    member.then(member.records(0, after=member.assign), member.records())
    wait_until(lambda: reader.read_message(0.1), what="a message")
    revoke_after(member, member.records(1), member.records())
    assert reader.read_message(0) == []
    assert member.stored == [(0, 1)]


def test_a_message_that_was_taken_before_the_revocation_is_not_handed_out_after_it(
    member: Member, reader: Reader
):
    """It comes with the first of two calls of `consume`, and the second call revokes its partition."""
    member.then(member.records(7, after=member.assign), member.records(after=member.revoke))
    member.then(member.records(9, after=member.assign), member.records())
    assert [message.offset for message in fetched(reader, 1)] == [9]


def test_a_partition_is_paused_again_after_it_was_revoked_and_assigned(member: Member, reader: Reader):
    member.then(member.records(0, after=member.assign), member.records())
    fetched(reader, 1)
    reader.pause(partitions=[0])
    wait_until(lambda: member.paused == {0}, what="the pause")

    def revoke() -> None:
        member.revoke()
        member.paused = set()  # as librdkafka does

    member.then(member.records(after=revoke), member.records(1, after=member.assign), member.records())
    wait_until(lambda: reader.stats(0).rebalances == 2 and member.paused == {0}, what="the pause again")
    assert reader.fetch_message(0) == []
    assert reader.stats(0).queue_length == 1
    reader.resume()
    assert [message.offset for message in fetched(reader, 1)] == [1]
    wait_until(lambda: member.paused == set(), what="the end of the pause")


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
