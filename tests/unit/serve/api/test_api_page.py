"""docs/api.md says what the API does."""

from koff.serve.api.endpoints import ENDPOINTS
from tests.unit.serve.api.api_page import EXAMPLE, PAGE, build_example, fill_page


def test_the_page_has_every_path_and_every_parameter():
    page = PAGE.read_text()
    for endpoint in ENDPOINTS:
        assert f"| `{endpoint.path}` |" in page
        for parameter in endpoint.parameters:
            assert f"`{parameter.name}`" in page


def test_the_output_of_the_examples_is_that_of_the_api():
    page = PAGE.read_text()
    assert fill_page(page) == page, "run python -m tests.unit.serve.api.api_page"
    assert page.count('"total": 1') == 1


def test_every_example_gets_a_response():
    clusters, statuses = build_example(), []
    for found in EXAMPLE.finditer(PAGE.read_text()):
        path, _, query = found[1].partition("?")
        statuses.append(clusters.request(path, query).status)
    assert statuses == [200, 200, 200, 200, 400, 200]
