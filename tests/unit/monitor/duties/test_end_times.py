"""The requests for offsets by time, and when the tracker gets their results."""

import pytest

from koff.monitor.duties import end_times
from koff.monitor.duties.end_offsets import SampledEnd
from koff.monitor.duties.end_times import GATHER_S, SHORTEST_PAUSE_S, EndTimes
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending, Shared
from koff.monitor.past_ends import LOST_MS, NO_RECORD
from koff.monitor.requests import TopicPartition
from koff.tracker import Tracker
from tests.unit.builders import apply, commit
from tests.unit.monitor.driven import OFFSETS, Driven

T0 = ("t", 0)
WALL_MS = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
STEP_S = 2 * GATHER_S


class FakeEnds:
    """The sampled end offsets."""

    def __init__(self) -> None:
        self.believed: dict[TopicPartition, SampledEnd] = {}
        self.doubted: tuple[TopicPartition, ...] = ()

    def take_dropped(self) -> set[TopicPartition]:
        return set()


class Dated:
    """A tracker with commits to t-0, with 100 records. The last one is an hour old when the test begins."""

    def __init__(self, *committed: int) -> None:
        self.tracker, self.outbox = Tracker(), Outbox()
        self.ends = FakeEnds()
        shared = Shared(self.tracker, self.outbox, lambda now: now.wall_ms)
        self.times = EndTimes(shared, self.ends, gap_ms=25_000)  # type: ignore[arg-type]  # a double
        self.second = 0.0
        self.broker_ahead_ms = 0
        for number, offset in enumerate(committed):
            apply(self.tracker, commit(f"g{number}", "t", 0, offset))
        self.sample()

    def commit(self, offset: int) -> None:
        """The first group commits."""
        apply(self.tracker, commit("g0", "t", 0, offset))

    @property
    def now_ms(self) -> int:
        return WALL_MS + round(self.second * 1000)

    def now(self) -> Moment:
        return Moment(self.second, self.now_ms)

    def sample(self, *, final: bool = True, end: int = 100) -> None:
        self.end, self.ends.believed = end, {T0: SampledEnd(end, 0, self.now_ms)}
        self.tracker.add_samples(ends={T0: end}, starts={T0: 0}, at_ms=self.now_ms)
        self.times.note_samples(self.now(), final=final)

    def step(self, after_s: float = STEP_S) -> list[FetchOffsets]:
        """Time passes. Returns the requests that are sent."""
        self.second += after_s
        self.times.request(self.now())
        return [r for r in self.outbox.take_requests() if isinstance(r, FetchOffsets)]

    def receive(
        self, request: FetchOffsets, offset: int | str, *, doubted: tuple[TopicPartition, ...] = ()
    ) -> None:
        """The response to a request."""
        ask = self.outbox.close(request.id)
        assert ask is not None
        given, self.ends.doubted = OffsetsFetched(request.id, {T0: offset}), doubted
        if isinstance(request.kind, int):
            self.times.receive(given, ask, self.now())
        else:
            self.times.receive_bounds(given, ask, self.now())
        self.ends.doubted = ()

    def offset_at(self, kafka_ms: int) -> int:
        """What a broker responds: a record was written each hour."""
        hours = (WALL_MS + self.broker_ahead_ms - kafka_ms) // 3_600_000
        return max(100 - hours, 0) if hours > 0 else -1

    def respond(self, request: FetchOffsets) -> None:
        bounds = {"start": 0, "end": self.end}
        kind = request.kind
        self.receive(request, self.offset_at(kind) if isinstance(kind, int) else bounds[str(kind)])

    def settle(self, after_s: float = STEP_S) -> int:
        """Responds to all requests. Returns how many steps that took."""
        for steps in range(60):
            for request in self.step(after_s):
                self.respond(request)
            if self.times.is_settled:
                return steps
        raise AssertionError("it asks on and on")

    def hours(self) -> list[float | None]:
        """The time lags, in the order of the groups."""
        rows = sorted(self.tracker.take_snapshot(self.now_ms).rows(), key=lambda row: row.group)
        return [None if row.time_lag_s is None else row.time_lag_s / 3600 for row in rows]


def test_the_age_of_each_uncommitted_record_is_known_within_twenty_percent():
    dated = Dated(40, 90, 99)
    assert dated.hours() == [None, None, None]
    assert dated.settle() < 20
    assert dated.hours() == [
        pytest.approx(60, rel=0.2),
        pytest.approx(10, rel=0.2),
        pytest.approx(1, rel=0.2),
    ]


def test_results_count_only_after_the_bounds_of_the_log_were_requested_again():
    dated = Dated(99)
    while isinstance((request := dated.step()[0]).kind, int):
        assert dated.hours() == [None]
        dated.respond(request)
    assert dated.hours() == [None]
    dated.receive(request, 0)
    assert dated.hours() == [None]
    (ask,) = dated.outbox.list_open(FetchOffsets)
    dated.receive(ask.request, 100)
    assert dated.hours() == [pytest.approx(1, rel=0.2)]


@pytest.mark.parametrize("lost", ["start", "end"])
def test_results_whose_confirmation_failed_are_confirmed_later(lost):
    dated, failures = Dated(99), 0
    for _ in range(40):
        dated.sample()
        for request in dated.step():
            if request.kind == lost and not failures:
                failures += 1
                dated.receive(request, "LEADER_NOT_AVAILABLE")
                assert dated.hours() == [None]
            elif dated.outbox.get(request.id) is not None:
                dated.respond(request)
    assert failures == 1
    assert dated.hours() == [pytest.approx(1, rel=0.2)]


def test_results_are_useless_if_the_log_may_be_another_one():
    dated, doubts = Dated(99), 0
    for _ in range(10):
        for request in dated.step():
            if request.kind == "end":
                doubts += 1
                dated.receive(request, 3, doubted=(T0,))
            else:
                dated.respond(request)
    assert doubts
    assert dated.hours() == [None]


def test_a_result_for_a_partition_that_was_forgotten_meanwhile_is_ignored():
    dated = Dated(99)
    (request,) = dated.step()
    dated.times.forget([T0])
    dated.receive(request, 3)
    (again,) = dated.step()
    assert isinstance(again.kind, int)
    assert again.partitions == {T0}


def test_a_result_of_an_old_topic_is_ignored_even_if_nothing_was_to_be_asked_when_it_was_created_again():
    dated = Dated(99)
    dated.times.note_topics({"t": "one"})
    (old,) = dated.step()
    apply(dated.tracker, commit("g0", "t", 0, 100))  # nothing is behind any more
    dated.sample()
    assert dated.step() == []
    dated.times.note_topics({"t": "two"})
    dated.receive(old, 3)
    assert dated.step() == []  # else the bounds were requested, which confirm the result


def test_a_history_that_contradicts_the_log_begins_again():
    dated = Dated(100)
    # The log was truncated to 50. A minute after the sample, 70 records were written at once.
    written_ms = WALL_MS + 60_000
    dated.offset_at = lambda kafka_ms: 50 if kafka_ms <= written_ms else NO_RECORD  # type: ignore[method-assign]
    dated.second = 100.0
    dated.commit(110)
    for _ in range(5):
        dated.sample(end=120)
        dated.settle()
        dated.second += LOST_MS / 1000
    (hours,) = dated.hours()
    assert hours is not None
    assert hours * 3600 == pytest.approx(dated.second - 60.0, rel=0.2)


def test_results_that_come_close_together_cause_one_round_of_requests():
    dated = Dated(40)
    (request,) = dated.step()
    dated.second += 2 * SHORTEST_PAUSE_S
    dated.respond(request)
    first_s = dated.second
    assert first_s < dated.times.due_s <= first_s + SHORTEST_PAUSE_S
    due_s, dated.second = dated.times.due_s, first_s + 0.001
    ask = Pending(request, dated.times, dated.now(), 0.0)
    dated.times.receive_bounds(OffsetsFetched(request.id, {}, final=False), ask, dated.now())
    assert dated.times.due_s == due_s


def test_a_look_at_all_rows_is_taken_once_for_all_that_is_asked_until_the_results_are_confirmed(monkeypatch):
    dated, looked_ms, rounds = Dated(40), list[int](), 0
    look = dated.tracker.find_undated

    def count_look(now_ms: int) -> dict[TopicPartition, list[int]]:
        looked_ms.append(now_ms)
        return look(now_ms)

    monkeypatch.setattr(dated.tracker, "find_undated", count_look)
    requests = dated.step()
    while all(isinstance(request.kind, int) for request in requests):
        rounds += 1
        for request in requests:
            dated.respond(request)
        requests = dated.step()
    assert rounds > 5
    assert len(looked_ms) == 1


def test_the_more_rows_there_are_the_longer_the_pause_between_two_looks_at_them(monkeypatch):
    monkeypatch.setattr(end_times, "PAUSE_PER_ROW_S", 1.0)
    dated = Dated(100, 100, 100)
    dated.step()
    looked_s = dated.second
    dated.second += 0.1
    dated.sample()
    assert dated.times.due_s == looked_s + 3.0


def test_a_look_waits_a_little_for_the_samples_of_other_brokers():
    dated = Dated(100)
    dated.step()
    dated.second += 1.0
    first_s = dated.second
    dated.sample(final=False)
    assert dated.times.due_s >= first_s + GATHER_S
    dated.second += 0.01
    dated.sample()
    assert dated.times.due_s < first_s + GATHER_S


def test_a_time_before_1970_is_not_asked_for():
    dated = Dated(99)
    dated.times.clock.note(WALL_MS, dated.now_ms)
    (request,) = dated.step()
    assert request.kind == 0


def write_commits(dated: Dated, count: int) -> None:
    """Commits that are read 0.1 s after the brokers wrote them."""
    for number in range(count):
        at_ms = dated.now_ms + number * 2_000
        apply(
            dated.tracker,
            commit("live", "t", 0, 100, at=at_ms + dated.broker_ahead_ms),
            seen_at_ms=at_ms + 100,
        )


@pytest.mark.parametrize("ahead_ms", [3 * DAY_MS, -90_000])
def test_times_are_those_of_the_brokers(ahead_ms):
    dated = Dated(90)
    dated.broker_ahead_ms = ahead_ms
    write_commits(dated, 5)
    dated.settle()
    assert dated.hours()[0] == pytest.approx(10, rel=0.2)


# --- In the core -----------------------------------------------------------------------------------------


def respond_to_all(driven: Driven, by_time: int | str) -> int:
    """Responds to all requests for offsets, of t: 0 to 10. Returns how many were by time."""
    driven.report_ends()
    is_by_time = [type(ask.request.kind) is int for ask in driven.core.outbox.list_open(FetchOffsets)]
    ends = {OFFSETS: 5}
    driven.respond_offsets(
        lambda at, kind: 0 if kind == "start" else by_time if type(kind) is int else ends.get(at[0], 10)
    )
    return sum(is_by_time)


def read_commits(committed: int) -> Driven:
    """A core that has read five commits of one group to t-0."""
    driven = Driven().read()
    driven.poll(*[commit("a", "t", 0, committed)] * 5)
    return driven


def test_a_core_is_dated_when_the_ages_of_all_uncommitted_records_are_known():
    driven, asked = read_commits(5), 0
    for _ in range(40):
        driven.give(None, after_s=0.3)
        if respond_to_all(driven, by_time=9):
            asked += 1
            assert not driven.core.is_dated
    (row,) = driven.take_view().snapshot.rows()
    assert driven.core.is_dated
    assert asked
    assert row.at_least
    assert row.lag == 5  # what is found by time is no end offset


def test_a_core_without_anything_behind_is_dated_as_soon_as_end_offsets_are_known():
    driven = read_commits(10)
    assert not driven.core.is_dated
    by_time = 0
    for _ in range(4):
        by_time += respond_to_all(driven, by_time=9)
        driven.give(None, after_s=GATHER_S)
    assert by_time == 0
    assert driven.core.is_dated


def test_the_failure_of_a_request_by_time_hides_no_lag():
    driven, failed = read_commits(5), 0
    for _ in range(60):
        driven.give(None, after_s=0.3)
        failed += respond_to_all(driven, by_time="LEADER_NOT_AVAILABLE")
    (row,) = driven.take_view().snapshot.rows()
    assert failed > 1
    assert (row.lag, row.time_lag_s) == (5, None)
