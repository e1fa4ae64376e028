"""A metadata request goes to other brokers, too, while one does not respond."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster, call_in_thread
from koff.errors import Closed

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose clients are the numbers from 0 on. It asks the next one after 0.05 s."""
    monkeypatch.setattr("koff.client.cluster.PATIENCE_S", 0.05)
    numbers = itertools.count()
    monkeypatch.setattr(Cluster, "_new_admin", lambda _: next(numbers))
    with Cluster(ClusterConf("b:1", request_timeout_s=60.0)) as cluster:
        yield cluster


def test_the_first_response_counts_and_its_client_is_kept(cluster):
    release = threading.Event()

    def respond(client: int, timeout_s: float) -> str:
        if client != 2:  # on a busy machine, more than two others are asked
            release.wait(timeout_s)
        return f"from {client}"

    assert cluster._ask_any_broker(respond) == "from 2"
    assert cluster._ask_any_broker(respond) == "from 2"
    release.set()


def test_a_client_that_gives_up_early_is_followed_by_another_one(cluster):
    release = threading.Event()

    def respond(client: int, timeout_s: float) -> int:
        if client < 3:
            raise TIMED_OUT
        if client > 3:  # asked on a busy machine
            release.wait(timeout_s)
        return client

    assert cluster._ask_any_broker(respond) == 3
    release.set()


def test_an_error_other_than_a_timeout_is_raised_at_once(cluster):
    def respond(client: int, timeout_s: float) -> int:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(KafkaException, match="TRANSPORT"):
        cluster._ask_any_broker(respond)
    assert cluster._get_admin() == 0


def test_the_last_timeout_is_raised_when_the_time_is_over(cluster):
    cluster.conf = ClusterConf("b:1", request_timeout_s=0.2)

    def respond(client: int, timeout_s: float) -> int:
        threading.Event().wait(timeout_s)
        raise TIMED_OUT

    with pytest.raises(KafkaException, match="TIMED_OUT"):
        cluster._ask_any_broker(respond)
    assert cluster._get_admin() == 0


def test_a_cluster_that_is_closed_meanwhile_asks_nobody_else(cluster):
    release = threading.Event()

    def respond(client: int, timeout_s: float) -> int:
        cluster.close()
        release.wait(timeout_s)
        return client

    with pytest.raises(Closed):
        cluster._ask_any_broker(respond)
    release.set()


def test_close_ends_a_request_for_offsets_that_is_under_way(monkeypatch):
    class Silent:
        def poll(self, timeout: float) -> None:
            """No event comes."""

        def list_offsets(self, requested: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
            sent.set()
            return {partition: Future() for partition in requested}

    sent = threading.Event()
    monkeypatch.setattr(Cluster, "_new_admin", lambda _: Silent())
    cluster = Cluster(ClusterConf("b:1", request_timeout_s=600.0))
    asking = call_in_thread(cluster.fetch_offsets, [TopicPartition("t", 0)])
    assert sent.wait(60)
    cluster.close()
    with pytest.raises(Closed):
        asking.result(60)
