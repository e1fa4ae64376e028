"""Partitions take turns, and a message belongs to the partition as it was when it was handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka
import pytest

from koff.client.batch import Batch
from koff.client.delivery.conf import FailureRule, Redelivery, RedeliveryCounts, WriteDeadLetter
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import PartitionError
from koff.client.delivery.partition import PartitionState, ReadPartition
from koff.client.message import Message
from koff.errors import Closed, ConfigError, ConnectError


class Fixture:
    def __init__(self, redelivery: Redelivery | None = None, write: WriteDeadLetter | None = None) -> None:
        self.now = 0.0
        self.errors: list[PartitionError] = []
        self.held: set[ReadPartition] = set()
        self.processed: list[tuple[ReadPartition, int]] = []
        self.handed_out: list[int] = []
        self.rule = FailureRule(redelivery or Redelivery(), 3, write)
        self.delivery: Delivery[ReadPartition] = Delivery(
            is_ready=lambda partition: partition not in self.held,
            on_processed=lambda partition, offset: self.processed.append((partition, offset)),
            on_error=self.errors.append,
            on_handed_out=lambda _, messages: self.handed_out.extend(each.offset for each in messages),
            clock=lambda: self.now,
        )

    def make(self, number: int = 0, *, cluster: str = "a", tracked: bool = True) -> ReadPartition:
        return ReadPartition("t", number, 5, cluster, self.rule if tracked else None)

    def put(self, partition: ReadPartition, *offsets: int) -> None:
        number = partition.partition
        raws: list[Any] = [
            confluent_kafka.Message(topic="t", partition=number, offset=offset, value=b"v")
            for offset in offsets
        ]
        self.delivery.put(partition, Batch("t", number, raw=raws))

    def take(self, count: int) -> list[tuple[int, int]]:
        return [(message.partition, message.offset) for message in (self.take_one() for _ in range(count))]

    def take_one(self) -> Message:
        (message,) = self.delivery.take(1, 0)
        return message


def places(messages: Sequence[Message]) -> list[tuple[str, int]]:
    return [(message.cluster, message.offset) for message in messages]


def test_a_quiet_partition_does_not_wait_behind_a_busy_one() -> None:
    fixture = Fixture()
    busy, quiet = fixture.make(0), fixture.make(1)
    fixture.put(busy, *range(50))
    fixture.put(quiet, 7, 8)
    assert fixture.take(5) == [(0, 0), (1, 7), (0, 1), (1, 8), (0, 2)]


def test_without_a_limit_the_messages_of_one_cluster_come_together_and_each_cluster_has_its_turn() -> None:
    fixture = Fixture()
    first, second = fixture.make(0, tracked=False), fixture.make(1, tracked=False)
    other = fixture.make(0, cluster="b", tracked=False)
    for partition, offsets in ((first, (1, 2)), (second, (9,)), (other, (1,)), (first, (3,))):
        fixture.put(partition, *offsets)
    assert places(fixture.delivery.take()) == [("a", 1), ("a", 2), ("a", 3), ("a", 9)]
    fixture.put(first, 4)
    assert places(fixture.delivery.take()) == [("b", 1)]
    (message,) = fixture.delivery.take()
    assert (message.cluster, message.offset, message.assignment, message.value) == ("a", 4, 5, b"v")
    assert fixture.delivery.take(timeout_s=0) == []
    assert fixture.handed_out == [1, 2, 3, 9, 1, 4]


def test_only_what_is_taken_for_a_commit_is_committed() -> None:
    fixture = Fixture()
    partition = fixture.make(tracked=False)
    fixture.put(partition, 1, 2)
    fixture.delivery.take()
    assert (partition.to_commit, partition.next_offset) == (None, 3)
    assert fixture.delivery.take(timeout_s=0, commit=True) == []
    assert partition.to_commit is None
    fixture.put(partition, 3)
    fixture.delivery.take(commit=True)
    assert partition.to_commit == 4


def test_a_partition_that_is_held_back_does_not_hold_up_the_others() -> None:
    fixture = Fixture()
    doubtful, good = fixture.make(0), fixture.make(1)
    fixture.put(doubtful, 1)
    fixture.put(good, 1, 2)
    fixture.held.add(doubtful)
    assert fixture.take(2) == [(1, 1), (1, 2)]
    fixture.put(doubtful, 2)
    fixture.held.clear()
    assert fixture.take(2) == [(0, 1), (0, 2)]


def test_after_a_close_nothing_is_handed_out() -> None:
    fixture = Fixture()
    fixture.put(fixture.make(), 1)
    assert fixture.delivery.close()
    assert not fixture.delivery.close()
    with pytest.raises(Closed):
        fixture.delivery.take()


def test_a_failure_ends_a_wait_and_messages_come_before_it() -> None:
    fixture = Fixture()
    fixture.put(fixture.make(), 1)
    assert fixture.delivery.wait_for_messages(0)
    assert len(fixture.delivery.take(has_failed=lambda: True)) == 1
    assert fixture.delivery.take(has_failed=lambda: True) == []
    assert not fixture.delivery.wait_for_messages(0)


def test_what_was_fetched_of_a_partition_that_is_lost_never_arrives() -> None:
    fixture = Fixture()
    earlier, newer = fixture.make(), fixture.make()
    fixture.put(earlier, 5)
    late = fixture.take_one()
    fixture.put(earlier, 6)
    fixture.delivery.change_state(earlier, PartitionState.LOST)
    fixture.put(earlier, 7)
    fixture.put(newer, 3, 4, 5)
    assert fixture.take(3) == [(0, 3), (0, 4), (0, 5)]
    assert not fixture.delivery.mark_processed_up_to(earlier, 5)
    late.ack()
    assert not fixture.processed


def test_an_acknowledgement_of_a_log_that_was_forgotten_does_not_count_in_the_new_one() -> None:
    fixture = Fixture()
    partition = fixture.make()
    fixture.put(partition, 0, 1)
    old = [fixture.take_one() for _ in range(2)]
    partition.forget()
    fixture.put(partition, 0, 1)
    assert fixture.take(2) == [(0, 0), (0, 1)]
    old[0].ack()
    old[1].nack()
    assert (fixture.processed, partition.delayed, partition.drained) == ([], [], False)


def test_a_failed_message_comes_again_after_delays_that_grow() -> None:
    fixture = Fixture(Redelivery(first_s=1.0, factor=3.0, longest_s=5.0))
    fixture.put(fixture.make(), *range(30))
    fixture.take_one().nack()
    delays = []
    for _ in range(3):
        before = fixture.now
        # Other messages are handed out meanwhile.
        while (message := fixture.take_one()).offset:
            message.ack()
            fixture.now += 0.5
        delays.append(fixture.now - before)
        message.nack()
    assert delays == [1.0, 3.0, 5.0]
    assert fixture.rule.counts == RedeliveryCounts(redelivered=3, passed_over=1)
    assert len(fixture.errors) == 1


def test_nack_in_a_loop_passes_nothing_over_before_the_delays_have_passed() -> None:
    fixture = Fixture()
    partition = fixture.make()
    fixture.put(partition, *range(100))
    for _ in range(100):
        fixture.take_one().nack()
    assert partition.waiting == 100  # no more messages are fetched meanwhile
    fixture.put(partition, 100)
    assert fixture.take(1) == [(0, 100)]
    assert (fixture.errors, fixture.processed) == ([], [])


def test_failed_messages_that_are_due_come_again_in_the_order_of_their_offsets() -> None:
    fixture = Fixture()
    fixture.put(fixture.make(), *range(6))
    taken = [fixture.take_one() for _ in range(4)]
    for index in (2, 0, 3, 1):
        taken[index].nack()
        fixture.now += 0.1
    fixture.now += 1
    assert fixture.take(6) == [(0, offset) for offset in range(6)]


def test_a_failed_message_that_was_marked_as_processed_does_not_come_again() -> None:
    fixture = Fixture()
    partition = fixture.make()
    fixture.put(partition, *range(4))
    first, second = fixture.take_one(), fixture.take_one()
    first.nack()
    fixture.delivery.mark_processed_up_to(partition, second.offset)
    fixture.now += 1
    assert fixture.take(1) == [(0, 2)]
    assert fixture.processed == [(partition, 1)]


def test_a_partition_that_is_lost_hands_out_no_failed_message() -> None:
    fixture = Fixture()
    lost, other = fixture.make(0), fixture.make(1)
    fixture.put(lost, 0)
    fixture.take_one().nack()
    fixture.delivery.change_state(lost, PartitionState.LOST)
    fixture.now += 1
    fixture.put(other, 5)
    assert fixture.take(1) == [(1, 5)]


def fail_for_good(fixture: Fixture) -> None:
    """Lets the next message fail until it was delivered four times."""
    for _ in range(4):
        fixture.take_one().nack(ValueError("bad"))
        fixture.now += 100


def test_a_message_is_passed_over_only_after_its_dead_letter_is_written() -> None:
    written: list[tuple[int, int, str]] = []
    faults = [ConnectError("no such topic")]

    def write(raw: Any, deliveries: int, cause: BaseException | None) -> None:
        if faults:
            raise faults.pop()
        written.append((raw.offset(), deliveries, repr(cause)))

    fixture = Fixture(write=write)
    partition = fixture.make()
    fixture.put(partition, 7)
    fail_for_good(fixture)
    assert "offset 7 failed 4 times, and is delivered again: no such topic" in str(fixture.errors[0])
    assert not fixture.processed
    message, cause = fixture.take_one(), ValueError("still bad")
    message.nack(cause)
    assert written == [(7, 5, "ValueError('still bad')")]
    assert fixture.processed == [(partition, 7)]
    assert (fixture.errors[1].message, fixture.errors[1].__cause__) == (message, cause)
    assert "offset 7 failed 5 times and is passed over" in str(fixture.errors[1])
    assert fixture.rule.counts == RedeliveryCounts(redelivered=4, passed_over=1, dead_letters=1)


def test_a_partition_is_not_drained_while_a_dead_letter_is_written() -> None:
    drained: list[bool] = []

    def write(*_: Any) -> None:
        drained.append(fixture.delivery.is_drained(partition))

    fixture = Fixture(write=write)
    partition = fixture.make()
    fixture.put(partition, 7)
    fail_for_good(fixture)
    assert drained == [False]
    assert fixture.delivery.is_drained(partition)


@pytest.mark.parametrize(
    ("first_s", "factor", "longest_s"), [(-1.0, 2.0, 9.0), (1.0, 0.5, 9.0), (9.0, 2.0, 1.0)]
)
def test_delays_that_make_no_sense_are_refused(first_s: float, factor: float, longest_s: float) -> None:
    with pytest.raises(ConfigError, match="redelivery"):
        Redelivery(first_s, factor, longest_s)
