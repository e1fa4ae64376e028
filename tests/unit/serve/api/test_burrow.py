"""Burrow's read endpoints: its shapes, field for field, and no number that is not true."""

import socket
from dataclasses import replace
from typing import Any

import pytest

from koff.lag import Reason
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterFacts, TopicFacts
from tests.unit.builders import apply, commit
from tests.unit.serve.api.clusters import (
    AWAY,
    EMPTY,
    LAGS,
    NOW_MS,
    ODD,
    Clusters,
    build_view,
    take_view,
    withhold,
)


def about(*names: str) -> dict[str, str]:
    """The member `request` of a response."""
    return {"url": "/".join(["/v3/kafka", *names]), "host": socket.gethostname()}


def test_clusters_are_listed():
    clusters = Clusters(take_view("a"), AWAY, build_view(take_view().snapshot, None))
    found = {
        "error": False,
        "message": "cluster list returned",
        "clusters": ["a", "away"],
        "request": about(),
    }
    assert clusters.burrow() == (200, found)


def test_a_cluster_does_not_say_how_koff_connects_to_it(clusters: Clusters):
    status, found = clusters.burrow("c")
    assert status == 200
    assert found["module"] == {
        "class-name": "kafka",
        "servers": [],
        "client-profile": {"name": "", "client-id": "", "kafka-version": "", "tls": None, "sasl": None},
        "topic-refresh": 0,
        "offset-refresh": 0,
    }
    assert clusters.burrow("x")[1]["message"] == "cluster module not found"


def test_groups_and_topics_are_listed_by_name(clusters: Clusters):
    status, found = clusters.burrow("c", "consumer")
    assert (status, found["message"]) == (200, "consumer list returned")
    assert found["consumers"] == sorted(LAGS)
    status, found = clusters.burrow("c", "topic")
    assert (status, found["message"], found["topics"]) == (200, "topic list returned", ["t", "unread"])
    assert Clusters(EMPTY).burrow("empty", "consumer")[1]["consumers"] == []


def test_a_topic_has_its_end_offsets_by_partition(clusters: Clusters):
    found = {
        "error": False,
        "message": "topic offsets returned",
        "offsets": [1420] * 3,
        "request": about("c", "topic", "t"),
    }
    assert clusters.burrow("c", "topic", "t") == (200, found)


@pytest.mark.parametrize(
    "view",
    [
        withhold({("simple", "t", 2): Reason.END_NOT_CURRENT}),
        replace(take_view(), facts=ClusterFacts(1, {"t": TopicFacts(4, 1)})),
        replace(take_view(), facts=ClusterFacts()),
    ],
    ids=["withheld", "a partition that nobody reads", "not listed"],
)
def test_the_offsets_of_a_topic_are_all_or_none(view: Any):
    assert Clusters(view).burrow("c", "topic", "t")[1]["offsets"] == []


def test_the_readers_of_a_topic_are_listed(clusters: Clusters):
    status, found = clusters.burrow("c", "topic", "t", "consumers")
    assert (status, found["message"]) == (200, "consumers of topic returned")
    assert found["consumers"] == sorted(LAGS)
    assert clusters.burrow("c", "topic", "unread", "consumers")[1]["consumers"] == []
    assert clusters.burrow("c", "topic", "x", "consumers") == (
        200,
        found | {"consumers": [], "request": about("c", "topic", "x", "consumers")},
    )


def test_a_group_has_its_newest_commits_at_the_place_of_their_partition(clusters: Clusters):
    status, found = clusters.burrow("c", "consumer", "classic")
    assert (status, found["message"]) == (200, "consumer detail returned")
    newest = {"offset": 1370, "timestamp": NOW_MS, "observedAt": NOW_MS - 5000, "lag": None}
    partition = {
        "offsets": [None] * 9 + [newest],
        "owner": "/10.0.0.1",
        "client_id": "m",
        "current-lag": 50,
    }
    assert found["topics"] == {"t": [partition, partition]}
    assert clusters.burrow("c", "consumer", "simple")[1]["topics"]["t"][:2] == [None, None]


def test_the_lag_of_a_group_has_every_field_of_burrow(clusters: Clusters):
    status, found = clusters.burrow("c", "consumer", "simple", "lag")
    newest = {"offset": 1413, "timestamp": NOW_MS - 9000, "observedAt": NOW_MS - 5000, "lag": None}
    partition = {
        "topic": "t",
        "partition": 2,
        "owner": "",
        "client_id": "",
        "status": "UNKNOWN",
        "start": newest,
        "end": newest,
        "current_lag": 7,
        "complete": 0.1,
    }
    assert status == 200
    assert found == {
        "error": False,
        "message": "consumer status returned",
        "status": {
            "cluster": "c",
            "group": "simple",
            "status": "UNKNOWN",
            "complete": 0.0,
            "partitions": [partition],
            "partition_count": 1,
            "maxlag": partition,
            "totallag": 7,
        },
        "request": about("c", "consumer", "simple", "lag"),
    }


def test_the_status_lists_only_partitions_that_are_not_well(clusters: Clusters):
    lag = clusters.burrow("c", "consumer", "classic", "lag")[1]["status"]
    status = clusters.burrow("c", "consumer", "classic", "status")[1]["status"]
    assert [partition["partition"] for partition in lag["partitions"]] == [0, 1]
    assert lag["status"] in ("WARN", "ERR")
    assert status == lag
    assert (lag["totallag"], lag["complete"], lag["maxlag"]["current_lag"]) == (100, 1.0, 50)
    assert lag["partitions"][0]["start"] is None
    status = clusters.burrow("c", "consumer", ODD, "status")[1]["status"]
    assert (status["status"], status["partitions"], status["partition_count"]) == ("OK", [], 1)
    assert status["maxlag"]["partition"] == 0


@pytest.mark.parametrize("what", ["status", "lag"])
@pytest.mark.parametrize("bits", [Reason.END_NOT_CURRENT, Reason.COMMITS_NOT_CURRENT])
def test_a_group_with_a_withheld_lag_gets_an_error_instead_of_a_partial_sum(bits: Reason, what: str):
    clusters = Clusters(withhold({("classic", "t", 0): bits}, partial_groups=["share"]))
    status, found = clusters.burrow("c", "consumer", "classic", what)
    assert (status, found["error"]) == (503, True)
    assert found.keys() == {"error", "message", "request"}
    assert "lags_withheld" in found["message"]
    assert "/api/v1/clusters/c/groups/classic" in found["message"]
    assert clusters.burrow("c", "consumer", "share", what)[0] == 503
    assert clusters.burrow("c", "consumer", "simple", what)[0] == 200
    # Its other rows are served where there is no sum.
    places = clusters.burrow("c", "consumer", "classic")[1]["topics"]["t"]
    assert [place and place["current-lag"] for place in places] == [None, 50]


@pytest.mark.parametrize("name", ["consumer", "empty", "x"])
def test_a_group_without_any_lag_is_not_found(clusters: Clusters, name: str):
    status, found = clusters.burrow("c", "consumer", name, "lag")
    assert (status, found["error"]) == (404, False)
    assert found["status"] == {
        "cluster": "c",
        "group": name,
        "status": "NOTFOUND",
        "complete": 1.0,
        "partitions": [],
        "partition_count": 0,
        "maxlag": None,
        "totallag": 0,
    }


@pytest.mark.parametrize("what", [("consumer", "x", "lag"), ("consumer", "x"), ("topic", "x")])
def test_nothing_is_denied_of_a_cluster_that_is_down(what: tuple[str, ...]):
    status, found = Clusters(AWAY).burrow("away", *what)
    assert (status, found["error"], found.keys()) == (503, True, {"error", "message", "request"})
    assert "not ready: no broker responds" in found["message"]


def test_a_partition_without_a_lag_is_left_out_and_counted():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 4), commit("g", "gone", 0, 9))
    tracker.add_samples(ends={("t", 0): 10})
    status = Clusters(build_view(tracker.take_snapshot(NOW_MS))).burrow("c", "consumer", "g", "lag")[1][
        "status"
    ]
    assert [partition["topic"] for partition in status["partitions"]] == ["t"]
    assert (status["partition_count"], status["totallag"]) == (2, 6)


def test_a_partition_with_an_absurd_number_makes_no_list_up_to_it():
    tracker = Tracker()
    apply(tracker, commit("g", "t", 2**31 - 1, 4))
    tracker.add_samples(ends={("t", 2**31 - 1): 10})
    clusters = Clusters(build_view(tracker.take_snapshot(NOW_MS)))
    assert clusters.burrow("c", "consumer", "g")[1]["topics"] == {}
    assert clusters.burrow("c", "consumer", "g", "lag")[1]["status"]["totallag"] == 6


def test_a_lag_that_a_coordinator_returned_has_no_commit(clusters: Clusters):
    (partition,) = clusters.burrow("c", "consumer", "share", "lag")[1]["status"]["partitions"]
    assert (partition["current_lag"], partition["start"], partition["end"]) == (20, None, None)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("x", "consumer"), "cluster not found"),
        (("x", "topic"), "cluster not found"),
        (("x", "topic", "t", "consumers"), "cluster not found"),
        (("x", "topic", "t"), "cluster or topic not found"),
        (("c", "topic", "x"), "cluster or topic not found"),
        (("x", "consumer", "simple"), "cluster or consumer not found"),
        (("c", "consumer", "x"), "cluster or consumer not found"),
    ],
)
def test_what_is_not_there_gets_burrows_error(clusters: Clusters, names: tuple[str, ...], message: str):
    assert clusters.burrow(*names) == (404, {"error": True, "message": message, "request": about(*names)})


def test_a_path_that_burrow_does_not_have_gets_its_error(clusters: Clusters):
    for path in ("/v3", "/v3/config", "/v3/kafka/c/x", "/v3/kafka/c/consumer/g/x", "/burrow/admin/x"):
        response = clusters.request(path)
        assert response.status == 404
        assert response.json == {"error": True, "message": "invalid request type", "result": {}}


@pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
@pytest.mark.parametrize(
    "path", ["/v3/kafka/c/consumer/simple", "/v3/kafka/c/consumer/simple/topic/t", "/v3/kafka"]
)
def test_nothing_can_be_changed(clusters: Clusters, method: str, path: str):
    response = clusters.request(path, method=method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert response.json["error"]
    assert response.json["message"] == "koff changes nothing: only GET is allowed"
    assert clusters.burrow("c", "consumer", "simple")[0] == 200


def test_admin_says_whether_koff_is_ready():
    clusters = Clusters(take_view())
    response = clusters.request("/burrow/admin/ready")
    assert (response.status, response.body) == (200, b"READY")
    clusters.views = (AWAY,)
    response = clusters.request("/burrow/admin/ready")
    assert (response.status, response.body) == (503, b"STARTING")


def test_without_progress_burrows_error_says_so():
    clusters = Clusters(take_view())
    clusters.failure = "the monitor gave no view within 20 s"
    status, found = clusters.burrow("c", "consumer", "simple", "lag")
    assert (status, found["message"]) == (503, "the monitor gave no view within 20 s")
