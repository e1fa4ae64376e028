"""What a probe finds at an address, and what koff says of it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from koff.client import ClusterConf
from koff.client import probe as probe_module
from koff.client.cluster import Cluster
from koff.client.probe import Finding, Probe, probe_address
from koff.client.wire.credentials import check_properties
from koff.errors import ConfigError, ConnectError
from koff.kafkatest import free_ports

ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
"""A fatal alert of TLS: handshake_failure."""
TLS_HELLO, REQUEST = b"\x16", b"\x00"
"""How a TLS handshake and a request of Kafka begin."""
Respond = Callable[[bytes], bytes | None]


def respond_as_broker(received: bytes) -> bytes | None:
    """The response of a broker without TLS. It closes the connection on which TLS begins."""
    if not received.startswith(REQUEST):
        return None
    return struct.pack(">i4sh", 6, received[8:12], 0)


def respond_as_tls(received: bytes) -> bytes | None:
    """A listener with TLS that closes the connection of a client without it."""
    return ALERT if received.startswith(TLS_HELLO) else None


def respond_as_web(received: bytes) -> bytes | None:
    """A web server: it answers once a line ends."""
    return b"HTTP/1.1 400 Bad Request\r\n\r\n" if b"\n" in received else b""


def stay_silent(received: bytes) -> bytes | None:
    return b""


def close_at_once(received: bytes) -> bytes | None:
    return None


@contextmanager
def listening(respond: Respond) -> Iterator[int]:
    """The port of a server. It closes a connection if `respond` returns None."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while received := connection.recv(4096):
                if (response := respond(received)) is None:
                    return
                connection.sendall(response)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    def run(connection: socket.socket) -> None:
        try:
            serve(connection)
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    accepting.join(60)


@pytest.fixture(autouse=True)
def _long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response comes sooner on any machine. Tests where none comes set a shorter time."""
    monkeypatch.setattr(probe_module, "RESPONSE_S", 60.0)
    monkeypatch.setattr(probe_module, "REST_S", 60.0)


@pytest.fixture
def silent_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server says nothing before a line ends: it is waited for in vain."""
    monkeypatch.setattr(probe_module, "RESPONSE_S", 0.5)


@pytest.mark.parametrize(
    ("respond", "plain", "with_tls"),
    [
        (respond_as_broker, Finding.UNKNOWN, Finding.HAS_NO_TLS),
        (respond_as_tls, Finding.EXPECTS_TLS, Finding.UNKNOWN),
        (lambda _: ALERT, Finding.EXPECTS_TLS, Finding.UNKNOWN),
    ],
    ids=["broker", "tls", "tls-alert"],
)
def test_what_answers_is_found_out(respond: Respond, plain: Finding, with_tls: Finding) -> None:
    with listening(respond) as port:
        assert probe_address("127.0.0.1", port, tls=False) is plain
        assert probe_address("127.0.0.1", port, tls=True) is with_tls


@pytest.mark.usefixtures("silent_at_first")
def test_a_program_with_a_protocol_of_lines_is_not_kafka() -> None:
    with listening(respond_as_web) as port:
        assert probe_address("127.0.0.1", port, tls=False) is Finding.IS_NOT_KAFKA


@pytest.mark.usefixtures("silent_at_first")
@pytest.mark.parametrize("respond", [stay_silent, close_at_once])
def test_an_address_that_says_nothing_may_be_a_broker(
    respond: Respond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "REST_S", 0.5)
    with listening(respond) as port:
        assert probe_address("127.0.0.1", port, tls=False) is Finding.UNKNOWN


@pytest.mark.usefixtures("silent_at_first")
def test_there_is_a_cause_only_if_no_address_may_be_a_broker() -> None:
    refusing = f"127.0.0.1:{free_ports(1)[0]}"
    with listening(respond_as_broker) as broker, listening(respond_as_web) as web:
        both = f"{refusing},127.0.0.1:{web}"
        assert Probe(f"{both},127.0.0.1:{broker}", tls=False).find_cause(wait_s=60) is None
        cause = Probe(both, tls=False).find_cause(wait_s=60) or ""
    assert f"{refusing} refuses the connection" in cause
    assert f"127.0.0.1:{web} answers, but does not speak Kafka" in cause


def test_addresses_that_cannot_be_parsed_have_no_cause() -> None:
    assert Probe("a:b", tls=False).find_cause() is None


def connect(brokers: str, **properties: str) -> str:
    """The error of a cluster that cannot be reached. Its timeout is far longer than a probe."""
    with pytest.raises(ConnectError) as raised:
        Cluster(ClusterConf(brokers, properties, connect_timeout_s=60.0)).connect()
    return str(raised.value)


def test_addresses_that_all_refuse_the_connection_are_said_long_before_the_timeout() -> None:
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    began_s = time.monotonic()
    said = connect(f"{first},{second}")
    assert time.monotonic() - began_s < 20  # it takes 1 s on a machine that is not busy
    assert f"cannot reach Kafka at {first},{second}: every address refuses the connection" in said
    assert "check --brokers" in said


def test_a_listener_with_tls_is_named_where_plain_was_meant() -> None:
    with listening(respond_as_tls) as port:
        assert "expects TLS: set security.protocol to ssl or sasl_ssl" in connect(f"127.0.0.1:{port}")


def test_a_listener_without_tls_is_named_where_tls_was_meant() -> None:
    with listening(respond_as_broker) as port:
        said = connect(f"127.0.0.1:{port}", **{"security.protocol": "ssl"})
    assert "speaks Kafka without TLS: set security.protocol to plaintext" in said


@pytest.mark.usefixtures("silent_at_first")
def test_another_program_is_named() -> None:
    with listening(respond_as_web) as port:
        assert f"127.0.0.1:{port} answers, but does not speak Kafka" in connect(f"127.0.0.1:{port}")


@pytest.mark.usefixtures("silent_at_first")
def test_brokers_that_accept_connections_and_hang_are_not_said_to_speak_another_protocol() -> None:
    with listening(stay_silent) as first, listening(stay_silent) as second:
        brokers = f"127.0.0.1:{first},127.0.0.1:{second}"
        conf = ClusterConf(brokers, connect_timeout_s=1.0)
        with Cluster(conf) as cluster, pytest.raises(ConnectError, match="no response in time"):
            cluster.connect()


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_missing_is_named_with_its_property(name: str) -> None:
    conf = ClusterConf("127.0.0.1:1", {"security.protocol": "ssl", name: "/nowhere/x.pem"})
    with pytest.raises(ConfigError, match=f"cannot read /nowhere/x.pem, the file of {name}: No such file"):
        check_properties(conf)
