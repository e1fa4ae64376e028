"""One blocking connection to one broker.

    with Connection.connect(conf, host, port) as connection:
        listed = connection.send_request(connection.build_request(Api.LIST_GROUPS))

An error of the network, or an invalid response, raises `ConnectError` with one line of text; a refused log-in
raises `LogInRefused`. Both close the connection: after half a response, the start of the next one cannot be
found. Properties that koff cannot use raise `ConfigError`, a request that the broker does not support raises
`UnsupportedVersion`, and a closed connection raises `Closed`.
"""

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Self, TypeVar

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.foreign_errors import REFUSED, TLS, Fault, make_connect_error, map_foreign_errors
from koff.client.wire.credentials import Credentials, TokenSource, read_credentials, shows_certificate
from koff.client.wire.log_ins import REFUSALS, identify
from koff.client.wire.sasl import Refused
from koff.client.wire.sockets import open_socket, remaining_s
from koff.errors import Closed, ConnectError, KoffError, LogInRefused
from koff.proto.requests import (
    Api,
    EncodedRequest,
    build_request,
    build_struct,
    encode_request,
    error_name,
    kio_versions,
    skip_tags,
)
from koff.version import VERSION

T = TypeVar("T")

MAX_IN_FLIGHT = 2
"""A broker processes one request of a connection at a time; the second request waits at the broker."""
MAX_REQUEST_BYTES = 64 << 10
"""The largest request that may be pipelined. It fits the sockets' buffers: otherwise koff could block in
`sendall` while the broker blocks because koff does not read its response."""
_PIECE_BYTES = 1 << 20
"""The room for a response at first. It doubles as bytes come: a length alone is not believed."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin."""
_UNSUPPORTED_VERSION = 35  # Kafka's error code


class UnsupportedVersion(KoffError):
    """The broker is too old for a request, or the broker and kio have no version of it in common."""


class Connection(Closing):
    """A connection after log-in and version negotiation. A context manager; for one thread at a time.

    A response may take `timeout_s`, at first that of the configuration, but not longer than until `deadline`
    (in the time of `time.monotonic`). The caller may set both at any time. `in_flight` is how many requests
    have no response yet.
    """

    def __init__(self, conf: ClusterConf, host: str, port: int, opened: socket.socket) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.deadline, self.timeout_s = float("inf"), conf.request_timeout_s
        self.in_flight = 0
        self._conf, self._host = conf, host
        self._client_id = conf.properties.get("client.id", conf.client_id)
        self._max_response_bytes = int(conf.properties.get("receive.message.max.bytes", "100000000"))
        self._socket: socket.socket | None = opened
        self._correlation = 0
        self._version_ranges: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Connection to {self.address}{'' if self._socket else ', closed'}>"

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
        """A connection through TCP, TLS and log-in, within `timeout_s` (default: the connect timeout).

        `token` returns the bearer token if the properties choose SASL/OAUTHBEARER. Raises `LogInRefused`
        without an attempt, if the broker has refused the log-in lately (`log_ins`).
        """
        credentials = read_credentials(conf, token=token)
        if not (credentials.tls or credentials.mechanism):
            return cls._open(conf, host, port, credentials, timeout_s)
        identity = identify(conf, token)
        REFUSALS.check(identity, (host, port))
        refusal = ""
        try:
            return cls._open(conf, host, port, credentials, timeout_s)
        except LogInRefused as error:
            refusal = str(error)
            raise
        finally:
            REFUSALS.note(identity, (host, port), refusal)

    @classmethod
    def _open(
        cls, conf: ClusterConf, host: str, port: int, credentials: Credentials, timeout_s: float | None
    ) -> Self:
        until = time.monotonic() + (conf.connect_timeout_s if timeout_s is None else timeout_s)
        with _map_errors(f"{host}:{port}"):
            connection = cls(conf, host, port, open_socket(conf, credentials, host, port, until))
        try:
            connection.deadline = until  # for the log-in too
            with _name_refused_certificate(connection.address, conf) if credentials.tls else nullcontext():
                connection._negotiate_versions()
            if credentials.mechanism:
                connection._authenticate(credentials)
            connection.deadline = float("inf")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Closes the connection. Safe to call twice."""
        opened, self._socket = self._socket, None
        if opened is not None:
            # Wakes a thread that waits for a response: `close` alone does not. It is the method of the plain
            # socket, because that of a TLS socket changes state which the other thread uses.
            with suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)
            opened.close()

    @property
    def closed(self) -> bool:
        """Whether the connection was closed, by `close` or after an error."""
        return self._socket is None

    def supported_versions(self, api: Api) -> tuple[int, int]:
        """The first and the last version of a request that the broker supports, (0, -1) if it has none."""
        return self._version_ranges.get(api, (0, -1))

    def highest_version(self, api: Api) -> int | None:
        """The highest version of a request that both the broker and kio support, None if there is none."""
        first, last = self.supported_versions(api)
        kio_range = kio_versions(api)
        highest = min(last, kio_range[-1])
        return highest if highest >= max(first, kio_range[0]) else None

    def build_request(self, api: Api, /, **fields: Any) -> Any:
        """A request of kio in the highest version. `fields` that this version lacks are left out."""
        return build_request(api, self._require_version(api), **fields)

    def build_struct(self, api: Api, name: str, /, **fields: Any) -> Any:
        """A struct for use within a request of `build_request`, by kio's class name."""
        return build_struct(api, self._require_version(api), name, **fields)

    def send_request(self, request: Any) -> Any:
        """kio's response to one request of kio."""
        (response,) = self.send_requests([encode_request(request)])
        return response

    def send_requests(self, requests: Iterable[EncodedRequest[T]]) -> Iterator[T]:
        """The responses in the order of the requests. At most `MAX_IN_FLIGHT` requests are under way.

        The caller must read all responses before it sends anything else.
        """
        # While the broker processes one request, the next request is already at the broker.
        in_flight: deque[tuple[int, EncodedRequest[T]]] = deque()
        for request in requests:
            in_flight.append((self._send(request), request))
            if len(in_flight) == MAX_IN_FLIGHT:
                yield self._receive(*in_flight.popleft())
        while in_flight:
            yield self._receive(*in_flight.popleft())

    def post_request(self, request: EncodedRequest[T]) -> Callable[[], T]:
        """Sends one request. The function that is returned waits for the response.

        It must be called before anything else is sent. `fileno` says when the response begins to come.
        """
        correlation = self._send(request)
        return lambda: self._receive(correlation, request)

    def fileno(self) -> int:
        """The socket's file descriptor, for `select`. Raises `Closed`."""
        return self._get_socket().fileno()

    def _require_version(self, api: Api) -> int:
        version = self.highest_version(api)
        if version is None:
            raise UnsupportedVersion(
                f"Kafka at {self.address} supports no version of {api.name} that koff has: upgrade the broker"
            )
        return version

    def _negotiate_versions(self) -> None:
        """Fetches the versions that the broker supports.

        A broker that does not know the version of the ApiVersions request responds with
        UNSUPPORTED_VERSION in version 0 (KIP-511); then version 0 is sent.
        """
        software = {"client_software_name": "koff", "client_software_version": VERSION}
        for version in (3, 0):
            request = encode_request(build_request(Api.API_VERSIONS, version, **software))
            oldest = encode_request(build_request(Api.API_VERSIONS, 0))
            response = self._receive_versions(self._send(request), request, oldest)
            self._version_ranges = {
                key.api_key: (key.min_version, key.max_version) for key in response.api_keys
            }
            if response.error_code == 0:
                return
        raise UnsupportedVersion(
            f"Kafka at {self.address} does not return its API versions: check that it is a Kafka broker"
        )

    def _receive_versions(
        self, correlation: int, request: EncodedRequest[Any], oldest: EncodedRequest[Any]
    ) -> Any:
        buffer, at = self._receive_frame(correlation, request)
        # The version of the response is not in its header. The error code is the first field of the body in
        # every version, so it can be read before the version is known.
        refused = int.from_bytes(buffer[at : at + 2], "big") == _UNSUPPORTED_VERSION
        return self._decode(oldest if refused else request, buffer, at)

    def _authenticate(self, credentials: Credentials) -> None:
        # Handshake version 1: the SASL messages follow in SaslAuthenticate requests (KIP-152).
        handshake = build_request(Api.SASL_HANDSHAKE, 1, mechanism=credentials.mechanism)
        response = self.send_request(handshake)
        if response.error_code != 0:
            offered = ", ".join(response.mechanisms)
            raise self._refuse(
                f"the broker does not offer the SASL mechanism {credentials.mechanism} (it offers {offered})"
            )
        exchange = credentials.start_exchange(self._host)
        try:
            message = next(exchange)
            while True:
                message = exchange.send(self._send_sasl_message(message))
        except StopIteration:  # the exchange is complete
            return
        except Refused as error:
            raise self._refuse(f"SASL authentication error: {error}") from None

    def _send_sasl_message(self, message: bytes) -> bytes:
        response = self.send_request(self.build_request(Api.SASL_AUTHENTICATE, auth_bytes=message))
        if response.error_code != 0:
            reason = response.error_message or error_name(response.error_code)
            raise self._refuse(f"SASL authentication error: {reason}")
        return bytes(response.auth_bytes)

    def _refuse(self, reason: str) -> ConnectError:
        """Closes the connection. Returns the error to raise, which is a `Denied`."""
        self.close()
        return make_connect_error(self.address, [Fault(REFUSED, reason)])

    def _send(self, request: EncodedRequest[Any]) -> int:
        """Sends the request. Returns the request's correlation id."""
        self._correlation = correlation = (self._correlation + 1) & 0x7FFFFFFF  # an int32
        opened = self._get_socket()
        with self._close_on_error():
            opened.settimeout(self._timeout_s(time.monotonic()))
            opened.sendall(request.encode_frame(correlation, self._client_id))
        self.in_flight += 1
        return correlation

    def _receive(self, correlation: int, request: EncodedRequest[T]) -> T:
        buffer, at = self._receive_frame(correlation, request)
        return self._decode(request, buffer, at)

    def _receive_frame(self, correlation: int, request: EncodedRequest[Any]) -> tuple[bytes, int]:
        """A whole response, and the position of its body behind the header."""
        until = time.monotonic() + self._timeout_s(time.monotonic())
        with self._close_on_error():
            head = self._receive_exactly(4, until)
            if head[:2] in _TLS_RECORDS:
                raise ConnectionError(
                    "Invalid response: it expects TLS: set security.protocol to ssl or sasl_ssl"
                )
            (size,) = struct.unpack(">i", head)
            if not 4 <= size <= self._max_response_bytes:  # for example the text of an HTTP server
                raise ConnectionError(f"Invalid response size {size}: this is not a Kafka broker")
            buffer = self._receive_exactly(size, until)
            if int.from_bytes(buffer[:4], "big") != correlation:
                raise ConnectionError("Invalid response: its correlation id belongs to no request of koff")
            self.in_flight -= 1
        # The header is the correlation id, then a tag section in flexible versions.
        at = 4
        if request.flexible_response:
            at = self._decode(_HEADER_TAGS, buffer, at)
        return buffer, at

    def _decode(self, request: EncodedRequest[T], buffer: bytes, at: int) -> T:
        with self._close_on_error():
            try:
                return request.decode(buffer, at)
            except Exception as error:  # kio's readers have no common family of errors
                raise ConnectionError(
                    f"Invalid response to request {request.api}: {type(error).__name__}"
                ) from error

    def _receive_exactly(self, size: int, until: float) -> bytes:
        opened = self._get_socket()
        buffer, filled = bytearray(min(size, _PIECE_BYTES)), 0
        while filled < size:
            if filled == len(buffer):
                buffer += bytes(min(size - filled, filled))
            opened.settimeout(remaining_s(until))  # in each round: a server may send one byte at a time
            with memoryview(buffer) as all_of_it, all_of_it[filled:] as rest:
                count = opened.recv_into(rest)
            if not count:
                raise ConnectionResetError("Disconnected")
            filled += count
        return bytes(buffer)

    def _get_socket(self) -> socket.socket:
        if self._socket is None:
            raise Closed(f"the connection to {self.address} is closed")
        return self._socket

    def _timeout_s(self, now: float) -> float:
        # Never 0: that would make the socket non-blocking.
        return max(min(self.timeout_s, self.deadline - now), 0.001)

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Closes the connection after an error, and raises the error as a `KoffError`."""
        try:
            with _map_errors(self.address):
                yield
        except KoffError:
            self.close()
            raise


@contextmanager
def _name_refused_certificate(address: str, conf: ClusterConf) -> Iterator[None]:
    """Raises `LogInRefused` if the broker closes the connection before its first response.

    With TLS 1.3, a broker refuses the client's certificate when the client believes that the handshake is
    done, and then closes the connection: the alert may be lost.
    """
    try:
        yield
    except ConnectError as error:
        if isinstance(error, LogInRefused) or not isinstance(
            error.__cause__, (ConnectionError, ssl.SSLEOFError)
        ):
            raise
        why = (
            "it refuses the client's certificate" if shows_certificate(conf) else "it requires a certificate"
        )
        closed = Fault(TLS, f"the broker closed the connection, perhaps {why}")
        raise make_connect_error(address, [closed]) from None


def _map_errors(address: str) -> AbstractContextManager[None]:
    return map_foreign_errors(f"the connection to {address} failed", address)


_HEADER_TAGS = EncodedRequest(-1, 0, b"", skip_tags)
