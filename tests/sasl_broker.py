"""A broker on loopback that accepts or refuses log-ins by SASL, and notes them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Self

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from koff.client import ClusterConf
from koff.client.closing import Closing
from koff.proto.requests import Api, build_response, decode_request, encode_response

_VERSIONS = {Api.API_VERSIONS: 3, Api.SASL_HANDSHAKE: 1, Api.SASL_AUTHENTICATE: 2, Api.METADATA: 12}
"""The highest version of each request."""


class SaslBroker(Closing):
    """Accepts `password`; refuses all others. It knows no topics. A context manager.

    Messages of another mechanism than PLAIN are all accepted.
    """

    def __init__(self, password: str = "right", mechanism: str = "PLAIN") -> None:
        self.password, self.mechanism = password, mechanism
        self.log_ins = self.accepted = 0
        """So many log-ins were tried, and so many of them were accepted."""
        self.message = b""
        """The newest message of a client."""
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
                header, request = decode_request(stream.read(int.from_bytes(head, "big")))
                response = self._respond(Api(header.api), header.version, request)
                client.sendall(encode_response(response, header.correlation))
                if header.api == Api.SASL_AUTHENTICATE and response.error_code:
                    return

    def _respond(self, api: Api, version: int, request: Any) -> Any:
        match api:
            case Api.API_VERSIONS:
                kinds = load_payload_module(api, version, EntityType.response)
                keys = (
                    kinds.ApiVersion(api_key=key, min_version=0, max_version=last)
                    for key, last in _VERSIONS.items()
                )
                return build_response(api, version, error_code=ErrorCode.none, api_keys=tuple(keys))
            case Api.SASL_HANDSHAKE:
                return build_response(api, version, error_code=ErrorCode.none, mechanisms=(self.mechanism,))
            case Api.SASL_AUTHENTICATE:
                self.log_ins += 1
                self.message = request.auth_bytes
                if self.mechanism != "PLAIN" or request.auth_bytes.endswith(b"\0" + self.password.encode()):
                    self.accepted += 1
                    return build_response(api, version, error_code=ErrorCode.none, auth_bytes=b"")
                refusal = {
                    "error_code": ErrorCode.sasl_authentication_failed,
                    "error_message": "no such user",
                }
                return build_response(api, version, **refusal, auth_bytes=b"")
        assert api is Api.METADATA
        kinds = load_payload_module(api, version, EntityType.response)
        broker = kinds.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port, rack=None)
        return build_response(api, version, brokers=(broker,), cluster_id="fake", controller_id=1, topics=())
