"""Tests of the client leave no thread, file or connection behind."""

import pytest

OF_CLIENT = ("cluster", "coordinators", "key_hashes", "list_offsets", "multicluster", "zookeeper")


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest):
    name = request.module.__name__.rpartition(".test_")[2]
    if name.startswith(OF_CLIENT):
        request.getfixturevalue("nothing_left")
