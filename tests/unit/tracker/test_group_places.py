"""A group in several partitions of the offsets topic, which has grown: one of them shows it."""

import random

import pytest

from koff.records.placement import group_partition
from koff.tracker import Tracker
from tests.unit.builders import ASSIGNED_T_0_1, classic_group, commit, committed

NAMES = [f"g{number}" for number in range(300)]
MOVED = next(name for name in NAMES if group_partition(name, 50) != group_partition(name, 60))
BEFORE, AFTER = group_partition(MOVED, 50), group_partition(MOVED, 60)


def apply(tracker: Tracker, partition: int, *pairs) -> None:
    tracker.apply(partition, [key for key, _ in pairs], [value for _, value in pairs])


@pytest.fixture
def grown():
    """A tracker of a topic with 60 partitions, of a group that committed when it had 50 too."""
    tracker = Tracker()
    tracker.set_offsets_partitions(60)
    apply(tracker, BEFORE, classic_group(MOVED, {"a": ASSIGNED_T_0_1}), commit(MOVED, "old", 3, 1, at=9_000))
    apply(tracker, BEFORE, commit(MOVED, "t", 0, 9, at=9_000), commit("other", "t", 0, 1))
    apply(tracker, AFTER, commit(MOVED, "t", 0, 2, at=1_000))
    return tracker


def test_the_partition_that_the_name_belongs_to_shows_the_group_whatever_is_newer(grown):
    assert committed(grown) == {(MOVED, "t", 0): 2, ("other", "t", 0): 1}
    snapshot = grown.take_snapshot()
    assert sorted(group.name for group in snapshot.groups()) == [MOVED, "other"]
    assert [total.partitions for total in snapshot.totals() if total.group.name == MOVED] == [1]
    assert grown.watched_partitions() == [("t", 0)]


def test_the_hidden_group_is_kept_and_comes_back_when_the_other_goes(grown):
    committed(grown)
    apply(grown, AFTER, commit(MOVED, "t", 0, None))
    assert committed(grown) == {
        (MOVED, "old", 3): 1,
        (MOVED, "t", 0): 9,
        (MOVED, "t", 1): None,
        ("other", "t", 0): 1,
    }
    assert grown.watched_partitions() == [("old", 3), ("t", 0), ("t", 1)]


def test_without_a_partition_count_the_newest_commit_decides_also_later():
    tracker = Tracker()
    apply(tracker, 1, commit("g", "t", 0, 1, at=1_000))
    apply(tracker, 2, commit("g", "t", 0, 2, at=2_000))
    assert committed(tracker) == {("g", "t", 0): 2}
    apply(tracker, 1, commit("g", "t", 0, 3, at=3_000))
    assert committed(tracker) == {("g", "t", 0): 3}


def test_a_group_of_zookeeper_is_hidden_as_long_as_kafka_has_it():
    tracker = Tracker()
    tracker.apply_external_commits(-1, {("g", "t", 0): (7, 9_000), ("z", "t", 0): (8, 9_000)}, [], {})
    apply(tracker, 4, commit("g", "t", 1, 1, at=1_000))
    assert committed(tracker) == {("g", "t", 1): 1, ("z", "t", 0): 8}
    apply(tracker, 4, commit("g", "t", 1, None))
    assert committed(tracker) == {("g", "t", 0): 7, ("z", "t", 0): 8}


def test_layouts_stay_the_same_objects_while_no_group_or_row_comes_or_goes(grown):
    def layouts() -> list[object]:
        return [shard.layout for shard in grown.take_snapshot().shards.values()]

    first = layouts()
    apply(grown, BEFORE, commit(MOVED, "t", 0, 10), classic_group(MOVED, {"b": ASSIGNED_T_0_1}))
    apply(grown, AFTER, commit(MOVED, "t", 0, 11))
    assert all(new is old for new, old in zip(layouts(), first, strict=True))
    apply(grown, 8, commit("new", "t", 0, 11))
    grown.set_offsets_partitions(60)
    assert all(any(new is old for new in layouts()) for old in first)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_the_groups_shown_are_those_of_a_tracker_that_saw_only_them(seed):
    rng = random.Random(seed)
    tracker, state = Tracker(), dict[tuple[int, str], int]()
    tracker.set_offsets_partitions(4)
    for step in range(150):
        partition, name = rng.randrange(4), f"g{rng.randrange(6)}"
        offset = rng.choice([None, step])
        if rng.random() < 0.05:
            tracker.reset_partition(partition)
            state = {key: value for key, value in state.items() if key[0] != partition}
        else:
            apply(tracker, partition, commit(name, "t", 0, offset, at=step * 1000))
            state.pop((partition, name), None)
            if offset is not None:
                state[partition, name] = step
        if rng.random() < 0.5:
            continue
        expected = {}
        for _, name in state:
            there = {p: value for (p, other), value in state.items() if other == name}
            newest = max(there, key=lambda p: there[p])
            expected[name, "t", 0] = there.get(group_partition(name, 4), there[newest])
        assert committed(tracker) == expected


def test_groups_elsewhere_are_shown_until_brokers_use_the_new_count():
    tracker = Tracker()
    apply(tracker, BEFORE, commit(MOVED, "t", 0, 1))
    tracker.set_offsets_partitions(60, last_written=BEFORE)
    assert committed(tracker) == {(MOVED, "t", 0): 1}
    tracker.set_offsets_partitions(60, last_written=59)
    assert committed(tracker) == {}
    assert tracker.watched_partitions() == []


def test_the_tracker_says_which_groups_are_shown_outside_the_partition_of_their_name():
    tracker = Tracker()
    apply(tracker, BEFORE, commit(MOVED, "t", 0, 1))
    apply(tracker, group_partition("other", 60), commit("other", "t", 0, 1))
    tracker.set_offsets_partitions(60, last_written=BEFORE)
    assert tracker.find_groups_elsewhere() == {MOVED: BEFORE}
    apply(tracker, AFTER, commit(MOVED, "t", 0, 2))
    assert tracker.find_groups_elsewhere() == {}
    tracker.reset_partition(AFTER)
    tracker.set_offsets_partitions(60, last_written=59)
    assert tracker.find_groups_elsewhere() == {}


@pytest.mark.parametrize("seed", range(8))
def test_the_groups_elsewhere_are_those_that_a_new_tracker_finds(seed):
    rng = random.Random(seed)
    tracker, log = Tracker(), dict[int, list[tuple[bytes, bytes | None]]]()
    count, last_written = 4, -1
    tracker.set_offsets_partitions(count)
    for step in range(120):
        partition, draw = rng.randrange(4), rng.random()
        if draw < 0.05:
            tracker.reset_partition(partition)
            log.pop(partition, None)
        elif draw < 0.1:
            count, last_written = rng.choice([4, 5, 7]), rng.choice([-1, 2, 3, 6])
            tracker.set_offsets_partitions(0)
            tracker.set_offsets_partitions(count, last_written=last_written)
        else:
            pair = commit(f"g{rng.randrange(6)}", "t", 0, rng.choice([None, step]), at=step * 1000)
            apply(tracker, partition, pair)
            log.setdefault(partition, []).append(pair)
        if rng.random() < 0.5:
            continue
        new = Tracker()
        new.set_offsets_partitions(0)
        new.set_offsets_partitions(count, last_written=last_written)
        for number, pairs in log.items():
            apply(new, number, *pairs)
        assert tracker.find_groups_elsewhere() == new.find_groups_elsewhere()


def test_groups_of_zookeeper_are_never_elsewhere():
    tracker = Tracker()
    tracker.apply_external_commits(-1, {("z", "t", 0): (8, 9_000)}, [], {})
    tracker.set_offsets_partitions(60, last_written=59)
    assert committed(tracker) == {("z", "t", 0): 8}


def test_a_group_of_zookeeper_is_shown_when_what_kafka_had_of_it_is_of_an_earlier_partition_count():
    tracker = Tracker()
    tracker.set_offsets_partitions(50)
    apply(tracker, BEFORE, commit(MOVED, "t", 0, 5))
    tracker.apply_external_commits(-1, {(MOVED, "t", 0): (9, 9_000)}, [], {})
    assert committed(tracker) == {(MOVED, "t", 0): 5}
    tracker.set_offsets_partitions(60, last_written=BEFORE)
    assert committed(tracker) == {(MOVED, "t", 0): 5}
    tracker.set_offsets_partitions(60, last_written=59)
    assert committed(tracker) == {(MOVED, "t", 0): 9}
