"""Fake brokers, and a lister of their offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from koff.client.offsets import known_leaders
from koff.client.offsets.lister import OffsetLister
from tests.fake_brokers import FakeBrokers
from tests.unit.client.offsets.listing import make_lister


@pytest.fixture
def brokers(monkeypatch) -> Iterator[FakeBrokers]:
    """Brokers 1 to 3. Metadata may be fetched again at once."""
    monkeypatch.setattr(known_leaders, "FETCH_AGAIN_S", 0.0)
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def offsets(brokers) -> Iterator[OffsetLister]:
    with make_lister(brokers) as made:
        yield made
