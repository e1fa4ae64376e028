"""Which ports are free for a server."""

from __future__ import annotations

import socket

from koff.kafkatest.ports import is_free


def test_a_port_is_taken_while_a_server_listens_and_free_again_when_it_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        assert not is_free(port)
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()  # first, as servers do at their end: TIME_WAIT stays at this port
            assert client.recv(1) == b""
    assert is_free(port)
