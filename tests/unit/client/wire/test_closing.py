"""Closing a connection while another thread waits for a response."""

import socket
import threading
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.wire.connection import Connection
from koff.errors import KoffError
from koff.proto.requests import Api, build_request, encode_request


class Noted(socket.socket):
    """Notes when a thread is about to wait for bytes."""

    waits = threading.Event()

    def recv(self, *args: Any) -> bytes:
        self.waits.set()
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        self.waits.set()
        return super().recv_into(*args)


def test_closing_wakes_a_thread_that_waits_for_a_response():
    plain, brokers = socket.socketpair()
    ours = Noted(fileno=plain.detach())
    connection = Connection(ClusterConf("a:1", request_timeout_s=60), "a", 1, ours)
    receive = connection.post_request(encode_request(build_request(Api.API_VERSIONS, 0)))
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            receive()
        except KoffError as error:
            ended.append(error)

    with brokers:
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        assert ours.waits.wait(60)
        connection.close()
        waiting.join(60)
    assert len(ended) == 1
