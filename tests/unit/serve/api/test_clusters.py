"""Clusters and topics in the API."""

from dataclasses import replace
from typing import Any

import pytest

from koff.lag import Reason
from koff.serve.api import topic_columns
from koff.serve.api.group_columns import select_places
from koff.tracker import Snapshot, Tracker
from koff.view.cluster_view import MonitorStats
from tests.unit.builders import apply, commit
from tests.unit.serve.api.clusters import AWAY, EMPTY, NOW_MS, ODD, Clusters, build_view, take_view, withhold


def test_clusters_say_whether_they_are_ready():
    clusters = Clusters(take_view(), AWAY, EMPTY)
    found = clusters.get("clusters")
    assert (found["ready"], found["readiness"]) == (True, "ready")
    shown = {
        each["cluster"]: (each["ready"], each["groups"], each["rows"], each["brokers"], each["topics"])
        for each in found["clusters"]
    }
    assert shown == {
        "c": (True, 7, 6, 3, 2),
        "away": (False, None, None, None, None),
        "empty": (True, 0, 0, None, None),
    }
    assert found["clusters"][1]["readiness"] == "not ready: no broker responds"
    assert found["clusters"][1]["withheld"] is None
    assert clusters.get("clusters", "c") == {**found["clusters"][0], "last_hour": None}
    assert found["memory_bytes"] > 1_000_000
    assert found["clusters"][0]["labels"] == {"region": "eu"}


def test_a_cluster_shows_the_numbers_of_its_monitor():
    stats = MonitorStats(
        records={"OffsetCommit": 7},
        undecodable=1,
        skipped={"record": 2},
        behind=3,
        held_back_records=4,
        held_back_s=5.5,
        backfill_remaining=6,
        input_ages_s={"end_offsets": 7.5},
        requests={"offsets": 10},
        rows=9,
        withheld=8,
        internal_partitions=50,
        not_current=11,
        missing=("one",),
        source="coordinators",
    )
    found = Clusters(replace(take_view(), stats=stats)).get("clusters", "c")
    expected = {
        "records": {"OffsetCommit": 7},
        "undecodable": 1,
        "skipped": {"record": 2},
        "behind_offsets": 3,
        "held_back_offsets": 4,
        "held_back_s": 5.5,
        "backfill_remaining_offsets": 6,
        "input_ages_s": {"end_offsets": 7.5},
        "requests": {"offsets": 10},
        "rows": 9,
        "withheld": 8,
        "partitions": 50,
        "partitions_not_current": 11,
        "missing": ["one"],
        "source": "coordinators",
    }
    assert {name: found[name] for name in expected} == expected


def test_topics_are_those_that_the_cluster_lists_and_those_that_groups_read(clusters: Clusters):
    found = clusters.get("clusters", "c", "topics")
    assert (found["total"], found["cluster"]) == (2, "c")
    assert found["topics"] == [
        {
            "topic": "t",
            "partitions": 3,
            "replicas": 2,
            "leaderless": 1,
            "under_replicated": 2,
            "readers": 5,
            "end_sum": 3 * 1420,
            "reason": "",
            "produce_per_s": 3.2,
            "slowest_reader": "lost",
            "slowest_reader_lag": 620,
        },
        {
            "topic": "unread",
            "partitions": 6,
            "replicas": 3,
            "leaderless": 0,
            "under_replicated": 0,
            "readers": 0,
            "end_sum": None,
            "reason": "no_readers",
            "produce_per_s": None,
            "slowest_reader": None,
            "slowest_reader_lag": None,
        },
    ]
    names = [topic["topic"] for topic in clusters.get("clusters", "c", "topics", query="match=^un")["topics"]]
    assert names == ["unread"]
    page = clusters.get("clusters", "c", "topics", query="name=t&limit=1")
    assert ([topic["topic"] for topic in page["topics"]], page["next_offset"]) == (["t"], None)


def test_a_topic_that_is_not_listed_has_no_facts():
    clusters = Clusters(replace(take_view(), facts=AWAY.facts))
    (topic,) = clusters.get("clusters", "c", "topics")["topics"]
    assert (topic["partitions"], topic["end_sum"], topic["reason"]) == (None, None, "not_listed")


def test_a_topic_has_the_offsets_of_its_partitions_and_its_readers(clusters: Clusters):
    found = clusters.get("clusters", "c", "topics", "t")
    assert [(p["partition"], p["start"], p["end"]) for p in found["offsets"]] == [
        (partition, 900, 1420) for partition in range(3)
    ]
    readers = {reader["group"]: (reader["partitions"], reader["lag"]) for reader in found["groups"]}
    assert readers == {"classic": (2, 100), "lost": (1, 620), "share": (1, 20), "simple": (1, 7), ODD: (1, 0)}


def test_readers_of_a_topic_cost_only_their_rows_of_it(monkeypatch: pytest.MonkeyPatch):
    tracker = Tracker()
    for topic in ("t", "u", "v"):
        apply(tracker, commit("g", topic, 0, 4))
        tracker.add_samples(ends={(topic, 0): 10})
    selected = []

    def select(*given: Any) -> Snapshot:
        selected.append(select_places(*given))
        return selected[-1]

    monkeypatch.setattr(topic_columns, "select_places", select)
    clusters = Clusters(build_view(tracker.take_snapshot(NOW_MS)))
    (reader,) = clusters.get("clusters", "c", "topics", "u")["groups"]
    assert (reader["group"], reader["partitions"], reader["lag"]) == ("g", 1, 6)
    assert [len(shard.group) for snapshot in selected for shard in snapshot.shards.values()] == [1]


def test_no_sum_of_a_topic_has_a_withheld_offset_in_it():
    rows = {("classic", "t", 0): Reason.END_NOT_CURRENT, ("simple", "t", 2): Reason.COMMITS_NOT_CURRENT}
    clusters = Clusters(withhold(rows))
    found = clusters.get("clusters", "c", "topics", "t")
    assert (found["end_sum"], found["reason"]) == (None, "ends_not_known")
    assert [(p["start"], p["end"]) for p in found["offsets"]] == [(None, None), (900, 1420), (900, 1420)]
    readers = {reader["group"]: reader for reader in found["groups"]}
    assert (readers["classic"]["lag"], readers["classic"]["unknown"]) == (None, 1)
    assert readers["classic"]["reasons"] == ["end_not_current"]
    assert (readers["simple"]["lag"], readers["simple"]["reasons"]) == (None, ["commits_not_current"])
    assert readers["share"]["lag"] == 20


def test_a_reader_with_rows_missing_has_no_sum():
    found = Clusters(withhold({}, partial_groups=["share"])).get("clusters", "c", "topics", "t")
    (reader,) = [reader for reader in found["groups"] if reader["group"] == "share"]
    assert (reader["lag"], reader["reasons"]) == (None, ["commits_not_current"])


def test_topics_of_a_cluster_that_is_down_are_none():
    assert Clusters(AWAY).get("clusters", "away", "topics")["topics"] == []
    problem = Clusters(AWAY).request("/api/v1/clusters/away/topics/t").problem
    assert (problem["status"], problem.get("known")) == (503, None)
    assert "not ready: no broker responds" in problem["detail"]
