"""Three partitions with leaders of their own, and a reader of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from koff.client import log_leader
from koff.client.log_reader import LogReader
from koff.client.offsets.lister import OffsetLister
from tests.fake_brokers import FakeBrokers, FakeTopic
from tests.unit.client.log_reader.reading import TOPIC, log


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not hang is not late on a busy machine. Small responses."""
    monkeypatch.setattr(log_leader, "RESPONSE_S", 60.0)
    monkeypatch.setattr(log_leader, "RESPONSE_BYTES", 800)


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers() as made:
        yield made


@pytest.fixture
def topic(brokers: FakeBrokers) -> FakeTopic:
    """Partitions 0 to 2 have leaders of their own, and 300 records each."""
    made = brokers.add_topic(TOPIC, [1, 2, 3])
    made.logs = {partition: log(300) for partition in range(3)}
    return made


@pytest.fixture
def lister(brokers: FakeBrokers, topic: FakeTopic) -> Iterator[OffsetLister]:
    with OffsetLister(brokers.conf) as made:
        yield made


@pytest.fixture
def reader(lister: OffsetLister) -> Iterator[LogReader]:
    with LogReader(lister, TOPIC) as made:
        yield made
