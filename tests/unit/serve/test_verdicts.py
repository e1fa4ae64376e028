"""The verdicts of a view: of groups that live, with objectives, and when groups come and go."""

from __future__ import annotations

import json
import re

import pytest

from koff.lag.causes import Cause
from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.verdict import Verdict
from koff.serve.activity import RecentActivity
from koff.serve.events.changes import ClusterChanges
from koff.tracker import Objective, State
from tests.unit.builders import commit
from tests.unit.serve.test_causes import Life


def look(life: Life) -> GroupVerdicts:
    snapshot = life.take_view().snapshot
    return snapshot.find_verdicts(snapshot.shards[0])


def tell(life: Life) -> tuple[str, str]:
    """The verdict on the group g, and its cause."""
    found = look(life)
    at = [group.name for group in life.take_view().snapshot.shards[0].groups].index("g")
    return Verdict(found.verdict[at]).name, Cause(found.cause[at]).label


def lag_by_transaction(life: Life) -> None:
    life.stable = {2: life.ends[2]}
    life.pass_s(200, reads={2: 0})


def lag_by_reset(life: Life) -> None:
    life.committed[2] = 0
    life.pass_s(20, reads={2: 12})


def lag_by_heat(life: Life) -> None:
    life.rates[0] = 100
    life.pass_s(400, reads={0: 20})


def lag_without_members(life: Life) -> None:
    life.join({})
    life.pass_s(200, commits=())


@pytest.mark.parametrize(
    ("lag", "told"),
    [
        (lambda life: life.pass_s(300), ("OK", "none")),
        (lambda life: life.pass_s(120, reads={1: 0}), ("OK", "none")),
        (lambda life: life.pass_s(180, reads={1: 0}), ("ERR", "stuck_partition")),
        (lambda life: life.pass_s(180, reads=dict.fromkeys(range(4), 0)), ("ERR", "not_committing")),
        (lambda life: life.pass_s(1300, reads=dict.fromkeys(range(4), 8)), ("WARN", "too_slow")),
        (lag_without_members, ("ERR", "no_members")),
        (lag_by_reset, ("WARN", "reset")),
        (lag_by_heat, ("WARN", "hot_partition")),
        (lag_by_transaction, ("ERR", "open_transaction")),
    ],
)
def test_a_life_has_a_verdict_and_a_cause(lag, told):
    life = Life()
    lag(life)
    assert tell(life) == told


def test_an_objective_takes_the_place_of_what_is_usual():
    objectives = (Objective(re.compile("^g$"), 30.0, re.compile("other")), Objective(re.compile("^g$"), 60.0))
    for given, told in (((), "OK"), (objectives, "ERR"), (objectives[:1], "OK")):
        life = Life()
        life.objectives = given
        life.pass_s(90, reads={1: 0})
        assert tell(life)[0] == told
        assert look(life).allowance_s.tolist() == [60.0 if len(given) == 2 else 120.0]


def test_groups_that_came_since_the_last_look_are_unknown_and_the_others_keep_theirs():
    life = Life()
    life.pass_s(180, reads={1: 0})
    life.apply([commit("a", "t", 0, 5, at=life.now_ms), commit("g", "u", 0, 5, at=life.now_ms)])
    shard = life.take_view().snapshot.shards[0]
    found = dict(zip([group.name for group in shard.groups], look(life).verdict.tolist(), strict=True))
    assert found == {"a": Verdict.UNKNOWN, "g": Verdict.ERR}
    stuck = [Cause(cause) for cause in look(life).row_cause.tolist()]
    assert stuck.count(Cause.STUCK_PARTITION) == 1
    assert shard.partition[stuck.index(Cause.STUCK_PARTITION)] == 1


def test_nobody_has_looked_yet():
    life = Life()
    life.activity = RecentActivity()
    found = look(life)
    assert (found.verdict.tolist(), found.late.tolist()) == ([Verdict.UNKNOWN], [False] * 4)


def test_what_was_looked_at_long_ago_is_no_more_ok():
    for reads, verdict in (({}, Verdict.UNKNOWN), ({1: 0.0}, Verdict.ERR)):
        life = Life()
        life.pass_s(180, reads=reads)
        life.now_ms += 90_000
        assert look(life).verdict.tolist() == [verdict]


def test_another_thread_never_sees_groups_without_their_verdicts_between_two_looks():
    """A scrape may come at any moment of a look."""

    class Watched(RecentActivity):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "current":
                seen.append(len(self.current.verdicts))

    life = Life()
    seen: list[int] = []
    life.activity = Watched(life.activity.current)
    seen.clear()
    life.pass_s(30)
    assert seen == [1, 1, 1]


def restart(life: Life) -> Life:
    """The same life, seen by a koff that was started again with what the one before has saved."""
    state = life.activity.verdicts
    assert state is not None
    text = json.loads(json.dumps(state.facts))  # as a file has it
    life.changes, life.activity = ClusterChanges(), RecentActivity(saved_verdicts=State(text, state.columns))
    return life


def test_a_restart_of_koff_opens_and_closes_no_incident_and_keeps_what_is_usual():
    life = Life()
    life.pass_s(400, reads={1: 0})
    (since_s, usual_s) = (look(life).since_s.tolist(), look(life).usual_s.tolist())
    assert tell(life) == ("ERR", "stuck_partition")
    restart(life)
    events = life.changes.compare(life.take_view(), life.now_ms)
    assert [event.kind for event in events] == []
    assert (look(life).since_s.tolist(), look(life).usual_s.tolist()) == (since_s, usual_s)
    assert tell(life) == ("ERR", "stuck_partition")


def test_state_that_is_damaged_is_not_used():
    life = Life()
    life.pass_s(400, reads={1: 0})
    life.changes = ClusterChanges()
    life.activity = RecentActivity(saved_verdicts=State({"shards": [{"shard": 0}]}, {}))
    assert [event.kind for event in life.changes.compare(life.take_view(), life.now_ms)] == [
        "incident_opened"
    ]
