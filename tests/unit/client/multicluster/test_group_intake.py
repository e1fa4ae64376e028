"""A group's member whose partition is revoked and assigned to it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.cluster_conf import ClusterConf
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.message import Message
from koff.client.multicluster import LAST_OFFSET, CommitError, Reader, ReaderConf, ReadErrors
from koff.errors import ConnectError
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_member import Member, fetched, put

CLUSTERS = {"a": ClusterConf("127.0.0.1:1")}


@pytest.fixture
def reader(member: Member) -> Iterator[Reader]:
    with Reader(CLUSTERS, ReaderConf("t", group_id="g", fail_after_s=60)) as reader:
        yield reader


def fetch_revoke_and_assign_again(member: Member, reader: Reader) -> list[Message]:
    """Three messages whose partition is revoked, and is assigned to this member again."""
    member.run(member.assign)
    put(reader, 0, 1, 2)
    early = fetched(reader, 3)
    member.run(member.revoke, member.assign)
    put(reader, 0)
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
    member.run(member.assign)
    put(reader, 0, 1, 2)
    early = fetched(reader, 3)
    member.run(member.revoke)
    with pytest.raises(CommitError, match=r"partitions \[0\]: other members have them now"):
        reader.commit_messages(*early)
    assert member.commits == []


def test_what_was_read_before_a_revocation_is_committed_and_the_rest_is_dropped(
    member: Member, reader: Reader
):
    member.run(member.assign)
    put(reader, 0)
    wait_until(lambda: reader.read_message(0.1), what="a message")
    put(reader, 1)
    wait_until(lambda: reader.stats(0).queue_length, what="the next message")
    member.run(member.revoke)
    assert reader.read_message(0) == []
    assert member.stored == [(0, 1)]


def test_a_member_starts_after_what_the_group_has_committed(member: Member, reader: Reader):
    member.other_committed = 7
    member.run(member.assign)
    put(reader, 5, 6, 7, 8)  # of a batch that begins before
    assert [message.offset for message in fetched(reader, 2)] == [7, 8]


def test_a_partition_stays_paused_when_it_is_revoked_and_assigned_again(member: Member, reader: Reader):
    reader.pause(partitions=[0])
    member.run(member.assign, member.revoke, member.assign)
    put(reader, 1)
    assert reader.fetch_message(0.3) == []
    reader.resume()
    assert [message.offset for message in fetched(reader, 1)] == [1]


def test_a_commit_without_a_response_ends_at_its_timeout(member: Member, reader: Reader):
    member.run(member.assign)
    put(reader, 0)
    messages = fetched(reader, 1)
    member.coordinator_responds.clear()
    with pytest.raises(CommitError, match=r"coordinator of group g at a has not responded within 0.2 s"):
        reader.commit_messages(*messages, timeout_s=0.2)
    member.coordinator_responds.set()


def test_reading_and_rebalances_go_on_while_a_commit_has_no_response(member: Member, reader: Reader):
    member.run(member.assign)
    put(reader, 0)
    messages = fetched(reader, 1)
    member.coordinator_responds.clear()
    with pytest.raises(CommitError):
        reader.commit_messages(*messages, timeout_s=0.01)
    put(reader, 1)
    assert [message.offset for message in fetched(reader, 1)] == [1]
    member.run(member.revoke, member.assign)
    put(reader, 1)
    again = fetched(reader, 1)
    member.coordinator_responds.set()
    reader.commit_messages(*again)
    assert member.commits == [(0, 1), (0, 2)]


@pytest.mark.parametrize("is_refused_at_once", [True, False])
def test_a_commit_that_is_refused_names_the_reason(
    member: Member, reader: Reader, monkeypatch: pytest.MonkeyPatch, is_refused_at_once: bool
):
    def refuse(**_: Any) -> None:
        raise KafkaException(member.commit_error)

    member.commit_error = KafkaError(KafkaError._STATE, "not now")
    if is_refused_at_once:
        monkeypatch.setattr(member, "commit", refuse)
    member.run(member.assign)
    with pytest.raises(CommitError, match="group g at a did not commit t: not now"):
        reader.commit_messages(Message(topic="t", partition=0, offset=0, cluster="a"))


def test_a_reader_is_closed_in_time_though_a_commit_gets_no_response(
    member: Member, caplog: pytest.LogCaptureFixture
):
    with Reader(CLUSTERS, ReaderConf("t", group_id="g", fail_after_s=60)) as reader:
        member.run(member.assign)
        put(reader, 0)
        messages = fetched(reader, 1)
        member.coordinator_responds.clear()
        with pytest.raises(CommitError):
            reader.commit_messages(*messages, timeout_s=0.1)
        reader.close(0.1)
        assert member.commits == []
        assert "a reader ends later than its `close`" in caplog.text
        member.coordinator_responds.set()
        wait_until(lambda: member.commits == [(0, 1)], what="the commit")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KafkaException(KafkaError(KafkaError._STATE, "not now")), "not now"),
        (ZeroDivisionError("a bug"), "a bug"),
    ],
    ids=["librdkafka", "bug"],
)
def test_an_error_of_the_member_is_reported_and_does_not_end_the_thread(
    member: Member, reader: Reader, error: Exception, reason: str
):
    def fail() -> list[Any]:
        raise error

    member.run(fail)
    with pytest.raises(ReadErrors, match=reason):
        reader.read_message(60)
    member.run(member.assign)
    put(reader, 0)
    assert [message.offset for message in fetched(reader, 1)] == [0]
    assert reader.stats(0).failure == ""


@pytest.mark.parametrize("is_recreated", [False, True])
@pytest.mark.parametrize(("start_offset", "resumed_at"), [(-2, 40), (LAST_OFFSET, 90)])
def test_a_group_that_retention_overtakes_continues_where_it_would_start_and_counts_what_it_skips(
    member: Member, monkeypatch: pytest.MonkeyPatch, start_offset: int, resumed_at: int, is_recreated: bool
):
    monkeypatch.setattr("koff.client.feed.shared_feed.SharedFeed.fetch_offset", lambda *_: 90)
    conf = ReaderConf("t", group_id="g", fail_after_s=60, start_offset=start_offset)
    with Reader(CLUSTERS, conf) as reader:
        member.other_committed = 5
        member.run(member.assign)
        put(reader, 5)
        fetched(reader, 1)
        kind = TopicRecreated if is_recreated else OffsetOutOfRange
        errors: list[Exception] = [kind("t", 0, 6, 40, 90)]
        (partition,) = reader._intakes[reader._subscriptions[0]].partitions
        assert partition.consumer is not None
        member.coordinator_responds.clear()
        poll = partition.consumer.poll_batch
        monkeypatch.setattr(
            partition.consumer, "poll_batch", lambda most: _raise(errors.pop()) if errors else poll(most)
        )
        if is_recreated:
            wait_until(lambda: partition.failing_since, what="a commit without a response")
            member.coordinator_responds.set()
        wait_until(lambda: reader.stats(0).skipped or member.commits, what="the new position")
        member.coordinator_responds.set()
        put(reader, resumed_at)
        assert [message.offset for message in fetched(reader, 1)] == [resumed_at]
        assert reader.stats(0).skipped == resumed_at - (40 if is_recreated else 6)
    assert member.commits == ([(0, resumed_at)] if is_recreated else [])


def _raise(error: Exception) -> None:
    raise error
