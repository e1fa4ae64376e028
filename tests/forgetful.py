"""A broker that names no brokers in its metadata for a while, as one may that is starting or stopping."""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

METADATA, FIND_COORDINATOR = 3, 10
FIRST_FLEXIBLE = {METADATA: 9, FIND_COORDINATOR: 3}
"""The versions since which a response's header has tags."""


class Forgetful:
    """Stands before a Kafka of one broker, named as that broker to whoever comes this way.

    While `forgets`, its metadata names the topics and no broker. `empty_responses` counts these responses.
    """

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._behind = (host, int(port))
        self.forgets = False
        self.empty_responses = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._open: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._behind)
                self._open += [client, broker]
                asked: dict[int, tuple[int, int]] = {}
                for work in ((self._requests, client, broker), (self._responses, broker, client)):
                    threading.Thread(target=self._relay, args=(*work, asked), daemon=True).start()

    def _relay(self, handle: Any, source: socket.socket, sink: socket.socket, asked: Any) -> None:
        with suppress(OSError):
            for frame in frames(source):
                body = handle(frame, asked)
                sink.sendall(struct.pack(">i", len(body)) + body)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _requests(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        api, version, correlation = struct.unpack_from(">hhi", frame)
        asked[correlation] = api, version
        return frame

    def _responses(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        (correlation,) = struct.unpack_from(">i", frame)
        api, version = asked.pop(correlation)
        if api not in FIRST_FLEXIBLE:
            return frame
        kind = load_payload_module(api, version, EntityType.response)
        kind = getattr(kind, "MetadataResponse" if api == METADATA else "FindCoordinatorResponse")
        head = 4 + (version >= FIRST_FLEXIBLE[api])
        told, _ = entity_reader(kind)(frame, head)
        body = io.BytesIO()
        entity_writer(kind)(body, self._metadata(told) if api == METADATA else self._here(told))
        return frame[:head] + body.getvalue()

    def _metadata(self, told: Any) -> Any:
        self.empty_responses += self.forgets
        brokers = () if self.forgets else tuple(map(self._here, told.brokers))
        return dataclasses.replace(told, brokers=brokers)

    def _here(self, broker: Any) -> Any:
        return dataclasses.replace(broker, host="127.0.0.1", port=self._port)


def frames(source: socket.socket) -> Iterator[bytes]:
    """What is read from a connection, a request or response at a time, until it ends."""
    with source.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", size)[0])


@contextmanager
def forgetful(bootstrap: str) -> Iterator[Forgetful]:
    standing = Forgetful(bootstrap)
    try:
        yield standing
    finally:
        standing.close()
