"""How far koff's clock is ahead of a broker's, and what that changes."""

import numpy as np
import pytest

from koff.lag import Status
from koff.tracker import Tracker
from koff.tracker.clock_skew import (
    COMMITS,
    MAX_GROUPS,
    MIN_COMMITS,
    SPAN_MS,
    ClockSkew,
    find_median,
    pick_low,
)
from tests.unit.builders import commit, list_statuses, note_records

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
FAR_MS = 30 * 365 * 86_400_000
FALSE_TIMESTAMPS = (0, 1, NOW_MS - FAR_MS, NOW_MS + MINUTE_MS, NOW_MS + FAR_MS, 2**63 - 1)


def measure(*commits: tuple[int, int, int]) -> int | None:
    """The skew after these commits: (group, second of arrival, difference)."""
    skew = ClockSkew()
    for group, second, difference_ms in commits:
        skew.add(group, NOW_MS + second * 1000 - difference_ms, NOW_MS + second * 1000)
    return skew.measure_ms()


def test_a_few_commits_show_the_skew_and_fewer_show_nothing():
    commits = [(1, second, MINUTE_MS) for second in range(MIN_COMMITS)]
    assert measure(*commits) == MINUTE_MS
    assert measure(*commits[1:]) is None
    assert measure() is None


@pytest.mark.parametrize("skew_ms", [MINUTE_MS, -MINUTE_MS, 0, FAR_MS, -FAR_MS])
def test_the_smallest_differences_count_because_delays_only_add_to_them(skew_ms):
    delays_ms = [20, 9_000, 30, 700_000, 25, 60, 9_000, 12]
    commits = [(group, 0, skew_ms + delay_ms) for group, delay_ms in enumerate(delays_ms)]
    assert measure(*commits) == pytest.approx(skew_ms, abs=100)


@pytest.mark.parametrize("timestamp_ms", FALSE_TIMESTAMPS)
@pytest.mark.parametrize("groups", [1, 2, 3, 4, MAX_GROUPS])
def test_one_false_timestamp_changes_next_to_nothing(groups, timestamp_ms):
    skew = ClockSkew()
    for second in range(2 * COMMITS):
        for group in range(groups):
            seen_at_ms = NOW_MS + second * 1000
            is_false = second == COMMITS + 2 and group == 0
            skew.add(group, timestamp_ms if is_false else seen_at_ms - MINUTE_MS, seen_at_ms)
            if second >= MIN_COMMITS:
                assert skew.measure_ms() == MINUTE_MS


@pytest.mark.parametrize("timestamp_ms", FALSE_TIMESTAMPS)
@pytest.mark.parametrize("groups", [2, 3, 4, MAX_GROUPS])
def test_a_group_with_none_but_false_timestamps_changes_next_to_nothing(groups, timestamp_ms):
    skew = ClockSkew()
    for second in range(2 * COMMITS):
        seen_at_ms = NOW_MS + second * 1000
        for group in range(groups):
            skew.add(group, timestamp_ms if group == 0 else seen_at_ms - 5_000, seen_at_ms)
        if second >= 2 and abs(timestamp_ms - seen_at_ms) > 5_000:
            assert skew.measure_ms() == 5_000


def test_many_commits_of_one_request_count_once():
    honest = [(1, second, MINUTE_MS) for second in range(4)]
    hostile = [(1, 4, -FAR_MS)] * 100
    assert measure(*honest, *hostile) == MINUTE_MS


def test_groups_that_went_silent_count_no_more_and_make_room():
    silent = [(group, second, -5_000) for second in range(8) for group in range(MAX_GROUPS)]
    late = 8 + SPAN_MS // 1000
    new = [(100 + group, late + second, 7_000) for second in range(3) for group in range(5)]
    assert measure(*silent) == -5_000
    assert measure(*silent, *new) == 7_000


def test_groups_beyond_the_most_that_count_take_no_memory():
    skew = ClockSkew()
    for group in range(1_000):
        skew.add(group, NOW_MS - 10, NOW_MS)
    assert len(skew._groups) == MAX_GROUPS


def test_of_a_batch_some_commits_count_and_the_last_one_always():
    for size in (1, 2, 15, 16, 17, 33, 5_000):
        skew = ClockSkew()
        groups = np.arange(size, dtype=np.int32)
        skew.add_batch(groups, np.full(size, NOW_MS - 40, np.int64), NOW_MS)
        assert size - 1 in skew._groups
        assert len(skew._groups) <= MAX_GROUPS + 1


@pytest.mark.parametrize(
    ("differences", "low"),
    [([5], 5), ([5, -3], -3), ([5, -3, 9], 5), ([1, 2, 3, 4], 2), (list(range(16)), 4)],
)
def test_the_low_one_leaves_out_a_quarter_and_at_least_one(differences, low):
    assert pick_low(differences) == low


def test_the_median_of_two_is_the_one_nearer_to_0_and_that_of_none_is_0():
    assert [find_median(skews) for skews in ([], [7], [7, -9], [7, -9, 8])] == [0, 7, 7, 7]


# --- What it changes -------------------------------------------------------------------------------------


class Watched:
    """A tracker whose clock is ahead by `skew_ms`, and groups that commit every five seconds.

    `groups` maps them to partitions of the offsets topic. They fall further and further behind. Their first
    commits were replayed as history.
    """

    def __init__(self, skew_ms: int, *, groups: dict[str, int]) -> None:
        self.skew_ms, self.groups = skew_ms, groups
        self.tracker, self.second = Tracker(), 0
        for turn in range(60):
            self.sample()
            for group, partition in groups.items():
                self.commit(group, partition, turn, live=turn >= 20)
            self.second += 5

    @property
    def broker_ms(self) -> int:
        return NOW_MS + self.second * 1000

    @property
    def koff_ms(self) -> int:
        return self.broker_ms + self.skew_ms

    def sample(self) -> None:
        self.tracker.add_samples(ends={("t", 0): 100 + 10 * self.second}, at_ms=self.koff_ms)

    def commit(
        self, group: str, partition: int, offset: int, *, live: bool = True, at_ms: int | None = None
    ) -> None:
        key, value = commit(group, "t", 0, offset, at=self.broker_ms if at_ms is None else at_ms)
        self.tracker.apply(partition, [key], [value], seen_at_ms=self.koff_ms + 30, is_live=live)

    def statuses(self) -> dict[str, Status]:
        statuses = list_statuses(self.tracker.take_snapshot(self.koff_ms))
        return {group: status for (group, _, _), status in statuses.items()}

    def pace(self, group: str) -> float | None:
        rows = self.tracker.take_snapshot(self.koff_ms).rows()
        return next(row.pace.consume_per_s for row in rows if row.group == group)


@pytest.mark.parametrize("skew_ms", [MINUTE_MS, -MINUTE_MS, 3_600_000, -3_600_000])
def test_a_slow_but_live_consumer_has_the_same_status_and_pace_whatever_koffs_clock_says(skew_ms):
    right, wrong = (Watched(ms, groups={"slow": 0}) for ms in (0, skew_ms))
    assert wrong.statuses() == right.statuses() == {"slow": Status.WARN}
    assert wrong.pace("slow") == pytest.approx(right.pace("slow"))
    for _ in range(20):  # then it stops
        for watched in (right, wrong):
            watched.second += 5
            watched.sample()
        assert wrong.statuses() == right.statuses()
    assert right.statuses() == {"slow": Status.STOP}


@pytest.mark.parametrize("timestamp_ms", FALSE_TIMESTAMPS)
@pytest.mark.parametrize("skew_ms", [0, MINUTE_MS, -MINUTE_MS])
def test_a_false_timestamp_does_not_change_the_status_of_others(skew_ms, timestamp_ms):
    watched = Watched(skew_ms, groups={"slow": 0})
    watched.commit("evil", 0, 5, at_ms=timestamp_ms)
    assert watched.statuses()["slow"] is Status.WARN
    assert watched.tracker.skew_ms == skew_ms + 30


@pytest.mark.parametrize("timestamp_ms", FALSE_TIMESTAMPS)
def test_a_group_that_only_writes_false_timestamps_does_not_change_the_status_of_others(timestamp_ms):
    watched = Watched(0, groups={"slow": 0, "b": 1, "c": 2})
    for turn in range(100, 120):
        watched.second += 5
        watched.sample()
        for partition in range(4):
            watched.commit("evil", partition, 5, at_ms=timestamp_ms)
        for group, partition in watched.groups.items():
            watched.commit(group, partition, turn)
        found = watched.statuses()
        assert {name: found[name] for name in watched.groups} == dict.fromkeys(watched.groups, Status.WARN)


def test_a_partition_without_commits_of_its_own_takes_the_skew_of_most_brokers():
    watched = Watched(MINUTE_MS, groups={"a": 0, "b": 1, "c": 2})
    for turn in range(12):
        at_ms = watched.broker_ms - (12 - turn) * 5_000
        watched.commit("replayed", 3, turn, live=False, at_ms=at_ms)
    assert watched.statuses()["replayed"] is Status.UNKNOWN
    shards = watched.tracker.take_snapshot(watched.koff_ms).shards
    assert {number: shard.skew_ms for number, shard in shards.items()} == dict.fromkeys(range(4), 60_030)


def test_each_partition_has_the_skew_of_its_own_broker():
    tracker = Tracker()
    for second in range(10):
        for partition, ahead_ms in enumerate((0, 5_000, -7_000)):
            key, value = commit("g", "t", partition, second, at=NOW_MS + second * 1000 - ahead_ms)
            tracker.apply(partition, [key], [value], seen_at_ms=NOW_MS + second * 1000)
    shards = tracker.take_snapshot(NOW_MS).shards
    assert [shard.skew_ms for shard in shards.values()] == [0, 5_000, -7_000]
    assert tracker.skew_ms == 0


def test_large_batches_show_the_skew_too_and_history_does_not():
    tracker = Tracker()
    for second in range(5):
        at_ms = NOW_MS + second * 1000
        pairs = [commit(f"g-{i}", "t", 0, second, at=at_ms) for i in range(100)]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        tracker.apply(0, keys, values)
        assert tracker.skew_ms == 0
    for second in range(5, 10):
        at_ms = NOW_MS + second * 1000
        pairs = [commit(f"g-{i}", "t", 0, second, at=at_ms) for i in range(100)]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        tracker.apply(0, keys, values, seen_at_ms=at_ms + MINUTE_MS)
    assert tracker.skew_ms == MINUTE_MS


def test_a_restored_state_has_no_skew_and_a_replaced_one_keeps_it():
    watched = Watched(MINUTE_MS, groups={"slow": 0})
    state = watched.tracker.save_partition(0)
    assert state is not None
    fresh = Tracker()
    fresh.restore_partition(0, state)
    assert fresh.skew_ms == 0
    watched.tracker.restore_partition(0, state)
    assert watched.tracker.skew_ms == MINUTE_MS + 30
    watched.tracker.reset_partition(0)
    assert watched.tracker.skew_ms == 0


@pytest.mark.parametrize("skew_ms", [0, 2 * MINUTE_MS, -2 * MINUTE_MS])
def test_the_age_of_a_record_is_by_the_clock_of_the_brokers(skew_ms):
    watched = Watched(skew_ms, groups={"slow": 0})
    note_records(watched.tracker, watched.koff_ms, watched.broker_ms - 30_000)
    (row,) = watched.tracker.take_snapshot(watched.koff_ms).rows()
    assert row.time_lag_source == "record"
    assert row.time_lag_s == pytest.approx(30, abs=0.1)
