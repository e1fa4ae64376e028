"""The replay of `__share_group_state`, and what share groups have yet to read."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from koff.errors import KoffError
from koff.lag import share_committed_offset
from koff.records import (
    ShareSnapshot,
    ShareSnapshotValue,
    ShareUpdate,
    ShareUpdateValue,
    StateBatch,
    decode_share_state,
    encode,
)
from koff.tracker.share_progress import DeliveryBatch, SharePartition, ShareState, merge_batches
from tests.unit.builders import TOPIC_ID, commit, golden_messages, gone

MOST = (1 << 63) - 1
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def batches(*those: tuple[int, int, int, int]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in those
    )


def snapshot(start: int, *those, complete: int = 0, leader: int = 1, epoch: int = 1, partition: int = 0):
    value = ShareSnapshotValue(
        version=0,
        snapshot_epoch=0,
        state_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        create_timestamp=1,
        write_timestamp=1000,
        state_batches=batches(*those),
    )
    return ShareSnapshot(group_id="g", topic_id=TOPIC_ID, partition=partition, value=value)


def update(start: int, *those, complete: int = 0, leader: int = -1, partition: int = 0):
    value = ShareUpdateValue(
        version=0,
        snapshot_epoch=0,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=batches(*those),
    )
    return ShareUpdate(group_id="g", topic_id=TOPIC_ID, partition=partition, value=value)


def replayed(*records) -> ShareState:
    state = ShareState()
    for record in records:
        state.apply(decode_share_state(*encode(record)))
    return state


def row(*records) -> SharePartition:
    found = replayed(*records).get("g", TOPIC_ID, 0)
    assert found is not None
    return found


def test_a_snapshot_replaces_the_whole_state():
    old = (snapshot(0, (0, 9, ACKNOWLEDGED, 1), complete=10, leader=5, epoch=5), update(3))
    new = snapshot(4, (4, 5, AVAILABLE, 2), leader=2, epoch=6)
    assert row(*old, new) == SharePartition(
        "g", TOPIC_ID, 0, 4, 0, 2, 6, 1000, (DeliveryBatch(4, 5, AVAILABLE, 2),)
    )


def test_a_tombstone_drops_the_state_of_one_partition():
    state = replayed(snapshot(0), snapshot(7, partition=1), gone(snapshot(0)))
    assert [each.partition for each in state.rows()] == [1]
    assert (len(state), state.get("g", TOPIC_ID, 0)) == (1, None)
    assert list(replayed(snapshot(0), gone(snapshot(0))).rows()) == []


def test_tombstones_of_what_never_was_and_of_updates_change_nothing():
    assert len(replayed(gone(snapshot(0)), gone(update(0)))) == 0
    assert row(snapshot(4), gone(update(0))).start_offset == 4


def test_an_update_changes_what_it_names():
    found = row(snapshot(4, leader=3, epoch=2), update(6, leader=4, complete=2))
    assert (found.start_offset, found.leader_epoch, found.delivery_complete_count) == (6, 4, 2)
    assert (found.state_epoch, found.write_timestamp_ms) == (2, 1000)


def test_an_update_with_minus_one_leaves_start_and_leader_but_not_the_count():
    found = row(snapshot(4, leader=3, complete=5), update(-1, leader=-1, complete=-1))
    assert (found.start_offset, found.leader_epoch, found.delivery_complete_count) == (4, 3, -1)


def test_an_update_without_a_state_is_the_state():
    found = row(update(-1, (3, 4, AVAILABLE, 1), leader=2))
    assert (found.start_offset, found.leader_epoch, found.state_epoch) == (-1, 2, -1)
    assert (found.write_timestamp_ms, found.batches) == (-1, (DeliveryBatch(3, 4, AVAILABLE, 1),))


def test_neighbours_that_say_the_same_are_joined():
    found = row(
        snapshot(0, (0, 2, ACKNOWLEDGED, 1), (5, 6, ACKNOWLEDGED, 1)), update(-1, (3, 4, ACKNOWLEDGED, 1))
    )
    assert found.batches == (DeliveryBatch(0, 6, ACKNOWLEDGED, 1),)
    apart = row(
        snapshot(0, (0, 2, ACKNOWLEDGED, 1)), update(-1, (4, 5, ACKNOWLEDGED, 1), (6, 7, ARCHIVED, 1))
    )
    assert len(apart.batches) == 3


@pytest.mark.parametrize("seed", range(200))
def test_merged_batches_say_of_each_record_the_most_that_was_said(seed):
    rng = random.Random(seed)
    those = [
        DeliveryBatch(first, first + rng.randint(0, 8), rng.choice([0, 2, 4]), rng.randint(1, 3))
        for first in (rng.randint(0, 25) for _ in range(rng.randint(0, 7)))
    ]
    start = rng.choice([-1, 0, rng.randint(0, 30)])
    expected: dict[int, tuple[int, int]] = {}
    for first, last, state, count in those:
        for offset in range(max(first, start), last + 1):
            expected[offset] = max(expected.get(offset, (0, 0)), (count, state))
    found = merge_batches(those, start)
    assert {
        offset: (each.delivery_count, each.delivery_state)
        for each in found
        for offset in range(each.first_offset, each.last_offset + 1)
    } == expected
    for one, following in itertools.pairwise(found):
        assert one.last_offset < following.first_offset
        assert one.last_offset + 1 < following.first_offset or one[2:] != following[2:]
    assert merge_batches(found, start) == found


def test_records_of_other_topics_are_left_alone():
    state = ShareState()
    for pair in (commit("g", "t", 0, 1), (None, b""), (b"\x00\x63", b"")):
        state.apply(decode_share_state(*pair))
    assert len(state) == 0


def test_rows_are_found_by_group():
    state = replayed(snapshot(0), snapshot(1, partition=1))
    assert sorted(each.start_offset for each in state.partitions_of("g")) == [0, 1]
    assert state.partitions_of("other") == []


def test_a_state_that_was_saved_is_restored():
    state = replayed(
        snapshot(0, (0, 2, ARCHIVED, 3)), update(1, (5, 6, AVAILABLE, 1)), snapshot(9, partition=1)
    )
    restored = ShareState.from_state(json.loads(json.dumps(state.to_state())))
    assert list(restored.rows()) == list(state.rows())
    with pytest.raises(KoffError, match="schema"):
        ShareState.from_state({"schema": 99})


@pytest.mark.parametrize("seed", range(20))
def test_a_log_whose_front_was_cut_off_at_a_snapshot_gives_the_same_state(seed):
    """The share coordinator deletes what lies before the last snapshot of every key."""
    rng = random.Random(seed)
    log, start = [snapshot(0)], 0
    for _ in range(60):
        start += rng.randint(0, 2)
        said = [
            (
                start + 5 * place,
                start + 5 * place + rng.randint(0, 3),
                rng.choice([0, 2, 4]),
                rng.randint(1, 3),
            )
            for place in range(2)
        ]
        if rng.random() < 0.2:
            current = row(*log)
            log.append(
                snapshot(current.start_offset, *current.batches, complete=current.delivery_complete_count)
            )
        else:
            log.append(update(rng.choice([start, -1]), *said, complete=rng.randint(0, 5)))
    last = max(place for place, record in enumerate(log) if isinstance(record, ShareSnapshot))
    assert row(*log[last:]) == row(*log)


def test_the_golden_share_group_has_nothing_left_to_read_where_all_was_accepted():
    state = ShareState()
    for message in golden_messages("__share_group_state"):
        state.apply(message)
    rows = {each.partition: each for each in state.partitions_of("rec-share")}
    read = {number: (each.start_offset, each.delivery_complete_count) for number, each in rows.items()}
    assert read == {0: (0, 10), 1: (0, 10), 2: (3, 0)}
    assert [10 - share_committed_offset(*read[number]) for number in range(3)] == [0, 0, 7]
    assert {each.state_epoch for each in rows.values()} == {6}


@pytest.mark.parametrize(
    ("start", "complete", "done"), [(3, 2, 5), (0, 10, 10), (-1, 0, -1), (3, -1, -1), (MOST, 5, MOST)]
)
def test_what_a_share_group_has_done_is_its_start_and_what_is_done_above(start, complete, done):
    assert share_committed_offset(start, complete) == done
