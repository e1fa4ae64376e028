"""Which end offsets are requested, and which are believed."""

import pytest

from koff.monitor.duties.end_offsets import EndOffsets
from koff.monitor.duties.offsets import FetchOffsets, OffsetsFetched
from koff.monitor.duties.topics import TopicList
from koff.monitor.outbox import Outbox, Pending, Shared
from koff.monitor.requests import Topic
from koff.tracker import Tracker
from tests.unit.builders import apply, commit
from tests.unit.monitor.fakes import at

T0 = ("t", 0)


class Sampled:
    """A tracker with a commit to t-0, and what is requested for it."""

    def __init__(self) -> None:
        self.tracker, self.topics, self.outbox = Tracker(), TopicList(), Outbox()
        apply(self.tracker, commit("g", "t", 0, 5))
        self.topics.note({"t": Topic("", 2)}, at(0), wanted=(), alive=())
        shared = Shared(self.tracker, self.outbox, lambda now: round(now.at_s * 1000))
        self.ends = EndOffsets(shared, self.topics, 60.0)

    def requested(self) -> list[tuple[object, set[tuple[str, int]]]]:
        return [
            (request.kind, set(request.partitions))
            for request in self.outbox.take_requests()
            if isinstance(request, FetchOffsets)
        ]

    def respond_to_all(self, offsets: dict[tuple[str, int], int | str]) -> None:
        for ask in self.outbox.list_open(FetchOffsets):
            self.outbox.close(ask.request.id)
            self.ends.receive(OffsetsFetched(ask.request.id, offsets), ask, ask.requested)

    def answer(self, end: int | str, second: float) -> int | None:
        ask = Pending(FetchOffsets(0, "end", frozenset({T0})), self.ends, at(second), second + 10)
        self.ends.receive(OffsetsFetched(0, {T0: end}), ask, at(second))
        (row,) = self.tracker.take_snapshot().rows()
        return row.end


@pytest.fixture
def sampled():
    return Sampled()


def test_all_offsets_of_a_new_partition_are_requested_and_then_only_its_end(sampled):
    sampled.ends.sample(at(1), everything=True)
    assert sampled.requested() == [("end", {T0}), ("start", {T0}), ("stable", {T0})]
    sampled.respond_to_all({T0: 5})
    sampled.ends.sample(at(20), everything=True)
    assert sampled.requested() == [("end", {T0})]


def test_offsets_that_change_slowly_are_requested_again_soon_if_they_failed(sampled):
    sampled.ends.sample(at(1), everything=True)
    sampled.requested()
    sampled.respond_to_all({T0: "LEADER_NOT_AVAILABLE"})
    sampled.ends.sample(at(6), everything=True)
    assert sampled.requested() == [("end", {T0}), ("start", {T0}), ("stable", {T0})]
    for ask in sampled.outbox.remove_late(at(20)):
        sampled.ends.give_up(ask, "late", at(20))
    sampled.ends.sample(at(20), everything=True)
    assert sampled.requested() == [("end", {T0}), ("start", {T0}), ("stable", {T0})]


def test_an_end_offset_that_went_back_needs_a_second_response(sampled):
    sampled.ends.sample(at(0), everything=True)
    assert [sampled.answer(9, 1), sampled.answer(6, 5), sampled.answer(6, 10)] == [9, 9, 6]


def test_all_offsets_of_a_topic_that_comes_back_are_requested_at_once(sampled):
    sampled.ends.sample(at(1), everything=True)
    sampled.requested()
    sampled.respond_to_all({T0: 5})
    for second in (2, 4, 6, 8):
        sampled.topics.note({}, at(second), wanted={"t"}, alive=())
        sampled.ends.sample(at(second), everything=False)
    assert [row.end for row in sampled.tracker.take_snapshot().rows()] == [None]
    sampled.topics.note({"t": Topic("", 2)}, at(9), wanted={"t"}, alive=())
    sampled.ends.sample(at(9), everything=False)
    assert sampled.requested() == [("end", {T0}), ("start", {T0}), ("stable", {T0})]


def test_one_low_end_offset_is_not_believed(sampled):
    sampled.ends.sample(at(0), everything=True)
    assert [sampled.answer(end, second) for second, end in enumerate((9, 6, 10, 7, 11))] == [9, 9, 10, 10, 11]
