"""Requests to a server: whole ones, and bytes on a socket."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager

from koff.serve.http import Server

TIMEOUT_S = 60.0


def find_address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def request(
    server: Server, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body of a response."""
    with closing(http.client.HTTPConnection(*find_address(server), timeout=TIMEOUT_S)) as connection:
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


def read_all(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    received = []
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
