"""A proxy before a Kafka of one broker that reads each request and response, and may change them."""

import dataclasses
import io
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.client.closing import Closing

METADATA, FIND_COORDINATOR = 3, 10
FIRST_FLEXIBLE = {METADATA: 9, FIND_COORDINATOR: 3}
"""The versions since which a response's header has tags."""


class BrokerProxy(Closing):
    """Its clients see only its own address: it takes the place of the broker's in the responses.

    The caller calls `close`.
    """

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._behind = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # no connection is added any more
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._open.append(client)
                try:
                    broker = socket.create_connection(self._behind)
                except OSError:
                    client.close()
                    continue
                self._open.append(broker)
                asked: dict[int, tuple[int, int]] = {}
                for relay in (self._relay_requests, self._relay_responses):
                    threading.Thread(
                        target=self._run, args=(relay, client, broker, asked), daemon=True
                    ).start()

    def _run(
        self, relay: Callable[..., None], client: socket.socket, broker: socket.socket, asked: Any
    ) -> None:
        with suppress(OSError):
            relay(client, broker, asked)
        for each in (client, broker):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _relay_requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := read_frame(client):
            api, version, correlation = struct.unpack_from(">hhi", frame)
            asked[correlation] = api, version
            send_frame(broker, frame)

    def _relay_responses(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := read_frame(broker):
            (correlation,) = struct.unpack_from(">i", frame)
            api, version = asked.pop(correlation)
            self._send_response(client, self._change_response(frame, api, version), api, version)

    def _send_response(self, client: socket.socket, frame: bytes, api: int, version: int) -> None:
        send_frame(client, frame)

    def _change_response(self, frame: bytes, api: int, version: int) -> bytes:
        if api not in FIRST_FLEXIBLE:
            return frame
        kind = load_payload_module(api, version, EntityType.response)
        kind = getattr(kind, "MetadataResponse" if api == METADATA else "FindCoordinatorResponse")
        head = 4 + (version >= FIRST_FLEXIBLE[api])
        told, _ = entity_reader(kind)(frame, head)
        body = io.BytesIO()
        entity_writer(kind)(body, self._change_metadata(told) if api == METADATA else self._here(told))
        return frame[:head] + body.getvalue()

    def _change_metadata(self, told: Any) -> Any:
        return dataclasses.replace(told, brokers=tuple(map(self._here, told.brokers)))

    def _here(self, broker: Any) -> Any:
        return dataclasses.replace(broker, host="127.0.0.1", port=self._port)


def read_frame(source: socket.socket) -> bytes:
    """The next request or response of a connection, without its size. Empty if the connection ends before.

    It reads no byte more: `select` tells whether the next frame has come.
    """
    size = source.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return b""
    (length,) = struct.unpack(">i", size)
    frame = source.recv(length, socket.MSG_WAITALL)
    return frame if len(frame) == length else b""


def send_frame(sink: socket.socket, frame: bytes) -> None:
    sink.sendall(struct.pack(">i", len(frame)) + frame)
