"""An answer of ZooKeeper stays current until the next one is there."""

from collections.abc import Mapping

import pytest

from koff.monitor.duties.stored_groups import (
    FetchStoredGroups,
    StoredGroups,
    StoredGroupsFetched,
    describe_refused,
)
from koff.monitor.moment import Moment
from koff.monitor.outbox import Outbox, Shared
from koff.tracker import Tracker

LIMIT_S = 25.0


class Polled:
    """ZooKeeper's groups, requested by a loop that calls as often as it has to."""

    def __init__(self, interval_s: float) -> None:
        self.second = 0.0
        self.outbox = Outbox()
        self.stored = StoredGroups(interval_s, Shared(Tracker(), self.outbox, lambda now: 0), limit_s=LIMIT_S)

    def poll(self, seconds: float, *, fails: bool = False, refused: Mapping[str, str] = {}) -> float:
        """One request that takes so long. Returns how long after the one before it was sent."""
        before = self.second
        self.second = max(self.second, self.stored.due_s)
        self.stored.request(Moment(self.second, 0))
        (ask,) = self.outbox.list_open(FetchStoredGroups)
        self.second += seconds
        self.outbox.close(ask.request.id)
        if fails:
            self.stored.give_up(ask, "no response", Moment(self.second, 0))
        else:
            given = StoredGroupsFetched(ask.request.id, {}, {}, refused)
            self.stored.receive(given, ask, Moment(self.second, 0))
        return ask.requested.at_s - before


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("seconds", [0.1, 1.0, 3.0, 6.0, 9.0, 11.0])
def test_an_answer_is_current_until_the_next_one_is_there(seconds, interval_s):
    polled = Polled(interval_s)
    polled.poll(seconds)
    for _ in range(5):
        asked = polled.stored.current
        polled.poll(seconds)
        assert polled.second - asked.at_s <= LIMIT_S


def test_a_slow_zookeeper_gets_a_pause():
    polled = Polled(1.0)
    polled.poll(2.0)
    assert polled.poll(2.0) == 8.0


def test_a_zookeeper_that_fails_is_not_asked_again_at_once():
    polled = Polled(1.0)
    polled.poll(30.0, fails=True)
    assert polled.poll(30.0) >= 10.0


def test_zookeeper_is_never_asked_twice_at_once():
    polled = Polled(5.0)
    polled.stored.request(Moment(0, 0))
    polled.stored.due_s = 0.0
    polled.stored.request(Moment(1, 0))
    assert len(polled.outbox.take_requests()) == 1


def test_the_loss_of_zookeeper_and_its_return_are_one_event_each():
    polled = Polled(1.0)
    for fails in (False, True, True, False, False):
        polled.poll(1.0, fails=fails)
    assert [event.text for event in polled.outbox.take_events()] == ["ZooKeeper lost", "ZooKeeper back"]


def test_groups_of_zookeeper_are_unknown_until_it_has_answered_once():
    polled = Polled(1.0)
    polled.poll(1.0, fails=True)
    assert not polled.stored.is_known
    polled.poll(1.0)
    assert polled.stored.is_known


def test_groups_that_are_left_out_are_an_event_when_they_change():
    polled, shut = Polled(1.0), {"shut": "/consumers/shut/ids"}
    for refused in (shut, shut, {}, {}):
        polled.poll(1.0, refused=refused)
        assert polled.stored.refused == refused
    events = polled.outbox.take_events()
    assert [(event.text, event.is_warning) for event in events] == [
        ("groups of ZooKeeper are hidden", True),
        ("all groups of ZooKeeper may be read", False),
    ]
    assert events[0].details["why"] == (
        "1 groups of ZooKeeper are not shown: READ of these nodes is refused: /consumers/shut/ids"
    )


def test_of_many_refused_nodes_some_are_named():
    text = describe_refused({str(number): f"/{number}" for number in range(9)})
    assert text.startswith("9 groups")
    assert text.endswith("/0, /1, /2, /3, /4, ...")
