"""A request that has failed keeps no client, no connection and no thread. The garbage collector is off."""

from __future__ import annotations

import gc
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koff.client import ClusterConf, TopicPartition
from koff.client.broker.async_calls import AsyncCalls
from koff.client.calls import call_in_thread, get_result
from koff.client.cluster import Cluster
from koff.client.feed.offset_requests import OffsetRequests
from koff.client.groups.fetch_options import FetchOptions
from koff.client.leader_epochs import EpochEnd
from koff.client.log_reader import LogReader, LogStart
from koff.client.offsets.lister import OffsetLister
from koff.client.wire import oidc
from koff.client.wire.sockets import _connect_to_any
from koff.client.zookeeper import ConsumerGroup, ConsumerGroupConf
from koff.errors import ConnectError, KoffError
from koff.kafkatest import free_ports, wait_until
from tests.all_groups import fetch_all_groups
from tests.token_provider import providing_tokens


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


ABSENT = ClusterConf("127.0.0.1:1", connect_timeout_s=0.1, request_timeout_s=0.1)


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


def test_an_error_of_the_offset_manager_keeps_nothing_of_the_thread_that_closes_the_group() -> None:
    group = ConsumerGroup("g", ["t"], "127.0.0.1:1", ConsumerGroupConf())

    def make() -> weakref.ref[Any]:
        of_caller = Resource()
        group._offsets = cast(Any, SimpleNamespace(close=of_caller.fail))
        try:
            raise RuntimeError
        except RuntimeError:  # as in a block that ends by an error
            group._stopping.set()
            group._close_offsets()
        del group._offsets
        return weakref.ref(of_caller)

    check_gone(make)
    assert [str(error) for error in group._errors.at_close] == ["no"]


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

    def flush(self, producer: Any) -> None:
        """There is nothing to wait for."""


@pytest.mark.parametrize("ask", [Cluster.connect, Cluster.fetch_metadata])
def test_a_cluster_without_an_answer_is_let_go(ask: Callable[[Cluster], object]) -> None:
    def make() -> weakref.ref[Any]:
        with Cluster(ABSENT) as cluster:
            for _ in range(2):
                with pytest.raises(ConnectError):
                    ask(cluster)
            return weakref.ref(cluster)

    check_gone(make)


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
            fetch_all_groups(ABSENT, FetchOptions(deadline_s=0.1), token=token.fail)
        return weakref.ref(token)

    check_gone(make)


def test_a_leader_that_refuses_the_connection_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    at, address = TopicPartition("t", 0), ("127.0.0.1", free_ports(1)[0])
    monkeypatch.setattr(OffsetLister, "request_from_leaders", lambda *_: {at: EpochEnd(address, 0)})
    with OffsetLister(ABSENT) as lister, LogReader(lister, "t") as reader:

        def make() -> weakref.ref[Any]:
            reader.add({0: LogStart(0)})
            wait_until(lambda: reader.fetch(0.0) or reader._leaders, every_s=0.001, what="a leader")
            return weakref.ref(next(iter(reader._leaders.values())))

        seen = make()
        wait_until(lambda: reader.fetch(0.01) or seen() is None, every_s=0.001, what="no leader")
        assert reader.unreachable is not None


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
