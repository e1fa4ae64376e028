"""The ages of uncommitted records: from past end offsets, and from a history that another process saved."""

import json

import numpy as np
import pytest

from koff.lag import NO_RECORD, UNKNOWN
from koff.tracker import State, Tracker
from koff.tracker.saved_ends import restore_ends, save_ends
from koff.tracker.topic_partitions import PartitionTable
from tests.unit.builders import commit, list_statuses, note_records

NOW_MS = 1_790_000_000_000
WEEK_S = 7 * 86_400
AT, OTHER = ("t", 0), ("t", 1)


def table_of(end=30_000, start=0, *, partitions=(AT,)):
    """A table that has just begun to sample, and whose history will be filled."""
    table = PartitionTable()
    table.expect_past_ends(WEEK_S)
    ends = dict.fromkeys(partitions, end)
    table.add_samples(ends=ends, starts=dict.fromkeys(partitions, start), at_ms=NOW_MS)
    return table


def age(table, committed, now_ms=NOW_MS, at=AT):
    """Seconds; None if unknown; a string such as ">= 30" if only bounded."""
    found = table.time_lags(table.numbers.assign_by_name([at]), np.array([committed]), now_ms)
    if not found.known[0]:
        return None
    return f">= {found.seconds[0]:g}" if found.at_least[0] else found.seconds.item()


def undated(table, *committed, now_ms=NOW_MS):
    rows, offsets = table.find_undated(np.zeros(len(committed), np.int64), np.array(committed), now_ms)
    assert not rows.any()
    return offsets.tolist()


def test_a_time_lag_is_unknown_until_past_ends_give_it():
    table = table_of()
    assert age(table, 30_000) == 0
    assert age(table, 4_627) is None
    table.add_past_ends({AT: 4_000}, NOW_MS - 140_000)
    assert age(table, 4_627) is None
    table.add_past_ends({AT: 6_000}, NOW_MS - 120_000)
    assert age(table, 4_627) == pytest.approx(134, abs=1)


def test_what_is_older_than_a_week_is_at_least_a_week_old():
    table = table_of()
    table.add_past_ends({AT: 5_000}, NOW_MS - WEEK_S * 1000)
    assert age(table, 4_627) == f">= {WEEK_S}"
    assert age(table, 4_627, NOW_MS + 60_000) == f">= {WEEK_S + 60}"


def test_undated_are_the_records_in_the_log_that_are_not_committed_and_have_no_age():
    table = table_of(start=100)
    assert undated(table, 30_000, 40_000, UNKNOWN) == []
    assert undated(table, 50, 200) == [100, 200]
    table.add_past_ends({AT: 90}, NOW_MS - 61_000)
    table.add_past_ends({AT: 150}, NOW_MS - 60_000)
    assert undated(table, 50, 200) == [200]


def test_a_record_that_was_read_is_dated():
    tracker = Tracker()
    tracker.partitions.expect_past_ends(WEEK_S)
    record = commit("g", "t", 0, 1_000)
    tracker.apply(0, [record[0]], [record[1]], seen_at_ms=NOW_MS)
    tracker.add_samples(ends={AT: 30_000}, at_ms=NOW_MS)
    assert tracker.find_undated(NOW_MS) == {AT: [1_000]}
    note_records(tracker, NOW_MS, NOW_MS - 77_000)
    assert tracker.find_undated(NOW_MS) == {}
    tracker.add_samples(ends={AT: 30_000}, starts={AT: 2_000}, at_ms=NOW_MS)
    assert tracker.find_undated(NOW_MS) == {AT: [2_000]}
    assert NO_RECORD == -2


@pytest.mark.parametrize("skew_ms", [0, 7_200_000])
def test_what_is_undated_is_what_a_snapshot_has_no_time_lag_of(skew_ms, monkeypatch):
    monkeypatch.setattr(Tracker, "skew_ms", skew_ms)  # koff's clock is ahead of the brokers'
    tracker = Tracker()
    tracker.partitions.expect_past_ends(WEEK_S)
    tracker.apply(0, *zip(commit("g", "t", 0, 1_000), strict=True), seen_at_ms=NOW_MS)
    tracker.add_samples(ends={AT: 30_000}, at_ms=NOW_MS)
    for end, seconds in ((900, 80), (1_100, 74)):
        tracker.partitions.add_past_ends({AT: end}, NOW_MS - seconds * 1000)
    note_records(tracker, NOW_MS, NOW_MS - skew_ms - 77_000)
    tracker.apply(0, *zip(commit("g", "t", 0, 2_000), strict=True), seen_at_ms=NOW_MS)
    (row,) = tracker.take_snapshot(NOW_MS).rows()
    assert row.time_lag_s is None
    assert tracker.find_undated(NOW_MS) == {AT: [2_000]}


def test_a_tracker_serves_no_time_lag_for_a_group_before_all_its_records_are_dated():
    tracker = Tracker()
    tracker.partitions.expect_past_ends(WEEK_S)
    for partition, offset in ((0, 4_627), (1, 29_000)):
        record = commit("g", "t", partition, offset)
        tracker.apply(0, [record[0]], [record[1]], seen_at_ms=NOW_MS)
    tracker.add_samples(ends={AT: 30_000, OTHER: 30_000}, at_ms=NOW_MS)
    assert tracker.find_undated(NOW_MS) == {AT: [4_627], OTHER: [29_000]}
    tracker.partitions.add_past_ends({OTHER: 29_000}, NOW_MS - 6_000)
    (total,) = tracker.take_snapshot(NOW_MS).totals()
    assert (total.lag, total.time_lag_s) == (26_373, None)
    tracker.partitions.add_past_ends({AT: 5_000}, NOW_MS - WEEK_S * 1000)
    assert tracker.find_undated(NOW_MS) == {}
    snapshot = tracker.take_snapshot(NOW_MS)
    (total,) = snapshot.totals()
    assert total.time_lag_s == WEEK_S
    assert {row.partition: row.at_least for row in snapshot.rows()} == {0: True, 1: False}


# The lag at a commit


def test_the_lag_at_a_commit_is_that_to_the_end_offset_before_it():
    table = table_of(end=100)
    numbers, committed = table.numbers.assign_by_name([AT, AT, OTHER]), np.array([70, 120, 70])
    expected = {NOW_MS: [30, 0, UNKNOWN], NOW_MS - 1: [UNKNOWN] * 3, UNKNOWN: [UNKNOWN] * 3}
    for seen_at_ms, lags in expected.items():
        assert table.lags_at_commit(numbers, committed, seen_at_ms).tolist() == lags
        each = zip(numbers.tolist(), committed.tolist(), strict=True)
        assert [table.lag_at_commit(*one, seen_at_ms) for one in each] == lags


@pytest.mark.parametrize(("interval_s", "oldest_ms"), [(1.0, 3_500), (5.0, 7_500), (30.0, 45_000)])
def test_an_end_offset_of_long_ago_shows_no_lag_at_a_commit(interval_s, oldest_ms):
    table = table_of(end=100)
    table.expect_samples(interval_s)
    numbers, committed = table.numbers.assign_by_name([AT]), np.array([70])
    for age_ms, lag in ((0, 30), (oldest_ms, 30), (oldest_ms + 1, UNKNOWN), (600_000, UNKNOWN)):
        assert table.lags_at_commit(numbers, committed, NOW_MS + age_ms).tolist() == [lag]
        assert table.lag_at_commit(int(numbers[0]), 70, NOW_MS + age_ms) == lag


@pytest.mark.parametrize(("pause_s", "status"), [(10, "WARN"), (20, "WARN"), (60, "UNKNOWN")])
def test_commits_that_are_read_in_a_burst_after_a_pause_do_not_make_a_group_seem_to_catch_up(pause_s, status):
    tracker = Tracker()
    tracker.partitions.expect_samples(5.0)

    def read(at_s: int, *seconds: int) -> None:
        """Reads the commits of these seconds: the group falls behind by 5 records a second."""
        records = [commit("g", "t", 0, 500 + 5 * each, at=NOW_MS + each * 1_000) for each in seconds]
        keys, values = zip(*records, strict=True)
        tracker.apply(0, keys, values, seen_at_ms=NOW_MS + at_s * 1_000)

    for second in range(0, 200, 5):
        tracker.add_samples(ends={AT: 1_000 + 10 * second}, at_ms=NOW_MS + second * 1_000)
        read(second, second)
    last_s = 195 + pause_s
    read(last_s, *range(200, last_s + 1, 5))
    tracker.add_samples(ends={AT: 1_000 + 10 * last_s}, at_ms=NOW_MS + last_s * 1_000)
    (found,) = list_statuses(tracker.take_snapshot(NOW_MS + last_s * 1_000)).values()
    assert found.name == status


# A history that was saved


def through_json(state, *without):
    columns = {name: np.frombuffer(c.tobytes(), c.dtype) for name, c in state.columns.items()}
    return State(
        json.loads(json.dumps(dict(state.facts))),
        {name: column for name, column in columns.items() if name not in without},
    )


def saved_table():
    table = table_of(partitions=(AT, OTHER))
    table.add_past_ends({AT: 4_000, OTHER: 10}, NOW_MS - 140_000)
    table.add_past_ends({AT: 6_000}, NOW_MS - 120_000)
    table.add_samples(ends={AT: 31_000, OTHER: 31_000}, at_ms=NOW_MS + 5_000)
    return table


def restored(state, **times):
    table = PartitionTable()
    table.expect_past_ends(WEEK_S)
    assert restore_ends(table, state, **times) is None
    return table


def test_what_was_saved_is_as_precise_as_before():
    state = through_json(save_ends(saved_table(), NOW_MS + 6_000))
    table = restored(state, now_ms=NOW_MS + 66_000, pause_ms=60_000)
    table.add_samples(ends={AT: 40_000, OTHER: 40_000}, at_ms=NOW_MS + 66_000)
    now_ms = NOW_MS + 66_000
    assert age(table, 4_627, now_ms) == pytest.approx(200, abs=1)
    assert age(table, 4_627, now_ms, OTHER) is None
    assert age(table, 30_500, now_ms, OTHER) == pytest.approx(64, abs=1)
    assert age(table, 35_000, now_ms) is None  # it came during the pause
    table.add_past_ends({AT: 35_000}, NOW_MS + 60_000)
    assert age(table, 35_000, now_ms) == pytest.approx(6, abs=1)


@pytest.mark.parametrize("origin_ms", [0, 10**6, NOW_MS - 30 * 365 * 86_400_000, 2 * NOW_MS])
def test_ages_are_right_by_another_clock_if_the_pause_is_known(origin_ms):
    state = through_json(save_ends(saved_table(), NOW_MS + 6_000))
    table = restored(state, now_ms=origin_ms, pause_ms=60_000)
    table.add_samples(ends={AT: 31_000}, at_ms=origin_ms)
    assert age(table, 4_627, origin_ms) == pytest.approx(200, abs=1)
    assert age(table, 4_627, origin_ms + 1_000) == pytest.approx(201, abs=1)


def test_a_history_from_the_future_is_not_restored():
    state, table = through_json(save_ends(saved_table(), NOW_MS + 6_000)), PartitionTable()
    assert (
        restore_ends(table, state, now_ms=NOW_MS)
        == "its newest end offset is of a time that is in the future"
    )
    assert restore_ends(table, state, now_ms=NOW_MS, pause_ms=-10_000) is not None
    assert len(table.numbers) == 0
    table.add_samples(ends={AT: 5}, at_ms=1_000)
    assert age(table, 4, 11_000) == ">= 10"


def held_ms(table, *samples, after_s=30):
    """How long the last stable offset has been held, after each sample (end, last stable offset)."""
    found = []
    for number, (end, stable) in enumerate(samples):
        at_ms = NOW_MS + number * after_s * 1000
        table.add_samples(ends={AT: end}, at_ms=at_ms)
        table.add_samples(stables={AT: stable}, at_ms=at_ms)
        found.append(table.take_snapshot().held_ms.item())
    return found


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        ([(100, 100), (100, 100), (100, 100)], [None, None, None]),  # nothing is written
        ([(100, 100), (200, 100), (300, 100), (400, 100)], [None, 0, 30, 60]),
        ([(100, 90), (200, 190), (300, 290)], [0, 0, 0]),  # one after another
        ([(100, 90), (200, 90), (200, 200), (300, 200)], [0, 30, None, 0]),
        ([(100, 90), (200, UNKNOWN), (300, 90)], [0, None, 0]),
    ],
)
def test_an_open_transaction_is_as_old_as_samples_show(samples, seconds):
    expected = [UNKNOWN if each is None else each * 1000 for each in seconds]
    assert held_ms(PartitionTable(), *samples) == expected
