"""A request that has failed keeps no client, no connection and no thread. The garbage collector is off."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client import ClusterConf, TopicPartition, rights
from koff.client.broker.async_calls import AsyncCalls
from koff.client.cluster import Cluster, call_in_thread, get_result
from koff.client.feed.offset_requests import OffsetRequests
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.history.history_fetch import HistoryFetched, _Leader
from koff.client.offsets.lister import OffsetLister
from koff.client.wire import oidc
from koff.client.wire.connection import _connect_to_any
from koff.errors import ConnectError, KoffError
from koff.kafkatest import free_ports, wait_until
from tests.token_provider import providing_tokens


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def fail_later(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


@dataclass(eq=False)
class FailingAdmin:
    """An admin client whose requests all fail with `code`."""

    code: int = KafkaError._TRANSPORT
    errors: list[Any] = field(default_factory=list)

    def poll(self, timeout: float) -> None:
        """No event comes."""

    def list_topics(self, timeout: float) -> Any:
        raise KafkaException(KafkaError(self.code))

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return fail_later(self.code)

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return fail_later(self.code)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: fail_later(self.code) for name in topics.topic_names}

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {resource: fail_later(self.code) for resource in resources}

    def list_offsets(self, partitions: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {partition: fail_later(self.code) for partition in partitions}


@dataclass
class Made:
    """The clients that were made, as long as they live."""

    code: int = KafkaError._TRANSPORT
    clients: list[weakref.ref[FailingAdmin]] = field(default_factory=list)

    def make(self, *_: Any, **__: Any) -> FailingAdmin:
        client = FailingAdmin(self.code)
        self.clients.append(weakref.ref(client))
        return client

    @property
    def living(self) -> list[FailingAdmin]:
        return [client for made in self.clients if (client := made()) is not None]

    def wait_until_gone(self, left: int = 0) -> None:
        assert self.clients
        wait_until(lambda: len(self.living) <= left, what=f"at most {left} clients")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made()
    monkeypatch.setattr("koff.client.cluster.PATIENCE_S", 0.02)
    monkeypatch.setattr("koff.client.cluster.new_client", made.make)
    monkeypatch.setattr(rights, "new_client", made.make)
    return made


ABSENT = ClusterConf("127.0.0.1:1", connect_timeout_s=0.1, request_timeout_s=0.1)
CALLS: dict[str, Callable[[Cluster], object]] = {
    "fetch_metadata": Cluster.fetch_metadata,
    "describe_topics": lambda cluster: cluster.describe_topics(["t"]),
    "fetch_topic_configs": lambda cluster: cluster.fetch_topic_configs("t"),
    "list_offsets": lambda cluster: cluster.list_offsets([TopicPartition("t", 0)]),
    "connect": Cluster.connect,
}


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._FAIL])
@pytest.mark.parametrize("call", CALLS)
def test_a_cluster_keeps_one_client_after_failures(call: str, code: int, made: Made) -> None:
    made.code = code
    cluster = Cluster(ABSENT)
    for _ in range(3):
        with suppress(KoffError):  # an error of one partition is in the result
            CALLS[call](cluster)
    made.wait_until_gone(left=1)
    cluster.close()
    made.wait_until_gone()


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
def test_checks_of_rights_keep_no_client(code: int, made: Made) -> None:
    made.code = code
    with pytest.raises(ConnectError):
        rights.fetch_rights(ABSENT, ["t"])
    with suppress(ConnectError):
        rights.fetch_broker_settings(ABSENT, 1)
    made.wait_until_gone()


def test_a_right_that_is_missing_keeps_no_client(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(self: FailingAdmin, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(rights.Rights())
        return future

    monkeypatch.setattr(FailingAdmin, "describe_cluster", describe)
    monkeypatch.setattr(rights.Rights, "authorized_operations", None, raising=False)
    assert rights.fetch_rights(ABSENT, ["t"]).topics == {"t": frozenset()}
    made.wait_until_gone()


class Resource:
    """What must be let go."""

    def fail(self, *_: Any) -> Any:
        raise KoffError("no")


@pytest.mark.parametrize("read", [Future.result, get_result])
def test_a_call_in_a_thread_keeps_no_argument(read: Callable[[Future[Any]], object]) -> None:
    resource = Resource()
    seen = weakref.ref(resource)
    future = call_in_thread(Resource.fail, resource)
    del resource
    with pytest.raises(KoffError, match="no"):
        read(future)
    wait_until(lambda: seen() is None, what="no argument")


def check_gone(make: Callable[[], weakref.ref[Any]]) -> None:
    """Checks that the object to which `make` returns a reference is gone."""
    seen = make()
    wait_until(lambda: seen() is None, what="no object")


def test_an_error_of_a_request_for_offsets_keeps_nothing() -> None:
    def make() -> weakref.ref[Any]:
        resource = Resource()
        requests = OffsetRequests(resource.fail)
        with pytest.raises(KoffError):
            get_result(requests.request_offset(TopicPartition("t", 0)), 60)
        return weakref.ref(resource)

    check_gone(make)


def test_a_produce_call_that_fails_keeps_no_producer() -> None:
    def fail(producer: Any, call: Any) -> int:
        raise KoffError("no")

    calls = AsyncCalls(fail)

    def make() -> weakref.ref[Any]:
        producer = Resource()
        with pytest.raises(KoffError):
            get_result(calls.add(producer, _Done(), None), 60)  # type: ignore[arg-type]  # a double
        return weakref.ref(producer)

    check_gone(make)


class _Done:
    done = True

    def wait_for_reports(self, *_: Any, **__: Any) -> None:
        """There is nothing to wait for."""


def test_a_lister_without_an_answer_is_let_go() -> None:
    def make() -> weakref.ref[Any]:
        with OffsetLister(ABSENT) as lister:
            with pytest.raises(ConnectError):
                lister.list_offsets([TopicPartition("t", 0)])
            lister._known.note_requested({"t": []}, 0.0)
            with suppress(ConnectError):
                lister.refresh_leaders(timeout_s=0.1)
            return weakref.ref(lister)

    check_gone(make)


def test_coordinators_without_an_answer_keep_nothing() -> None:
    def make() -> weakref.ref[Any]:
        token = Resource()
        with pytest.raises(ConnectError):
            fetch_from_coordinators(ABSENT, FetchOptions(deadline_s=0.1), token=token.fail)
        return weakref.ref(token)

    check_gone(make)


def test_a_leader_that_refuses_the_connection_is_let_go() -> None:
    def make() -> weakref.ref[Any]:
        with OffsetLister(ABSENT) as lister:
            leader, fetched = _Leader(lister, ("127.0.0.1", free_ports(1)[0]), "t"), HistoryFetched()
            wait_until(leader._connecting.done, what="a refusal")
            leader.advance(fetched)
            return weakref.ref(leader)

    check_gone(make)


def test_an_address_that_refuses_keeps_no_socket_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", each))
            for each in (port, server.getsockname()[1])
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        def make() -> weakref.ref[Any]:
            with _connect_to_any("h", 1, None, time.monotonic() + 60) as opened:
                return weakref.ref(opened)

        check_gone(make)


def test_a_token_that_cannot_be_fetched_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing_tokens() as provider:
        provider.answers = [(500, b"")]

        def make() -> weakref.ref[Any]:
            source = oidc._TokenSource(provider.url, "client", "secret", "", "")
            for _ in range(2):
                with pytest.raises(ConnectError):
                    source.get()
            return weakref.ref(source)

        check_gone(make)


def list_librdkafka_threads() -> list[str]:
    """The names of the main threads of librdkafka's clients in this process."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            names.append(Path(f"/proc/self/task/{thread}/comm").read_text().strip())
    return [name for name in names if name == "rdk:main"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the threads")
def test_metadata_requests_that_hang_leave_no_client_of_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that accepts and never responds."""
    monkeypatch.setattr("koff.client.cluster.PATIENCE_S", 0.3)
    before = len(list_librdkafka_threads())
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        accepting = threading.Thread(target=accept_all, args=(server,))
        accepting.start()
        with Cluster(ClusterConf(f"127.0.0.1:{server.getsockname()[1]}", request_timeout_s=1.0)) as cluster:
            for _ in range(2):
                with pytest.raises(ConnectError):
                    cluster.fetch_metadata()
            wait_until(lambda: len(list_librdkafka_threads()) <= before + 1, what="one client of librdkafka")
        wait_until(lambda: len(list_librdkafka_threads()) <= before, what="no client of librdkafka")
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()


def accept_all(server: socket.socket) -> None:
    """Keeps all connections, until the server is shut down."""
    with ExitStack() as kept, suppress(OSError):
        while True:
            kept.enter_context(server.accept()[0])
