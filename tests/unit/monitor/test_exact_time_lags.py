"""Which records are read for exact lags in seconds, at what rate, and what becomes of the results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from koff.lag import NO_RECORD
from koff.monitor.end_offsets import EndOffsets
from koff.monitor.exact_time_lags import (
    AT_ONCE,
    AT_REST_PAUSE_S,
    AT_REST_PER_S,
    DENIED_S,
    PAUSE_S,
    RETRY_S,
    TIMEOUT_S,
    ExactTimeLags,
)
from koff.monitor.outbox import Ask, Outbox
from koff.monitor.requests import (
    FetchOffsets,
    FirstRecord,
    FirstRecordsRead,
    Moment,
    OffsetsFetched,
    ReadFirstRecords,
    RecordPlace,
)
from koff.monitor.topic_list import TopicList
from koff.tracker import LaggingRow, Tracker
from koff.tracker.topic_partitions import AT_REST_S
from tests.unit.builders import apply, commit, list_statuses
from tests.unit.monitor.test_core import OFFSETS, Driven

NOW_MS = 1_800_000_000_000
END = 100_000


def tracked(*commits: Any, ends: int = 100) -> Tracker:
    tracker = Tracker()
    tracker.apply(0, [key for key, _ in commits], [value for _, value in commits])
    sampled = dict.fromkeys(tracker.watched_partitions(), ends)
    tracker.add_samples(ends=sampled, starts=dict.fromkeys(sampled, 0), at_ms=NOW_MS)
    return tracker


def unread(tracker: Tracker, groups: str = "", without: Iterable[str] = ()) -> list[LaggingRow]:
    rows = tracker.find_unread_rows(
        lambda name: re.search(groups, name) is not None,
        lambda keys: np.arange(len(keys)),
        without=list(without),
    )
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.committed))


def time_lags(tracker: Tracker, now_ms: int = NOW_MS) -> dict[str, tuple[float | None, str | None]]:
    return {row.group: (row.time_lag_s, row.time_lag_source) for row in tracker.take_snapshot(now_ms).rows()}


class Reading:
    """`ExactTimeLags` on a tracker with rows, and the request that is open."""

    def __init__(
        self, *commits: Any, groups: str | None = "", per_s: int | None = 50, at_rest: bool = False
    ) -> None:
        self.second = 0.0
        self.tracker, self.outbox = tracked(*commits, ends=END), Outbox()
        chosen = None if groups is None else lambda group: re.search(groups, group) is not None
        ends = EndOffsets(self.tracker, TopicList(), self.outbox, 60.0)  # nothing is watched: all is answered
        self.exact = ExactTimeLags(
            chosen,
            per_s,
            self.tracker,
            ends,
            self.outbox,
            at_rest_ms=(lambda now: now.wall_ms) if at_rest else None,
        )

    def now(self) -> Moment:
        return Moment(self.second, NOW_MS + round(self.second * 1000))

    def ask(self, *, after_s: float = 0.0) -> Ask[ReadFirstRecords] | None:
        """The open request, once it was time for one."""
        self.second += after_s
        self.exact.request(self.now())
        return next(self.outbox.of_kind(ReadFirstRecords), None)

    def places(self, *, after_s: float = 0.0) -> set[RecordPlace]:
        ask = self.ask(after_s=after_s)
        return set() if ask is None else set(ask.request.places)

    def answer(
        self, *, why: str | None = None, denied: Iterable[str] = (), after_s: float = 0.0
    ) -> set[RecordPlace]:
        """Answers the open request: records a minute old; `why` and `denied`: there are none."""
        self.second += after_s
        ask = next(self.outbox.of_kind(ReadFirstRecords))
        record: FirstRecord | str
        records = {}
        for place in ask.request.places:
            record = FirstRecord(place.offset, NOW_MS - 60_000)
            if place.topic in denied:
                record = "TOPIC_AUTHORIZATION_FAILED"
            records[place] = record if why is None else why
        self.outbox.close(ask.request.id)
        given = FirstRecordsRead(ask.request.id, records, frozenset(denied))
        self.exact.receive(given, ask, self.now())
        return set(ask.request.places)

    def events(self) -> list[tuple[str, Any]]:
        return [(event.text, event.details.get("topic")) for event in self.outbox.take_events()]


def commits(count: int, topic: str = "t", group: str = "g") -> list[Any]:
    return [commit(group, topic, partition, partition) for partition in range(count)]


# --- What is asked, and when -----------------------------------------------------------------------------


def test_the_records_at_the_commits_of_chosen_groups_are_read_and_their_age_is_exact() -> None:
    reading = Reading(commit("pay", "t", 0, 40), commit("other", "t", 1, 41), groups="^pay")
    assert reading.places() == {RecordPlace("t", 0, 40)}
    assert reading.exact.is_exact is False
    reading.answer()
    assert reading.places(after_s=PAUSE_S) == set()
    assert reading.exact.is_exact is True
    assert time_lags(reading.tracker)["pay"] == (60, "record")


@pytest.mark.parametrize("groups", [None, "^nobody$"])
def test_without_a_chosen_group_nothing_is_read(groups: str | None) -> None:
    reading = Reading(commit("g", "t", 0, 4), groups=groups)
    assert reading.places() == set()
    assert reading.exact.is_exact is True
    assert (reading.exact.due_s == float("inf")) == (groups is None)


def test_one_request_is_open_at_a_time_and_the_next_one_keeps_to_the_rate() -> None:
    reading = Reading(*commits(120), per_s=50)
    read: list[int] = []
    seconds = []
    while ask := reading.ask():
        seconds.append(reading.second)
        read.append(len(ask.request.places))
        assert reading.exact.due_s == float("inf")
        assert reading.ask(after_s=0.2) is ask
        reading.answer()
        reading.second = reading.exact.due_s
    assert read == [50, 50, 20]
    assert seconds == pytest.approx([0.0, 1.0, 2.0])


def test_a_high_rate_has_no_larger_requests_but_more_of_them() -> None:
    reading = Reading(*commits(5_000), per_s=10 * AT_ONCE)
    sizes = []
    for _ in range(3):
        sizes.append(len(reading.places()))
        reading.answer()
        reading.second = reading.exact.due_s
    assert sizes == [AT_ONCE, AT_ONCE, 5_000 - 2 * AT_ONCE]


def test_a_slow_cluster_is_left_alone_for_as_long_as_it_took() -> None:
    reading = Reading(*commits(60))
    reading.places()
    reading.answer(after_s=7.0)
    assert reading.exact.due_s == 14.0
    assert reading.places(after_s=6.9) == set()
    assert len(reading.places(after_s=0.2)) == 10


def test_rows_that_have_waited_longest_come_first_even_if_they_commit_on() -> None:
    reading = Reading(*commits(3), per_s=1)
    seen = []
    for turn in range(1, 4):
        seen += [place.partition for place in reading.places()]
        reading.answer(after_s=0.1)
        for key, value in [commit("g", "t", partition, 1_000 * turn + partition) for partition in range(3)]:
            reading.tracker.apply(0, [key], [value])
        reading.second = reading.exact.due_s
    assert sorted(seen) == [0, 1, 2]


def test_without_a_rate_each_row_is_read_once_without_a_pause() -> None:
    reading = Reading(*commits(4_500), per_s=None)
    sizes = []
    while reading.places():
        sizes.append(len(reading.answer()))
        for key, value in commits(50):  # a busy group: its rows wait again
            reading.tracker.apply(0, [key], [value])
    assert sizes == [2_000, 2_000, 500]
    assert reading.second == 0.0
    assert reading.exact.is_exact is True


def test_without_a_rate_what_cannot_be_read_is_not_waited_for() -> None:
    reading = Reading(*commits(10), per_s=None)
    assert reading.places()
    reading.answer(why="no leader")
    assert reading.places() == set()
    assert reading.exact.is_exact is True


def test_before_the_end_offsets_are_answered_nothing_is_read_and_nothing_is_exact() -> None:
    driven = Driven(exact_groups=re.compile("g")).read()
    driven.poll(*[commit("g", "t", 0, 1)] * 5)
    end = [r for r in driven.sent if isinstance(r, FetchOffsets) and (OFFSETS, 0) in r.partitions]
    driven.give(OffsetsFetched(next(r.id for r in end if r.kind == "end"), {(OFFSETS, 0): 5}, final=True))
    assert driven.core.is_exact is False
    for _ in range(10):
        driven.give(None, after_s=0.1)
    assert not any(isinstance(request, ReadFirstRecords) for request in driven.sent)
    for ask in driven.core.outbox.of_kind(FetchOffsets):
        if ("t", 0) in ask.request.partitions:
            driven.give(OffsetsFetched(ask.request.id, dict.fromkeys(ask.request.partitions, 10), final=True))
    driven.give(None, after_s=0.2)
    assert driven.last(ReadFirstRecords).places == {RecordPlace("t", 0, 1)}
    assert driven.core.is_exact is False


# --- What fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_late", [True, False])
def test_places_that_failed_are_read_again_later(is_late: bool) -> None:
    reading = Reading(*commits(2))
    places = reading.places()
    if is_late:
        ask = reading.ask()
        assert ask is not None
        assert ask.deadline_s == TIMEOUT_S
        reading.outbox.close(ask.request.id)
        reading.exact.give_up(ask, reading.now())
    else:
        reading.answer(why="timed out")
    assert reading.places(after_s=RETRY_S - 0.1) == set()
    assert reading.places(after_s=PAUSE_S) == places


def test_rows_of_a_denied_topic_leave_the_queue_and_others_take_their_turn() -> None:
    reading = Reading(*commits(500, "secret"), *commits(20), per_s=10)
    asked: set[RecordPlace] = set()
    for _ in range(60):
        places = reading.places()
        if places:
            asked |= reading.answer(denied=["secret"] if any(p.topic == "secret" for p in places) else [])
        reading.second = reading.exact.due_s
    assert sum(place.topic == "t" for place in asked) == 20
    assert sum(place.topic == "secret" for place in asked) <= 20
    assert len(reading.exact._queue._keys) == 0
    assert reading.exact.is_exact is True
    assert reading.events() == [("no exact lag in seconds", "secret")]


def test_a_denied_topic_is_asked_again_now_and_then_and_told_of_only_when_that_changes() -> None:
    reading = Reading(commit("g", "secret", 0, 40))
    for _ in range(3):
        assert reading.places() == {RecordPlace("secret", 0, 40)}
        reading.answer(denied=["secret"])
        assert reading.places(after_s=DENIED_S - 1) == set()
        reading.second += 2
    assert reading.events() == [("no exact lag in seconds", "secret")]
    assert reading.places()
    reading.answer()
    assert reading.events() == [("exact lag in seconds again", "secret")]
    apply(reading.tracker, commit("g", "secret", 0, 41))
    reading.places(after_s=PAUSE_S)
    reading.answer(denied=["secret"])
    assert reading.events() == [("no exact lag in seconds", "secret")]


def test_the_event_of_a_denied_topic_has_the_reason() -> None:
    reading = Reading(commit("g", "secret", 0, 40))
    reading.places()
    reading.answer(denied=["secret"])
    (event,) = reading.outbox.take_events()
    assert event.details == {"topic": "secret", "why": "TOPIC_AUTHORIZATION_FAILED"}
    assert event.is_warning


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


def test_a_group_that_stays_below_the_marker_of_a_transaction_is_not_late_and_does_not_stop() -> None:
    # "marker" committed the offset after its last record, "waits" left a record: one offset of lag each.
    commits = [
        commit(g, "t", p, END - 1 - k, at=NOW_MS - k)
        for g, p in (("marker", 0), ("waits", 1))
        for k in (2, 1, 0)
    ]
    reading = Reading(*commits, per_s=AT_REST_PER_S, at_rest=True)
    at_marker(reading, AT_REST_S - 5)
    assert reading.places() == set()  # the group may just be about to commit
    at_marker(reading, AT_REST_PAUSE_S)
    marker, waits = RecordPlace("t", 0, END - 1), RecordPlace("t", 1, END - 1)
    assert reading.places() == {marker, waits}
    ask = next(reading.outbox.of_kind(ReadFirstRecords))
    reading.outbox.close(ask.request.id)
    assert reading.exact.has_sent(ask.request)
    found = {marker: FirstRecord(END, NO_RECORD), waits: FirstRecord(END - 1, NOW_MS - 3_600_000)}
    reading.exact.receive(FirstRecordsRead(ask.request.id, found, frozenset()), ask, reading.now())
    assert not reading.exact.has_sent(ask.request)
    # The lag of a group that was not chosen stays the estimate.
    after = at_marker(reading, 700)
    assert after == [("marker", "OK", 0), ("waits", "STOP", AT_REST_S + AT_REST_PAUSE_S - 5 + 700)]
    assert reading.places(after_s=AT_REST_PAUSE_S) == set()


def test_a_topic_that_may_not_be_read_is_left_out_without_a_word_unless_its_group_was_chosen() -> None:
    reading = Reading(commit("g", "t", 0, END - 1), at_rest=True)
    at_marker(reading, 2 * AT_REST_S)
    reading.places()
    reading.answer(denied=["t"])
    assert reading.events() == []
    assert reading.places(after_s=RETRY_S + AT_REST_PAUSE_S) == set()


def test_rows_with_a_lag_of_matching_groups_are_unread_until_their_record_is_known() -> None:
    tracker = tracked(commit("pay-1", "t", 0, 40), commit("pay-2", "t", 1, 100), commit("other", "t", 0, 3))
    (row,) = unread(tracker, "^pay")
    assert row[1:] == ("t", 0, 40)
    tracker.note_first_records([(row, 41, NOW_MS - 30_000)])
    assert unread(tracker, "^pay") == []
    assert time_lags(tracker) == {"pay-1": (30, "record"), "pay-2": (0, "ends"), "other": (0, "ends")}


# --- What the tracker makes of first records -------------------------------------------------------------


def test_records_outlive_the_replacement_of_a_shard_where_the_commits_do() -> None:
    tracker = tracked(commit("g", "t", 0, 40), commit("h", "t", 0, 41))
    tracker.note_first_records([(row, row.committed, NOW_MS - 30_000) for row in unread(tracker)])
    shard = tracker.create_shard()
    for pair in (commit("h", "t", 0, 42), commit("g", "t", 0, 40)):
        shard.apply([pair[0]], [pair[1]])
    tracker.replace_shard(0, shard)
    assert time_lags(tracker) == {"g": (30, "record"), "h": (0, "ends")}
