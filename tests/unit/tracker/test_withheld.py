"""Rows that are not current: no number of them is served, and no sum that they belong to."""

import numpy as np
import pytest

from koff.lag import Reason, Status
from koff.records import encode
from koff.tracker import GroupTotal, PartitionLag, Snapshot, Tracker
from tests.group_records import Consumer
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit, list_statuses

NOW_MS = 1_790_000_000_000
COMMITS, END = Reason.COMMITS_NOT_CURRENT, Reason.END_NOT_CURRENT


@pytest.fixture(scope="module")
def served():
    """Groups g and h, both 50 behind in t-0 and t-1, with full windows. A member of g has t-2 too."""
    tracker = Tracker()
    blob = bytes.fromhex("0000 00000001 0001 74 00000003 00000000 00000001 00000002 ffffffff")
    pairs = [classic_group("g", {"m": blob})]
    for second in range(0, 420, 20):
        at_ms = NOW_MS - 400_000 + second * 1000
        pairs += [commit(group, "t", p, 1000 + second, at=at_ms) for group in "gh" for p in range(2)]
        ends = {("t", p): 1050 + second for p in range(3)}
        tracker.add_samples(ends=ends, starts=dict.fromkeys(ends, 0), stables=ends, at_ms=at_ms)
    pairs.append(commit("g", "nowhere", 0, 4))
    apply(tracker, *pairs)
    snapshot = tracker.take_snapshot(NOW_MS)
    assert all(row.lag == 50 for row in snapshot.rows() if row.topic == "t" and row.partition < 2)
    return snapshot


def withhold(snapshot: Snapshot, bits: Reason, *rows: tuple[str, str, int], current: bool = True) -> Snapshot:
    """The snapshot with these bits in these rows."""
    shard, places = snapshot.shards[0], snapshot.partitions
    found = [
        bits
        if (shard.groups[group].name, places.topic[number], places.partition[number]) in rows
        else Reason(0)
        for group, number in zip(shard.group, shard.partition, strict=True)
    ]
    assert sum(map(bool, found)) == len(rows)
    return snapshot.withhold({0: np.array(found, np.uint8)}, {0: current})


def row(snapshot: Snapshot, group: str, topic: str, partition: int) -> PartitionLag:
    (found,) = (r for r in snapshot.rows() if (r.group, r.topic, r.partition) == (group, topic, partition))
    return found


def total(snapshot: Snapshot, group: str) -> GroupTotal:
    (found,) = (t for t in snapshot.totals() if t.group.name == group)
    return found


@pytest.mark.parametrize("bits", [COMMITS, END, COMMITS | END])
def test_nothing_that_depends_on_an_offset_that_is_not_current_is_shown_of_a_row(served, bits):
    assert row(served, "g", "t", 0).pace.consume_per_s == 1.0
    found = row(withhold(served, bits, ("g", "t", 0)), "g", "t", 0)
    nulls = (found.lag, found.published_lag, found.readable, found.lost, found.lag_to_stable)
    assert (*nulls, found.time_lag_s, found.time_lag_source, found.at_least) == (None,) * 8
    assert found.pace == (None, None, None, None)
    assert found.reasons == bits
    assert list_statuses(withhold(served, bits, ("g", "t", 0)))["g", "t", 0] == Status.UNKNOWN
    assert found.committed == (1400 if bits == END else None)
    assert found.end == (1450 if bits == COMMITS else None)
    assert found.complete == (1.0 if bits == END else None)


@pytest.mark.parametrize("bits", [COMMITS, END])
def test_a_group_with_one_row_that_is_withheld_has_no_totals_and_others_have_theirs(served, bits):
    whole = total(served, "g")
    assert (whole.lag, whole.unknown, whole.withheld, whole.partitions) == (100, 2, 0, 4)
    assert whole.time_lag_s is not None
    assert whole.pace.consume_per_s is not None
    assert whole.pace.never
    after = withhold(served, bits, ("g", "t", 1))
    part = total(after, "g")
    assert (part.lag, part.time_lag_s) == (None, None)
    assert part.pace == (None, None, None, None)
    assert (part.unknown, part.withheld, part.partitions) == (3, 1, 4)
    assert (part.complete is None) == (bits == COMMITS)
    assert (part.member_count, part.state) == (1, "Stable")
    assert total(after, "h") == total(served, "h")


def test_a_total_that_is_null_has_a_reason(served):
    assert (total(served, "g").lag, total(served, "g").reason) == (100, "")
    part = withhold(served, END, ("g", "t", 1))
    assert (total(part, "g").lag, total(part, "g").reason) == (None, "lags_withheld")
    missing = part.withhold({}, {}, groups_whole={0: False})
    assert [total(missing, name).reason for name in "gh"] == ["rows_missing"] * 2
    old = missing.withhold({}, {0: False})
    assert [total(old, name).reason for name in "gh"] == ["commits_not_current"] * 2


def test_a_total_without_a_known_lag_or_without_partitions_has_a_reason():
    tracker = Tracker()
    pairs = [commit("g", "nowhere", 0, 4), classic_group("empty", {})]
    apply(tracker, *pairs)
    snapshot = tracker.take_snapshot(NOW_MS)
    assert (total(snapshot, "g").lag, total(snapshot, "g").reason) == (None, "lags_unknown")
    assert (total(snapshot, "empty").lag, total(snapshot, "empty").reason) == (None, "no_partitions")


def test_groups_that_may_be_half_read_show_neither_members_nor_states_nor_offsets(served):
    after = withhold(served, COMMITS, ("g", "t", 0), ("g", "t", 1), ("g", "nowhere", 0), current=False)
    assert sorted((r.group, r.topic, r.partition) for r in after.rows()) == [
        ("g", "nowhere", 0),
        ("g", "t", 0),
        ("g", "t", 1),
        ("h", "t", 0),
        ("h", "t", 1),
    ]
    assert all((r.state, r.committed, r.member, r.complete) == (None,) * 4 for r in after.rows())
    for name in "gh":
        found = total(after, name)
        assert (found.current, found.member_count, found.state, found.lag) == (False, None, None, None)
        assert (found.complete, found.time_lag_s) == (None, None)
    assert [total(after, name).withheld for name in "gh"] == [3, 0]


def test_a_withheld_row_without_a_commit_is_unknown_and_not_notfound():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, -1))
    tracker.add_samples(ends={("t", 0): 10}, at_ms=NOW_MS)
    snapshot = tracker.take_snapshot(NOW_MS)
    assert list_statuses(snapshot) == {("g", "t", 0): Status.NOTFOUND}
    after = snapshot.withhold({0: np.array([COMMITS], np.uint8)}, {})
    assert list_statuses(after) == {("g", "t", 0): Status.UNKNOWN}
    assert after.group_statuses(after.shards[0]).tolist() == [Status.UNKNOWN]


def test_withholding_is_of_a_copy_and_by_shard(served):
    tracker = Tracker()
    for partition in range(2):
        tracker.apply(partition, *([part] for part in commit(f"g{partition}", "t", 0, 4)))
    tracker.add_samples(ends={("t", 0): 10})
    snapshot = tracker.take_snapshot()
    after = snapshot.withhold({1: np.array([END], np.uint8)}, {})
    assert [r.lag for r in snapshot.rows()] == [6, 6]
    assert {r.group: r.lag for r in after.rows()} == {"g0": 6, "g1": None}
    assert (snapshot.withheld_rows(), after.withheld_rows()) == (0, 1)
    again = after.withhold({}, {0: False})
    assert (again.withheld_rows(), again.shards[0].groups_current) == (1, False)
    assert again.shards[1].layout is snapshot.shards[1].layout


def test_the_end_of_an_assigned_partition_is_not_shown_if_another_row_says_it_is_not_current(served):
    tracker = Tracker()
    pairs = [classic_group("g", {"m": ASSIGNED_T_0_1}), commit("h", "t", 1, 3)]
    apply(tracker, *pairs)
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 10})
    snapshot = tracker.take_snapshot()
    assert row(snapshot, "g", "t", 1).end == 10
    after = withhold(snapshot, END, ("h", "t", 1))
    assert (row(after, "g", "t", 1).end, row(after, "g", "t", 0).end) == (None, 10)


def test_static_members_that_are_away_are_not_counted():
    tracker = Tracker()
    held = {Consumer.places[0]: (0,)}
    records = [Consumer.own("g", 1)]
    for member, epoch in (("a", 1), ("b", -2)):
        records += [
            Consumer.member("g", member, instance_id=member),
            Consumer.current("g", member, epoch, held),
        ]
    pairs = [encode(record) for record in records]
    apply(tracker, *pairs)
    found = total(tracker.take_snapshot(), "g")
    assert (len(found.group.members), found.member_count) == (2, 1)
