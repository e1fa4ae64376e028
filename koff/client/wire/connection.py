"""One blocking connection to one broker, for the few requests that confluent-kafka has no call for.

    with Wire.connect(conf, host, port) as wire:
        listed = wire.request(wire.build(Api.LIST_GROUPS))

Every failure is a `ConnectError` with one line for a human; a refused log-in is `Denied`. Whatever
fails, the connection is closed: half a response is no place to go on from.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf
from koff.client.foreign_errors import connect_error
from koff.client.wire.credentials import Access, TokenSource, access, tls_context
from koff.client.wire.requests import Api, Question, build, error_name, part, question, versions
from koff.client.wire.sasl import Refused
from koff.errors import Closed, ConnectError, KoffError
from koff.proto.primitives import uvarint

T = TypeVar("T")

WINDOW = 2
"""Requests under way: one that the broker works at (it takes one a connection), one that waits there."""
QUESTION_BYTES = 64 << 10
"""What a pipelined request may have: as much as fits the sockets' buffers while nobody reads, so that
the two sides cannot wait for each other."""
_UNSUPPORTED_VERSION = 35


class Unanswerable(KoffError):
    """The broker is too old for a request, or it and kio have no version in common."""


class Connection(Closing):
    """A connection, let in and with versions agreed. A context manager; for one thread at a time.

    Each answer is waited for until `request_timeout_s` of the configuration has passed, or until
    `deadline` (of `time.monotonic`), which may be set at any time.
    """

    def __init__(self, conf: ClusterConf, host: str, port: int, connection: socket.socket) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.deadline = float("inf")
        self.bytes_read = 0
        self._conf = conf
        self._name = conf.properties.get("client.id", conf.client_id)
        self._limit = int(conf.properties.get("receive.message.max.bytes", "100000000"))
        self._socket: socket.socket | None = connection
        self._correlation = 0
        self._ranges: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Wire to {self.address}{'' if self._socket else ', closed'}>"

    @classmethod
    def connect(
        cls,
        conf: ClusterConf,
        host: str,
        port: int,
        *,
        token: TokenSource | None = None,
        timeout_s: float | None = None,
    ) -> Self:
        """A connection through TCP, TLS and the log-in, within `timeout_s` (else the connect timeout).

        `token` gives the bearer token where the properties say SASL/OAUTHBEARER.
        """
        entry = access(conf, token=token)
        limit = time.monotonic() + (conf.connect_timeout_s if timeout_s is None else timeout_s)
        address = f"{host}:{port}"
        try:
            wire = cls(conf, host, port, _connection(conf, entry, host, port, limit))
        except OSError as failure:
            raise _connect_error(address, failure) from failure
        try:
            wire.deadline = limit
            wire._agree()
            if entry.mechanism:
                wire._log_in(entry)
            wire.deadline = float("inf")
        except BaseException:
            wire.close()
            raise
        return wire

    def close(self) -> None:
        """Closes the connection. Safe to call twice."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    @property
    def closed(self) -> bool:
        return self._socket is None

    def version(self, api: Api) -> int | None:
        """The highest version of a request that the broker and kio have, None if there is none."""
        first, last = self._ranges.get(api, (0, -1))
        known = versions(api)
        highest = min(last, known[-1])
        return highest if highest >= max(first, known[0]) else None

    def build(self, api: Api, /, **fields: Any) -> Any:
        """A request of kio's in the highest version; it need not have all of the `fields`."""
        return build(api, self._agreed(api), **fields)

    def part(self, api: Api, name: str, /, **fields: Any) -> Any:
        """A struct for within such a request, by kio's name for it."""
        return part(api, self._agreed(api), name, **fields)

    def request(self, request: Any) -> Any:
        """kio's response to a request of kio's."""
        (answer,) = self.ask([question(request)])
        return answer

    def ask(self, questions: Iterable[Question[T]]) -> Iterator[T]:
        """The answers, in the order of the questions, of which `WINDOW` are under way at any time.

        Asking anything else before the last answer has come is an error.
        """
        waiting: deque[tuple[int, Question[T]]] = deque()
        coming = iter(questions)
        for asked in coming:
            waiting.append((self._send(asked), asked))
            if len(waiting) == WINDOW:
                yield self._receive(*waiting.popleft())
        while waiting:
            yield self._receive(*waiting.popleft())

    def _agreed(self, api: Api) -> int:
        version = self.version(api)
        if version is None:
            raise Unanswerable(f"Kafka at {self.address} has no {api.name} that koff knows")
        return version

    def _agree(self) -> None:
        """Learns the broker's versions (KIP-511: one that does not know ours answers as version 0)."""
        from koff.version import VERSION

        software = {"client_software_name": "koff", "client_software_version": VERSION}
        for version in (3, 0):
            request = build(Api.API_VERSIONS, version, **software)
            asked = question(request)
            oldest = question(build(Api.API_VERSIONS, 0))
            answer = self._receive_either(self._send(asked), asked, oldest)
            self._ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
            if answer.error_code == 0:
                return
        raise Unanswerable(f"Kafka at {self.address} does not tell its versions")

    def _receive_either(self, correlation: int, asked: Question[Any], oldest: Question[Any]) -> Any:
        buffer, at = self._frame(correlation, asked)
        refused = int.from_bytes(buffer[at : at + 2], "big") == _UNSUPPORTED_VERSION
        return self._read(oldest if refused else asked, buffer, at)

    def _log_in(self, entry: Access) -> None:
        answer = self.request(build(Api.SASL_HANDSHAKE, 1, mechanism=entry.mechanism))
        if answer.error_code != 0:
            offered = ", ".join(answer.mechanisms)
            raise self._refused(f"the broker has no SASL mechanism {entry.mechanism} (it has {offered})")
        exchange, said = entry.exchange(), b""
        try:
            message = next(exchange)
            while True:
                said = self._authenticate(message)
                message = exchange.send(said)
        except StopIteration:
            return
        except Refused as refusal:
            raise self._refused(f"SASL authentication error: {refusal}") from None

    def _authenticate(self, message: bytes) -> bytes:
        answer = self.request(self.build(Api.SASL_AUTHENTICATE, auth_bytes=message))
        if answer.error_code != 0:
            reason = answer.error_message or error_name(answer.error_code)
            raise self._refused(f"SASL authentication error: {reason}")
        return bytes(answer.auth_bytes)

    def _refused(self, reason: str) -> ConnectError:
        self.close()
        return connect_error(self.address, [KafkaError(KafkaError._AUTHENTICATION, reason)])

    def _send(self, asked: Question[Any]) -> int:
        self._correlation = correlation = (self._correlation + 1) & 0x7FFFFFFF
        connection = self._open()
        try:
            connection.settimeout(self._patience(time.monotonic()))
            connection.sendall(asked.frame(correlation, self._name))
        except OSError as failure:
            raise self._failed(failure) from failure
        return correlation

    def _receive(self, correlation: int, asked: Question[T]) -> T:
        buffer, at = self._frame(correlation, asked)
        return self._read(asked, buffer, at)

    def _frame(self, correlation: int, asked: Question[Any]) -> tuple[bytes, int]:
        """A whole response, and where it begins behind its header."""
        until = time.monotonic() + self._patience(time.monotonic())
        try:
            (size,) = struct.unpack(">i", self._exactly(4, until))
            if not 4 <= size <= self._limit:
                raise ConnectionError(f"Invalid response size {size}: it is not Kafka that answers")
            buffer = self._exactly(size, until)
        except OSError as failure:
            raise self._failed(failure) from failure
        self.bytes_read += size + 4
        if int.from_bytes(buffer[:4], "big") != correlation:
            raise self._failed(ConnectionError("Invalid response: it answers no question of ours"))
        at = 4
        if asked.flexible_answer:
            at = self._read(_HEADER_TAGS, buffer, at)
        return buffer, at

    def _read(self, asked: Question[T], buffer: bytes, at: int) -> T:
        try:
            return asked.read(buffer, at)
        except Exception as failure:  # kio's readers have no common family of errors
            raise self._failed(
                ConnectionError(f"Invalid response to request {asked.api}: {type(failure).__name__}")
            ) from failure

    def _exactly(self, size: int, until: float) -> bytes:
        connection = self._open()
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            connection.settimeout(_left(until))
            got = connection.recv_into(rest)
            if not got:
                raise ConnectionResetError("Disconnected")
            rest = rest[got:]
        return bytes(buffer)

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise Closed(f"the connection to {self.address} is closed")
        return self._socket

    def _patience(self, now: float) -> float:
        return max(min(self._conf.request_timeout_s, self.deadline - now), 0.001)

    def _failed(self, failure: OSError) -> ConnectError:
        self.close()
        return _connect_error(self.address, failure)


def _skip_tags(buffer: bytes, at: int) -> int:
    """Where the tag section that starts there ends."""
    count, at = uvarint(buffer, at)
    for _ in range(count):
        _, at = uvarint(buffer, at)
        size, at = uvarint(buffer, at)
        at += size
    return at


_HEADER_TAGS = Question(-1, 0, b"", _skip_tags)


def _connection(conf: ClusterConf, entry: Access, host: str, port: int, limit: float) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=_left(limit))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not entry.tls:
            return connection
        connection.settimeout(_left(limit))
        return tls_context(conf.properties).wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _connect_error(address: str, failure: OSError) -> ConnectError:
    """The one line that confluent-kafka's failures get too."""
    code = KafkaError._TRANSPORT
    if isinstance(failure, socket.gaierror):
        code = KafkaError._RESOLVE
    elif isinstance(failure, ssl.SSLError):
        code = KafkaError._SSL
    if isinstance(failure, TimeoutError):
        cause = "no answer in time"
    elif isinstance(failure, ssl.SSLCertVerificationError):
        cause = f"the broker's certificate is not trusted: {failure.verify_message}"
    else:
        cause = failure.strerror or str(failure) or type(failure).__name__
    cause = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$", "", cause)
    return connect_error(address, [KafkaError(code, cause)])
