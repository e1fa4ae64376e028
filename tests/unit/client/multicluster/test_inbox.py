"""What an inbox notes of partitions that `set_offset` has left, and of the ends of logs."""

from __future__ import annotations

import pytest

from koff.client import ClusterConf, Message
from koff.client.multicluster import ReaderConf, ReadErrors
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.subscription import ReaderSubscription
from koff.errors import KoffError


def read_partition() -> tuple[Inbox, ReaderSubscription]:
    subscription = ReaderSubscription(ReaderConf("t"), ClusterConf("a:1"), 0)
    subscription.start_partition(0)
    return Inbox([subscription]), subscription


def put(inbox: Inbox, subscription: ReaderSubscription, *offsets: int, end: int) -> None:
    messages = [Message(b"x", topic="t", partition=0, offset=offset) for offset in offsets]
    inbox.put_batches([InboxBatch(subscription, subscription.partitions[0], messages, end_offset=end)])


def test_an_error_of_a_position_before_set_offset_is_not_reported():
    inbox, subscription = read_partition()
    former = subscription.partitions[0]
    subscription.start_partition(0, start_at=5)
    assert not inbox.report_error(subscription, KoffError("old"), former)
    assert inbox.take_messages(0) == []
    assert inbox.report_error(subscription, KoffError("new"), subscription.partitions[0])
    with pytest.raises(ReadErrors, match="new"):
        inbox.take_messages(0)


def test_control_records_after_the_last_message_are_no_lag():
    inbox, subscription = read_partition()
    put(inbox, subscription, 0, 1, end=3)
    inbox.note_end(subscription, subscription.partitions[0], 3, has_more=False)
    assert (subscription.offset, subscription.lag) == (0, -1)  # nothing was handed out
    inbox.take_messages(0)
    assert (subscription.offset, subscription.lag) == (3, 0)
    inbox.note_end(subscription, subscription.partitions[0], 5, has_more=True)
    assert subscription.offset == 3
    put(inbox, subscription, 3, end=5)
    inbox.take_messages(0)
    assert (subscription.offset, subscription.lag) == (5, 0)
    put(inbox, subscription, 5, 6, end=8)
    inbox.take_messages(0)
    assert (subscription.offset, subscription.lag) == (7, 1)  # so far, nobody knows what is at 7
    inbox.note_end(subscription, subscription.partitions[0], 8, has_more=False)
    assert (subscription.offset, subscription.lag) == (8, 0)


def test_the_end_of_a_log_that_set_offset_has_left_moves_nothing():
    inbox, subscription = read_partition()
    former = subscription.partitions[0]
    subscription.start_partition(0, start_at=5)
    subscription.offset = 5
    inbox.note_end(subscription, former, 9, has_more=False)
    assert (subscription.offset, subscription.lag) == (5, -1)
