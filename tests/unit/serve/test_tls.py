"""TLS: certificates of both sides, rotation, and clients that hang, vanish or send nonsense."""

import socket
import ssl
from contextlib import ExitStack

import pytest
import trustme

from koff.kafkatest import wait_until
from koff.serve import protocol as protocol_module
from koff.serve.http import Server
from tests.unit.serve.certificates import (
    build_client_context,
    replace_file,
    require_clients,
    write_faulty_client,
    write_server_files,
)
from tests.unit.serve.requests import (
    HEALTH,
    SCRAPE,
    connect,
    count_connections,
    dial,
    read_all,
    read_response,
    request,
    reset,
    wait_until_all_are_gone,
)


@pytest.fixture
def server(serve, tmp_path):
    return serve(write_server_files(tmp_path))


def get(server: Server, path: str, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    return request(server, path, context=context)[::2]


def make_client_hello() -> bytes:
    """The first bytes that a client sends."""
    outgoing = ssl.MemoryBIO()
    wrapped = build_client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    return outgoing.read()


def test_a_scrape_over_tls(server):
    assert server.url.startswith("https://127.0.0.1:")
    status, body = get(server, "/metrics")
    assert (status, b"koff_group_lag{" in body) == (200, True)
    with dial(server, HEALTH) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        assert connection.version() == "TLSv1.3"
        assert (connection.getpeercert() or {})["subjectAltName"][0] == ("IP Address", "127.0.0.1")
        for _ in range(3):
            assert read_response(connection) == (200, b"ok\n")
            connection.sendall(HEALTH)


def test_a_version_that_is_too_old_is_refused(serve, tmp_path):
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


def test_clients_need_a_certificate_of_the_authority(serve, tmp_path):
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
def test_only_names_that_are_allowed(serve, tmp_path, allowed, identity, is_allowed):
    lines = write_server_files(tmp_path) + require_clients(tmp_path)
    server = serve(lines + f"  client_allowed_sans: [{allowed}]\n")
    assert is_refused(server, build_client_context(identity)) != is_allowed
    wait_until_all_are_gone(server)


def test_a_name_that_is_no_address_is_not_allowed(serve, tmp_path, logged):
    lines = write_server_files(tmp_path) + require_clients(tmp_path)
    server = serve(lines + "  client_allowed_sans: [prometheus]\n")
    context = build_client_context()
    context.load_cert_chain(write_faulty_client(tmp_path))
    assert is_refused(server, context)
    wait_until_all_are_gone(server)
    assert not logged()


# Rotation.


def test_new_connections_get_the_new_certificate_and_old_ones_stay(server, tmp_path):
    other = trustme.CA()
    with dial(server, HEALTH) as old:
        assert read_response(old)[0] == 200
        write_server_files(tmp_path, other)
        new = build_client_context(ca=other)
        wait_until(lambda: not is_refused(server, new), what="the new certificate")
        assert is_refused(server, build_client_context())
        old.sendall(HEALTH)
        assert read_response(old)[0] == 200


def test_a_key_of_another_certificate_changes_nothing(server, tmp_path, logged):
    other, new = trustme.CA(), tmp_path / "new"
    new.mkdir()
    write_server_files(new, other)
    (tmp_path / "key.pem").write_bytes((new / "key.pem").read_bytes())
    wait_until(lambda: "key values mismatch" in str(logged()), what="the error")
    assert get(server, "/healthz") == (200, b"ok\n")
    (tmp_path / "cert.pem").write_bytes((new / "cert.pem").read_bytes())
    wait_until(lambda: not is_refused(server, build_client_context(ca=other)), what="the new certificate")


def test_clients_of_an_authority_that_is_gone_are_refused(serve, tmp_path):
    server = serve(write_server_files(tmp_path) + require_clients(tmp_path))
    assert not is_refused(server, build_client_context("prometheus"))
    other = trustme.CA()
    require_clients(tmp_path, other)
    wait_until(lambda: is_refused(server, build_client_context("prometheus")), what="the new authority")
    assert not is_refused(server, build_client_context("prometheus", of=other))


def test_tls_is_not_switched_off_while_koff_runs(server, tmp_path, logged):
    (tmp_path / "web.yml").write_text("{}")
    wait_until(lambda: "needs a restart" in str(logged()), what="the error")
    assert get(server, "/healthz") == (200, b"ok\n")


@pytest.mark.parametrize(("kept", "removed"), [(1, "client_auth_type"), (2, "client_allowed_sans")])
def test_half_a_file_does_not_let_more_clients_in(serve, tmp_path, logged, kept, removed):
    parts = [write_server_files(tmp_path), require_clients(tmp_path), "  client_allowed_sans: [prometheus]\n"]
    server = serve("".join(parts))
    (tmp_path / "web.yml").write_text("".join(parts[:kept]))
    wait_until(lambda: removed in str(logged()), what="the error")
    assert is_refused(server, build_client_context("grafana" if kept == 2 else ""))
    assert get(server, "/healthz", build_client_context("prometheus"))[0] == 200


def test_a_certificate_may_come_after_the_file_that_names_it(server, tmp_path, logged):
    other = trustme.CA()
    lines = "tls_server_config:\n  cert_file: new/cert.pem\n  key_file: new/key.pem\n"
    replace_file(tmp_path / "web.yml", lines)
    wait_until(lambda: "No such file" in str(logged()), what="the error")
    assert get(server, "/healthz")[0] == 200
    (tmp_path / "later").mkdir()
    write_server_files(tmp_path / "later", other)
    (tmp_path / "later").rename(tmp_path / "new")
    wait_until(lambda: not is_refused(server, build_client_context(ca=other)), what="the new certificate")
    assert len([line for line in logged() if line["level"] == "error"]) == 1


# Clients that hang.


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_handshake_has_the_deadline_of_a_request(server, limits, share):
    limits(REQUEST_S=0.3)
    hello = make_client_hello()
    with connect(server, hello[: int(len(hello) * share)]) as half:
        read_all(half, ConnectionError)
    wait_until_all_are_gone(server)


def test_a_request_after_the_handshake_has_what_is_left(server, limits):
    limits(REQUEST_S=6.0)  # the handshake must take less
    with dial(server, HEALTH[:-2]) as half:
        assert read_all(half) == b""
    wait_until_all_are_gone(server)


def test_half_handshakes_are_limited_and_keep_no_scrape_out(server, limits):
    limits()
    hello = make_client_hello()
    with ExitStack() as open_:
        for number in range(300):
            open_.enter_context(connect(server, hello[: number % len(hello)]))
        assert get(server, "/metrics")[0] == 200
        most = protocol_module.CLIENT_CONNECTIONS
        wait_until(lambda: count_connections(server) <= most, what="the end of the others")
    wait_until_all_are_gone(server)


@pytest.mark.usefixtures("large")
def test_a_client_that_reads_slowly_gets_all(server):
    with dial(server, SCRAPE, received_bytes=4096) as slow:
        status, body = read_response(slow)
    assert (status, body.count(b"\nkoff_group_lag{")) == (200, 60_000)


@pytest.mark.usefixtures("large")
def test_clients_that_vanish_or_speak_no_tls_leave_no_trace(server, logged):
    for sent in (SCRAPE, b"\x16\x03\x01" + b"\xff" * 500, make_client_hello()[:-9]):
        with connect(server, sent) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert b"HTTP" not in read_all(connection)
        with connect(server, sent) as connection:
            reset(connection)
    for _ in range(3):
        with dial(server, SCRAPE, received_bytes=4096) as connection:
            connection.recv(12)
            reset(connection)
    wait_until_all_are_gone(server)
    assert get(server, "/healthz") == (200, b"ok\n")
    assert not logged()


def test_the_server_stops_during_a_handshake(server):
    with connect(server, make_client_hello()[:-9]), dial(server, HEALTH) as idle:
        assert read_response(idle)[0] == 200
        wait_until(lambda: count_connections(server) == 2, what="the connections")
        server.__exit__(None, None, None)
        assert not server._thread.is_alive()
