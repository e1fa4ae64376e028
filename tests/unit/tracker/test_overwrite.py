"""The coordinators' present response over what a partition's log said."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from koff.records.placement import group_partition
from koff.tracker import Described, Group, Tracker
from koff.tracker.groups import ShareGroupState
from koff.tracker.seeds import Seed
from tests.unit.builders import ASSIGNED_T_0_1, classic_group, commit
from tests.unit.tracker.test_share_commits import add_share_groups, share, snapshot_of

AT_MS = 1_790_000_000_000


def overwrite(
    tracker: Tracker,
    offsets: Mapping[tuple[str, str, int], int],
    groups: Mapping[str, Described] | None = None,
    failed: tuple[str, ...] = (),
    partition: int = 0,
) -> None:
    tracker.overwrite_commits(partition, Seed.from_offsets(offsets), groups, failed)


def apply(tracker: Tracker, *pairs) -> None:
    tracker.apply(0, [key for key, _ in pairs], [value for _, value in pairs], seen_at_ms=AT_MS)


def rows(tracker: Tracker) -> dict[tuple[str, str, int], int | None]:
    return {(r.group, r.topic, r.partition): r.committed for r in tracker.take_snapshot().rows()}


@pytest.fixture
def tracker() -> Tracker:
    tracker = Tracker()
    records = [
        commit(name, "t", 0, second, at=AT_MS + second * 5000) for second in range(12) for name in "ghf"
    ]
    apply(tracker, classic_group("g", {}), classic_group("f", {}), *records)
    return tracker


def test_offsets_that_differ_are_set_new_rows_come_and_missing_ones_go(tracker):
    overwrite(tracker, {("g", "t", 0): 11, ("h", "t", 0): 40, ("h", "t", 1): 5, ("n", "u", 2): 6})
    assert rows(tracker) == {
        ("g", "t", 0): 11,
        ("h", "t", 0): 40,
        ("h", "t", 1): 5,
        ("n", "u", 2): 6,
    }


def test_a_partition_missing_of_a_group_that_is_in_the_response_goes_too(tracker):
    apply(tracker, commit("g", "t", 1, 3))
    overwrite(tracker, {("g", "t", 0): 11})
    assert rows(tracker) == {("g", "t", 0): 11}


def test_a_group_whose_request_failed_keeps_its_rows_and_its_description(tracker):
    overwrite(tracker, {("g", "t", 0): 11}, {"g": Group("g", "consumer")}, failed=("f", "never-seen"))
    assert rows(tracker) == {("g", "t", 0): 11, ("f", "t", 0): 11}
    assert {g.name: g.type for g in tracker.take_snapshot().groups()} == {"g": "consumer", "f": "classic"}


def test_groups_are_left_alone_if_none_are_given(tracker):
    overwrite(tracker, {("g", "t", 0): 11})
    assert {g.name: g.type for g in tracker.take_snapshot().groups()} == {"g": "classic", "f": "classic"}


def test_windows_stay_and_what_is_set_has_no_time_and_no_place_in_the_window(tracker):
    before = tracker.take_snapshot().shards[0]
    overwrite(tracker, {("g", "t", 0): 11, ("h", "t", 0): 900, ("f", "t", 0): 11})
    after = tracker.take_snapshot().shards[0]
    assert after.layout is before.layout
    assert after.features.consumed.tolist() == before.features.consumed.tolist()
    assert after.features.last_ms.tolist() == before.features.last_ms.tolist()
    changed = [group.name == "h" for group in after.groups]
    expected = [
        -1 if changed[g] else ms for g, ms in zip(after.group, before.committed_at.tolist(), strict=True)
    ]
    assert after.committed_at.tolist() == expected
    assert sorted(after.committed.tolist()) == [11, 11, 900]


def test_an_equal_response_changes_nothing_and_the_log_goes_on_from_there(tracker):
    version = tracker.version(0)
    overwrite(tracker, {(name, "t", 0): 11 for name in "gfh"})
    assert tracker.version(0) == version
    overwrite(tracker, {(name, "t", 0): 12 for name in "gfh"})
    assert tracker.version(0) != version
    apply(tracker, commit("g", "t", 0, 13), commit("h", "t", 0, None))
    assert rows(tracker) == {("g", "t", 0): 13, ("f", "t", 0): 12}


def test_the_same_groups_in_another_order_are_the_same_layout(tracker):
    groups = {name: Group(name, "classic") for name in "gf"}
    offsets = {(name, "t", 0): 11 for name in "gfh"}
    overwrite(tracker, offsets, groups)
    layout = tracker.take_snapshot().shards[0].layout
    overwrite(tracker, offsets, dict(reversed(groups.items())))
    assert tracker.take_snapshot().shards[0].layout is layout


@pytest.fixture
def sharing() -> Tracker:
    """A tracker that knows the share group s, at 4 of partition 0 of t."""
    tracker = Tracker()
    tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAQ"})
    tracker.set_offsets_partitions(50)
    add_share_groups(tracker, "s")
    share(tracker, 3, snapshot_of("s", 4))
    return tracker


def test_rows_from_share_state_stay_as_they_are(sharing):
    home, groups = group_partition("s", 50), {"s": ShareGroupState()}
    overwrite(sharing, {}, groups, partition=home)
    assert rows(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {("s", "t", 0): 9, ("s", "t", 1): 7}, groups, partition=home)
    assert rows(sharing) == {("s", "t", 0): 4, ("s", "t", 1): 7}


def test_rows_from_share_state_are_shown_as_long_as_the_coordinators_have_the_group(sharing):
    home = group_partition("s", 50)
    overwrite(sharing, {}, {}, partition=home)
    assert rows(sharing) == {}
    overwrite(sharing, {}, {"s": ShareGroupState()}, partition=home)
    assert rows(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {}, {}, failed=("s",), partition=home)
    assert rows(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {}, {"s": Group("s", "classic")}, partition=home)
    assert rows(sharing) == {}


def test_a_partition_without_state_gets_the_response_as_its_state():
    tracker = Tracker()
    overwrite(tracker, {("g", "t", 0): 4}, {"g": Group("g", "classic")}, partition=7)
    assert rows(tracker) == {("g", "t", 0): 4}
    overwrite(tracker, {}, {}, partition=7)
    assert list(tracker.take_snapshot().groups()) == []


def test_impossible_rows_of_a_response_are_left_out(tracker):
    overwrite(tracker, {("g", "t", 0): 5, ("g", "t", -1): 5, ("\ufffd" * 22_000, "t", 0): 5})
    assert rows(tracker) == {("g", "t", 0): 5}
    assert tracker.impossible_counts == {"partition": 1, "name": 1}


def test_assignments_of_the_response_are_watched_and_those_before_are_not(tracker):
    key, value = classic_group("g", {"m": ASSIGNED_T_0_1})
    apply(tracker, (key, value))
    assert ("t", 1) in tracker.watched_partitions()
    overwrite(tracker, {("h", "t", 0): 5}, {})
    tracker.add_samples(ends={("t", 0): 10}, at_ms=AT_MS)
    assert tracker.watched_partitions() == [("t", 0)]
