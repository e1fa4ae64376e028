"""Tests of the client leave no thread, file or connection behind."""

from __future__ import annotations

import pytest

OF_CLIENT = ("cluster", "coordinators", "key_hashes", "list_offsets", "multicluster", "zookeeper")


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> None:
    if request.module.__name__.rpartition(".test_")[2].startswith(OF_CLIENT):
        request.getfixturevalue("nothing_left")
