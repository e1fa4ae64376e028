"""A job connects to all clusters first, and leaves no connection open when one of them fails."""

from __future__ import annotations

from typing import Any

import pytest

from koff.client import ClusterConf
from koff.config.clusters import WatchedCluster
from koff.errors import ConfigError, ConnectError, KoffError
from koff.spark.job import job as module
from koff.spark.job.job import Job


class FakeConnection:
    """A cluster or a lister. `opened` has those that are open."""

    opened: list[FakeConnection]

    def __init__(self, conf: ClusterConf) -> None:
        self.conf, self.id = conf, "id"

    def connect(self) -> None:
        if self.conf.brokers == "unreachable":
            raise ConnectError("cannot reach Kafka")
        if self.conf.brokers == "unusable":
            raise ConfigError("koff cannot use a property")

    def __enter__(self) -> FakeConnection:
        self.opened.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.remove(self)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeConnection]:
    found: list[FakeConnection] = []
    monkeypatch.setattr(FakeConnection, "opened", found, raising=False)
    monkeypatch.setattr(module, "Cluster", FakeConnection)
    return found


def watch(*brokers: str) -> list[Any]:
    return [WatchedCluster(f"c{number}", ClusterConf(each)) for number, each in enumerate(brokers)]


@pytest.mark.parametrize(("second", "kind"), [("unreachable", ConnectError), ("unusable", ConfigError)])
def test_a_cluster_that_fails_is_named_and_all_connections_are_closed(
    opened: list[FakeConnection], second: str, kind: type[KoffError]
) -> None:
    with pytest.raises(kind, match="cluster c1: "):
        Job(watch("first", second)).__enter__()
    assert opened == []


def test_a_job_closes_the_connections_to_each_cluster(opened: list[FakeConnection]) -> None:
    with Job(watch("first", "second")):
        assert len(opened) == 2
    assert opened == []
