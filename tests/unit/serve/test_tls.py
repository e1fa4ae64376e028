"""TLS: certificates of both sides, rotation, and clients that hang, vanish or send nonsense."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import trustme

from koff.cli.options import set_up_logs
from koff.kafkatest import wait_until
from koff.serve import access as access_module
from koff.serve import protocol as protocol_module
from koff.serve.access import AccessConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.certificates import (
    build_client_context,
    require_clients,
    write_faulty_client,
    write_server_files,
)
from tests.unit.serve.requests import TIMEOUT_S, connect, find_address, read_all, read_response, reset
from tests.unit.serve.views import Source, fill_tracker, take_view

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: koff\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: koff\r\n\r\n"
LONG_S = 3600.0


@pytest.fixture
def serve(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Starts a server with this web configuration file."""
    monkeypatch.setattr(access_module, "LOOK_S", 0.02)
    with ExitStack() as open_:

        def start(text: str) -> Server:
            (tmp_path / "web.yml").write_text(text)
            return open_.enter_context(
                Server(source, ServeConf("127.0.0.1:0", AccessConf(tmp_path / "web.yml")))
            )

        yield start


@pytest.fixture
def server(serve: Callable[..., Server], tmp_path: Path) -> Server:
    return serve(write_server_files(tmp_path))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_limits(**named: float) -> None:
        for name, value in {"REQUEST_S": LONG_S, "RESPONSE_S": LONG_S, **named}.items():
            monkeypatch.setattr(protocol_module, name, value)

    return set_limits


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What was logged until now, without debug. Each line of standard error must be JSON."""
    written = StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    set_up_logs("json", "debug")

    def read_lines() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in written.getvalue().splitlines()]
        return [line for line in lines if line["level"] != "debug"]

    yield read_lines
    read_lines()


def get(server: Server, path: str, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    opened = http.client.HTTPSConnection(
        *find_address(server), context=context or build_client_context(), timeout=TIMEOUT_S
    )
    with closing(opened) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


@contextmanager
def encrypt(
    server: Server,
    sent: bytes = b"",
    *,
    context: ssl.SSLContext | None = None,
    received_bytes: int | None = None,
) -> Iterator[ssl.SSLSocket]:
    """A connection with TLS on which these bytes were sent."""
    with connect(server, received_bytes=received_bytes) as plain:
        wrapped = (context or build_client_context()).wrap_socket(plain, server_hostname="127.0.0.1")
        with wrapped:
            wrapped.sendall(sent)
            yield wrapped


def make_client_hello() -> bytes:
    """The first bytes that a client sends."""
    outgoing = ssl.MemoryBIO()
    wrapped = build_client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    return outgoing.read()


def count_connections(server: Server) -> int:
    return len(server._uvicorn.server_state.connections)


def wait_until_all_are_gone(server: Server) -> None:
    wait_until(lambda: not count_connections(server), what="the end of the connections")


def test_a_scrape_over_tls(server: Server) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    status, body = get(server, "/metrics")
    assert (status, b"koff_group_lag{" in body) == (200, True)
    with encrypt(server, HEALTH) as connection:
        assert connection.version() == "TLSv1.3"
        assert (connection.getpeercert() or {})["subjectAltName"][0] == ("IP Address", "127.0.0.1")
        for _ in range(3):
            assert read_response(connection) == (200, b"ok\n")
            connection.sendall(HEALTH)


def test_requests_in_one_write_are_answered_in_order(server: Server) -> None:
    body = b"GET /healthz HTTP/1.1\r\nHost: k\r\nContent-Length: 5\r\n\r\nhello"
    with encrypt(server, body + HEALTH + SCRAPE[:-2] + b"Connection: close\r\n\r\n") as connection:
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200") == 3


def test_a_version_that_is_too_old_is_refused(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(write_server_files(tmp_path) + "  min_version: TLS13\n")
    context = build_client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert is_refused(server, context)
    assert get(server, "/healthz") == (200, b"ok\n")
    wait_until_all_are_gone(server)


# Certificates of clients.


def is_refused(server: Server, context: ssl.SSLContext) -> bool:
    try:
        get(server, "/healthz", context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_clients_need_a_certificate_of_the_authority(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(write_server_files(tmp_path) + require_clients(tmp_path))
    assert get(server, "/healthz", build_client_context("prometheus")) == (200, b"ok\n")
    assert is_refused(server, build_client_context())
    assert is_refused(server, build_client_context("prometheus", of=trustme.CA()))
    wait_until_all_are_gone(server)


@pytest.mark.parametrize(
    ("allowed", "identity", "is_allowed"),
    [
        ("prometheus", "prometheus", True),
        ("prometheus", "prometheus2", False),
        ("'::1'", "::1", True),
        ("prometheus, grafana", "grafana", True),
        ("me@example.org", "me@example.org", True),
    ],
)
def test_only_names_that_are_allowed(
    serve: Callable[..., Server], tmp_path: Path, allowed: str, identity: str, is_allowed: bool
) -> None:
    lines = write_server_files(tmp_path) + require_clients(tmp_path)
    server = serve(lines + f"  client_allowed_sans: [{allowed}]\n")
    assert is_refused(server, build_client_context(identity)) != is_allowed
    wait_until_all_are_gone(server)


def test_a_name_that_is_no_address_is_not_allowed(
    serve: Callable[..., Server], tmp_path: Path, stderr: Callable[[], list[dict[str, Any]]]
) -> None:
    lines = write_server_files(tmp_path) + require_clients(tmp_path)
    server = serve(lines + "  client_allowed_sans: [prometheus]\n")
    context = build_client_context()
    context.load_cert_chain(write_faulty_client(tmp_path))
    assert is_refused(server, context)
    wait_until_all_are_gone(server)
    assert not stderr()


# Rotation.


def test_new_connections_get_the_new_certificate_and_old_ones_stay(server: Server, tmp_path: Path) -> None:
    other = trustme.CA()
    with encrypt(server, HEALTH) as old:
        assert read_response(old)[0] == 200
        write_server_files(tmp_path, other)
        new = build_client_context(ca=other)
        wait_until(lambda: not is_refused(server, new), what="the new certificate")
        assert is_refused(server, build_client_context())
        old.sendall(HEALTH)
        assert read_response(old)[0] == 200


def test_a_key_of_another_certificate_changes_nothing(
    server: Server, tmp_path: Path, stderr: Callable[[], list[dict[str, Any]]]
) -> None:
    certificate = (tmp_path / "cert.pem").read_bytes()
    other = trustme.CA()
    write_server_files(tmp_path, other)
    new = (tmp_path / "cert.pem").read_bytes()
    (tmp_path / "cert.pem").write_bytes(certificate)  # the key is new, and the certificate is not
    wait_until(lambda: "key values mismatch" in str(stderr()), what="the error")
    assert get(server, "/healthz") == (200, b"ok\n")
    (tmp_path / "cert.pem").write_bytes(new)
    wait_until(lambda: not is_refused(server, build_client_context(ca=other)), what="the new certificate")


def test_clients_of_an_authority_that_is_gone_are_refused(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(write_server_files(tmp_path) + require_clients(tmp_path))
    assert not is_refused(server, build_client_context("prometheus"))
    other = trustme.CA()
    require_clients(tmp_path, other)
    wait_until(lambda: is_refused(server, build_client_context("prometheus")), what="the new authority")
    assert not is_refused(server, build_client_context("prometheus", of=other))


def test_tls_is_not_switched_off_while_koff_runs(
    server: Server, tmp_path: Path, stderr: Callable[[], list[dict[str, Any]]]
) -> None:
    (tmp_path / "web.yml").write_text("{}")
    wait_until(lambda: "needs a restart" in str(stderr()), what="the error")
    assert get(server, "/healthz") == (200, b"ok\n")


@pytest.mark.parametrize(("kept", "removed"), [(1, "client_auth_type"), (2, "client_allowed_sans")])
def test_half_a_file_does_not_let_more_clients_in(
    serve: Callable[..., Server],
    tmp_path: Path,
    stderr: Callable[[], list[dict[str, Any]]],
    kept: int,
    removed: str,
) -> None:
    parts = [write_server_files(tmp_path), require_clients(tmp_path), "  client_allowed_sans: [prometheus]\n"]
    server = serve("".join(parts))
    (tmp_path / "web.yml").write_text("".join(parts[:kept]))
    wait_until(lambda: removed in str(stderr()), what="the error")
    assert is_refused(server, build_client_context("grafana" if kept == 2 else ""))
    assert get(server, "/healthz", build_client_context("prometheus"))[0] == 200


def test_a_certificate_may_come_after_the_file_that_names_it(
    server: Server, tmp_path: Path, stderr: Callable[[], list[dict[str, Any]]]
) -> None:
    other = trustme.CA()
    lines = "tls_server_config:\n  cert_file: new/cert.pem\n  key_file: new/key.pem\n"
    (tmp_path / "web.yml").write_text(lines)
    wait_until(lambda: "No such file" in str(stderr()), what="the error")
    assert get(server, "/healthz")[0] == 200
    (tmp_path / "later").mkdir()
    write_server_files(tmp_path / "later", other)
    (tmp_path / "later").rename(tmp_path / "new")
    wait_until(lambda: not is_refused(server, build_client_context(ca=other)), what="the new certificate")
    assert len([line for line in stderr() if line["level"] == "error"]) == 1


# Clients that hang.


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_handshake_has_the_deadline_of_a_request(
    server: Server, limits: Callable[..., None], share: float
) -> None:
    limits(REQUEST_S=0.3)
    hello = make_client_hello()
    with connect(server, hello[: int(len(hello) * share)]) as half:
        read_all(half)
    wait_until_all_are_gone(server)


def test_a_request_after_the_handshake_has_what_is_left(server: Server, limits: Callable[..., None]) -> None:
    limits(REQUEST_S=3.0)  # the handshake must take less
    with encrypt(server, HEALTH[:-2]) as half:
        assert read_all(half) == b""
    wait_until_all_are_gone(server)


def test_half_handshakes_are_limited_and_keep_no_scrape_out(
    server: Server, limits: Callable[..., None]
) -> None:
    limits()
    hello = make_client_hello()
    with ExitStack() as open_:
        for number in range(300):
            open_.enter_context(connect(server, hello[: number % len(hello)]))
        assert get(server, "/metrics")[0] == 200
        most = protocol_module.CLIENT_CONNECTIONS
        wait_until(lambda: count_connections(server) <= most, what="the end of the others")
    wait_until_all_are_gone(server)


def test_a_client_that_stops_reading_is_disconnected(
    server: Server, source: Source, limits: Callable[..., None]
) -> None:
    source.views = [take_view(fill_tracker(partitions=60_000))]
    limits(RESPONSE_S=0.3)
    with encrypt(server, SCRAPE, received_bytes=4096) as slow:
        slow.recv(12)
        wait_until_all_are_gone(server)
    assert get(server, "/metrics")[0] == 200


def test_a_client_that_trickles_is_disconnected(
    server: Server, source: Source, limits: Callable[..., None]
) -> None:
    source.views = [take_view(fill_tracker(partitions=60_000))]
    limits(RESPONSE_S=0.5)
    with encrypt(server, SCRAPE, received_bytes=4096) as slow:

        def trickle() -> bool:
            try:
                return slow.recv(300) == b""
            except (ssl.SSLError, ConnectionError):
                return True

        wait_until(trickle, timeout_s=60, what="the end of the connection")
    assert get(server, "/metrics")[0] == 200


def test_a_client_that_reads_slowly_gets_all(server: Server, source: Source) -> None:
    source.views = [take_view(fill_tracker(partitions=60_000))]
    with encrypt(server, SCRAPE, received_bytes=4096) as slow:
        status, body = read_response(slow)
    assert (status, body.count(b"\nkoff_group_lag{")) == (200, 60_000)


def test_clients_that_vanish_or_speak_no_tls_leave_no_trace(
    server: Server, source: Source, stderr: Callable[[], list[dict[str, Any]]]
) -> None:
    source.views = [take_view(fill_tracker(partitions=60_000))]
    for sent in (SCRAPE, b"\x16\x03\x01" + b"\xff" * 500, make_client_hello()[:-9]):
        with connect(server, sent) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert b"HTTP" not in read_all(connection)
        with connect(server, sent) as connection:
            reset(connection)
    for _ in range(3):
        with encrypt(server, SCRAPE, received_bytes=4096) as connection:
            connection.recv(12)
            reset(connection)
    wait_until_all_are_gone(server)
    assert get(server, "/healthz") == (200, b"ok\n")
    assert not stderr()


def test_the_server_stops_during_a_handshake(source: Source, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(write_server_files(tmp_path))
    with (
        Server(source, ServeConf("127.0.0.1:0", AccessConf(tmp_path / "web.yml"))) as server,
        ExitStack() as open_,
    ):
        open_.enter_context(connect(server, make_client_hello()[:-9]))
        idle = open_.enter_context(encrypt(server, HEALTH))
        assert read_response(idle)[0] == 200
        wait_until(lambda: count_connections(server) == 2, what="the connections")
        server.__exit__(None, None, None)
        assert not server._thread.is_alive()
