"""Requests to the API over HTTP, and errors."""

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from koff.serve.api.endpoints import ENDPOINTS
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Tracker
from koff.view.cluster_view import Views
from tests.unit.builders import apply, commit
from tests.unit.serve.api.clusters import ODD, Clusters, build_view, take_view
from tests.unit.serve.requests import request

NAMES = [
    ODD,
    "a/b",
    "%",
    "%2F",
    "a%20b",
    ".",
    "..",
    "a/../b",
    "",
    " ",
    "\n",
    "+",
    "é漢\U0001f600",
    "?x=1",
    "#",
    "/",
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    tracker = Tracker()
    apply(tracker, *(commit(name, "t", 0, 4) for name in NAMES))
    source = Clusters(build_view(tracker.take_snapshot(0), "c/d"), take_view())
    with Server(source, ServeConf("127.0.0.1:0")) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_group_round_trips(server: Server, name: str):
    path = f"/api/v1/clusters/c%2Fd/groups/{quote(name, safe='')}"
    status, _, body = request(server, path)
    assert (status, json.loads(body)["group"]["group"]) == (200, name)
    in_query = f"/api/v1/group?cluster=c%2Fd&group={quote(name, safe='')}"
    assert request(server, in_query)[::2] == (status, body)
    status, _, body = request(server, f"/v3/kafka/c%2Fd/consumer/{quote(name, safe='')}")
    assert status == 200
    status, _, body = request(server, f"/api/v1/groups?name={quote(name, safe='')}&sort=name&limit=1000")
    assert name in [group["group"] for group in json.loads(body)["groups"]]


@pytest.mark.parametrize(
    ("path", "query", "same"),
    [
        ("cluster", "", "clusters/c"),
        ("topics", "&match=%5Et", "clusters/c/topics?match=%5Et"),
        ("topic", "&topic=t&limit=2", "clusters/c/topics/t?limit=2"),
        ("groups", "&sort=name", "clusters/c/groups?sort=name"),
    ],
)
def test_names_in_the_query_mean_the_same_as_in_the_path(server: Server, path: str, query: str, same: str):
    status, _, body = request(server, f"/api/v1/{path}?cluster=c{query}")
    assert status == 200
    assert (status, body) == request(server, f"/api/v1/{same}")[::2]


@pytest.mark.parametrize(
    ("path", "query", "missing"),
    [
        ("group", "", "cluster"),
        ("group", "cluster=c", "group"),
        ("topic", "cluster=c", "topic"),
        ("topics", "limit=1", "cluster"),
        ("cluster", "", "cluster"),
    ],
)
def test_a_name_that_is_missing_is_named(clusters: Clusters, path: str, query: str, missing: str):
    problem = clusters.request(f"/api/v1/{path}", query).problem
    assert (problem["status"], problem["parameter"]) == (400, missing)
    assert problem["detail"] == f"the parameter {missing} is missing"


def test_groups_of_a_cluster_that_does_not_exist_are_not_found(clusters: Clusters):
    for name in ("x", ""):
        assert clusters.request("/api/v1/groups", f"cluster={name}").problem["status"] == 404


def test_a_slash_that_is_not_encoded_separates(server: Server):
    assert request(server, "/api/v1/clusters/c%2Fd/groups/a/b")[0] == 404


def test_a_name_of_bytes_that_are_not_utf8_is_not_found_or_read_as_kafka_reads_it(server: Server):
    status, headers, body = request(server, "/api/v1/clusters/c/groups/%ff%fe")
    assert (status, headers["Content-Type"]) == (404, "application/problem+json")
    assert "\ufffd" in json.loads(body)["detail"]


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/openapi.json", "/api/v1/groups", "/v3/kafka", "/burrow/admin", "/burrow/admin/ready"],
)
def test_head_has_the_headers_of_get_and_no_body(server: Server, path: str):
    status, headers, body = request(server, path)
    head_status, head_headers, head_body = request(server, path, method="HEAD")
    assert (status, head_status, head_body) == (200, 200, b"")
    for name in ("Content-Type", "Content-Length"):
        assert head_headers[name] == headers[name]
    assert int(headers["Content-Length"]) == len(body) > 0


@pytest.mark.parametrize(
    "path", ["/api/", "/api/v1/groups/", "/api/v1", "/apix", "/v3", "/v3/kafka/", "/api//v1/groups"]
)
def test_a_path_with_another_slash_is_not_found_and_never_redirected(server: Server, path: str):
    status, headers, _ = request(server, path, Host="elsewhere.example")
    assert (status, headers["Location"]) == (404, None)


def test_large_bodies_are_compressed_for_those_who_accept_it(server: Server, clusters: Clusters):
    _, headers, plain = request(server, "/api/v1/clusters/c/groups")
    assert headers["Content-Encoding"] is None
    _, headers, packed = request(server, "/api/v1/clusters/c/groups", Accept_Encoding="gzip")
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert len(packed) < len(plain) / 2
    assert gzip.decompress(packed) == plain
    assert clusters.request("/api/v1/groups", gzip=True).json == clusters.get("groups")
    _, headers, _ = request(server, "/v3/kafka", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] is None  # it is small


def test_bodies_are_utf8(server: Server):
    body = request(server, "/api/v1/groups?name=%C3%A9")[2]
    assert "é漢".encode() in body


def test_a_path_that_is_not_there_is_a_problem(clusters: Clusters):
    for path in ("/api/v1", "/api/v2/groups", "/api/v1/clusters/c/x", "/api/openapi.json/"):
        problem = clusters.request(path).problem
        assert (problem["status"], problem["title"]) == (404, "Not Found")


def test_what_is_not_known_by_name_is_not_found_and_says_what_there_is(clusters: Clusters):
    for path, kind, known in (
        ("/api/v1/clusters/x", "cluster", ["c"]),
        ("/api/v1/clusters/c/topics/x", "topic", ["t", "unread"]),
        ("/api/v1/clusters/x/groups", "cluster", ["c"]),
    ):
        problem = clusters.request(path).problem
        assert (problem["status"], problem["known"]) == (404, known)
        assert problem["detail"] == f"there is no {kind} named 'x'"
    assert ODD in clusters.request("/api/v1/clusters/c/groups/x").problem["known"]
    tracker = Tracker()
    apply(tracker, *(commit(f"g{number}", "t", 0, 1) for number in range(21)))
    many = Clusters(build_view(tracker.take_snapshot(0)))
    assert "known" not in many.request("/api/v1/clusters/c/groups/x").problem


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=1.5", "limit"),
        ("limit=%C2%B2", "limit"),
        ("limit=", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("offset=x", "offset"),
        ("sort=lags", "sort"),
        ("order=down", "order"),
        ("status=STOP", "status"),
        ("status=OK&status=ok", "status"),
        ("type=", "type"),
        ("match=[", "match"),
        ("match=(a*)*b", "match"),
        ("min_lag=1e3", "min_lag"),
        ("limit=1&limit=2", "limit"),
        ("Limit=1", "Limit"),
        ("x", "x"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(clusters: Clusters, query: str, parameter: str):
    problem = clusters.request("/api/v1/groups", query).problem
    assert (problem["status"], problem["parameter"]) == (400, parameter)
    assert problem["allowed"]
    assert len(problem["detail"]) < 600


def test_an_endpoint_without_parameters_takes_none(clusters: Clusters):
    for endpoint in ENDPOINTS:
        if not endpoint.parameters:
            path = endpoint.path.format(cluster="c", group="simple", topic="t")
            assert clusters.request(path, "limit=1").problem["parameter"] == "limit"
            assert clusters.request(path).status == 200


def test_too_many_parameters_are_refused(clusters: Clusters):
    assert clusters.request("/api/v1/groups", "&".join(["state=x"] * 101)).problem["status"] == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_only_get_and_head_are_allowed(clusters: Clusters, method: str):
    for path in ("/api", "/api/openapi.json", "/api/v1/groups", "/api/v1/clusters/c/groups/simple"):
        response = clusters.request(path, method=method)
        assert response.problem["status"] == 405
        assert response.headers["Allow"] == "GET, HEAD"
    assert clusters.request("/api/v1/x", method=method).problem["status"] == 404


def test_without_progress_the_response_says_so():
    clusters = Clusters(take_view())
    clusters.failure = "the monitor gave no view within 20 s"
    problem = clusters.request("/api/v1/groups").problem
    assert (problem["status"], problem["detail"]) == (503, "the monitor gave no view within 20 s")
    assert clusters.request("/api").status == 200


def test_a_fault_of_koff_tells_the_client_nothing():
    clusters = Clusters(take_view())
    clusters.failure = RuntimeError(f"in {__file__}")
    for path, is_burrow in (("/api/v1/groups", False), ("/v3/kafka", True)):
        with capture_logs() as logged:
            response = clusters.request(path)
        assert [(line["event"], line["path"]) for line in logged] == [("a request failed", path)]
        assert response.status == 500
        assert b"Traceback" not in response.body
        assert b".py" not in response.body
        assert is_burrow or response.problem["title"] == "Internal Server Error"


def test_a_name_with_a_lone_surrogate_is_valid_json():
    view = take_view()
    shard = next(shard for shard in view.snapshot.shards.values() if shard.groups)
    object.__setattr__(shard.groups[0], "name", "\udc80")
    groups = Clusters(view).get("groups")["groups"]
    assert "\udc80" in [group["group"] for group in groups]


def test_the_first_page_names_the_api(server: Server):
    assert b'href="api"' in request(server, "/")[2]


def test_a_request_that_waits_for_koff_delays_no_other():
    asked, may_go = threading.Event(), threading.Event()

    class Slow(Clusters):
        def take_views(self) -> Views:
            asked.set()
            assert may_go.wait(60)
            return super().take_views()

    with Server(Slow(take_view()), ServeConf("127.0.0.1:0")) as slow, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(request, slow, "/api/v1/groups")
        assert asked.wait(60)
        assert request(slow, "/healthz")[0] == 200
        assert request(slow, "/burrow/admin")[0] == 200
        assert not waiting.done()
        may_go.set()
        assert waiting.result()[0] == 200


def test_burrows_health_check_does_not_wait_for_views():
    source = Clusters()
    source.failure = "no view"
    with Server(source, ServeConf("127.0.0.1:0")) as server:
        assert request(server, "/burrow/admin")[::2] == (200, b"GOOD")
        source.stall = "no progress for 31 s"
        assert request(server, "/burrow/admin")[::2] == (503, b"no progress for 31 s")
