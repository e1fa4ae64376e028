"""Which records are read for exact lags in seconds, and what becomes of the answers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from koff.client import ClusterConf
from koff.lag import NO_RECORD
from koff.monitor.exact_time_lag import ExactConf, ExactTimeLag, _Queue
from koff.records import encode
from koff.tracker import LaggingRow, Tracker
from tests.unit.builders import Share, commit

NOW_MS = 1_800_000_000_000


def tracked(*commits, ends=100) -> Tracker:
    tracker = Tracker()
    tracker.apply(0, [key for key, _ in commits], [value for _, value in commits])
    ends = dict.fromkeys(tracker.watched_partitions(), ends)
    tracker.add_samples(ends=ends, starts=dict.fromkeys(ends, 0), at_ms=NOW_MS)
    return tracker


def unread(tracker: Tracker, groups: str = "") -> list[LaggingRow]:
    rows = tracker.find_unread_rows(
        lambda name: re.search(groups, name) is not None, lambda keys: np.arange(len(keys))
    )
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.committed))


def time_lags(tracker: Tracker, now_ms: int = NOW_MS) -> dict[str, tuple[float | None, str | None]]:
    return {row.group: (row.time_lag_s, row.time_lag_source) for row in tracker.take_snapshot(now_ms).rows()}


def test_rows_with_a_lag_of_matching_groups_are_unread_until_their_record_is_known():
    tracker = tracked(commit("pay-1", "t", 0, 40), commit("pay-2", "t", 1, 100), commit("other", "t", 0, 3))
    (row,) = unread(tracker, "^pay")
    assert row[1:] == ("t", 0, 40)
    tracker.note_first_records([(row, 41, NOW_MS - 30_000)])
    assert unread(tracker, "^pay") == []
    assert time_lags(tracker) == {"pay-1": (30, "record"), "pay-2": (0, "ends"), "other": (0, "ends")}


def test_a_record_counts_for_the_commit_that_it_was_read_for():
    tracker = tracked(commit("g", "t", 0, 40))
    (row,) = unread(tracker)
    tracker.note_first_records([(row, 41, NOW_MS - 30_000)])
    apply = commit("g", "t", 0, 40)
    tracker.apply(0, [apply[0]], [apply[1]])
    assert time_lags(tracker)["g"] == (30, "record")
    moved = commit("g", "t", 0, 42)
    tracker.apply(0, [moved[0]], [moved[1]])
    assert time_lags(tracker)["g"] == (0, "ends")
    (again,) = unread(tracker)
    assert (again.key, again.committed) == (row.key, 42)
    tracker.note_first_records([(row, 41, NOW_MS - 30_000)])  # an answer that comes late
    assert unread(tracker) == [again]


def test_a_row_that_takes_the_place_of_a_deleted_one_does_not_inherit_its_record():
    tracker = tracked(commit("g", "t", 0, 40), commit("g", "t", 1, 40))
    tracker.note_first_records([(row, 40, NOW_MS - 30_000) for row in unread(tracker)])
    for pair in (commit("g", "t", 0, None), commit("h", "t", 0, 40)):
        tracker.apply(0, [pair[0]], [pair[1]])
    assert time_lags(tracker) == {"g": (30, "record"), "h": (0, "ends")}


def test_a_row_is_unread_again_when_its_record_left_the_log_or_something_came_where_nothing_was():
    tracker = tracked(commit("g", "t", 0, 40), commit("h", "t", 1, 99))
    behind = unread(tracker)
    tracker.note_first_records([(behind[0], 40, NOW_MS), (behind[1], 100, NO_RECORD)])
    assert unread(tracker) == []
    assert time_lags(tracker)["h"] == (0, "record")
    tracker.add_samples(starts={("t", 0): 41}, ends={("t", 1): 101}, at_ms=NOW_MS)
    assert unread(tracker) == behind


def test_records_outlive_the_replacement_of_a_shard_where_the_commits_do():
    tracker = tracked(commit("g", "t", 0, 40), commit("h", "t", 0, 41))
    tracker.note_first_records([(row, row.committed, NOW_MS - 30_000) for row in unread(tracker)])
    shard = tracker.create_shard()
    for pair in (commit("h", "t", 0, 42), commit("g", "t", 0, 40)):
        shard.apply([pair[0]], [pair[1]])
    tracker.replace_shard(0, shard)
    assert time_lags(tracker) == {"g": (30, "record"), "h": (0, "ends")}


def test_share_groups_are_left_out_what_they_have_done_is_no_place_in_the_log():
    share = encode(Share.own("s", 1))
    tracker = tracked(commit("s", "t", 0, 40), commit("g", "t", 0, 50))
    tracker.apply(0, [share[0]], [share[1]])
    assert [row.committed for row in unread(tracker)] == [50]


def test_without_a_record_read_a_snapshot_says_so():
    (shard,) = tracked(commit("g", "t", 0, 40)).take_snapshot(NOW_MS).shards.values()
    assert shard.time_lag is not None
    assert shard.time_lag.exact is None


def test_those_that_have_waited_longest_come_first_even_while_others_come_and_go():
    queue = _Queue()
    keys = np.array([30, 10, 20])
    assert queue.pick(keys, 1, now=0.0).tolist() == [1]
    later = np.array([5, 30, 20])
    assert later[queue.pick(later, 2, now=1.0)].tolist() == [20, 30]
    again = np.array([1, 20, 5])
    assert again[queue.pick(again, 9, now=2.0)].tolist() == [20, 5, 1]
    assert queue.pick(np.zeros(0, np.int64), 9, now=3.0).tolist() == []
    assert again[queue.pick(again, 2, now=4.0)].tolist() == [1, 5]


def test_a_row_that_failed_is_left_out_for_a_while():
    queue = _Queue()
    keys = np.array([1, 2])
    queue.defer(1, until=30.0)
    assert queue.pick(keys, 9, now=29.0).tolist() == [1]
    assert queue.pick(keys, 9, now=30.0).tolist() == [0, 1]


@pytest.mark.parametrize("groups", [None, re.compile("^nobody$")])
def test_nothing_is_connected_to_for_nobody(groups):
    with ExactTimeLag(
        ClusterConf("127.0.0.1:1"), tracked(commit("g", "t", 0, 4)), ExactConf(groups)
    ) as exact:
        exact.read(0.1)
        assert exact._times is None


def test_brokers_that_are_away_leave_the_lag_to_the_ends():
    tracker = tracked(commit("g", "t", 0, 4))
    with ExactTimeLag(ClusterConf("127.0.0.1:1"), tracker, ExactConf(re.compile("g"))) as exact:
        exact.read(0.2)
    assert time_lags(tracker) == {"g": (0, "ends")}
