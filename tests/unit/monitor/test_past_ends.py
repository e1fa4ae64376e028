"""Offsets by time: few requests find how old each uncommitted record is, on a simulated log of records."""

import random
from bisect import bisect_left

import numpy as np
import pytest

from koff.lag import EndHistory, time_lag_s
from koff.monitor.past_ends import LOST_MS, NO_RECORD, OLDEST_MS, RETRY_MS, YOUNGEST_MS, PastEnds

NOW_MS = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
REACH_S = OLDEST_MS / 1000
SAMPLE_MS = 5_000
ROUNDS = 10
"""Within so many requests for a partition, one after the other, everything is known."""
AT = ("t", 0)


class Log:
    """One partition: records by the time of their arrival, with their offsets."""

    def __init__(self, times_ms, offsets=None):
        self.times = np.sort(np.asarray(times_ms, np.int64))
        self.offsets = np.arange(len(self.times)) if offsets is None else np.asarray(offsets)
        self.next = int(self.offsets[-1]) + 1 if len(self.offsets) else 0

    def end(self, at_ms):
        """The end offset at a time."""
        arrived = int(np.searchsorted(self.times, at_ms, "right"))
        return int(self.offsets[arrived]) if arrived < len(self.times) else self.next

    def offset_by_time(self, from_ms, at_ms):
        """What a broker answers at `at_ms` to a request for the first offset of `from_ms` or later."""
        index = int(np.searchsorted(self.times, from_ms))
        return (
            int(self.offsets[index]) if index < len(self.times) and self.times[index] <= at_ms else NO_RECORD
        )

    def age_s(self, offset, at_ms):
        """The age of the first record at `offset` or above."""
        return (at_ms - int(self.times[bisect_left(self.offsets, offset)])) / 1000

    def compact(self, rng, *, before_ms, share):
        """The log without this share of its old records."""
        kept = (self.times >= before_ms) | (rng.random(len(self.times)) >= share)
        return Log(self.times[kept], self.offsets[kept])


class Watch:
    """A history of samples that are taken from now on, filled by the requests of a plan."""

    def __init__(self, logs, committed, *, now_ms=NOW_MS):
        self.logs, self.committed = logs, committed
        self.history, self.plan = EndHistory(len(logs)), PastEnds()
        self.now_ms = now_ms
        self.requests = 0
        self.sample()

    def sample(self):
        self.sampled_ms, self.ends = self.now_ms, np.array([log.end(self.now_ms) for log in self.logs])
        self.history.add_samples(np.arange(len(self.logs)), self.ends, self.now_ms)

    def time_lags(self):
        """Of each committed offset: partition, offset, seconds (None: unknown), and whether at least."""
        rows = np.array([row for row, offsets in enumerate(self.committed) for _ in offsets])
        offsets = np.array([offset for offsets in self.committed for offset in offsets])
        found = time_lag_s(self.history, rows, offsets, self.now_ms, reach_s=REACH_S)
        seconds = [s if known else None for s, known in zip(found.seconds.tolist(), found.known, strict=True)]
        return list(zip(rows.tolist(), offsets.tolist(), seconds, found.at_least.tolist(), strict=True))

    def rows(self):
        """What is behind and has no known age."""
        undated: dict[tuple[str, int], list[int]] = {}
        for row, offset, seconds, _ in self.time_lags():
            if seconds is None:
                undated.setdefault(("t", row), []).append(offset)
        return undated

    def step(self, wait_ms=700):
        """Sends what is wanted and brings the answers; returns whether there was anything to send."""
        wanted = self.plan.wanted(self.rows(), self.now_ms)
        sampled_ms, ends = self.sampled_ms, self.ends
        self.pass_time(wait_ms)
        for at_ms, partitions in wanted:
            answers = {p: self.logs[p[1]].offset_by_time(at_ms, self.now_ms) for p in partitions}
            self.requests += len(answers)
            for at, offset in answers.items():  # as `EndTimes` does
                if offset == NO_RECORD and sampled_ms >= at_ms:
                    answers[at] = int(ends[at[1]])
            self.plan.note(answers, at_ms)
            known = {at[1]: offset for at, offset in answers.items() if offset != NO_RECORD}
            self.history.add_past_points(np.array(list(known)), np.array(list(known.values())), at_ms)
        return bool(wanted)

    def pass_time(self, ms):
        until_ms = self.now_ms + ms
        while (sampled_ms := self.now_ms - (self.now_ms - NOW_MS) % SAMPLE_MS + SAMPLE_MS) <= until_ms:
            self.now_ms = sampled_ms
            self.sample()
        self.now_ms = until_ms

    def fill(self):
        rounds = 0
        while self.step():
            rounds += 1
            assert rounds <= ROUNDS
        return rounds


def flows(seed):
    rng = np.random.default_rng(seed)
    span_ms = 20 * DAY_MS
    yield "steady", NOW_MS - np.arange(-600_000, span_ms, 45_000)
    yield "random", NOW_MS + 600_000 - rng.integers(0, span_ms, 20_000)
    yield "dense lately", NOW_MS + 600_000 - np.geomspace(600, span_ms, 20_000).astype(np.int64)
    bursts = [
        at + rng.integers(0, 2_000, 500) for at in NOW_MS - np.geomspace(3_000, span_ms, 40).astype(int)
    ]
    yield "bursts", np.concatenate(bursts)
    yield (
        "idle",
        NOW_MS - np.concatenate([rng.integers(3 * DAY_MS, span_ms, 500), rng.integers(0, DAY_MS, 5)]),
    )
    yield "few", NOW_MS - rng.integers(0, span_ms, 6)


FLOWS = [pytest.param(times, seed, id=f"{name}-{seed}") for seed in range(2) for name, times in flows(seed)]


def backlogs(log, rng, count):
    """Offsets of records that have not been committed, of all ages, and the end."""
    ages = np.geomspace(1_000, 15 * DAY_MS, 40).astype(np.int64)
    places = np.searchsorted(log.times, NOW_MS - rng.choice(ages, count))
    end = log.end(NOW_MS)
    return sorted({min(int(log.offsets[min(place, len(log.offsets) - 1)]), end) for place in places})


@pytest.mark.parametrize(("times", "seed"), FLOWS)
@pytest.mark.parametrize("groups", [1, 4])
def test_every_time_lag_is_right_within_a_fifth_seconds_after_the_start(times, seed, groups):
    rng = np.random.default_rng(seed)
    log = Log(times)
    committed = [backlogs(log, rng, groups) for _ in range(30)]
    watch = Watch([log] * len(committed), committed)
    watch.fill()
    for _ in range(3):
        for _, offset, seconds, at_least in watch.time_lags():
            if offset >= log.end(watch.now_ms - SAMPLE_MS):
                continue  # committed up to the end, or nearly
            age_s = log.age_s(offset, watch.now_ms)
            assert seconds is not None
            if at_least:
                assert age_s >= REACH_S - 1
                assert REACH_S <= seconds <= age_s + 1
            else:
                assert seconds == pytest.approx(age_s, rel=0.2, abs=SAMPLE_MS / 1000 + 1)
        watch.pass_time(3_600_000)


@pytest.mark.parametrize("seed", range(4))
def test_in_a_compacted_log_the_age_is_between_those_of_the_records_that_are_left(seed):
    rng = np.random.default_rng(seed)
    whole = Log(NOW_MS - np.arange(-600_000, 9 * DAY_MS, 30_000))
    log = whole.compact(rng, before_ms=NOW_MS - 3_600_000, share=0.8)
    committed = [[int(offset)] for offset in rng.integers(0, whole.end(NOW_MS - 60_000), 60)]
    watch = Watch([log] * len(committed), committed)
    watch.fill()
    for _, offset, seconds, at_least in watch.time_lags():
        before = bisect_left(log.offsets, offset) - 1
        oldest_s = (watch.now_ms - int(log.times[max(before, 0)])) / 1000
        assert seconds is not None
        if at_least:
            assert oldest_s >= REACH_S
        else:
            assert 0.8 * log.age_s(offset, watch.now_ms) <= seconds <= 1.2 * oldest_s


class SkewedLog(Log):
    """A log whose producers' clocks are wrong, each record by another time."""

    def __init__(self, times_ms, skews_ms):
        super().__init__(times_ms)
        self.stamps = self.times + skews_ms

    def offset_by_time(self, from_ms, at_ms):
        """The first record with that timestamp or a later one, wherever it is."""
        found = np.flatnonzero((self.stamps >= from_ms) & (self.times <= at_ms))
        return int(found[0]) if len(found) else NO_RECORD


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_clocks_of_producers_every_time_lag_is_known_in_the_end(seed):
    rng = np.random.default_rng(seed)
    times = NOW_MS - np.sort(rng.integers(0, 9 * DAY_MS, 2_000))[::-1]
    skews = rng.integers(-DAY_MS, DAY_MS, len(times)) * (rng.random(len(times)) < 0.3)
    log = SkewedLog(times, skews + int(rng.choice([0, -3_600_000, 3_600_000])))
    watch = Watch([log] * 40, [[int(offset)] for offset in rng.integers(0, 2_000, 40)])
    watch.fill()
    assert watch.rows() == {}


# The plan alone: which requests, when


def ages(wanted, now_ms=NOW_MS):
    return sorted(now_ms - at_ms for at_ms, _ in wanted)


def test_a_group_that_keeps_up_costs_one_request():
    plan = PastEnds()
    ((at_ms, partitions),) = plan.wanted({AT: [500]}, NOW_MS)
    assert partitions == {AT}
    plan.note({AT: 400}, at_ms)
    assert plan.wanted({AT: [500]}, NOW_MS) == []
    assert plan.is_done("t", 0, 500)
    assert not plan.is_done("t", 0, 300)
    assert not plan.is_done("t", 1, 500)


def test_an_end_that_has_not_moved_for_long_enough_is_as_old_as_is_asked_for():
    plan, rounds = PastEnds(), 0
    while wanted := plan.wanted({AT: [5]}, NOW_MS):
        ((at_ms, _),) = wanted
        rounds += 1
        plan.note({AT: NO_RECORD}, at_ms)
    assert NOW_MS - at_ms == OLDEST_MS
    assert rounds <= ROUNDS
    assert plan.is_done("t", 0, 5)


@pytest.mark.parametrize("written_ms", [NOW_MS - 1_000_000, NOW_MS + 10_000])
def test_that_no_record_was_so_late_says_nothing_of_later_records(written_ms):
    plan, requested_ms = PastEnds(), []
    ((first_ms, _),) = plan.wanted({AT: [5]}, NOW_MS)
    plan.note({AT: NO_RECORD}, first_ms)
    now_ms = NOW_MS + 60_000
    while wanted := plan.wanted({AT: [9]}, now_ms):
        ((at_ms, _),) = wanted
        requested_ms.append(at_ms)
        plan.note({AT: 9 if at_ms <= written_ms else NO_RECORD}, at_ms)
    needed = [at_ms for at_ms in (first_ms, *requested_ms) if plan.is_needed(AT, at_ms)]
    assert min(needed) <= written_ms < max(needed)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("groups", "most"), [(1, ROUNDS), (5, 4 * ROUNDS)])
def test_every_age_is_found_in_few_rounds_whatever_is_answered(seed, groups, most):
    rng = random.Random(seed)
    plan, now_ms, rounds = PastEnds(), NOW_MS, 0
    rows = {("t", p): rng.sample(range(99), groups) for p in range(20)}
    while wanted := plan.wanted(rows, now_ms):
        rounds += 1
        assert rounds <= most
        assert min(ages(wanted, now_ms)) >= YOUNGEST_MS
        assert max(ages(wanted, now_ms)) <= OLDEST_MS
        now_ms += rng.randrange(3_000)
        for at_ms, partitions in wanted:
            plan.note({p: rng.randrange(-1, 99) for p in partitions}, at_ms)
    assert all(plan.is_done(*p, offset) for p, offsets in rows.items() for offset in offsets)


def test_rows_that_are_still_there_half_a_minute_after_the_last_result_are_asked_for_anew():
    plan = PastEnds()
    first: list[int] = []
    again: list[int] = []
    for asked, now_ms in ((first, NOW_MS), (again, NOW_MS + LOST_MS)):
        while wanted := plan.wanted({AT: [5]}, now_ms):
            asked.extend(ages(wanted, now_ms))
            plan.note({AT: 5 if asked[-1] > 7_200_000 else 6}, now_ms - asked[-1])
    assert first == again
    assert len(again) > 5


def test_requests_are_few_and_small_and_no_partition_is_in_one_twice():
    rng = random.Random(1)
    born = {
        ("t", p): NOW_MS - int(YOUNGEST_MS * (OLDEST_MS / YOUNGEST_MS) ** rng.random()) for p in range(9_000)
    }
    plan, rows, rounds = PastEnds(), {p: [7] for p in born}, 0
    while wanted := plan.wanted(rows, NOW_MS):
        rounds += 1
        assert len(wanted) <= 64 + 9_000 // 2_000
        assert all(len(partitions) <= 2_000 for _, partitions in wanted)
        assert sum(len(partitions) for _, partitions in wanted) == len(
            set().union(*(partitions for _, partitions in wanted))
        )
        for at_ms, partitions in wanted:
            plan.note({p: 7 if at_ms <= born[p] else 8 for p in partitions}, at_ms)
    assert rounds <= ROUNDS


def test_partitions_that_are_answered_at_different_times_share_requests():
    rng = random.Random(1)
    plan, now_ms, most = PastEnds(), NOW_MS, 0
    born = {("t", p): NOW_MS - int(2 * YOUNGEST_MS * 60_000 ** rng.random()) for p in range(3_000)}
    rows = {p: [7] for p in born}
    late: list[tuple[int, tuple[str, int]]] = []
    while rows:
        now_ms += 1_000
        wanted = plan.wanted(rows, now_ms)
        most = max(most, len(wanted))
        late += [(at_ms, partition) for at_ms, partitions in wanted for partition in sorted(partitions)]
        rng.shuffle(late)
        late, answered = late[len(late) // 2 :], late[: len(late) // 2 + 1]
        for at_ms, p in answered:
            plan.note({p: 7 if at_ms <= born[p] else 8}, at_ms)
        rows = {p: offsets for p, offsets in rows.items() if not plan.is_done(*p, 7)}
    assert most < 150


def test_partitions_take_turns_and_those_of_a_dead_broker_hold_up_no_other():
    plan = PastEnds(per_request=10, at_once=20)
    rows = {("t", p): [5] for p in range(100)}
    now_ms, asked = NOW_MS, []
    for _ in range(12):
        wanted = plan.wanted(rows, now_ms)
        assert sum(len(partitions) for _, partitions in wanted) <= 20
        assert plan.wanted(rows, now_ms) == []
        now_ms += 100
        for at_ms, partitions in wanted:
            asked += [p for _, p in partitions]
            dead = {("t", p) for _, p in partitions if p % 2}
            plan.note_failed(dead, at_ms, now_ms)
            plan.note(dict.fromkeys(partitions - dead, 4), at_ms)
    assert sorted(asked) == list(range(100))
    assert all(plan.is_done("t", p, 5) for p in range(0, 100, 2))


def test_what_failed_is_asked_again_later_and_later():
    plan, now_ms, pauses = PastEnds(), NOW_MS, []
    for _ in range(8):
        ((at_ms, partitions),) = plan.wanted({AT: [5]}, now_ms)
        plan.note_failed(partitions, at_ms, now_ms)
        failed_ms = now_ms
        while not plan._searches[AT].is_due([5], now_ms):
            assert plan.wanted({AT: [5]}, now_ms) == []
            now_ms += RETRY_MS
        pauses.append((now_ms - failed_ms) // RETRY_MS)
    assert pauses == [1, 2, 4, 4, 4, 4, 4, 4]


def test_a_request_without_a_result_counts_as_failed_after_half_a_minute():
    plan = PastEnds(at_once=1)
    assert len(plan.wanted({AT: [5], ("t", 1): [5]}, NOW_MS)) == 1
    assert plan.wanted({AT: [5], ("t", 1): [5]}, NOW_MS + LOST_MS - 1) == []
    ((_, partitions),) = plan.wanted({AT: [5], ("t", 1): [5]}, NOW_MS + LOST_MS)
    assert partitions == {("t", 1)}


def test_a_late_result_is_still_of_use():
    plan = PastEnds()
    ((at_ms, partitions),) = plan.wanted({AT: [5]}, NOW_MS)
    plan.note_failed(partitions, at_ms, NOW_MS)
    plan.note({AT: 5}, at_ms)
    assert plan.is_done("t", 0, 5)


def test_forgotten_partitions_and_those_without_rows_are_as_new():
    plan = PastEnds(at_once=1)
    ((at_ms, _),) = plan.wanted({AT: [5]}, NOW_MS)
    plan.forget([AT])
    plan.note({AT: 5}, at_ms)
    assert not plan.is_done("t", 0, 5)
    ((at_ms, _),) = plan.wanted({AT: [5]}, NOW_MS + 1)
    plan.note({AT: 5}, at_ms)
    assert plan.is_done("t", 0, 5)
    assert plan.wanted({}, NOW_MS + 1) == []
    assert not plan.is_done("t", 0, 5)
