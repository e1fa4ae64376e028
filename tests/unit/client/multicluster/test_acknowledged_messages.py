"""Messages that a reader handed out, until they are processed. Needs no Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka

from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster import (
    ClientStats,
    PartitionError,
    Reader,
    ReaderConf,
    Redelivery,
    RedeliveryCounts,
)
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.subscription import ReaderSubscription
from koff.kafkatest import wait_until
from tests.unit.client.multicluster.fake_member import Member, fetched
from tests.unit.client.multicluster.fake_producer import NOWHERE

A = {"a": ClusterConf(NOWHERE)}


class Fixture:
    """A reader of a group that has handed out messages. `later_s`: how much time has passed."""

    def __init__(self, redelivery: Redelivery | None = None) -> None:
        self.later_s = 0.0
        self.errors: list[PartitionError] = []
        conf = ReaderConf("t", group_id="g", max_redeliveries=2, redelivery=redelivery or Redelivery())
        self.subscription = ReaderSubscription(conf, A["a"], -1)
        self.subscription.accept_acknowledgements(threading.RLock(), self.errors.append)
        self.assign()

    def assign(self) -> None:
        for partition in (0, 1):
            self.subscription.start_partition(partition)

    def hand_out(self, offsets: Iterable[int], partition: int = 0) -> list[Message]:
        raws: list[Any] = [
            confluent_kafka.Message(topic="t", partition=partition, offset=offset) for offset in offsets
        ]
        messages = [Message(topic="t", partition=partition, offset=raw.offset()) for raw in raws]
        inbox = Inbox([self.subscription])
        inbox.put_again(
            InboxBatch(self.subscription, self.subscription.partitions[partition], messages, raws)
        )
        assert inbox.take_messages(0) == messages
        return messages

    def due(self) -> list[int]:
        """The offsets of the messages of partition 0 that are due. They are handed out again."""
        due = self.subscription.partitions[0].pop_due(time.monotonic() + self.later_s)
        offsets = [raw.offset() for raw in due]
        if offsets:
            self.again = self.hand_out(offsets)[-1]
        return offsets

    @property
    def delayed(self) -> int:
        return len(self.subscription.partitions[0].delayed)

    @property
    def to_commit(self) -> list[int | None]:
        return [partition.to_commit for partition in self.subscription.partitions.values()]


def test_the_offset_to_commit_is_that_after_the_last_message_before_a_gap():
    fixture = Fixture()
    first, second, third = fixture.hand_out([3, 5, 9])
    (other,) = fixture.hand_out([7], partition=1)
    second.ack()
    assert fixture.to_commit == [None, None]
    first.ack()
    other.ack()
    assert fixture.to_commit == [6, 8]
    third.ack()
    assert fixture.to_commit == [10, 8]


def test_failed_messages_come_again_after_their_delays_in_the_order_of_their_offsets():
    fixture = Fixture(Redelivery(first_s=1.0, factor=4.0))
    messages = fixture.hand_out(range(4))
    for index in (2, 0):
        messages[index].nack()
    assert (fixture.due(), fixture.delayed) == ([], 2)
    fixture.later_s = 1.0
    assert (fixture.due(), fixture.delayed) == ([0, 2], 0)
    fixture.again.nack()
    assert fixture.due() == []
    fixture.later_s = 4.0
    assert fixture.due() == [2]
    assert fixture.subscription.build_stats(ClientStats()).redelivery == RedeliveryCounts(redelivered=3)


def test_a_message_that_fails_too_often_is_reported_and_counts_as_processed():
    fixture, cause = Fixture(Redelivery(first_s=0.0)), ValueError("bad")
    (message,) = fixture.hand_out([7])
    for _ in range(2):
        message.nack()
        assert fixture.due() == [7]
        message = fixture.again
    message.nack(cause)
    assert (fixture.due(), fixture.to_commit) == ([], [8, None])
    (error,) = fixture.errors
    assert (error.message, error.__cause__) == (message, cause)
    assert "offset 7 failed 3 times and is passed over" in str(error)


def test_after_its_partition_was_dropped_a_message_neither_counts_nor_comes_again():
    fixture = Fixture(Redelivery(first_s=0.0))
    failed, late, early = fixture.hand_out([1, 2, 3])
    failed.nack()
    early.ack()
    fixture.assign()
    late.ack()
    assert (fixture.due(), fixture.to_commit) == ([], [None, None])
    (newer,) = fixture.hand_out([1])
    newer.ack()
    assert fixture.to_commit == [2, None]


def test_a_commit_up_to_a_message_settles_all_before_it():
    fixture = Fixture(Redelivery(first_s=0.0))
    messages = fixture.hand_out(range(4))
    messages[0].nack()
    acknowledgements = fixture.subscription.acknowledgements
    assert acknowledgements is not None
    acknowledgements.mark_processed_up_to(fixture.subscription.partitions[0], 2)
    assert (fixture.due(), fixture.to_commit) == ([], [3, None])


def conf(**options: Any) -> ReaderConf:
    return ReaderConf(
        "t", group_id="g", fail_after_s=60, **{"redelivery": Redelivery(first_s=0.0), **options}
    )


def test_a_group_stores_what_was_acknowledged_whichever_method_returned_it(member: Member):
    with Reader(A, conf()) as reader:
        member.then(member.records(0, after=member.assign), member.records(1, 2))
        messages = reader.read_message(60)
        while len(messages) < 3:
            messages += reader.read_message(60)
        messages[1].ack()
        messages[0].ack()
        wait_until(lambda: member.stored == [(0, 2)], what="the acknowledged offset")
        assert reader.stats(0).redelivery == RedeliveryCounts()
        messages[2].ack()
    assert member.stored == [(0, 2), (0, 3)]


def test_a_group_delivers_a_failed_message_again_and_then_passes_it_over(member: Member):
    with Reader(A, conf(max_redeliveries=1)) as reader:
        member.then(member.records(0, after=member.assign), member.records(1))
        first, second = fetched(reader, 2)
        second.ack()
        first.nack(ValueError("bad"))
        (again,) = fetched(reader, 1)
        assert (again.offset, again.cluster, again.value) == (0, "a", b"v")
        again.nack(ValueError("still bad"))
        error = next(reader.errors())
        assert "t/0: offset 0 failed 2 times and is passed over: ValueError('still bad')" in str(error)
        wait_until(lambda: member.stored == [(0, 2)], what="both processed")
        assert reader.stats(0).redelivery == RedeliveryCounts(redelivered=1, passed_over=1)
    assert list(reader.errors()) == []


def test_what_was_acknowledged_before_a_revocation_is_stored_and_nothing_after_it(member: Member):
    with Reader(A, conf()) as reader:
        member.then(member.records(0, after=member.assign), member.records(1, 2))
        early = fetched(reader, 3)

        def revoke() -> None:
            early[0].ack()
            member.revoke()
            early[1].ack()

        member.then(member.records(after=revoke), member.records(1, after=member.assign), member.records())
        (late,) = fetched(reader, 1)
        early[2].ack()
        late.ack()
        wait_until(lambda: len(member.stored) > 1, what="the message of the second assignment")
    assert member.stored == [(0, 1), (0, 2)]


def test_an_acknowledgement_does_not_set_back_what_commit_messages_has_committed(member: Member):
    with Reader(A, conf()) as reader:
        member.then(member.records(0, after=member.assign), member.records(1, 2))
        messages = fetched(reader, 3)
        reader.commit_messages(messages[2])
        messages[0].ack()
    assert member.commits == [(0, 3)]
    assert {offset for _, offset in member.stored} <= {3}


def test_failed_messages_count_as_waiting(member: Member):
    with Reader(A, conf(queue_capacity=1, redelivery=Redelivery(first_s=60.0))) as reader:
        member.then(member.records(0, after=member.assign))
        (message,) = fetched(reader, 1)
        message.nack()
        assert reader.stats(0).queue_length == 1
        assert reader._inbox.wait_for_room(reader._subscriptions, 0) == 0
