"""Partitions take turns, and a message belongs to the claim that handed it out. Needs no ZooKeeper."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from koff.client.message import Message
from koff.client.redelivery.acknowledgements import WriteDeadLetter
from koff.client.redelivery.conf import Redelivery, RedeliveryCounts
from koff.client.zookeeper import ClaimLost, ConsumerGroupConf, PartitionError
from koff.client.zookeeper.claims import Claim, ClaimState
from koff.client.zookeeper.delivery import Delivery
from koff.errors import ConfigError, ConnectError, KoffError


class Raw:
    """What confluent-kafka hands over, as far as it is asked."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 0, 0

    def value(self) -> bytes | None:
        return None

    key = headers = value


class Fixture:
    def __init__(self, redelivery: Redelivery | None = None, write: WriteDeadLetter | None = None) -> None:
        self.now = 0.0
        self.errors: list[PartitionError] = []
        self.distrusted: set[Claim] = set()
        self.processed: list[tuple[Claim, int]] = []
        self.delivery = Delivery(
            ConsumerGroupConf(buffer_messages=100, redelivery=redelivery or Redelivery()),
            is_trusted=lambda claim: claim not in self.distrusted,
            on_processed=lambda claim, offset: self.processed.append((claim, offset)),
            on_error=self.errors.append,
            write_dead_letter=write,
            clock=lambda: self.now,
        )

    def put(self, claim: Claim, *offsets: int) -> None:
        raws: list[Any] = [Raw(offset) for offset in offsets]
        self.delivery.put_messages(claim, raws)

    def take(self, count: int) -> list[tuple[int, int]]:
        taken = (self.delivery.take_message() for _ in range(count))
        return [(message.partition, message.offset) for message in islice(taken, count) if message]

    def take_one(self) -> Message:
        message = self.delivery.take_message()
        assert message is not None
        return message


def make_claim(partition: int, czxid: int = 1) -> Claim:
    return Claim("t", partition, session_number=0, czxid=czxid)


def test_a_quiet_partition_does_not_wait_behind_a_busy_one() -> None:
    fixture, busy, quiet = Fixture(), make_claim(0), make_claim(1)
    fixture.put(busy, *range(50))
    fixture.put(quiet, 7, 8)
    assert fixture.take(5) == [(0, 0), (1, 7), (0, 1), (1, 8), (0, 2)]


def test_a_claim_that_is_not_trusted_does_not_hold_up_the_others() -> None:
    fixture, doubtful, good = Fixture(), make_claim(0), make_claim(1)
    fixture.put(doubtful, 1)
    fixture.put(good, 1, 2)
    fixture.distrusted.add(doubtful)
    assert fixture.take(2) == [(1, 1), (1, 2)]
    fixture.distrusted.clear()
    assert fixture.take(1) == [(0, 1)]


def test_the_limit_is_of_each_partition() -> None:
    fixture, busy, quiet = Fixture(), make_claim(0), make_claim(1)
    fixture.put(busy, *range(100))
    assert fixture.delivery.room(busy) == 0
    assert fixture.delivery.room(quiet) == 100
    fixture.take(1)
    assert fixture.delivery.room(busy) == 1


def test_a_message_of_an_earlier_claim_marks_nothing_under_a_newer_claim_of_the_same_partition() -> None:
    fixture, earlier, newer = Fixture(), make_claim(0), make_claim(0, czxid=2)
    fixture.put(earlier, 5)
    late = fixture.delivery.take_message()
    assert late is not None
    fixture.delivery.change_state(earlier, ClaimState.LOST)
    fixture.put(newer, 3, 4, 5)
    fixture.take(3)
    with pytest.raises(ClaimLost, match="was lost"):
        fixture.delivery.mark_processed_up_to(late)
    late.ack()
    assert not fixture.processed


def test_only_messages_that_were_handed_out_can_be_marked() -> None:
    with pytest.raises(KoffError, match="pass a message that this member handed out"):
        Fixture().delivery.mark_processed_up_to(Message(topic="t", partition=0, offset=1))


def test_a_failed_message_comes_again_after_delays_that_grow() -> None:
    fixture, claim = Fixture(Redelivery(first_s=1.0, factor=3.0, longest_s=5.0)), make_claim(0)
    fixture.put(claim, *range(30))
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
    assert fixture.delivery.counts == RedeliveryCounts(redelivered=3, passed_over=1)
    assert len(fixture.errors) == 1


def test_nack_in_a_loop_passes_nothing_over_before_the_delays_have_passed() -> None:
    fixture, claim = Fixture(), make_claim(0)
    fixture.put(claim, *range(100))
    for _ in range(100):
        fixture.take_one().nack()
    assert fixture.delivery.room(claim) == 0  # no more messages are fetched meanwhile
    fixture.put(claim, 100)
    assert fixture.take(1) == [(0, 100)]
    assert (fixture.errors, fixture.processed) == ([], [])


def test_failed_messages_that_are_due_come_again_in_the_order_of_their_offsets() -> None:
    fixture, claim = Fixture(), make_claim(0)
    fixture.put(claim, *range(6))
    taken = [fixture.take_one() for _ in range(4)]
    for index in (2, 0, 3, 1):
        taken[index].nack()
        fixture.now += 0.1
    fixture.now += 1
    assert fixture.take(6) == [(0, offset) for offset in range(6)]


def test_a_failed_message_that_was_marked_as_processed_does_not_come_again() -> None:
    fixture, claim = Fixture(), make_claim(0)
    fixture.put(claim, *range(4))
    first, second = fixture.take_one(), fixture.take_one()
    first.nack()
    fixture.delivery.mark_processed_up_to(second)
    fixture.now += 1
    assert fixture.take(1) == [(0, 2)]
    assert fixture.processed == [(claim, 1)]


def test_a_claim_that_is_lost_hands_out_no_failed_message() -> None:
    fixture, claim, other = Fixture(), make_claim(0), make_claim(1)
    fixture.put(claim, 0)
    fixture.take_one().nack()
    fixture.delivery.change_state(claim, ClaimState.LOST)
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

    fixture, claim = Fixture(write=write), make_claim(0)
    fixture.put(claim, 7)
    fail_for_good(fixture)
    assert "offset 7 failed 4 times, and is delivered again: no such topic" in str(fixture.errors[0])
    assert not fixture.processed
    fixture.take_one().nack(ValueError("still bad"))
    assert written == [(7, 5, "ValueError('still bad')")]
    assert fixture.processed == [(claim, 7)]
    assert "offset 7 failed 5 times and is passed over" in str(fixture.errors[1])
    assert fixture.delivery.counts == RedeliveryCounts(redelivered=4, passed_over=1, dead_letters=1)


def test_a_claim_is_not_drained_while_a_dead_letter_is_written() -> None:
    drained: list[bool] = []

    def write(*_: Any) -> None:
        drained.append(fixture.delivery.is_drained(claim))

    fixture, claim = Fixture(write=write), make_claim(0)
    fixture.put(claim, 7)
    fail_for_good(fixture)
    assert drained == [False]
    assert fixture.delivery.is_drained(claim)


@pytest.mark.parametrize(
    ("first_s", "factor", "longest_s"), [(-1.0, 2.0, 9.0), (1.0, 0.5, 9.0), (9.0, 2.0, 1.0)]
)
def test_delays_that_make_no_sense_are_refused(first_s: float, factor: float, longest_s: float) -> None:
    with pytest.raises(ConfigError, match="redelivery"):
        Redelivery(first_s, factor, longest_s)
