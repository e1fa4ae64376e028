"""Which events follow from which views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from koff.lag import Reason
from koff.serve.events import sentences
from koff.serve.events.changes import ClusterChanges
from koff.serve.events.event import ClusterEvent, Severity
from koff.tracker import Rule, ShownNames, Tracker
from koff.tracker.topic_ids import fold_topic_id
from koff.view import wording
from koff.view.cluster_view import ClusterFacts, ClusterView, MonitorStats, Readiness, TopicFacts
from tests.unit.builders import ASSIGNED_T_0_1, Pair, apply, classic_group, commit, consumer_group
from tests.unit.serve.views import NOW_MS, READY, Row, withhold_rows

NOT_READY = Readiness(False, "not ready: the cluster does not respond")
NO_VIEW = ClusterView("c", Tracker().take_snapshot(0), NOT_READY, MonitorStats(up=False))
NOTHING_ASSIGNED = bytes.fromhex("0000 00000000 ffffffff")
BLIND = Reason.COMMITS_NOT_CURRENT | Reason.END_NOT_CURRENT


class Watched:
    """A cluster whose views are compared. Time passes with `wait`."""

    def __init__(self) -> None:
        self.tracker, self.changes, self.now_ms = Tracker(), ClusterChanges(), NOW_MS
        self.clock_ms = 0
        """How far the clock of the machine was set."""
        self.shown, self.stats = ShownNames(), MonitorStats()
        self.expected: Mapping[str, bool] = {}
        self.topics: tuple[str, ...] = ("t", "u")
        self.denied: frozenset[str] = frozenset()

    def apply(self, *pairs: Pair, shard: int = 0) -> None:
        apply(self.tracker, *pairs, partition=shard, seen_at_ms=self.now_ms)

    def commit(
        self, group: str, offset: int | None, *, topic: str = "t", partition: int = 0, shard: int = 0
    ) -> None:
        self.apply(commit(group, topic, partition, offset, at=self.now_ms), shard=shard)

    def sample(self, end: int, *, start: int = 0, topic: str = "t", partitions: int = 1) -> None:
        places = [(topic, partition) for partition in range(partitions)]
        self.tracker.add_samples(
            ends=dict.fromkeys(places, end), starts=dict.fromkeys(places, start), at_ms=self.now_ms
        )

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def take_view(self, *, blind: bool | Collection[int] = False, is_ready: bool = True) -> ClusterView:
        """A view in which all shards, or these, are not current."""
        snapshot = self.tracker.take_snapshot(self.now_ms)
        shards = [n for n in snapshot.shards if (n in blind if isinstance(blind, Collection) else blind)]
        bits = {n: (snapshot.shards[n].group * 0 + int(BLIND)).astype("uint8") for n in shards}
        snapshot = snapshot.withhold(bits, dict.fromkeys(shards, False))
        facts = ClusterFacts(3, dict.fromkeys(self.topics, TopicFacts(1, 1)), denied=self.denied)
        stats = replace(self.stats, not_current=len(shards))
        return ClusterView(
            "c",
            snapshot,
            READY if is_ready else NOT_READY,
            stats,
            facts,
            shown=self.shown,
            expected_groups=self.expected,
        )

    def look(self, *, blind: bool | Collection[int] = False, is_ready: bool = True) -> list[ClusterEvent]:
        return self.changes.compare(
            self.take_view(blind=blind, is_ready=is_ready), self.now_ms + self.clock_ms
        )

    def find_kinds(self, **how: Any) -> list[tuple[str, str | None]]:
        return [(event.kind, event.group) for event in self.look(**how)]


@pytest.fixture
def watched() -> Watched:
    """Group g, which keeps up, was seen."""
    watched = Watched()
    keep_up(watched)
    assert watched.look() == []
    return watched


def keep_up(watched: Watched, group: str = "g", *, shard: int = 0) -> None:
    """Ten commits of a group, each at the end of the log."""
    for number in range(1, 11):
        watched.wait(10)
        watched.commit(group, number * 10, shard=shard)
        watched.sample(number * 10)


def stop(watched: Watched) -> None:
    """Records arrive, and nobody commits."""
    for number in range(11, 40):
        watched.wait(10)
        watched.sample(number * 10)


def test_the_first_view_is_no_event_and_neither_is_the_same_view_again(watched):
    assert watched.look() == []


def test_a_group_that_stops_and_comes_back(watched):
    stop(watched)
    (event,) = watched.look()
    assert (event.kind, event.severity, event.cluster) == ("incident_opened", Severity.ERROR, "c")
    assert (event.group, event.topic, event.partition) == ("g", "t", 0)
    assert event.text == (
        "group g: ERR: it committed nothing for 4 min 50 s, while 290 offsets wait. "
        "It is 4 min 49 s late, and 2 min is allowed"
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
                "text": "it committed nothing for 4 min 50 s, while 290 offsets wait",
                "advice": "look at the logs of the consumers: they may hang, or not commit",
            }
        ],
    }
    opened = event
    assert (opened.key, opened.ends) == (f"c/{watched.now_ms}/g", None)
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


def test_a_committed_offset_that_goes_back(watched):
    for partition in (0, 1, 2):
        watched.commit("g", 100, partition=partition)
    watched.sample(100, partitions=3)
    watched.look()
    watched.look(blind=True)
    for partition, offset in ((0, 90), (1, 0), (2, 101)):
        watched.commit("g", offset, partition=partition)
    event = next(event for event in watched.look() if event.kind == "offsets_reset")
    text = "group g: the committed offset of t-1 went back from 100 to 0, and of 1 more partition"
    assert (event.text, event.severity, event.partition) == (text, Severity.WARNING, 1)
    assert event.details == {"from": 100, "to": 0, "partitions": 2, "offsets": 110}


def test_the_sum_of_what_the_largest_offsets_went_back_is_right(watched):
    most = (1 << 63) - 1
    for partition in (0, 1):
        watched.commit("g", most, partition=partition)
    watched.look()
    for partition in (0, 1):
        watched.commit("g", 0, partition=partition)
    event = next(event for event in watched.look() if event.kind == "offsets_reset")
    assert event.details["offsets"] == 2 * most


def test_a_commit_that_was_deleted_is_forgotten(watched):
    watched.commit("g", 50, partition=1)
    watched.look()
    watched.commit("g", None, partition=1)
    assert watched.look() == []
    watched.commit("g", 3, partition=1)
    assert "offsets_reset" not in dict(watched.find_kinds())


def test_records_that_are_lost_are_told_once(watched):
    watched.sample(200, start=100)
    watched.look()
    watched.sample(200, start=150)
    (event,) = [event for event in watched.look() if event.kind == "records_lost"]
    assert event.text == "group g: 50 offsets of t-0 left the log before they were committed"
    assert event.severity is Severity.ERROR
    assert event.details == {"committed_offset": 100, "start_offset": 150, "partitions": 1, "offsets": 50}
    watched.sample(200, start=160)
    assert watched.look() == []
    watched.commit("g", 160)
    watched.look()
    watched.sample(200, start=170)
    assert [event.kind for event in watched.look() if event.kind == "records_lost"]


def test_a_commit_beyond_the_end_of_the_log_is_told_once(watched):
    watched.look()
    watched.commit("g", 1 << 62)
    watched.wait(1)
    watched.sample(200)
    (event,) = [event for event in watched.look() if event.kind == "ahead_of_log"]
    assert event.text == (
        "group g: the committed offset 4,611,686,018,427,387,904 of t-0 is beyond the end of the log, 200"
    )
    assert event.severity is Severity.INFO
    assert event.details == {"committed_offset": 1 << 62, "end_offset": 200, "partitions": 1}
    watched.wait(1)
    watched.sample(210)
    assert watched.look() == []
    watched.commit("g", 210)
    watched.look()
    watched.commit("g", 1 << 62)
    watched.wait(1)
    watched.sample(220)
    assert "ahead_of_log" not in dict(watched.find_kinds())


def test_a_rebalance(watched):
    watched.apply(*consumer_group("m", epoch=5, assignment_epoch=5, members={"a": (5, 0)}))
    watched.look()
    watched.apply(*consumer_group("m", epoch=7, assignment_epoch=7, members={"b": (7, 0)}))
    (event,) = watched.look()
    assert (event.kind, event.severity) == ("rebalanced", Severity.INFO)
    assert event.text == "group m: rebalanced (epoch 5 to 7), 1 joined (b-client), 2 members"


def test_a_rebalance_is_recent_for_five_minutes_although_the_clock_is_set_back(watched):
    watched.apply(*consumer_group("m", epoch=5, assignment_epoch=5, members={"a": (5, 0)}))
    watched.look()
    watched.apply(*consumer_group("m", epoch=7, assignment_epoch=7, members={"a": (7, 0)}))
    watched.look()
    watched.clock_ms = -6 * 3_600_000
    for seconds, rebalances in ((299, {"m": 2}), (2, {})):
        watched.wait(seconds)
        view = watched.take_view()
        watched.changes.compare(view, watched.now_ms + watched.clock_ms)
        groups = view.activity.current.groups
        assert {name: did.rebalances for name, did in groups.items()} == rebalances


def test_members_that_come_and_go(watched):
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1}))
    watched.look()
    watched.apply(classic_group("m", {"app": ASSIGNED_T_0_1, "late": NOTHING_ASSIGNED}))
    (event,) = watched.look()
    assert event.kind == "members_changed"
    assert event.details["joined_count"] == 1
    assert event.details["joined"][0]["client_id"] == "late"
    assert "1 joined (late), 2 members" in event.text
    assert watched.look() == []
    watched.look(blind=True)
    watched.apply(classic_group("m", {"late": NOTHING_ASSIGNED}))
    (event,) = watched.look()
    assert (event.details["left_count"], event.details["members"]) == (1, 1)


def test_a_topic_that_is_deleted_with_its_commits(watched):
    watched.commit("g", 5, topic="u")
    watched.sample(5, topic="u")
    watched.look()
    watched.commit("g", None, topic="u")  # Kafka deletes the commits at once
    assert watched.look() == []
    watched.topics = ("t",)
    watched.wait(20)
    assert watched.look() == []  # one list may be old
    watched.wait(20)
    (event,) = watched.look()
    assert (event.kind, event.group, event.topic) == ("topic_deleted", "g", "u")
    watched.wait(20)
    assert watched.look() == []


def test_a_topic_that_one_list_does_not_have(watched):
    watched.topics = ("u",)
    assert watched.look() == []
    watched.topics = ("t", "u")
    assert watched.look() == []
    watched.topics = ("u",)
    assert watched.look() == []


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_topic_that_is_created_again(watched, is_reached):
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]
    assert fold_topic_id(ids[0]) != fold_topic_id(ids[1])
    for number, topic_id in enumerate(ids):
        watched.tracker.identify_topics({"t": topic_id})
        if not is_reached:
            watched.changes.compare(NO_VIEW, watched.now_ms)
        kinds = [kind for kind, _ in watched.find_kinds() if kind != "recovered"]
        assert kinds == ["topic_recreated"] * number


@pytest.mark.parametrize("is_blind_between", [False, True])
def test_a_commit_to_a_topic_that_was_created_again_has_not_gone_back(watched, is_blind_between):
    watched.tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAQ"})
    watched.look()
    watched.tracker.identify_topics({"t": "AAAAAAAAAAAAAAAAAAAAAg"})
    kinds = []
    if is_blind_between:
        kinds += watched.find_kinds(blind=True)
    watched.commit("g", None)  # Kafka deletes the commits with the topic
    watched.commit("g", 3)
    kinds += watched.find_kinds()
    kinds.remove(("topic_recreated", "g"))
    assert ("offsets_reset", "g") not in kinds
    watched.commit("g", 2)
    assert ("offsets_reset", "g") in watched.find_kinds()


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds, text):
    assert wording.show_duration(seconds) == text


def test_a_topic_that_may_not_be_described_any_more_was_not_deleted(watched):
    watched.topics, watched.denied = ("u",), frozenset({"t"})
    for _ in range(5):
        assert watched.look() == []
    watched.denied = frozenset()
    kinds = [kind for _ in range(3) for kind in watched.find_kinds()]
    assert kinds == [("topic_deleted", "g")]  # koff may describe it again, and it is not there
