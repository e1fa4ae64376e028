"""schemathesis makes requests up from the OpenAPI description: each is responded to as described."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koff.serve.api.endpoints import ENDPOINTS
from koff.serve.api.responder import Responder
from koff.serve.app import build_app
from koff.serve.shared_calls import SharedCalls
from tests.unit.serve.api.clusters import LAGS, Clusters, take_view, withhold

schemathesis = pytest.importorskip("schemathesis", reason="not installed: pip install '.[dev]'")

NAMES = {
    "cluster": st.just("c"),
    "group": st.sampled_from(list(LAGS)),
    "topic": st.sampled_from(["t", "unread"]),
}
EXPRESSIONS = st.sampled_from(["", "a", "^s", "e$", "[a-z]+", "(a|b).*", r"\."])


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    source = Clusters(take_view(), withhold({}, partial_groups=["share"]))
    schemathesis.openapi.format("limited-regex", EXPRESSIONS)
    calls: list[SharedCalls[Any, Any]] = [
        SharedCalls(lambda _: source.take_views(), "test-views"),
        SharedCalls(lambda _: None, "test-bodies"),
        SharedCalls(Responder(source).respond, "test-api"),
    ]
    yield schemathesis.openapi.from_asgi(
        "/api/openapi.json", build_app(source, calls[0], calls[1], calls[2], None)
    )
    for each in calls:
        each.stop()


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *((endpoint.path, "positive") for endpoint in ENDPOINTS),
        *((endpoint.path, "negative") for endpoint in ENDPOINTS if endpoint.parameters),
    ],
)
def test_every_request_gets_a_response_as_described(schema: Any, path: str, mode: str):
    requests = schema[path]["GET"].as_strategy(generation_mode=schemathesis.GenerationMode(mode))
    statuses = set()

    @settings(
        max_examples=40,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: Any) -> None:
        case = data.draw(requests)
        if case.path_parameters and data.draw(st.booleans()):
            case.path_parameters = {name: data.draw(NAMES[name]) for name in case.path_parameters}
        statuses.add(case.call_and_validate().status_code)

    check()
    assert statuses & {200, 400, 404}
