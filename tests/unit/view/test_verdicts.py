"""The verdicts of a view: of groups that live, with objectives, and when groups come and go."""

import json
import re
from typing import Any

import pytest

from koff.lag.group_verdicts import GroupVerdicts
from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.serve.api.endpoints import ENDPOINTS
from koff.serve.api.parameters import parse_query
from koff.serve.api.queries import list_incidents
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import Severity
from koff.tracker import Objective, State
from koff.view.activity import RecentActivity
from koff.view.cluster_view import Views
from koff.view.incidents import Incident, Step, build_key
from tests.group_records import assign
from tests.unit.builders import classic_group, commit
from tests.unit.view.test_causes import Life


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
    text = json.loads(json.dumps(state.facts))  # as a file has it
    life.changes, life.activity = ClusterChanges(), RecentActivity(saved_verdicts=State(text, state.columns))
    return life


def test_a_restart_of_koff_opens_and_closes_no_incident_and_keeps_what_is_usual():
    life = Life()
    life.pass_s(400, reads={1: 0})
    (since_s, usual_s) = (look(life).since_s.tolist(), look(life).usual_s.tolist())
    assert tell(life) == ("ERR", "stuck_partition")
    (before,) = life.activity.incidents.list_all()
    restart(life)
    assert life.changes.compare(life.take_view(), life.now_ms) == []
    assert life.activity.incidents.list_all() == [before]
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


def list_kinds(life: Life) -> list[str]:
    """The kinds of events since the last call."""
    told = [event for event in life.events if event.reaches(Severity.WARNING)]
    life.events.clear()
    return [event.kind for event in told]


def find_incidents(views: Views, query: str) -> dict[str, Any]:
    (parameters,) = [endpoint.parameters for endpoint in ENDPOINTS if endpoint.path == "/api/v1/incidents"]
    return list_incidents(views, {}, parse_query(query.encode(), parameters))


def test_an_incident_is_kept_with_its_causes_and_its_worst():
    life = Life()
    list_kinds(life)
    life.objectives = (Objective(re.compile("^g$"), 30.0),)
    life.pass_s(60, reads=dict.fromkeys(range(4), 9))
    life.pass_s(150, reads={1: 0})
    life.pass_s(300)
    assert list_kinds(life) == ["incident_opened", "incident_closed"]
    views = Views.from_one(life.take_view())
    query = "cluster=c&group=g&open=false&worst=WARN,ERR&name=t-1"
    found = find_incidents(views, query)
    (incident,) = found["incidents"]
    steps = [(step["status"], step["cause"]) for step in incident.pop("steps")]
    assert steps == [("ERR", "stuck_partition")]
    opened_ms, closed_ms = incident["opened_ms"], incident["closed_ms"]
    assert 130_000 <= closed_ms - opened_ms <= 400_000
    assert incident == {
        "key": "c/incident/g",
        "cluster": "c",
        "group": "g",
        "opened_ms": opened_ms,
        "closed_ms": closed_ms,
        "duration_s": (closed_ms - opened_ms) / 1000,
        "worst": "ERR",
        "worst_lag": incident["worst_lag"],
        "worst_time_lag_s": incident["worst_time_lag_s"],
        "records_lost": 0,
    }
    assert 1500 <= incident["worst_lag"] <= 2000
    assert 150 <= incident["worst_time_lag_s"] <= 210
    for other in ("group=h", "open=true", "worst=WARN", "name=t-2", f"since_ms={closed_ms + 1}"):
        assert find_incidents(views, other)["total"] == 0
    assert find_incidents(views, f"until_ms={opened_ms - 1}")["total"] == 0
    assert find_incidents(views, f"since_ms={closed_ms}&until_ms={opened_ms}")["total"] == 1


def test_an_incident_ends_with_its_group():
    life = Life()
    life.pass_s(400, reads={1: 0})
    list_kinds(life)
    life.apply([commit("h", "t", 0, life.ends[0], at=life.now_ms)])
    life.apply([(classic_group("g", {}, generation=1)[0], None)])
    life.apply([commit("g", "t", partition, None, at=life.now_ms) for partition in range(4)])
    events = life.changes.compare(life.take_view(), life.now_ms)
    assert {event.kind for event in events} == {"group_appeared", "group_deleted", "incident_closed"}
    assert not life.activity.incidents.open


def test_a_topic_to_which_no_member_subscribes_any_more_is_told_once_and_does_not_count():
    life = Life()
    life.pass_s(60, commits=(), reads=dict.fromkeys(range(4), 0))  # late enough for koff to look who reads
    list_kinds(life)
    key, value = classic_group("g", {"a": assign(("u", (0,)))}, generation=9, since_ms=life.now_ms)
    life.apply([(key, value.replace(b"\x01\x00\x01t", b"\x01\x00\x01u"))])  # what it subscribes to
    life.pass_s(300, commits=())
    assert [event.text for event in life.events if event.kind == "topic_left"] == [
        "group g: no member subscribes to t any more: the lag there does not count"
    ]
    assert list_kinds(life) == []


def test_records_that_are_skipped_without_members_are_told_once():
    life = Life()
    life.join({})
    life.pass_s(100, commits=())
    list_kinds(life)
    life.pass_s(10)  # a tool sets the offsets to the end
    life.pass_s(60, commits=())
    assert list_kinds(life) == ["records_skipped", "incident_opened"]


@pytest.mark.parametrize("damage", [{}, {"closed_ms": "soon"}, {"worst": 9}, {"steps": [1]}])
def test_a_saved_incident_that_is_damaged_is_an_error(damage):
    steps = [Step(1, "ERR", "reset", "it was reset")]
    saved = Incident("k", "g", 1, worst=Verdict.ERR, cause=Cause.RESET, steps=steps).save()
    assert Incident.restore(json.loads(json.dumps(saved))).save() == saved
    with pytest.raises((LookupError, TypeError, ValueError)):
        Incident.restore(saved | damage if damage else {})


def test_keys_are_short_and_differ():
    keys = {build_key("c", "1", "g" * size) for size in (3, 1000, 1001)}
    assert len(keys) == 3
    assert max(map(len, keys)) <= 255
