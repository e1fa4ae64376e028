"""The pool uses open connections again, replaces dead ones, and limits what it opens."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from koff.client.wire import pool as pool_module
from koff.client.wire.connection import Connection
from koff.client.wire.pool import MAX_CONNECTING, MAX_IDLE, Address, ConnectionPool
from koff.errors import ConnectError
from koff.kafkatest import wait_until
from koff.proto.requests import Api, EncodedRequest, build_request, encode_request
from tests.fake_brokers import FakeBrokers


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers(2) as made:
        yield made


@pytest.fixture
def pool(brokers) -> Iterator[ConnectionPool]:
    with ConnectionPool(brokers.conf) as made:
        yield made


def address(brokers: FakeBrokers, number: int) -> Address:
    return ("127.0.0.1", brokers[number].port)


def ask(connection: Connection) -> EncodedRequest:
    return encode_request(
        build_request(Api.METADATA, 12, topics=(), include_topic_authorized_operations=False)
    )


def send(pool: ConnectionPool, to: Address, timeout_s: float = 30.0) -> object:
    return pool.send_request(to, ask, deadline=time.monotonic() + timeout_s)


def test_a_connection_is_used_again(brokers, pool):
    for _ in range(3):
        send(pool, address(brokers, 1))
    send(pool, address(brokers, 2))
    assert brokers.connections == 2


def test_when_one_idle_connection_is_dead_the_others_are_not_tried(brokers, pool):
    opened = [Connection.connect(brokers.conf, *address(brokers, 1)) for _ in range(MAX_IDLE + 1)]
    for connection in opened:
        pool._put_idle(address(brokers, 1), connection)
    assert opened[0].closed  # so many are not kept
    brokers.disconnect(1)
    send(pool, address(brokers, 1))
    assert all(connection.closed for connection in opened)
    assert brokers.connections == MAX_IDLE + 2


def test_connections_that_were_idle_for_long_are_not_used(brokers, pool, monkeypatch):
    """A firewall may have forgotten them: a request would get no response, and no error."""
    send(pool, address(brokers, 1))
    monkeypatch.setattr(pool_module, "IDLE_S", 0.0)
    send(pool, address(brokers, 1))
    assert brokers.connections == 2


def test_more_connections_than_are_used_are_closed_after_a_while(brokers, pool, monkeypatch):
    """A fault opens more: each request that hangs needs a connection of its own."""
    opened = [Connection.connect(brokers.conf, *address(brokers, 1)) for _ in range(3)]
    for connection in opened:
        pool._put_idle(address(brokers, 1), connection)
    old_s = time.monotonic() - pool_module.IDLE_S
    pool._idle[address(brokers, 1)][:2] = [(old_s, connection) for connection in opened[:2]]
    send(pool, address(brokers, 1))
    assert [connection.closed for connection in opened] == [True, True, False]


def test_a_request_that_cannot_be_built_costs_no_connection(brokers, pool):
    def fail(connection: Connection) -> EncodedRequest:
        raise ValueError("no such request")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such request"):
            pool.send_request(address(brokers, 1), fail, deadline=time.monotonic() + 30)
    assert brokers.connections == 1


def test_a_connection_with_a_request_under_way_is_not_used_again(brokers, pool):
    def give_up(connection: Connection) -> None:
        connection.post_request(ask(connection))
        raise ValueError("no time to read")

    with pytest.raises(ValueError, match="no time to read"):
        pool.lend(address(brokers, 1), give_up, deadline=time.monotonic() + 30)
    send(pool, address(brokers, 1))
    assert brokers.connections == 2


def test_a_late_response_is_not_taken_for_the_next_one(brokers, pool):
    brokers[1].hangs = {Api.METADATA}
    with pytest.raises(ConnectError, match="in time"):
        send(pool, address(brokers, 1), timeout_s=1.0)
    brokers[1].hangs = set()
    send(pool, address(brokers, 1))
    assert brokers.connections == 2


def test_attempts_that_do_not_return_are_limited(brokers, pool, monkeypatch):
    """The search for a host's address has no deadline."""
    released = threading.Event()

    def resolve(*args):
        released.wait(120)
        raise socket.gaierror("late")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    def attempt() -> None:
        with suppress(ConnectError):
            send(pool, address(brokers, 1), timeout_s=120)

    threads = [threading.Thread(target=attempt) for _ in range(MAX_CONNECTING)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sum(pool._connecting.values()) == MAX_CONNECTING)
    with pytest.raises(ConnectError, match="attempts do not return; check the name server"):
        send(pool, address(brokers, 1))
    released.set()
    for thread in threads:
        thread.join()
    assert not pool._connecting


def test_a_request_is_not_repeated_after_its_deadline(brokers, pool):
    for _ in range(2):
        send(pool, address(brokers, 1))
    brokers[1].hangs = {Api.METADATA}
    with pytest.raises(ConnectError, match="in time"):
        send(pool, address(brokers, 1), timeout_s=0.3)
    assert brokers.connections == 1


def test_after_close_no_connection_is_kept(brokers, pool):
    connection = Connection.connect(brokers.conf, *address(brokers, 1))
    pool.close()
    pool._put_idle(address(brokers, 1), connection)
    assert connection.closed


def test_connections_to_brokers_that_are_gone_are_closed(brokers, pool):
    send(pool, address(brokers, 1))
    send(pool, address(brokers, 2))
    pool.keep_only({address(brokers, 2)})
    send(pool, address(brokers, 2))
    assert brokers.connections == 2
    send(pool, address(brokers, 1))
    assert brokers.connections == 3
