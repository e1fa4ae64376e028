"""A writer whose producer has no cluster, and a group's member without a cluster."""

from __future__ import annotations

import pytest

from koff.client.multicluster import group_intake, write_target
from tests.unit.client.multicluster.fake_member import Coordinator, Member
from tests.unit.client.multicluster.fake_producer import FakeProducer


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    made = FakeProducer()
    monkeypatch.setattr(write_target, "new_client", lambda *args, **options: made)
    monkeypatch.setattr(write_target, "_PROBE_S", 0.1)
    return made


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    made = Member()
    monkeypatch.setattr(group_intake, "new_client", lambda *args, **callbacks: made.become(**callbacks))
    monkeypatch.setattr(group_intake, "GroupCoordinator", lambda *args: Coordinator(made))
    return made
