"""Commits of share groups: the partition of `__share_group_state` and the topic that they belong to."""

import numpy as np
import pytest

from koff.records import encode
from koff.records.placement import group_partition
from koff.tracker import Tracker
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.share_commits import ShareCommits
from tests.group_records import Share
from tests.unit.builders import apply, classic_group, commit, committed, list_unread
from tests.unit.tracker.share_groups import (
    NEW,
    OLD,
    add_share_groups,
    build_tracker,
    share,
    snapshot_of,
    update_record,
)


def share_partitions(tracker: Tracker) -> dict[int, np.ndarray]:
    """By shard, the partition of `__share_group_state` that each row is from."""
    shards = tracker.take_snapshot().shards.items()
    return {n: shard.share_partition for n, shard in shards if shard.share_partition is not None}


@pytest.fixture
def tracker():
    """A tracker that knows the share groups s and u."""
    return build_tracker("s", "u")


def test_a_lost_partition_of_share_state_takes_its_own_rows_with_it_and_no_others(tracker):
    share(tracker, 3, snapshot_of("s", 4), snapshot_of("u", 5))
    share(tracker, 7, snapshot_of("s", 6, partition=1))
    tracker.shares.reset_partition(3)
    assert committed(tracker) == {("s", "t", 1): 6}
    share(tracker, 3, snapshot_of("s", 8))
    assert committed(tracker) == {("s", "t", 0): 8, ("s", "t", 1): 6}


def test_state_that_is_in_two_partitions_counts_as_of_its_newest_write_and_falls_back(tracker):
    share(tracker, 1, snapshot_of("s", 4, at_ms=10))
    share(tracker, 2, snapshot_of("s", 9, at_ms=20))
    share(tracker, 1, snapshot_of("s", 4, at_ms=10))
    assert committed(tracker) == {("s", "t", 0): 9}
    tracker.shares.reset_partition(2)
    assert committed(tracker) == {("s", "t", 0): 4}


def test_state_of_a_deleted_topic_makes_no_row_of_its_successor(tracker):
    share(tracker, 0, snapshot_of("s", 100))
    tracker.identify_topics({"t": NEW})
    assert committed(tracker) == {}
    share(tracker, 0, snapshot_of("s", 101))
    assert committed(tracker) == {}
    tracker.shares.reset_partition(0)
    assert committed(tracker) == {}


def test_state_that_comes_before_its_topic_is_listed_makes_a_row_then(tracker):
    share(tracker, 0, snapshot_of("s", 100), snapshot_of("s", 7, topic_id=NEW))
    assert committed(tracker) == {("s", "t", 0): 100}
    tracker.identify_topics({"t": NEW})
    assert committed(tracker) == {("s", "t", 0): 7}


def test_share_groups_move_when_the_offsets_topic_grows():
    names = [f"s{number}" for number in range(40)]
    tracker = Tracker()
    tracker.identify_topics({"t": OLD})
    share(tracker, 0, *(snapshot_of(name, 4) for name in names))
    assert committed(tracker) == {}
    for count in (50, 60):
        tracker.set_offsets_partitions(count)
        # Brokers that use the new count write each group into its new partition. Its old records stay.
        add_share_groups(tracker, *names, count=count)
        shards = tracker.take_snapshot().shards
        found = sorted((group.name, number) for number, shard in shards.items() for group in shard.groups)
        assert found == sorted((name, group_partition(name, count)) for name in names)
        assert len(committed(tracker)) == 40


@pytest.mark.parametrize(("group", "partition"), [("s", -1), ("\ufffd" * 22_000, 0)])
def test_impossible_keys_of_share_state_are_counted_and_make_no_row(tracker, group, partition):
    key, encoded = encode(update_record("g", 3, partition=partition))
    if partition == 0:
        raw = b"\xff" * 22_000
        key = b"\0\1" + len(raw).to_bytes(2, "big") + raw + key[2 + 2 + 1 :]
    add_share_groups(tracker, "ok")
    share(tracker, 0, (key, encoded), snapshot_of("ok", 4))
    assert committed(tracker) == {("ok", "t", 0): 4}
    assert sum(tracker.impossible_counts.values()) == 1
    assert tracker.unnamed_topic_ids() == set()


def test_zookeepers_commits_are_set_and_removed_without_records():
    tracker = Tracker()
    changed = {("z", "t", 0): (5, 1000), ("z", "t", 1): (6, 2000), ("z", "t", -1): (1, 1)}
    tracker.apply_external_commits(-1, changed, [], {})
    assert committed(tracker) == {("z", "t", 0): 5, ("z", "t", 1): 6}
    assert (tracker.record_counts, tracker.impossible_counts) == ({}, {"partition": 1})
    tracker.apply_external_commits(-1, {("z", "t", 0): (7, 3000)}, [("z", "t", 1), ("z", "u", 9)], {})
    assert committed(tracker) == {("z", "t", 0): 7}
    (shard,) = tracker.take_snapshot().shards.values()
    assert (shard.committed_at.tolist(), shard.features.commits.tolist()) == ([3000], [2])


def test_a_group_that_becomes_a_share_group_under_its_name_has_no_records_to_read_any_more():
    tracker = Tracker()
    pairs = [classic_group("g", {}), commit("g", "t", 0, 4)]
    apply(tracker, *pairs)
    tracker.add_samples(ends={("t", 0): 10})
    assert len(list_unread(tracker, 2_000)) == 1
    pairs = [classic_group("g", None), encode(Share.own("g", 1))]
    apply(tracker, *pairs)
    assert list_unread(tracker, 2_000) == []


# --- The cost --------------------------------------------------------------------------------------------


@pytest.fixture
def looked_up(monkeypatch):
    """The share partitions whose state is looked up from now on."""
    keys: list[tuple[str, str, int]] = []
    find = ShareCommits._find

    def note_and_find(self, key):
        keys.append(key)
        return find(self, key)

    monkeypatch.setattr(ShareCommits, "_find", note_and_find)
    return keys


def test_a_partition_that_begins_anew_costs_as_much_as_its_own_share_groups(tracker, looked_up):
    names = [f"s{number}" for number in range(200)]
    share(tracker, 3, *(snapshot_of(name, 4) for name in names))
    looked_up.clear()
    for number in range(50):
        tracker.seed_partitions(CommitColumns.from_offsets({}), {}, 50, [number])
    assert len(looked_up) == len(names)
    add_share_groups(tracker, *names)
    assert {row[0] for row in committed(tracker)} == set(names)


def test_state_without_a_topic_name_costs_nothing_until_it_has_one(tracker, looked_up):
    share(tracker, 3, snapshot_of("s", 4, topic_id=NEW), snapshot_of("u", 5, topic_id=NEW))
    looked_up.clear()
    for _ in range(10):
        tracker.set_offsets_partitions(50)
        share(tracker, 4, snapshot_of("s", 4, partition=1))
    assert len(looked_up) == 10
    tracker.identify_topics({"new": NEW})
    assert committed(tracker) == {("s", "t", 1): 4, ("s", "new", 0): 4, ("u", "new", 0): 5}


def test_state_that_was_deleted_before_its_topic_had_a_name_keeps_no_id(tracker):
    share(tracker, 3, snapshot_of("s", 4, topic_id=NEW))
    assert tracker.unnamed_topic_ids() == {NEW}
    assert tracker.shares.find_groups_of([NEW, OLD]) == {"s"}
    share(tracker, 3, snapshot_of("s", None, topic_id=NEW))
    assert tracker.unnamed_topic_ids() == set()


def test_a_share_group_that_went_and_came_back_is_set_again_in_a_new_shard(tracker):
    share(tracker, 3, snapshot_of("s", 4))
    tracker.reset_partition(group_partition("s", 50))
    share(tracker, 3, snapshot_of("s", None))
    share(tracker, 3, snapshot_of("s", 6))
    tracker.seed_partitions(CommitColumns.from_offsets({}), {}, 50, [group_partition("s", 50)])
    add_share_groups(tracker, "s")
    assert committed(tracker) == {("s", "t", 0): 6}


def test_rows_follow_their_group_to_the_partition_that_shows_it(tracker):
    """koff starts after the offsets topic has grown: the group is where the earlier count says."""
    name = next(f"g{n}" for n in range(99) if group_partition(f"g{n}", 50) != group_partition(f"g{n}", 60))
    before, after = (group_partition(name, count) for count in (50, 60))
    share(tracker, 3, snapshot_of(name, 4))
    tracker.set_offsets_partitions(60, last_written=49)
    add_share_groups(tracker, name)
    assert committed(tracker) == {(name, "t", 0): 4}
    share(tracker, 3, snapshot_of(name, 5))
    assert committed(tracker) == {(name, "t", 0): 5}
    tracker.reset_partition(before)
    add_share_groups(tracker, name)
    tracker.set_offsets_partitions(60, last_written=49)
    assert committed(tracker) == {(name, "t", 0): 5}
    tracker.set_offsets_partitions(60, last_written=59)
    add_share_groups(tracker, name, count=60)
    assert committed(tracker) == {(name, "t", 0): 5}
    assert len(share_partitions(tracker)[after]) == 1
