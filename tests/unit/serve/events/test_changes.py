"""Which events follow from which views."""

import re
from dataclasses import replace

import pytest

from koff.lag import Reason
from koff.serve.events import sentences
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import Severity
from koff.tracker import Rule, ShownNames, Tracker
from koff.view.activity import RecentActivity
from koff.view.cluster_view import ClusterView, MonitorStats
from koff.view.owners import Owner, Owners
from tests.unit.builders import ASSIGNED_T_0_1, classic_group
from tests.unit.serve.events.watched import BLIND, NO_VIEW, Watched, keep_up, stop
from tests.unit.serve.views import READY, Row, withhold_rows


def test_events_of_a_group_have_its_owner_and_its_runbook(watched):
    owner = Owner(re.compile("^g$"), "search", "#search")
    watched.owners, watched.runbook = Owners((owner,)), "https://wiki/{cluster}/{group}/{cause}"
    stop(watched)
    (event,) = watched.look()
    assert (event.owner, event.runbook_url) == (owner, "https://wiki/c/g/not_committing")
    assert event.to_json()["owner"] == {"team": "search", "contact": "#search"}
    watched.commit("h", 290)
    (event,) = watched.look()
    assert (event.owner, event.runbook_url) == (None, "https://wiki/c/h/none")
    assert "owner" not in event.to_json()
    (event,) = watched.look(is_ready=False)
    assert (event.kind, event.owner, event.runbook_url) == ("blind", None, None)


def test_the_first_view_is_no_event_and_neither_is_the_same_view_again(watched):
    assert watched.look() == []


def test_a_group_that_stops_and_comes_back(watched):
    stop(watched)
    (event,) = watched.look()
    assert (event.kind, event.severity, event.cluster) == ("incident_opened", Severity.ERROR, "c")
    assert (event.group, event.topic, event.partition) == ("g", "t", 0)
    assert event.text == (
        "group g: ERR: Stopped: it committed nothing for 4 min 50 s; 290 records wait, the oldest for "
        "4 min 49 s (2 min is allowed)"
    )
    assert event.details == {
        "status": "ERR",
        "lag": 290,
        "time_lag_s": 289.091,
        "allowance_s": 120.0,
        "catch_up_s": None,
        "causes": [
            {
                "cause": "not_committing",
                "text": "it committed nothing for 4 min 50 s",
                "advice": "look at the logs of the consumers: they may hang, or not commit",
            }
        ],
    }
    opened = event
    assert (opened.key, opened.ends) == ("c/incident/g", None)
    assert watched.look() == []
    watched.commit("g", 390)
    assert watched.look() == []  # it may be ill again in a moment
    watched.wait(60)
    assert watched.look() == []
    watched.wait(60)
    (event,) = watched.look()
    assert (event.kind, event.severity) == ("incident_closed", Severity.INFO)
    assert (event.key, event.ends) == (opened.key, Severity.ERROR)
    assert event.text == (
        "group g: it is OK again, with a lag of 0. The incident lasted 2 min; "
        "the group was at most 290 offsets and 4 min 49 s behind"
    )
    assert event.details == {
        "status": "OK",
        "duration_s": 120.0,
        "worst": "ERR",
        "worst_lag": 290,
        "worst_time_lag_s": 289,
        "records_lost": 0,
    }


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_blind_time_gives_no_false_event_and_a_change_meanwhile_gives_one(watched, is_ready):
    watched.look(blind=True, is_ready=is_ready)
    stop(watched)
    assert watched.look(blind=True, is_ready=is_ready) == []
    kinds = watched.find_kinds()
    assert kinds == ([] if is_ready else [("recovered", None)]) + [("incident_opened", "g")] or kinds == [
        ("incident_opened", "g"),
        ("recovered", None),
    ]
    watched.look(blind=True, is_ready=is_ready)
    assert [kind for kind, _ in watched.find_kinds()] == ([] if is_ready else ["recovered"])


def test_a_cluster_without_any_view_keeps_what_is_known(watched):
    (event,) = watched.changes.compare(NO_VIEW, 1_000)
    assert (event.kind, event.severity) == ("blind", Severity.ERROR)
    assert event.text == "cluster c: koff is not ready: the cluster does not respond"
    assert watched.changes.compare(NO_VIEW, 2_000) == []
    assert watched.changes.note_no_view("c", "late", 3_000) == []
    (event,) = watched.changes.compare(watched.take_view(), 126_000)
    assert (event.kind, event.text) == ("recovered", "cluster c: koff is ready again, after 2 min 5 s")


def test_a_view_says_since_when_its_cluster_is_not_known():
    view, changes = replace(NO_VIEW, activity=RecentActivity()), ClusterChanges()
    for now_ms in (1_000, 2_000):
        changes.compare(view, now_ms)
        assert view.activity.unready_since_ms == 1_000
    changes.compare(replace(view, readiness=READY), 3_000)
    assert view.activity.unready_since_ms is None


def test_a_cluster_that_was_never_ready_is_not_blind():
    watched = Watched()
    watched.commit("g", 1)
    assert watched.look(is_ready=False) == []
    assert watched.changes.note_no_view("c", "late", 0) == []
    assert watched.look() == []
    assert [event.kind for event in watched.changes.note_no_view("c", "late", 0)] == ["blind"]


def test_groups_that_come_and_go(watched):
    watched.commit("new", 5)
    assert watched.find_kinds() == [("group_appeared", "new")]
    watched.commit("new", None)
    (event,) = watched.look()
    assert (event.kind, event.group, event.text) == ("group_deleted", "new", "group new: it was deleted")


def test_a_group_that_is_new_and_late_has_an_incident(watched):
    watched.commit("new", 1)
    stop(watched)
    watched.commit("g", 390)
    assert watched.find_kinds() == [("incident_opened", "new"), ("group_appeared", "new")]


def test_groups_of_a_shard_that_was_never_read_do_not_appear(watched):
    watched.commit("other", 5, shard=7)
    assert watched.look(blind=[7]) == []  # its partition has no leader since the start
    assert watched.find_kinds() == [("group_appeared", "other")]


def test_a_shard_that_is_not_current_at_the_first_view_is_learned_without_an_event():
    watched = Watched()
    keep_up(watched)
    watched.commit("other", 5, shard=7)
    assert watched.look(blind=[7]) == []
    assert watched.look() == []
    watched.commit("other", 3, shard=7)
    assert watched.find_kinds() == [("offsets_reset", "other")]


def withhold_group(watched: Watched, name: str) -> ClusterView:
    """A view in which one group of shard 0 is not current, and the others are."""
    view = watched.take_view()
    rows: dict[Row, Reason] = {(name, topic, 0): BLIND for topic in watched.topics}
    return replace(view, snapshot=withhold_rows(view.snapshot, rows, [name]))


def test_a_group_that_is_not_current_is_not_compared_and_the_others_are(watched):
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1}))
    watched.commit("m", 50)
    watched.look()
    watched.apply(classic_group("m", {"other": ASSIGNED_T_0_1}))
    watched.commit("m", 40)
    watched.commit("g", 90)
    events = watched.changes.compare(withhold_group(watched, "m"), watched.now_ms)
    assert [(event.kind, event.group) for event in events] == [("offsets_reset", "g")]
    kinds = watched.find_kinds()
    assert kinds[0] == ("offsets_reset", "m")
    assert ("members_changed", "m") in kinds


def test_a_group_that_is_not_current_at_the_first_view_is_learned_without_an_event():
    watched = Watched()
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1}))
    watched.commit("m", 50)
    assert watched.changes.compare(withhold_group(watched, "m"), watched.now_ms) == []
    assert watched.look() == []


def test_a_shard_that_is_read_again_from_its_start(watched):
    watched.tracker = Tracker()  # another partition numbering, and no group yet
    watched.commit("g2", 1, topic="a")
    assert watched.look(blind=True) == []
    watched.tracker = Tracker()
    watched.commit("first", 1, topic="a")
    keep_up(watched)
    assert watched.find_kinds() == [("group_appeared", "first")]
    watched.commit("g", 7)
    assert ("offsets_reset", "g") in watched.find_kinds()


def test_groups_that_are_found_in_the_history_are_not_new(watched):
    watched.stats = MonitorStats(backfill_remaining=10)
    watched.commit("old", 5)
    assert watched.look() == []
    watched.commit("old", 3)
    assert watched.look() == []
    watched.stats = MonitorStats()
    assert watched.look() == []
    watched.commit("old", 2)
    assert watched.find_kinds() == [("offsets_reset", "old")]


def test_a_group_that_moves_to_another_shard_is_the_same(watched):
    watched.commit("g", None)
    keep_up(watched, shard=3)
    assert watched.look() == []


def test_expected_groups(watched):
    watched.expected = {"g": True, "late": False}
    assert watched.look() == []
    watched.expected = {}  # koff cannot know
    assert watched.look() == []
    watched.expected = {"g": False, "late": True}
    events = watched.look()
    assert [(event.kind, event.group) for event in events] == [
        ("expected_group_absent", "g"),
        ("expected_group_back", "late"),
    ]
    assert events[0].severity is Severity.ERROR


def test_a_monitor_that_was_started_again(watched):
    watched.changes.restart()
    watched.tracker = Tracker()
    assert watched.look(is_ready=False)[0].kind == "blind"
    watched.commit("new", 1)
    keep_up(watched)
    stop(watched)
    # What was told of g is out of date; groups that come and go with the configuration are no events.
    assert watched.find_kinds() == [("incident_opened", "new"), ("incident_opened", "g"), ("recovered", None)]
    watched.commit("g", 5)
    assert ("offsets_reset", "g") in watched.find_kinds()


def test_groups_that_are_hidden_and_shown_are_no_events(watched):
    watched.commit("other", 5)
    watched.look()
    watched.shown = ShownNames((Rule.parse("^g$"),))
    watched.tracker.show(watched.shown)
    assert watched.look() == []
    watched.shown = ShownNames()
    watched.tracker.show(watched.shown)
    assert watched.look() == []
    watched.commit("third", 5)
    assert watched.find_kinds() == [("group_appeared", "third")]


def test_there_is_a_limit_and_the_worst_come_first(watched, monkeypatch):
    monkeypatch.setattr(sentences, "MOST", 2)
    stop(watched)
    for number in range(5):
        watched.commit(f"new{number}", 390)
    first, second, rest = watched.look()
    assert (first.kind, second.kind) == ("incident_opened", "group_appeared")
    assert (rest.kind, rest.details["count"]) == ("more_events", 4)
    assert rest.text == "cluster c: 4 more events at the same time"
    assert watched.look() == []


def test_two_clusters_do_not_know_of_each_other(watched):
    other = Watched()
    other.commit("h", 1)
    assert other.look() == []
    assert watched.look() == []


def test_a_name_that_cannot_be_printed_is_escaped(watched):
    watched.commit("a\nb\x1b", 5)
    (event,) = watched.look()
    assert event.text == "group 'a\\nb\\x1b': it is new"
    assert event.group == "a\nb\x1b"
