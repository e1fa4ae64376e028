"""Which of two koffs sends: both in virtual time, through deaths, restarts, hangs and splits."""

from collections import Counter
from typing import Any

import pytest

from koff.errors import ConfigError
from koff.serve.events.event import ClusterEvent, Kind, Severity
from koff.serve.events.standby import KEEP_S, PATIENCE_S, FirstAnswer, Standby, check_first_url

LOOK_S = 5.0


def make_event(kind: Kind, key: str = "", **fields: Any) -> ClusterEvent:
    return ClusterEvent("c", kind, Severity.ERROR, f"{kind} {key}", key=key, **fields)


OPENED = make_event("incident_opened", "c/incident/g")
CLOSED = make_event("incident_closed", "c/incident/g", ends=Severity.ERROR)
RESET = make_event("offsets_reset")
BLIND = make_event("blind", "c/blind")


class Pair:
    """Two koffs that look at the same moments. `sent` counts by which koff and kind."""

    def __init__(self, *, first_is_up: bool = True) -> None:
        self.now_s, self.standby, self.sent = 1000.0, Standby("standby", 1000.0), Counter[tuple[str, str]]()
        self.first, self.known = "first-0", set[str]()
        """The process of the first, and what its events told that lasts."""
        self.is_up, self.is_reachable, self.first_sees, self.standby_sees = first_is_up, True, True, True
        self.turns: list[str] = []

    def happen(self, event: ClusterEvent, *, late_s: float = 0.0) -> None:
        """Both find the event, if they can: the first so much later."""
        self.standby.add([event] if self.standby_sees or event is BLIND else [], self.now_s)
        self.pass_s(late_s)
        if not self.is_up or (event.ends and event.key not in self.known):
            return
        if event.ends:
            self.known.remove(event.key)
        elif event.key:
            self.known.add(event.key)
        if self.first_sees or event is BLIND:
            self.sent["first", event.kind] += 1

    def pass_s(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_S
            answers = self.is_up and self.is_reachable
            answer = FirstAnswer(self.first, self.first_sees) if answers else FirstAnswer()
            turn = self.standby.note(answer, self.now_s, is_ready=self.standby_sees)
            self.turns += [turn] if turn else []
            self.sent.update(("standby", event.kind) for event in self.standby.take(self.now_s))

    def restart(self, *, away_s: float) -> None:
        """The first is started again, without saved state."""
        self.is_up, self.known = False, set()
        self.pass_s(away_s)
        self.is_up, self.first = True, self.first + "+"


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.pass_s(60)
    return pair


@pytest.mark.parametrize("late_s", [0, 30])
@pytest.mark.parametrize("event", [OPENED, RESET, BLIND], ids=lambda event: event.kind)
def test_while_the_first_is_well_each_event_leaves_once(pair: Pair, event: ClusterEvent, late_s: float):
    pair.happen(event, late_s=late_s)
    pair.pass_s(600)
    assert pair.sent == {("first", event.kind): 1}
    assert pair.standby.take(pair.now_s, is_last=True) == []


def test_both_started_at_once_tell_of_a_late_group_once():
    pair = Pair()
    pair.happen(OPENED)
    pair.pass_s(600)
    pair.happen(CLOSED)
    pair.pass_s(600)
    assert pair.sent == {("first", "incident_opened"): 1, ("first", "incident_closed"): 1}


@pytest.mark.parametrize("what", ["is_up", "is_reachable", "first_sees"])
def test_a_first_that_does_not_see_the_cluster_is_replaced_after_its_patience(pair: Pair, what: str):
    setattr(pair, what, False)
    pair.happen(RESET)
    pair.pass_s(PATIENCE_S)
    assert ("standby", "offsets_reset") not in pair.sent
    pair.pass_s(2 * LOOK_S)
    assert pair.sent["standby", "offsets_reset"] == 1
    assert pair.turns == ["takes over"]
    pair.happen(OPENED)
    pair.pass_s(LOOK_S)
    assert pair.sent["standby", "incident_opened"] == 1


def test_in_a_split_both_send_and_the_keys_are_equal(pair: Pair):
    pair.is_reachable = False
    pair.pass_s(60)
    pair.happen(RESET)
    pair.pass_s(60)
    assert pair.sent == {("first", "offsets_reset"): 1, ("standby", "offsets_reset"): 1}
    one, other = (make_event("offsets_reset", id=f"{start}-1", time=start) for start in ("1", "2"))
    assert (one.thing, one.id) != (other.thing, other.id)
    assert one.thing == other.thing != make_event("group_deleted").thing


def test_a_first_that_dies_before_it_has_sent_is_replaced(pair: Pair):
    pair.standby.add([OPENED, RESET], pair.now_s)
    pair.pass_s(KEEP_S - 2 * LOOK_S)
    pair.is_up = False
    pair.pass_s(60)
    assert pair.sent == {("standby", "incident_opened"): 1, ("standby", "offsets_reset"): 1}


def test_what_happens_while_the_first_is_started_again_is_sent_by_the_standby(pair: Pair):
    pair.standby.add([OPENED, RESET], pair.now_s)
    pair.restart(away_s=5)
    pair.pass_s(600)  # the first tells itself of the group that is late at its start
    assert pair.sent == {("standby", "offsets_reset"): 1}


def test_the_end_of_what_began_before_the_first_was_started_again_is_sent_by_the_standby(pair: Pair):
    pair.happen(OPENED)
    pair.restart(away_s=5)
    pair.pass_s(300)
    pair.happen(CLOSED)
    pair.pass_s(300)
    assert pair.sent == {("first", "incident_opened"): 1, ("standby", "incident_closed"): 1}


def test_a_first_that_flaps_keeps_its_turn(pair: Pair):
    for _ in range(20):
        pair.is_reachable = not pair.is_reachable
        pair.pass_s(LOOK_S)
        pair.happen(RESET)
    pair.pass_s(300)
    assert pair.sent == {("first", "offsets_reset"): 20}
    assert pair.turns == []


def test_an_outage_of_the_cluster_is_told_once(pair: Pair):
    pair.first_sees = pair.standby_sees = False
    pair.happen(BLIND)
    pair.pass_s(600)
    pair.standby_sees = True
    pair.pass_s(LOOK_S)
    pair.happen(OPENED)
    pair.first_sees = True
    pair.pass_s(600)
    assert pair.sent == {("first", "blind"): 1}
    assert pair.turns == []


def test_the_first_sends_again_when_it_is_back(pair: Pair):
    pair.restart(away_s=120)
    pair.pass_s(60)
    pair.happen(RESET)
    pair.pass_s(300)
    assert pair.sent == {("first", "offsets_reset"): 1}
    assert pair.turns == ["takes over", "gives back"]


def test_a_koff_that_is_the_first_itself_sends_at_once():
    standby = Standby("me", 0.0)
    standby.add([OPENED], 0.0)
    assert standby.note(FirstAnswer("me", False), 5.0, is_ready=False) is None
    assert standby.take(5.0) == [OPENED]


def test_a_standby_that_stops_sends_what_the_first_may_not_send(pair: Pair):
    pair.standby.add([RESET], pair.now_s)
    pair.is_reachable = False
    pair.pass_s(LOOK_S)
    assert pair.standby.take(pair.now_s) == []
    assert pair.standby.take(pair.now_s, is_last=True) == [RESET]


@pytest.mark.parametrize(
    "url", ["koff-0:9850", "ftp://koff-0", "http://", "http://a b", "http://u:p@koff", "http://koff:x"]
)
def test_an_address_that_is_wrong_is_refused(url: str):
    with pytest.raises(ConfigError, match="http://HOST"):
        check_first_url(url)
