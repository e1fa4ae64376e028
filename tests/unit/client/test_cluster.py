"""What `Cluster` makes of answers that are late."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client import ClusterConf, TopicPartition
from koff.client.cluster import Cluster, check_properties
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


class MuteAdmin:
    """An admin client without a response. It lets time pass. Its connections have these errors."""

    def __init__(self, *errors: int) -> None:
        self.clock_s, self.errors = 0.0, [KafkaError(code) for code in errors]
        self.note: Callable[[KafkaError], None] = lambda error: None

    def describe_cluster(self, request_timeout: float) -> Future[Any]:
        self.clock_s += request_timeout
        future = Future[Any]()
        future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return future

    def list_topics(self, timeout: float) -> Any:
        self.clock_s += timeout
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def poll(self, timeout: float) -> None:
        for error in self.errors:
            self.note(error)


def connect(admin: MuteAdmin, connect_timeout_s: float, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text of the error of `Cluster.connect` with this client."""
    monkeypatch.setattr(Cluster, "_new_admin", lambda self: admin)
    monkeypatch.setattr("koff.client.cluster.time", SimpleNamespace(monotonic=lambda: admin.clock_s))
    cluster = Cluster(ClusterConf("127.0.0.1:1", connect_timeout_s=connect_timeout_s))
    admin.note = cluster._note_error
    with pytest.raises(ConnectError) as error:
        cluster.connect()
    return str(error.value)


@pytest.mark.parametrize("connect_timeout_s", [1.0, 2.5, 6.5, 8.0])
def test_requests_of_an_attempt_to_connect_take_no_longer_than_its_timeout(
    connect_timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = MuteAdmin()
    assert "check --brokers" in connect(admin, connect_timeout_s, monkeypatch)
    assert connect_timeout_s <= admin.clock_s <= connect_timeout_s + 0.15


def test_that_the_request_times_out_hides_no_error_of_the_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers that close each connection: a client without SASL, on a port that needs it."""
    admin = MuteAdmin(KafkaError._ALL_BROKERS_DOWN)
    assert "every connection was closed" in connect(admin, 6.5, monkeypatch)


def test_the_client_is_replaced_only_after_failures_for_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is new knows only the bootstrap servers, which may be down."""
    clock_s = 0.0
    monkeypatch.setattr("koff.client.cluster.time.monotonic", lambda: clock_s)
    made = []
    monkeypatch.setattr(Cluster, "_new_admin", lambda self: made.append(clock_s))

    def fail(at_s: float) -> None:
        nonlocal clock_s
        clock_s = at_s
        with pytest.raises(ConnectError):
            raise cluster._make_connect_error()

    for at_s in (100, 105, 109):
        fail(at_s)
    assert made == []
    monkeypatch.setattr(cluster, "_call_admin", lambda *args, **options: {"t": _done()})
    cluster.describe_topics(["t"])
    for at_s in (111, 120):
        fail(at_s)
    assert made == []
    fail(121)
    assert made == [121]
    fail(122)
    assert made == [121]


def _done() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(partitions=[1], topic_id="id"))
    return future


@pytest.mark.parametrize(("timeout_s", "expected_ms"), [(3.5, 3500), (0.1, 1000)])
def test_each_connection_has_the_connect_timeout(timeout_s: float, expected_ms: int) -> None:
    properties = ClusterConf("h:9092", connect_timeout_s=timeout_s).librdkafka_properties()
    check_properties(ClusterConf("h:9092", connect_timeout_s=timeout_s))  # librdkafka takes it
    assert properties["socket.connection.setup.timeout.ms"] == expected_ms


def test_a_connect_timeout_of_the_user_s_own_stays() -> None:
    own = {"socket.connection.setup.timeout.ms": "60000"}
    assert (
        ClusterConf("h:9092", own).librdkafka_properties() | own
        == ClusterConf("h:9092", own).librdkafka_properties()
    )
