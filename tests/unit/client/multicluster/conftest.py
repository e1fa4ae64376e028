"""A writer whose producer has no cluster."""

from __future__ import annotations

import pytest

from koff.client.multicluster import write_target
from tests.unit.client.multicluster.fake_producer import FakeProducer


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    made = FakeProducer()
    monkeypatch.setattr(write_target, "new_client", lambda *args, **options: made)
    monkeypatch.setattr(write_target, "_PROBE_S", 0.1)
    return made
