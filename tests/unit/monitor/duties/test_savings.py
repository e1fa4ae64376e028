"""What is saved, in which order, and what becomes of failures."""

from typing import cast

import pytest

from koff.monitor.duties.savings import (
    INTERVAL_S,
    RETRY_S,
    Done,
    ForgetSaved,
    Save,
    SaveFile,
    SaveIndex,
    Savings,
    WriteRequest,
)
from koff.monitor.followed_log import FollowedLog
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Pending, Shared
from koff.monitor.plan import Replay, Seed
from koff.monitor.requests import Topic
from koff.monitor.saved import Origin
from koff.tracker import State, Tracker
from koff.tracker.saved_ends import save_ends
from tests.unit.builders import apply, commit
from tests.unit.monitor.fakes import at

ORIGIN = Origin("cluster", "__consumer_offsets", "id", 2)


class Saved:
    """Two partitions that are read and current."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.log = FollowedLog("__consumer_offsets", lambda *_: None)
        self.log.note_topic(Topic("id", 2))
        self.log.begin({0: Replay(7, ""), 1: Replay(3, "")}, at(0))
        self.outbox, self.verdicts = Outbox(), cast("State | None", None)
        self.savings = Savings(
            at(0),
            Shared(self.tracker, self.outbox, lambda now: 77),
            saves=True,
            read_log=lambda: self.log,
            read_verdicts=lambda: self.verdicts,
        )
        self.savings.set_origin(ORIGIN)
        for partition, part in self.log.partitions.items():
            part.current = at(1)
            self.commit(partition)

    def commit(self, partition: int) -> None:
        apply(self.tracker, commit(f"g{partition}", "t", 0, 5), partition=partition)

    def collect(self, second: float) -> list[Pending[WriteRequest]]:
        self.savings.request(at(second))
        return [self.outbox.close(request.id) for request in self.outbox.take_requests()]  # type: ignore[misc]  # all are requests with an id, and open

    def finish(self, ask: Pending[WriteRequest], *, is_emptied: bool = False) -> None:
        self.savings.receive(Done(ask.request.id, is_emptied), ask, ask.requested)

    def fail(self, ask: Pending[WriteRequest]) -> None:
        self.savings.give_up(ask, "no space", ask.requested)

    def save(self, second: float) -> list[str]:
        """Carries out what is due."""
        asks = self.collect(second)
        for ask in asks:
            self.finish(ask)
        return [type(ask.request).__name__ for ask in asks]

    def events(self) -> list[str]:
        return [event.text for event in self.outbox.take_events()]


@pytest.fixture
def saved():
    return Saved()


def test_every_partition_and_the_ends_are_saved_once_they_are_due(saved):
    assert saved.save(INTERVAL_S - 1) == []
    assert saved.save(INTERVAL_S) == ["Save", "Save", "SaveFile"]


def test_the_ends_are_stamped_by_the_clock_of_their_times(saved):
    ends = saved.collect(INTERVAL_S)[-1].request
    assert isinstance(ends, SaveFile)
    assert ends.stamp == Moment(INTERVAL_S, 77)


def test_partitions_that_did_not_change_are_only_noted_in_the_index(saved):
    saved.save(INTERVAL_S)
    saved.commit(1)
    saved.log.partitions[0].current = at(50)
    save, index = (ask.request for ask in saved.collect(2 * INTERVAL_S))
    assert isinstance(save, Save)
    assert save.saved.partition == 1
    assert isinstance(index, SaveIndex)
    assert index.positions == {0: (7, at(50))}


def test_verdicts_are_saved_once_they_change(saved):
    saved.save(INTERVAL_S)
    saved.verdicts = save_ends(saved.tracker.partitions, 0)
    assert saved.save(2 * INTERVAL_S) == ["SaveIndex", "SaveFile"]
    assert saved.save(3 * INTERVAL_S) == ["SaveIndex"]


def test_everything_is_saved_again_after_the_folder_was_removed(saved):
    saved.verdicts = save_ends(saved.tracker.partitions, 0)
    saved.save(INTERVAL_S)
    saved.commit(1)
    save, index = saved.collect(2 * INTERVAL_S)
    saved.finish(save, is_emptied=True)
    saved.finish(index)
    assert saved.save(2 * INTERVAL_S + 1) == ["Save", "SaveIndex", "SaveFile", "SaveFile"]
    assert saved.save(3 * INTERVAL_S + 1) == ["SaveIndex"]


def test_no_round_begins_before_the_last_has_ended(saved):
    requests = saved.collect(INTERVAL_S)
    assert saved.collect(10 * INTERVAL_S) == []
    assert saved.savings.due_s == float("inf")
    for request in requests:
        saved.finish(request)
    assert saved.collect(10 * INTERVAL_S)


def test_what_failed_is_saved_again_and_the_first_failure_is_told(saved):
    saved.verdicts = save_ends(saved.tracker.partitions, 0)
    for ask in saved.collect(INTERVAL_S):
        saved.fail(ask)
    assert saved.events() == ["state is not saved"]
    assert saved.save(2 * INTERVAL_S) == ["Save", "Save", "SaveFile", "SaveFile"]


def test_a_file_that_fails_in_each_round_is_told_once_until_a_round_has_no_failure(saved):
    told = []
    for number, fails in enumerate([True, True, False, True], start=1):
        saved.commit(0)
        saved.commit(1)
        first, *others = saved.collect(number * INTERVAL_S)
        (saved.fail if fails else saved.finish)(first)
        for ask in others:
            saved.finish(ask)
        told.append(saved.events())
    assert told == [["state is not saved"], [], ["state is saved again"], ["state is not saved"]]


def test_a_partition_that_is_lost_is_forgotten_before_anything_is_saved(saved):
    saved.save(INTERVAL_S)
    saved.savings.forget(0)
    saved.log.reset(0)
    assert saved.save(INTERVAL_S + 1) == ["ForgetSaved", "SaveIndex"]


def test_forgetting_is_tried_again_soon(saved):
    saved.save(INTERVAL_S)
    saved.savings.forget(0)
    for ask in saved.collect(INTERVAL_S + 1):
        (saved.fail if isinstance(ask.request, ForgetSaved) else saved.finish)(ask)
    assert saved.savings.due_s == INTERVAL_S + 1 + RETRY_S
    assert "ForgetSaved" in saved.save(INTERVAL_S + 1 + RETRY_S)


def test_a_partition_that_is_lost_again_while_it_is_forgotten_is_forgotten_again(saved):
    saved.savings.forget(0)
    requests = saved.collect(INTERVAL_S)
    saved.savings.forget(0)
    for request in requests:
        saved.finish(request)
    assert "ForgetSaved" in saved.save(INTERVAL_S + 1)


def test_only_what_is_complete_is_saved(saved):
    saved.log.reset(0)
    saved.log.begin({0: Seed(7, "")}, at(2))
    saved.log.partitions[1].current = None
    assert saved.save(INTERVAL_S) == ["SaveFile"]


def test_nothing_is_saved_of_a_topic_that_is_not_known(saved):
    saved.savings.set_origin(None)
    assert saved.save(INTERVAL_S) == []


def test_at_the_end_all_is_saved_even_while_a_round_is_open(saved):
    saved.collect(INTERVAL_S)
    saved.savings.make_due()
    names = {type(ask.request) for ask in saved.collect(INTERVAL_S + 1)}
    assert names == {Save, SaveFile}
