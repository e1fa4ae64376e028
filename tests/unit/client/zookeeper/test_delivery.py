"""Partitions take turns, and a message belongs to the claim that handed it out. Needs no ZooKeeper."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from koff.client.message import Message
from koff.client.zookeeper import ClaimLost
from koff.client.zookeeper.claims import Claim
from koff.client.zookeeper.delivery import Delivery
from koff.errors import KoffError


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
    def __init__(self) -> None:
        self.distrusted: set[Claim] = set()
        self.processed: list[tuple[Claim, int]] = []
        self.delivery = Delivery(
            limit=100,
            max_redeliveries=3,
            is_trusted=lambda claim: claim not in self.distrusted,
            on_processed=lambda claim, offset: self.processed.append((claim, offset)),
            on_error=lambda error: None,
        )

    def put(self, claim: Claim, *offsets: int) -> None:
        raws: list[Any] = [Raw(offset) for offset in offsets]
        self.delivery.put_messages(claim, raws)

    def take(self, count: int) -> list[tuple[int, int]]:
        taken = (self.delivery.take_message() for _ in range(count))
        return [(message.partition, message.offset) for message in islice(taken, count) if message]


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
    fixture.delivery.mark_lost(earlier)
    fixture.put(newer, 3, 4, 5)
    fixture.take(3)
    with pytest.raises(ClaimLost, match="was lost"):
        fixture.delivery.mark_processed_up_to(late)
    late.ack()
    assert not fixture.processed


def test_only_messages_that_were_handed_out_can_be_marked() -> None:
    with pytest.raises(KoffError, match="pass a message that this member handed out"):
        Fixture().delivery.mark_processed_up_to(Message(topic="t", partition=0, offset=1))
