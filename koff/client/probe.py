"""What answers at the addresses of brokers, found out without librdkafka: for errors that name the cause.

librdkafka tries again for ever, and does not say whether an address refuses connections, expects TLS or
belongs to another program. A probe sends a request of Kafka and reads the response. It does not log in.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import closing
from enum import Enum

from koff.client.addresses import parse_addresses
from koff.errors import ConfigError, copy_error

CONNECT_S, RESPONSE_S, REST_S = 2.0, 1.0, 0.5
MOST_ADDRESSES = 20
_CORRELATION_ID = 0x6B6F6666
_REQUEST = struct.pack(">hhih4s", 18, 0, _CORRELATION_ID, 4, b"koff")
"""ApiVersions, version 0: every broker responds to it before a log-in."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin."""


class Finding(Enum):
    """What is at an address. The value is a part of a sentence after the address."""

    REFUSES = "refuses the connection (Connection refused)"
    EXPECTS_TLS = "expects TLS: set security.protocol to ssl or sasl_ssl"
    HAS_NO_TLS = "speaks Kafka without TLS: set security.protocol to plaintext or sasl_plaintext"
    IS_NOT_KAFKA = "answers, but does not speak Kafka"
    UNKNOWN = "may be a broker"


class Probe:
    """Asks all of the addresses `brokers` at once, each in a daemon thread. Asks none if there are many."""

    def __init__(self, brokers: str, *, tls: bool) -> None:
        try:
            self._addresses = list(dict.fromkeys(parse_addresses(brokers)))
        except ConfigError:  # librdkafka may read them all the same
            self._addresses = []
        self._findings: dict[tuple[str, int], Finding] = {}
        self._done = threading.Condition()  # guards `_findings`
        if len(self._addresses) > MOST_ADDRESSES:
            return
        for address in self._addresses:
            threading.Thread(target=self._run, args=(address, tls), name="koff-probe", daemon=True).start()

    def find_cause(self, *, wait_s: float = 0.0) -> str | None:
        """Why no address can be used; None while one of them may be a broker, or has not answered yet."""
        with self._done:
            self._done.wait_for(lambda: len(self._findings) == len(self._addresses), wait_s)
            findings = dict(self._findings)
        if not findings or len(findings) < len(self._addresses) or Finding.UNKNOWN in findings.values():
            return None
        if set(findings.values()) == {Finding.REFUSES} and len(findings) > 1:
            return f"every address {Finding.REFUSES.value}"
        return ", ".join(f"{host}:{port} {finding.value}" for (host, port), finding in findings.items())

    def _run(self, address: tuple[str, int], tls: bool) -> None:
        try:
            finding = probe_address(*address, tls=tls)
        except Exception:  # a probe only helps to name a cause
            finding = Finding.UNKNOWN
        with self._done:
            self._findings[address] = finding
            self._done.notify_all()


def probe_address(host: str, port: int, *, tls: bool) -> Finding:
    """What is at the address, for a client that speaks TLS or not."""
    try:
        if not tls:
            return _probe_plain(host, port)
        handshake = _shake_hands(host, port)
        if handshake is None:
            return Finding.HAS_NO_TLS if _is_kafka(_ask(_connect(host, port))) else Finding.IS_NOT_KAFKA
        # A broker may close the connection of a client without a certificate: silence proves nothing.
        response = _ask(handshake) if isinstance(handshake, ssl.SSLSocket) else b""
        return Finding.UNKNOWN if not response or _is_kafka(response) else Finding.IS_NOT_KAFKA
    except ConnectionRefusedError:
        return Finding.REFUSES
    except OSError:
        return Finding.UNKNOWN


def _probe_plain(host: str, port: int) -> Finding:
    response = _ask(_connect(host, port))
    if _is_kafka(response):
        return Finding.UNKNOWN
    if response.startswith(_TLS_RECORDS):
        return Finding.EXPECTS_TLS
    if response:
        return Finding.IS_NOT_KAFKA
    # Closed or silent. A listener with TLS may close the connection; so may a broker that is starting.
    handshake = _shake_hands(host, port)
    if isinstance(handshake, ssl.SSLSocket):
        handshake.close()
    return Finding.UNKNOWN if handshake is None else Finding.EXPECTS_TLS


def _connect(host: str, port: int) -> socket.socket:
    """A connection to the first address of the host that accepts one. Raises OSError."""
    refusal: OSError | None = None
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        opened = socket.socket(family, kind)
        opened.settimeout(CONNECT_S)
        try:
            opened.connect(address)
        except OSError as error:
            opened.close()
            if not isinstance(error, ConnectionRefusedError):
                raise
            refusal = copy_error(error)
        else:
            return opened
    raise copy_error(refusal) if refusal else OSError("the host has no address")


def _ask(connection: socket.socket) -> bytes:
    """The first bytes of the response; b"" if there is none. Closes the connection."""
    with closing(connection):
        try:
            connection.settimeout(RESPONSE_S)
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            try:
                return connection.recv(64)
            except TimeoutError:
                # Programs with a protocol of lines wait for the end of one.
                connection.settimeout(REST_S)
                connection.sendall(b"\r\n\r\n")
                return connection.recv(64)
        except OSError:
            return b""


def _is_kafka(response: bytes) -> bool:
    return len(response) >= 8 and struct.unpack(">i", response[4:8])[0] == _CORRELATION_ID


def _shake_hands(host: str, port: int) -> ssl.SSLSocket | bool | None:
    """A connection with TLS, True if the other side refused the handshake by an alert; None: no TLS there.

    Nothing secret is sent, so no certificate is checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = _connect(host, port)
    connection.settimeout(RESPONSE_S)
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLError as error:
        connection.close()
        return True if "ALERT" in (error.reason or "") else None
    except OSError:
        connection.close()
        return None
