"""The replay of `__share_group_state`, and what share groups have yet to read."""

import random

import pytest

from koff.lag import share_committed_offset
from koff.records import ShareSnapshot, decode_share_state, encode
from koff.tracker.share_progress import SharePartition, ShareProgress
from tests.group_records import gone
from tests.unit.builders import commit
from tests.unit.records.decoding import golden_messages
from tests.unit.tracker.share_groups import OLD, snapshot_record, update_record

MOST = (1 << 63) - 1


def snapshot(start: int, *, complete: int = 0, partition: int = 0):
    return snapshot_record("g", start, done=complete, partition=partition, at_ms=1000)


def update(start: int, *, complete: int = 0):
    return update_record("g", start, complete)


def replayed(*records) -> ShareProgress:
    state = ShareProgress()
    for record in records:
        state.apply(decode_share_state(*encode(record)))
    return state


def row(*records) -> SharePartition:
    found = replayed(*records).get("g", OLD, 0)
    assert found is not None
    return found


def test_a_snapshot_replaces_the_whole_state():
    found = row(snapshot(0, complete=10), update(3), snapshot(4))
    assert found == SharePartition("g", OLD, 0, 4, 0, 1000)


def test_a_tombstone_drops_the_state_of_one_partition():
    state = replayed(snapshot(0), snapshot(7, partition=1), gone(snapshot(0)))
    assert [each.partition for each in state.rows()] == [1]
    assert (len(state), state.get("g", OLD, 0)) == (1, None)
    assert list(replayed(snapshot(0), gone(snapshot(0))).rows()) == []


def test_tombstones_of_what_never_was_and_of_updates_change_nothing():
    assert len(replayed(gone(snapshot(0)), gone(update(0)))) == 0
    assert row(snapshot(4), gone(update(0))).start_offset == 4


def test_an_update_changes_what_it_names():
    assert row(snapshot(4), update(6, complete=2)) == SharePartition("g", OLD, 0, 6, 2, 1000)


def test_an_update_with_minus_one_leaves_the_start_but_not_the_count():
    found = row(snapshot(4, complete=5), update(-1, complete=-1))
    assert (found.start_offset, found.delivery_complete_count) == (4, -1)


def test_an_update_without_a_state_is_the_state():
    assert row(update(-1, complete=3)) == SharePartition("g", OLD, 0, -1, 3, -1)


def test_records_of_other_topics_are_left_alone():
    state = ShareProgress()
    for pair in (commit("g", "t", 0, 1), (None, b""), (b"\x00\x63", b"")):
        state.apply(decode_share_state(*pair))
    assert len(state) == 0


def test_rows_are_found_by_group():
    state = replayed(snapshot(0), snapshot(1, partition=1))
    assert sorted(each.start_offset for each in state.partitions_of("g")) == [0, 1]
    assert state.partitions_of("other") == []


@pytest.mark.parametrize("seed", range(20))
def test_a_log_whose_front_was_cut_off_at_a_snapshot_gives_the_same_state(seed):
    """The share coordinator deletes what lies before the last snapshot of every key."""
    rng = random.Random(seed)
    log, start = [snapshot(0)], 0
    for _ in range(60):
        start += rng.randint(0, 2)
        if rng.random() < 0.2:
            current = row(*log)
            log.append(snapshot(current.start_offset, complete=current.delivery_complete_count))
        else:
            log.append(update(rng.choice([start, -1]), complete=rng.randint(0, 5)))
    last = max(place for place, record in enumerate(log) if isinstance(record, ShareSnapshot))
    assert row(*log[last:]) == row(*log)


def test_the_golden_share_group_has_nothing_left_to_read_where_all_was_accepted():
    state = ShareProgress()
    for message in golden_messages("__share_group_state"):
        state.apply(message)
    rows = {each.partition: each for each in state.partitions_of("rec-share")}
    read = {number: (each.start_offset, each.delivery_complete_count) for number, each in rows.items()}
    assert read == {0: (0, 10), 1: (0, 10), 2: (3, 0)}
    assert [10 - share_committed_offset(*read[number]) for number in range(3)] == [0, 0, 7]


@pytest.mark.parametrize(
    ("start", "complete", "done"), [(3, 2, 5), (0, 10, 10), (-1, 0, -1), (3, -1, -1), (MOST, 5, MOST)]
)
def test_what_a_share_group_has_done_is_its_start_and_what_is_done_above(start, complete, done):
    assert share_committed_offset(start, complete) == done
