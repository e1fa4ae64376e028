"""What `Cluster` makes of answers that are late."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from koff.client import Cluster, ClusterConf, TopicPartition
from koff.client.foreign_errors import make_denied_error
from koff.errors import ConnectError, Denied


class _NeverDone(Future[Any]):
    def result(self, timeout: float | None = None) -> Any:
        raise TimeoutError


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    def answer_nothing(
        self: Cluster, admin: Any, method: str, requested: Any, **_: Any
    ) -> dict[Any, Future[Any]]:
        return {each: _NeverDone() for each in getattr(requested, "topic_names", requested)}

    monkeypatch.setattr(Cluster, "_call_admin", answer_nothing)
    monkeypatch.setattr(Cluster, "_list_topics", lambda self, **_: None)
    return Cluster(ClusterConf("127.0.0.1:1", request_timeout_s=0.1))


def test_offsets_that_do_not_come_in_time_are_a_connect_error(cluster: Cluster) -> None:
    with pytest.raises(ConnectError):
        cluster.fetch_offsets([TopicPartition("t", 0)])


def test_topics_that_are_not_described_in_time_are_a_connect_error(cluster: Cluster) -> None:
    with pytest.raises(ConnectError):
        cluster.describe_topics(["t"])


def test_settings_that_do_not_come_in_time_are_a_connect_error(cluster: Cluster) -> None:
    with pytest.raises(ConnectError):
        cluster.fetch_topic_configs("t")


def test_a_missing_right_to_settings_asks_for_that_right() -> None:
    denied = make_denied_error("t", "b:1", "DESCRIBE_CONFIGS")
    assert isinstance(denied, Denied)
    assert "grant this user DESCRIBE_CONFIGS" in str(denied)
