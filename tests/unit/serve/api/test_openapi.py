"""The OpenAPI description is what the API does."""

from itertools import product
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from koff.lag import Reason
from koff.serve.api.endpoints import ENDPOINTS, ApiEndpoint
from koff.tracker import Snapshot, Tracker
from tests.unit.builders import apply, classic_group, commit
from tests.unit.serve.api.clusters import AWAY, EMPTY, LAGS, ODD, Clusters, build_view, take_view, withhold

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="needs schemathesis: pip install '.[dev]'")


def take_snapshot_without_time() -> Snapshot:
    """Groups of which nothing is known but commits and members."""
    tracker = Tracker()
    apply(tracker, commit("simple", "t", 0, 4), commit("lost", "t", 0, -1), classic_group("empty", {}))
    return tracker.take_snapshot()


SOURCES = {
    "usual": Clusters(take_view()),
    "withheld": Clusters(
        withhold(
            {("classic", "t", 0): Reason.END_NOT_CURRENT, ("lost", "t", 0): Reason.COMMITS_NOT_CURRENT},
            ["simple"],
            ["share"],
        )
    ),
    "several": Clusters(take_view(), AWAY, EMPTY),
    "without time": Clusters(build_view(take_snapshot_without_time(), "c")),
}
VALUES = {
    "cluster": ("c", "away", "empty", "x"),
    "group": (*LAGS, "empty", "consumer", "x"),
    "topic": ("t", "unread", "x"),
}


def list_requests(endpoint: ApiEndpoint) -> list[tuple[str, str]]:
    """Paths and queries with all names that there are, and with one that there is not."""
    names = [*endpoint.names, *endpoint.required]
    choices = [dict(zip(names, values, strict=True)) for values in product(*(VALUES[name] for name in names))]
    return [
        (
            endpoint.path.format_map({name: quote(value, safe="") for name, value in given.items()}),
            urlencode({name: given[name] for name in endpoint.required}),
        )
        for given in choices
    ]


def resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the components that it may refer to."""
    return {**schema, "components": document["components"]}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = Clusters().request("/api/openapi.json").json
    return found


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation_id)
def test_every_response_has_the_shape_that_is_described(document: dict[str, Any], endpoint: ApiEndpoint):
    responses = document["paths"][endpoint.path]["get"]["responses"]
    statuses = set()
    for clusters in SOURCES.values():
        for path, query in list_requests(endpoint):
            for more in ("", "&wrong=1"):
                response = clusters.request(path, query + more)
                content = responses[str(response.status)]["content"]
                schema = resolve(document, content[response.headers["Content-Type"]]["schema"])
                jsonschema_rs.validator_for(schema).validate(response.json)
                statuses.add(response.status)
    names = {*endpoint.names, *endpoint.required}
    assert statuses - {503} == ({200, 400, 404} if names else {200, 400})
    assert (503 in statuses) == bool({"group", "topic"} & names)


def test_everything_in_the_table_is_described_and_nothing_else(document: dict[str, Any]):
    assert set(document["paths"]) == {endpoint.path for endpoint in ENDPOINTS}
    for endpoint in ENDPOINTS:
        described = document["paths"][endpoint.path]["get"]
        assert {p["name"] for p in described["parameters"] if p["in"] == "path"} == set(endpoint.names)
        for parameter in endpoint.parameters:
            (found,) = [p for p in described["parameters"] if p["name"] == parameter.name]
            assert found.get("required", False) == (parameter.name in endpoint.required)
    ids = [each["get"]["operationId"] for each in document["paths"].values()]
    assert len(ids) == len(set(ids))


def test_described_values_are_accepted_and_others_refused(document: dict[str, Any]):
    clusters, count = SOURCES["usual"], 0
    for endpoint in ENDPOINTS:
        path, names = list_requests(endpoint)[0]
        for parameter in document["paths"][endpoint.path]["get"]["parameters"]:
            if parameter["in"] == "path":
                continue
            schema = parameter["schema"].get("items", parameter["schema"])
            good = [
                *schema.get("enum", []),
                schema.get("minimum"),
                schema.get("maximum"),
                schema.get("default"),
            ]
            bad = ["nonsense"] if "enum" in schema or schema["type"] == "integer" else []
            if schema["type"] == "integer":
                bad += [schema["minimum"] - 1, schema["maximum"] + 1]
            for value in [value for value in good if value is not None]:
                assert clusters.request(path, f"{names}&{parameter['name']}={value}").status == 200
                count += 1
            for value in bad:
                assert clusters.request(path, f"{names}&{parameter['name']}={value}").status == 400
            if parameter["schema"]["type"] == "array":
                several = [names, *(f"{parameter['name']}={value}" for value in good if value)]
                assert clusters.request(path, "&".join(several)).status == 200
    assert count > 30


def test_the_page_shows_every_endpoint_and_loads_nothing(document: dict[str, Any]):
    response = SOURCES["usual"].request("/api")
    page = response.body.decode()
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page
    assert "http:" not in page
    assert "https:" not in page
    assert "<script" not in page


def test_names_of_clients_are_not_markup():
    response = SOURCES["usual"].request(f"/api/v1/clusters/{quote(ODD, safe='')}")
    assert (response.status, response.headers["X-Content-Type-Options"]) == (404, "nosniff")
