"""A server on loopback, of a source without a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.views import Source, fill_tracker, take_view


@pytest.fixture
def source() -> Source:
    return Source(take_view(fill_tracker()))


@pytest.fixture
def server(source: Source) -> Iterator[Server]:
    with Server(source, ServeConf("127.0.0.1:0")) as server:
        yield server
