"""docs/api.md says what the API does."""

from koff.serve.api.endpoints import ENDPOINTS
from tests.unit.serve.api.api_page import EXAMPLE, PAGE, build_example


def test_the_page_has_every_path_and_every_parameter():
    page = PAGE.read_text()
    for endpoint in ENDPOINTS:
        assert f"| `{endpoint.path}` |" in page
        for parameter in endpoint.parameters:
            assert f"`{parameter.name}`" in page


def test_every_example_gets_a_response():
    clusters, statuses = build_example(), []
    for found in EXAMPLE.finditer(PAGE.read_text()):
        path, _, query = found[1].partition("?")
        statuses.append(clusters.request(path, query).status)
    assert statuses == [200, 200, 200, 200, 400, 200]
    assert PAGE.read_text().count('"total": 1') == 1
