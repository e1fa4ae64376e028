"""The coordinators' present response over what a partition's log said."""

from collections.abc import Mapping

import numpy as np
import pytest

from koff.lag import Status
from koff.records.placement import group_partition
from koff.tracker import Described, Group, Tracker
from koff.tracker.commit_columns import CommitColumns
from koff.tracker.groups import ShareGroupState
from tests.unit.builders import apply, classic_group, commit, committed, list_statuses
from tests.unit.tracker.share_groups import build_tracker, share, snapshot_of

AT_MS = 1_790_000_000_000


def overwrite(
    tracker: Tracker,
    offsets: Mapping[tuple[str, str, int], int],
    groups: Mapping[str, Described] | None = None,
    failed: tuple[str, ...] = (),
    partition: int = 0,
) -> None:
    tracker.shards[partition].overwrite(CommitColumns.from_offsets(offsets), groups, failed)


@pytest.fixture
def tracker():
    tracker = Tracker()
    records = [
        commit(name, "t", 0, second, at=AT_MS + second * 5000) for second in range(12) for name in "ghf"
    ]
    apply(tracker, classic_group("g", {}), classic_group("f", {}), *records, seen_at_ms=AT_MS)
    return tracker


def test_offsets_that_differ_are_set_new_rows_come_and_missing_ones_go(tracker):
    overwrite(tracker, {("g", "t", 0): 11, ("h", "t", 0): 40, ("h", "t", 1): 5, ("n", "u", 2): 6})
    assert committed(tracker) == {
        ("g", "t", 0): 11,
        ("h", "t", 0): 40,
        ("h", "t", 1): 5,
        ("n", "u", 2): 6,
    }


def test_a_group_whose_request_failed_keeps_its_rows_and_its_description(tracker):
    overwrite(tracker, {("g", "t", 0): 11}, {"g": Group("g", "consumer")}, failed=("f", "never-seen"))
    assert committed(tracker) == {("g", "t", 0): 11, ("f", "t", 0): 11}
    assert {g.name: g.type for g in tracker.take_snapshot().groups()} == {"g": "consumer", "f": "classic"}


def test_windows_stay_and_what_is_set_has_no_time_and_no_place_in_the_window(tracker):
    before = tracker.take_snapshot().shards[0]
    overwrite(tracker, {("g", "t", 0): 11, ("h", "t", 0): 900, ("f", "t", 0): 11})
    after = tracker.take_snapshot().shards[0]
    assert after.layout is before.layout
    changed = np.array([group.name == "h" for group in after.groups])[after.group]
    assert after.committed_at.tolist() == np.where(changed, -1, before.committed_at).tolist()
    assert sorted(after.committed.tolist()) == [11, 11, 900]
    assert np.column_stack(after.features)[changed].tolist() == [[0] * 5]
    assert np.array_equal(
        np.column_stack(after.features)[~changed], np.column_stack(before.features)[~changed]
    )
    # The window is there again with the next commit of the log.
    apply(tracker, commit("h", "t", 0, 901, at=AT_MS + 100_000), seen_at_ms=AT_MS)
    features = tracker.take_snapshot().shards[0].features
    assert features.commits[changed].tolist() == [10]
    assert features.last_ms[changed].tolist() == [AT_MS + 100_000]


def test_an_equal_response_changes_nothing_and_the_log_goes_on_from_there(tracker):
    version = tracker.version(0)
    overwrite(tracker, {(name, "t", 0): 11 for name in "gfh"})
    assert tracker.version(0) == version
    overwrite(tracker, {(name, "t", 0): 12 for name in "gfh"})
    assert tracker.version(0) != version
    apply(tracker, commit("g", "t", 0, 13), commit("h", "t", 0, None), seen_at_ms=AT_MS)
    assert committed(tracker) == {("g", "t", 0): 13, ("f", "t", 0): 12}


def sample(tracker: Tracker, end: int, at_ms: int) -> None:
    tracker.add_samples(ends={("t", 0): end, ("t", 1): end}, at_ms=at_ms)


def lose_the_log() -> Tracker:
    """A tracker with a group that keeps up with both partitions of t, 100 behind; at last, its commits to
    partition 0 have come from coordinators for a while. The commits to partition 1 have stayed the same."""
    tracker = Tracker()
    for tick in range(40):
        at_ms, offset = AT_MS + tick * 5000, tick * 10
        sample(tracker, 100 + offset, at_ms)
        if tick < 20:
            records = [commit("g", "t", partition, offset, at=at_ms) for partition in (0, 1)]
            apply(tracker, *records, seen_at_ms=at_ms)
        else:
            overwrite(tracker, {("g", "t", 0): offset, ("g", "t", 1): 190})
    return tracker


NOW_MS = AT_MS + 39 * 5000
"""When `lose_the_log` ends."""


def test_a_commit_without_a_time_has_no_rate_no_status_and_no_completeness():
    snapshot = lose_the_log().take_snapshot(NOW_MS)
    by_partition = {row.partition: row for row in snapshot.rows()}
    statuses = [status for _, status in sorted(list_statuses(snapshot).items())]
    assert statuses == [Status.UNKNOWN, Status.STOP]
    moving, silent = by_partition[0], by_partition[1]
    assert (moving.lag, moving.complete) == (100, 0)
    pace = moving.pace
    assert (pace.consume_per_s, pace.catch_up_s, pace.never) == (None, None, None)
    assert pace.produce_per_s == pytest.approx(2, abs=0.1)
    assert (silent.lag, silent.complete) == (300, 1)
    assert silent.pace.never


def test_a_group_without_all_commit_times_has_no_rate_and_no_time_until_it_has_caught_up():
    snapshot = lose_the_log().take_snapshot(NOW_MS)
    (total,) = snapshot.totals()
    assert (total.pace.consume_per_s, total.pace.catch_up_s, total.pace.never) == (None, None, None)
    assert total.complete == 0.5
    assert snapshot.group_statuses(snapshot.shards[0]).tolist() == [Status.ERR]  # partition 1 has stopped


def test_a_group_is_not_ok_because_of_the_partitions_that_are():
    tracker = lose_the_log()
    overwrite(tracker, {("g", "t", 0): 480, ("g", "t", 1): 490})
    snapshot = tracker.take_snapshot(NOW_MS)
    assert snapshot.group_statuses(snapshot.shards[0]).tolist() == [Status.UNKNOWN]
    overwrite(tracker, {("g", "t", 0): 490, ("g", "t", 1): 490})
    snapshot = tracker.take_snapshot(NOW_MS)
    (total,) = snapshot.totals()
    assert snapshot.group_statuses(snapshot.shards[0]).tolist() == [Status.OK]
    assert (total.pace.catch_up_s, total.pace.never) == (0, False)


@pytest.fixture
def sharing():
    """A tracker that knows the share group s, at 4 of partition 0 of t."""
    tracker = build_tracker("s")
    share(tracker, 3, snapshot_of("s", 4))
    return tracker


def test_rows_from_share_state_stay_as_they_are(sharing):
    home, groups = group_partition("s", 50), {"s": ShareGroupState()}
    overwrite(sharing, {}, groups, partition=home)
    assert committed(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {("s", "t", 0): 9, ("s", "t", 1): 7}, groups, partition=home)
    assert committed(sharing) == {("s", "t", 0): 4}


def test_rows_from_share_state_are_shown_as_long_as_the_coordinators_have_the_group(sharing):
    home = group_partition("s", 50)
    overwrite(sharing, {}, {}, partition=home)
    assert committed(sharing) == {}
    overwrite(sharing, {}, {"s": ShareGroupState()}, partition=home)
    assert committed(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {}, {}, failed=("s",), partition=home)
    assert committed(sharing) == {("s", "t", 0): 4}
    overwrite(sharing, {}, {"s": Group("s", "classic")}, partition=home)
    assert committed(sharing) == {}


def test_impossible_rows_of_a_response_are_left_out(tracker):
    overwrite(tracker, {("g", "t", 0): 5, ("g", "t", -1): 5, ("\ufffd" * 22_000, "t", 0): 5})
    assert committed(tracker) == {("g", "t", 0): 5}
    assert tracker.impossible_counts == {"partition": 1, "name": 1}
