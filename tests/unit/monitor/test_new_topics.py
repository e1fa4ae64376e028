"""A topic that was deleted and created again: what is known of the old one is not taken for the new one."""

from typing import Any

import pytest

from koff.lag import Reason
from koff.monitor.duties.end_offsets import TIMEOUT_S
from koff.monitor.duties.groups import FetchGroups
from koff.monitor.duties.loading import Load, Loaded
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.record_ages import FirstRecord, FirstRecordsRead, ReadFirstRecords
from koff.monitor.duties.topics import FetchTopics, TopicsFetched
from koff.monitor.moment import Moment
from koff.monitor.requests import Topic, TopicPartition
from koff.tracker import State, Tracker
from koff.tracker.rows import PartitionLag
from koff.tracker.saved_ends import save_ends
from koff.tracker.topic_ids import fold_topic_id
from tests.unit.builders import commit
from tests.unit.monitor.driven import IDS, OFFSETS, Driven

OLD, NEW = IDS["t"], "AAAAAAAAAAAAAAAAAAAAAQ"
T0 = ("t", 0)
BOUNDS = {"start": 40, "stable": 90, "end": 100}


class Watched(Driven):
    """A core that has read a commit of 50 to t-0. `bounds` are the offsets of t-0, `id_` is its topic id."""

    def __init__(self, **conf: Any) -> None:
        super().__init__(**conf)
        self.id_, self.bounds, self.log_end = OLD, dict(BOUNDS), 5
        self.read()
        self.poll(*[commit("a", "t", 0, 46 + number) for number in range(5)])
        self.pass_time(8)

    def list_topic(self) -> None:
        topics = {OFFSETS: Topic(IDS[OFFSETS], 1), "t": Topic(self.id_, 1)}
        self.give(TopicsFetched(self.last(FetchTopics).id, topics))

    def answer(self, *, without: tuple[str, ...] = ()) -> None:
        """Responds to the open requests for offsets, but not to those of the kinds in `without`."""
        self.report_ends()
        self.respond_offsets(
            lambda at, kind: None if str(kind) in without else self.find_offset(at, str(kind))
        )

    def find_offset(self, at: TopicPartition, kind: str) -> int:
        of_log = {"start": 0, "stable": self.log_end, "end": self.log_end}
        return (of_log if at[0] == OFFSETS else self.bounds).get(kind, -1)

    def respond(self, request: FetchOffsets) -> None:
        offsets = {at: self.find_offset(at, str(request.kind)) for at in request.partitions}
        self.give(OffsetsFetched(request.id, offsets, final=True))

    def pass_time(self, seconds: int, *, without: tuple[str, ...] = ()) -> None:
        for _ in range(seconds):
            self.give(None, after_s=1)
            if self.core.outbox.has(FetchTopics):
                self.list_topic()
            self.answer(without=without)

    def row(self) -> PartitionLag:
        (row,) = self.take_view().snapshot.rows()
        return row

    def open_requests(self, kind: str) -> list[FetchOffsets]:
        asks = self.core.outbox.list_open(FetchOffsets)
        return [ask.request for ask in asks if ask.request.kind == kind and T0 in ask.request.partitions]

    def create_again(self) -> None:
        """Another topic of that name has 0 to 60. The lists of topics show it until koff believes that."""
        self.id_, self.bounds = NEW, {"start": 0, "stable": 60, "end": 60}
        while self.core.topics.topics["t"] != Topic(NEW, 1):
            self.give(None, after_s=1)
            if self.core.outbox.has(FetchTopics):
                self.list_topic()


def test_the_bounds_of_the_old_log_are_dropped_with_its_id_and_requested_anew_at_once():
    watched = Watched()
    assert (watched.row().readable, watched.row().lag_to_stable) == (50, 40)
    watched.create_again()
    row = watched.row()
    assert (row.end, row.readable, row.lost, row.lag_to_stable) == (None, None, None, None)
    watched.answer()
    row = watched.row()
    assert (row.end, row.readable, row.lost, row.lag_to_stable) == (60, 10, 0, 10)


def test_log_start_and_last_stable_offset_are_dropped_when_a_lower_end_is_believed():
    watched = Watched()
    watched.bounds = {"start": 0, "stable": 45, "end": 45}
    for _ in range(20):
        watched.pass_time(1, without=("start", "stable"))
        if watched.row().end == 45:
            break
    assert (watched.row().end, watched.row().lost) == (45, None)
    watched.pass_time(2)
    assert (watched.row().lost, watched.row().lag_to_stable) == (0, 0)


@pytest.mark.parametrize("kind", ["start", "stable", "end"])
def test_a_response_to_a_request_of_the_old_log_is_ignored(kind):
    watched = Watched()
    while not (old := watched.open_requests(kind)):  # start and last stable offset are requested now and then
        watched.give(None, after_s=1)
        if watched.core.outbox.has(FetchTopics):
            watched.list_topic()
        watched.answer(without=(kind,))
    watched.create_again()
    new = [request for request in watched.open_requests(kind) if request not in old]
    assert len(new) == 1
    watched.answer(without=(kind,))
    watched.bounds = BOUNDS
    watched.respond(old[0])
    row = watched.row()
    shown = {"start": row.lost, "stable": row.lag_to_stable, "end": row.end}
    assert shown[kind] is None
    watched.bounds = {"start": 0, "stable": 60, "end": 60}
    watched.respond(new[0])
    row = watched.row()
    assert (row.end, row.lost, row.lag_to_stable) == (60, 0, 10)


def test_an_end_offset_that_was_requested_earlier_does_not_replace_a_newer_one():
    watched = Watched()
    while not (late := watched.open_requests("end")):
        watched.give(None, after_s=1)
    watched.give(None, after_s=TIMEOUT_S / 2)
    newer = FetchOffsets(watched.core.outbox.next_id(), "end", frozenset({T0}))
    watched.core.outbox.send(newer, watched.core._ends, watched.now(), TIMEOUT_S)
    watched.bounds = BOUNDS | {"end": 200}
    watched.respond(newer)
    before = watched.row().end, watched.core.tracker.take_snapshot().partitions.sampled_at.tolist()
    watched.bounds = BOUNDS | {"end": 200}
    watched.respond(late[0])
    assert before == (watched.row().end, watched.core.tracker.take_snapshot().partitions.sampled_at.tolist())


# --- Records that were read ------------------------------------------------------------------------------


def read_record(watched: Watched, written_ms: int) -> None:
    request = watched.last(ReadFirstRecords)
    record = FirstRecord(50, written_ms)
    watched.give(FirstRecordsRead(request.id, dict.fromkeys(request.places, record)))


@pytest.mark.parametrize("is_late", [False, True])
def test_a_record_of_the_old_topic_gives_no_exact_lag_of_the_new_one(is_late):
    watched = Watched()
    assert watched.core.outbox.has(ReadFirstRecords)
    if not is_late:
        read_record(watched, 0)
        assert watched.row().time_lag_source == "record"
    watched.create_again()
    watched.answer()
    if is_late:
        read_record(watched, 0)
    assert watched.row().end == 60
    assert watched.row().time_lag_source != "record"
    while not watched.core.outbox.has(ReadFirstRecords):
        watched.pass_time(1)
    read_record(watched, watched.now().wall_ms - 2_000)
    assert watched.row().time_lag_s == 2


# --- What was saved --------------------------------------------------------------------------------------


def save_history(topic_id: str) -> State:
    """A history of t-0 from 900 s to 990 s after 1970."""
    tracker = Tracker()
    tracker.identify_topics({"t": topic_id})
    for second in range(900, 990, 5):
        tracker.add_samples(ends={T0: second}, at_ms=second * 1000)
    return save_ends(tracker.partitions, 990_000)


@pytest.mark.parametrize(("saved_id", "is_restored"), [(OLD, True), (NEW, False), ("", False)])
def test_a_saved_history_is_restored_only_if_the_topic_has_the_same_id(saved_id, is_restored):
    driven = Driven(start="resume", cluster_id="c")
    driven.list_topics(**{OFFSETS: 1, "t": 1})
    ends = save_history(saved_id)
    driven.give(Loaded(driven.last(Load).id, {}, ends, Moment(0, 990_000)))
    known = save_ends(driven.core.tracker.partitions).facts["topic_names"]
    assert known == (["t"] if is_restored else [])
    assert "saved end offsets are not used" not in driven.take_texts()


def test_a_saved_history_is_dropped_if_a_later_list_shows_another_topic():
    driven = Driven(start="resume", cluster_id="c")
    driven.list_topics(**{OFFSETS: 1})
    driven.give(Loaded(driven.last(Load).id, {}, save_history(NEW), Moment(0, 990_000)))
    assert save_ends(driven.core.tracker.partitions).facts["topic_names"] == ["t"]
    for _ in range(5):
        driven.give(None, after_s=10)
        if driven.core.outbox.has(FetchTopics):
            driven.list_topics(**{OFFSETS: 1, "t": 1})
    assert save_ends(driven.core.tracker.partitions).facts["topic_names"] == []


# --- Commits that are newer than the list ----------------------------------------------------------------


def test_commits_of_the_history_to_a_topic_that_was_gone_are_withheld_until_a_newer_list():
    """The list that has the topic again may be seconds away."""
    watched = Watched()
    topics = {OFFSETS: Topic(IDS[OFFSETS], 1)}
    while watched.row().reasons != Reason.TOPIC_GONE:
        watched.give(None, after_s=1)
        if watched.core.outbox.has(FetchTopics):
            watched.give(TopicsFetched(watched.last(FetchTopics).id, topics))
    watched.give(None, after_s=0.5)
    part = watched.core.logs.offsets.partitions[0]
    part.caught_up_s = None  # as after an election: what is read now was written at any time
    watched.log_end = 6
    watched.poll(commit("a", "t", 0, 55), first=5)
    assert watched.row().reasons == Reason.END_NOT_CURRENT
    for _ in range(8):  # well before the next list is due
        watched.pass_time(1)
    assert (watched.row().lag, watched.row().reasons) == (45, Reason(0))


def test_a_coordinator_that_has_the_id_of_a_deleted_topic_does_not_replace_that_of_the_present_one():
    driven = Driven(source="coordinators")
    driven.list_topics(**{OFFSETS: 1, "t": 1})
    driven.respond_offsets(lambda at, kind: 0)
    driven.wait_for(FetchGroups)
    driven.respond_groups({("a", "t", 0): 5}, topic_ids={"t": NEW})
    snapshot = driven.core.tracker.take_snapshot()
    assert snapshot.partitions.topic_id.tolist() == [fold_topic_id(IDS["t"])]
    assert snapshot.topic_names[NEW] == "t"
    assert snapshot.topic_names[IDS["t"]] == "t"
