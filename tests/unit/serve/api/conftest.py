"""One cluster with groups of every kind."""

import pytest

from tests.unit.serve.api.clusters import Clusters, take_view


@pytest.fixture(scope="module")
def clusters() -> Clusters:
    return Clusters(take_view())
