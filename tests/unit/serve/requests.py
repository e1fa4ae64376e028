"""Requests to a server: whole ones, and bytes on a socket, with TLS where the server has it."""

import http.client
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from koff.kafkatest import wait_until
from koff.serve.http import Server
from koff.serve.metrics.exposition import Exposition
from tests.unit.serve.certificates import build_client_context

TIMEOUT_S = 60.0
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: koff\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: koff\r\n\r\n"


def find_address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def open_client(
    server: Server, context: ssl.SSLContext | None = None, **options: Any
) -> http.client.HTTPConnection:
    """A client of the server, which trusts the authority of tests unless `context` is given."""
    if server.url.startswith("https:"):
        return http.client.HTTPSConnection(
            *find_address(server), context=context or build_client_context(), timeout=TIMEOUT_S, **options
        )
    return http.client.HTTPConnection(*find_address(server), timeout=TIMEOUT_S, **options)


def request(
    server: Server,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body of a response."""
    with closing(open_client(server, context)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=body, headers=named)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


@contextmanager
def connect(
    server: Server, sent: bytes = b"", *, received_bytes: int | None = None
) -> Iterator[socket.socket]:
    """A connection on which these bytes were sent. Its buffer holds `received_bytes`."""
    with socket.socket() as connection:
        if received_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
        connection.settimeout(TIMEOUT_S)
        connection.connect(find_address(server))
        connection.sendall(sent)
        yield connection


@contextmanager
def dial(
    server: Server, sent: bytes = b"", *, context: ssl.SSLContext | None = None, **options: Any
) -> Iterator[socket.socket]:
    """As `connect`; where the server has TLS, after the handshake."""
    if not server.url.startswith("https:"):
        with connect(server, sent, **options) as plain:
            yield plain
        return
    with connect(server, **options) as plain:
        wrapped = (context or build_client_context()).wrap_socket(plain, server_hostname="127.0.0.1")
        with wrapped:
            wrapped.sendall(sent)
            yield wrapped


def count_connections(server: Server) -> int:
    return len(server._uvicorn.server_state.connections)


def wait_until_all_are_gone(server: Server) -> None:
    wait_until(lambda: not count_connections(server), what="the end of the connections")


def read_all(connection: socket.socket, *ends: type[Exception]) -> bytes:
    """All bytes until the server closes the connection, or until an error of `ends`.

    A `ConnectionError` is a reset: that of a server which closed before the client had sent all.
    """
    received = []
    with suppress(*ends):
        while data := connection.recv(1 << 16):
            received.append(data)
    return b"".join(received)


def exchange(server: Server, sent: bytes) -> bytes:
    """All that the server sends in response to these bytes, until it closes the connection."""
    with connect(server, sent) as connection:
        return read_all(connection)


def reset(connection: socket.socket) -> None:
    """Closes the connection as a client that has crashed does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def read_response(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one response. The connection stays open."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


@contextmanager
def hold_renders(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Lets each render wait until the end of this block. Yields the list of the renders that have begun."""
    begun: list[float] = []
    may_end = threading.Event()
    render = Exposition.render_chunks

    def render_later(self: Exposition, view: Any, **options: Any) -> Iterator[bytes]:
        begun.append(time.monotonic())
        may_end.wait(TIMEOUT_S)
        return render(self, view, **options)

    monkeypatch.setattr(Exposition, "render_chunks", render_later)
    try:
        yield begun
    finally:
        may_end.set()


def wait_until_requested(server: Server, count: int) -> None:
    """Returns when the server has so many connections, and is responding on all of them."""
    connections = server._uvicorn.server_state.connections
    wait_until(
        lambda: len(connections) == count and all(c._is_responding() for c in list(connections)),
        what="the requests",
    )
