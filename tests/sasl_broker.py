"""A broker on loopback that accepts or refuses log-ins by SASL/PLAIN, and counts them."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

from koff.client import ClusterConf
from koff.client.closing import Closing
from koff.proto.requests import Api

_VERSIONS = {Api.API_VERSIONS: 0, Api.SASL_HANDSHAKE: 1, Api.SASL_AUTHENTICATE: 0, Api.METADATA: 4}
"""The highest version of each request. All are from before flexible versions."""
_UNSUPPORTED_VERSION, _SASL_AUTHENTICATION_FAILED = 35, 58


class SaslBroker(Closing):
    """Accepts `password`; refuses all others. It knows no topics. A context manager."""

    def __init__(self, password: str = "right") -> None:
        self.password = password
        self.log_ins = 0
        """So many log-ins were tried."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="sasl-broker", daemon=True).start()

    def conf(self, password: str = "wrong", *more: SaslBroker) -> ClusterConf:
        """How to reach this broker, and `more`, with that password."""
        return ClusterConf(
            ",".join(f"127.0.0.1:{each.port}" for each in (self, *more)),
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "koff",
                "sasl.password": password,
            },
            connect_timeout_s=30,
            request_timeout_s=5,
        )

    def disconnect(self) -> None:
        """Closes all connections."""
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.disconnect()

    def __enter__(self) -> Self:
        return self

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._clients.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream, suppress(OSError):
            while len(head := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(head, "big"))
                api, version, correlation, size = struct.unpack_from(">hhih", frame)
                response = struct.pack(">i", correlation) + self._respond(api, version, frame[10 + size :])
                client.sendall(struct.pack(">i", len(response)) + response)
                if api == Api.SASL_AUTHENTICATE and response[4:6] != b"\0\0":
                    return

    def _respond(self, api: int, version: int, body: bytes) -> bytes:
        if api == Api.API_VERSIONS:
            known = b"".join(struct.pack(">hhh", api, 0, last) for api, last in _VERSIONS.items())
            return struct.pack(">hi", _UNSUPPORTED_VERSION if version else 0, len(_VERSIONS)) + known
        if api == Api.SASL_HANDSHAKE:
            return struct.pack(">hi", 0, 1) + _pack("PLAIN")
        if api == Api.SASL_AUTHENTICATE:
            self.log_ins += 1
            if body.endswith(b"\0" + self.password.encode()):
                return struct.pack(">hhi", 0, -1, 0)
            return struct.pack(">h", _SASL_AUTHENTICATION_FAILED) + _pack("no such user") + bytes(4)
        assert (api, version) == (Api.METADATA, 4)
        broker = struct.pack(">i", 1) + _pack("127.0.0.1") + struct.pack(">ih", self.port, -1)
        return bytes(4) + struct.pack(">i", 1) + broker + _pack("fake") + struct.pack(">ii", 1, 0)


def _pack(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
