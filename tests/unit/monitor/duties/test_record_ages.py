"""Which records are read to find out how old they are, at what rate, and what becomes of the results."""

from collections.abc import Iterable
from typing import Any

import pytest

from koff.lag import NO_RECORD
from koff.monitor.duties.end_offsets import EndOffsets
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import (
    AT_ONCE,
    DENIED_S,
    IDLE_PAUSE_S,
    MOST_AT_ONE_LOOK,
    PAUSE_S,
    RETRY_S,
    TIMEOUT_S,
    FirstRecord,
    FirstRecordsRead,
    ReadFirstRecords,
    RecordAges,
    RecordPlace,
)
from koff.monitor.duties.topics import TopicList
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending, Shared
from koff.tracker import Tracker
from koff.tracker.topic_partitions import LATE_S
from tests.unit.builders import apply, commit, list_statuses, note_records
from tests.unit.monitor.driven import Driven

NOW_MS = 1_800_000_000_000
END = 100_000


def tracked(*commits: Any, ends: int = 100) -> Tracker:
    tracker = Tracker()
    tracker.apply(0, [key for key, _ in commits], [value for _, value in commits])
    sampled = dict.fromkeys(tracker.watched_partitions(), ends)
    tracker.add_samples(ends=sampled, starts=dict.fromkeys(sampled, 0), at_ms=NOW_MS)
    return tracker


def time_lags(tracker: Tracker, now_ms: int = NOW_MS) -> dict[str, tuple[float | None, str | None]]:
    return {row.group: (row.time_lag_s, row.time_lag_source) for row in tracker.take_snapshot(now_ms).rows()}


class Reading:
    """`RecordAges` on a tracker with rows, and the request that is open."""

    def __init__(self, *commits: Any, per_s: int | None = 50) -> None:
        self.second = 0.0
        self.tracker, self.outbox = tracked(*commits, ends=END), Outbox()
        shared = Shared(self.tracker, self.outbox, lambda now: now.wall_ms)
        ends = EndOffsets(shared, TopicList(), 60.0)  # nothing is watched: all is answered
        self.ages = RecordAges(per_s, shared, ends)

    def now(self) -> Moment:
        return Moment(self.second, NOW_MS + round(self.second * 1000))

    def ask(self, *, after_s: float = 0.0) -> Pending[ReadFirstRecords] | None:
        """The open request, once it was time for one."""
        self.second += after_s
        self.ages.request(self.now())
        return next(self.outbox.list_open(ReadFirstRecords), None)

    def places(self, *, after_s: float = 0.0) -> set[RecordPlace]:
        ask = self.ask(after_s=after_s)
        return set() if ask is None else set(ask.request.places)

    def answer(
        self, *, why: str | None = None, denied: Iterable[str] = (), after_s: float = 0.0
    ) -> set[RecordPlace]:
        """Answers the open request: records a minute old; `why` and `denied`: there are none."""
        self.second += after_s
        ask = next(self.outbox.list_open(ReadFirstRecords))
        record: FirstRecord | str
        records = {}
        for place in ask.request.places:
            record = FirstRecord(place.offset, NOW_MS - 60_000)
            if place.topic in denied:
                record = "TOPIC_AUTHORIZATION_FAILED"
            records[place] = record if why is None else why
        self.outbox.close(ask.request.id)
        given = FirstRecordsRead(ask.request.id, records, frozenset(denied))
        self.ages.receive(given, ask, self.now())
        return set(ask.request.places)


def commits(count: int, topic: str = "t", group: str = "g") -> list[Any]:
    return [commit(group, topic, partition, partition) for partition in range(count)]


# --- What is asked, and when -----------------------------------------------------------------------------


def test_the_records_at_the_commits_are_read_and_their_age_is_exact():
    reading = Reading(commit("g", "t", 0, 40))
    assert reading.places() == {RecordPlace("t", 0, 40)}
    assert reading.ages.is_settled is False
    reading.answer()
    assert reading.places(after_s=PAUSE_S) == set()
    assert reading.ages.is_settled is True
    assert time_lags(reading.tracker)["g"] == (60, "record")


def test_what_moves_and_arrived_since_the_first_sample_is_not_read():
    reading = Reading(commit("moves", "t", 0, END), commit("stands", "t", 1, END))
    for _ in range(60):
        reading.second += 5
        now_ms, more = reading.now().wall_ms, round(reading.second)
        ends = {("t", 0): END + more * 10, ("t", 1): END + more * 10}
        reading.tracker.add_samples(ends=ends, at_ms=now_ms)
        apply(reading.tracker, commit("moves", "t", 0, END + more, at=now_ms))
    assert reading.places() == {RecordPlace("t", 1, END)}


def test_one_request_is_open_at_a_time_and_the_next_one_keeps_to_the_rate():
    reading = Reading(*commits(120), per_s=50)
    read: list[int] = []
    seconds = []
    while ask := reading.ask():
        seconds.append(reading.second)
        read.append(len(ask.request.places))
        assert reading.ages.due_s == float("inf")
        assert reading.ask(after_s=0.2) is ask
        reading.answer()
        reading.second = reading.ages.due_s
    assert read == [50, 50, 20]
    assert seconds == pytest.approx([0.0, 1.0, 2.0])


def test_a_high_rate_has_no_larger_requests_but_more_of_them():
    reading = Reading(*commits(5_000), per_s=10 * AT_ONCE)
    sizes = []
    for _ in range(3):
        sizes.append(len(reading.places()))
        reading.answer()
        reading.second = reading.ages.due_s
    assert sizes == [AT_ONCE, AT_ONCE, 5_000 - 2 * AT_ONCE]


def test_a_slow_cluster_is_left_alone_for_as_long_as_it_took():
    reading = Reading(*commits(60))
    reading.places()
    reading.answer(after_s=7.0)
    assert reading.ages.due_s == 14.0
    assert reading.places(after_s=6.9) == set()
    assert len(reading.places(after_s=0.2)) == 10


def test_rows_that_have_waited_longest_come_first_even_if_they_commit_on():
    reading = Reading(*commits(3), per_s=1)
    seen = []
    for turn in range(1, 4):
        seen += [place.partition for place in reading.places()]
        reading.answer(after_s=0.1)
        for key, value in [commit("g", "t", partition, 1_000 * turn + partition) for partition in range(3)]:
            reading.tracker.apply(0, [key], [value])
        reading.second = reading.ages.due_s
    assert sorted(seen) == [0, 1, 2]


def test_for_one_look_each_row_is_read_once_without_a_pause_and_not_too_many():
    reading = Reading(*commits(4_500), per_s=None)
    sizes = []
    while reading.places():
        sizes.append(len(reading.answer()))
        for key, value in commits(50):  # a busy group: its rows wait again
            reading.tracker.apply(0, [key], [value])
    assert sum(sizes) == MOST_AT_ONE_LOOK
    assert reading.second == 0.0
    assert reading.ages.is_settled is True


def test_without_a_rate_what_cannot_be_read_is_not_waited_for():
    reading = Reading(*commits(10), per_s=None)
    assert reading.places()
    reading.answer(why="no leader")
    assert reading.places() == set()
    assert reading.ages.is_settled is True


def test_before_the_end_offsets_are_answered_nothing_is_read_and_nothing_is_settled():
    driven = Driven(records_per_s=None).read()
    driven.poll(*[commit("g", "t", 0, 1)] * 5)
    driven.report_ends()
    assert driven.core.is_settled is False
    for _ in range(10):
        driven.give(None, after_s=0.1)
    assert not any(isinstance(request, ReadFirstRecords) for request in driven.sent)
    for ask in driven.core.outbox.list_open(FetchOffsets):
        if ("t", 0) in ask.request.partitions:
            driven.give(OffsetsFetched(ask.request.id, dict.fromkeys(ask.request.partitions, 10), final=True))
    driven.give(None, after_s=0.2)
    assert driven.last(ReadFirstRecords).places == {RecordPlace("t", 0, 1)}
    assert driven.core.is_settled is False


# --- What fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_late", [True, False])
def test_places_that_failed_are_read_again_later(is_late):
    reading = Reading(*commits(2))
    places = reading.places()
    if is_late:
        ask = reading.ask()
        assert ask is not None
        assert ask.deadline_s == TIMEOUT_S
        reading.outbox.close(ask.request.id)
        reading.ages.give_up(ask, "late", reading.now())
    else:
        reading.answer(why="timed out")
    assert reading.places(after_s=RETRY_S - 0.1) == set()
    assert reading.places(after_s=IDLE_PAUSE_S) == places


def test_rows_of_a_denied_topic_leave_the_queue_and_others_take_their_turn():
    reading = Reading(*commits(500, "secret"), *commits(20), per_s=10)
    asked: set[RecordPlace] = set()
    for _ in range(60):
        places = reading.places()
        if places:
            asked |= reading.answer(denied=["secret"] if any(p.topic == "secret" for p in places) else [])
        reading.second = reading.ages.due_s
    assert sum(place.topic == "t" for place in asked) == 20
    assert sum(place.topic == "secret" for place in asked) <= 20
    assert len(reading.ages._queue._keys) == 0
    assert reading.ages.is_settled is True


def test_a_denied_topic_is_asked_again_now_and_then():
    reading = Reading(commit("g", "secret", 0, 40))
    for _ in range(3):
        assert reading.places() == {RecordPlace("secret", 0, 40)}
        reading.answer(denied=["secret"])
        assert reading.places(after_s=DENIED_S - 1) == set()
        reading.second += IDLE_PAUSE_S
    assert reading.places()
    reading.answer()
    assert reading.places(after_s=PAUSE_S) == set()


def at_marker(reading: Reading, after_s: float) -> list[tuple[str, str, float | None]]:
    """Group, Burrow's status and seconds of lag of each row, after `after_s` more of samples of its end."""
    for _ in range(round(after_s / 5)):
        reading.second += 5
        sampled = dict.fromkeys(reading.tracker.watched_partitions(), END)
        reading.tracker.add_samples(ends=sampled, at_ms=reading.now().wall_ms)
    snapshot = reading.tracker.take_snapshot(reading.now().wall_ms)
    statuses = list_statuses(snapshot)
    return sorted(
        (row.group, statuses[row.group, row.topic, row.partition].name, row.time_lag_s)
        for row in snapshot.rows()
    )


def test_a_group_that_stays_below_the_marker_of_a_transaction_is_not_late_and_does_not_stop():
    # "marker" committed the offset after its last record, "waits" left a record: one offset of lag each.
    commits = [
        commit(g, "t", p, END - 1 - k, at=NOW_MS - k)
        for g, p in (("marker", 0), ("waits", 1))
        for k in (2, 1, 0)
    ]
    reading = Reading(*commits)
    at_marker(reading, LATE_S + 5)
    marker, waits = RecordPlace("t", 0, END - 1), RecordPlace("t", 1, END - 1)
    assert reading.places() == {marker, waits}
    ask = next(reading.outbox.list_open(ReadFirstRecords))
    reading.outbox.close(ask.request.id)
    found = {marker: FirstRecord(END, NO_RECORD), waits: FirstRecord(END - 1, NOW_MS - 3_600_000)}
    reading.ages.receive(FirstRecordsRead(ask.request.id, found, frozenset()), ask, reading.now())
    after = at_marker(reading, 700)
    assert after == [("marker", "OK", 0), ("waits", "STOP", LATE_S + 5 + 3_600 + 700)]
    assert reading.places(after_s=IDLE_PAUSE_S) == set()


# --- What the tracker makes of first records -------------------------------------------------------------


def test_records_outlive_the_replacement_of_a_shard_where_the_commits_do():
    tracker = tracked(commit("g", "t", 0, 40), commit("h", "t", 0, 41), ends=1_000)
    note_records(tracker, NOW_MS, NOW_MS - 30_000)
    shard = tracker.create_shard()
    for pair in (commit("h", "t", 0, 1), commit("g", "t", 0, 40)):
        shard.apply([pair[0]], [pair[1]])
    tracker.replace_shard(0, shard)
    assert time_lags(tracker) == {"g": (30, "record"), "h": (0, "ends")}
