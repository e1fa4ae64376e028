"""Which buffers of a partition a shared feed reads for, and when it is the turn of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from koff.client import ClusterConf
from koff.client.feed.partition_buffer import PartitionBuffer, SharedPartition
from koff.client.feed.shared_feed import SharedFeed
from koff.client.feed.source import FeedConf
from koff.errors import ConfigError


def shared(*offsets: int) -> tuple[SharedPartition, list[PartitionBuffer]]:
    """A partition with a waiting buffer for each offset; the first has begun its turn."""
    partition = SharedPartition()
    partition.buffers = [PartitionBuffer("t", 0, offset) for offset in offsets]
    for buffer in partition.buffers:
        partition.request_turn(buffer)
    assert partition.is_turn_over()
    assert partition.start_turn() == offsets[0]
    return partition, partition.buffers


def respond(partition: SharedPartition, *offsets: int) -> None:
    for buffer in partition.assigned:
        buffer.add_messages([Message(topic="t", partition=0, offset=offset, value=b"") for offset in offsets])


def test_buffers_at_the_same_offset_are_read_together():
    partition, (first, second, other) = shared(5, 5, 7)
    assert partition.assigned == [first, second]
    respond(partition, 5, 6)
    assert (first.next_offset, second.next_offset, other.next_offset) == (7, 7, 7)
    assert not partition.join_turn()
    assert partition.assigned == [first, second, other]


def test_another_offset_waits_until_a_response_has_come():
    partition, (first, second) = shared(0, 100)
    assert partition.join_turn()
    assert not partition.is_turn_over()
    respond(partition, 0)
    assert partition.is_turn_over()
    assert partition.start_turn() == 100
    assert partition.assigned == [second]
    partition.request_turn(first)
    assert partition.join_turn()
    assert not partition.is_turn_over()
    second.note_end(100)
    assert partition.is_turn_over()
    assert partition.start_turn() == 1


def test_turns_are_in_the_order_of_the_requests():
    partition, buffers = shared(0, 10, 20)
    for expected in (10, 20):
        respond(partition, partition.assigned[0].next_offset)
        partition.request_turn(buffers[0])
        assert partition.start_turn() == expected
    respond(partition, 20)
    assert partition.start_turn() == 1


def test_a_buffer_that_joins_at_the_end_knows_the_end():
    partition, (first, second) = shared(0, 3)
    respond(partition, 0, 1, 2)
    first.note_end(3)
    assert not partition.join_turn()
    assert (second.end_offset, second.end_seen_at) == (3, first.end_seen_at)


def test_a_turn_without_a_response_ends(monkeypatch):
    monkeypatch.setattr("koff.client.feed.partition_buffer._TURN_S", 0.0)
    partition, _ = shared(0, 10)
    assert partition.is_turn_over()


def test_a_buffer_that_is_removed_gets_no_turn():
    partition, (_, second, third) = shared(0, 10, 20)
    partition.remove(second)
    respond(partition, 0)
    assert partition.start_turn() == 20
    assert partition.assigned == [third]


def test_a_position_that_the_client_refuses_does_not_spoil_the_feed_for_others():
    cluster: Any = SimpleNamespace(conf=ClusterConf("127.0.0.1:1"), fetch_topic_ids=lambda _: {})
    with SharedFeed(cluster, FeedConf()) as feed:
        bad, good = feed.open_buffer("t", 0, 1 << 70), feed.open_buffer("t", 0, 5)
        with pytest.raises(ConfigError, match="partitions cannot be read"):
            feed.wait_for_messages([bad], 0.1)
        assert not bad.is_assigned
        feed.close_buffer(bad)
        feed.wait_for_messages([good], 0.1)
        assert good.is_assigned
