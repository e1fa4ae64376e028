"""Clients that hang, trickle, vanish or send nonsense: none delays another, and none gets a traceback."""

import re
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from koff.kafkatest import wait_until
from koff.serve import protocol as protocol_module
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.requests import (
    HEALTH,
    SCRAPE,
    TIMEOUT_S,
    connect,
    dial,
    exchange,
    hold_renders,
    read_all,
    read_response,
    request,
    reset,
    wait_until_all_are_gone,
    wait_until_requested,
)
from tests.unit.serve.views import Source, fill_tracker, take_view

HALF = b"GET /metrics HTTP/1.1\r\nHost: ko"


def list_threads() -> set[threading.Thread]:
    """The threads that are alive. Those of the server before may end only now."""
    return set(threading.enumerate())


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection. Reads what has arrived."""
    connection.settimeout(0)
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# Clients that do not read.


@pytest.mark.usefixtures("large")
def test_clients_that_do_not_read_delay_no_other_and_take_no_threads(server):
    with ExitStack() as open_:
        assert request(server, "/metrics")[0] == request(server, "/readyz")[0] == 200
        before = list_threads()
        for _ in range(20):
            slow = open_.enter_context(connect(server, SCRAPE, received_bytes=4096))
            assert slow.recv(12) == b"HTTP/1.1 200"  # the response has begun
        assert request(server, "/metrics", Accept_Encoding="gzip")[0] == 200
        assert request(server, "/readyz")[0] == 200
        wait_until(lambda: list_threads() <= before, what="the end of the threads")


@pytest.mark.usefixtures("large")
def test_a_client_that_stops_reading_is_disconnected(either_server, limits):
    limits(RESPONSE_S=0.3)
    with dial(either_server, SCRAPE, received_bytes=4096) as slow:
        with suppress(ssl.SSLError, ConnectionError):  # on a busy machine, that was the end already
            slow.recv(12)
        wait_until_all_are_gone(either_server)
    limits()
    assert request(either_server, "/metrics")[0] == 200


@pytest.mark.usefixtures("large")
def test_a_client_that_trickles_is_disconnected(either_server, limits):
    limits(RESPONSE_S=0.5)
    with dial(either_server, SCRAPE, received_bytes=4096) as slow:

        def trickle() -> bool:
            try:
                return slow.recv(300) == b""
            except (ssl.SSLError, ConnectionError):
                return True

        wait_until(trickle, timeout_s=60, what="the end of the connection")
    limits()
    assert request(either_server, "/metrics")[0] == 200


@pytest.mark.usefixtures("large")
def test_a_client_that_reads_all_in_time_is_not_disconnected_later(server, limits):
    limits(RESPONSE_S=60.0)
    with connect(server, SCRAPE, received_bytes=4096) as slow:
        assert read_response(slow)[0] == 200
        (connection,) = server._uvicorn.server_state.connections
        wait_until(lambda: not connection._deadlines, what="the end of the deadline")
        slow.sendall(HEALTH)
        assert slow.recv(12) == b"HTTP/1.1 200"


# Clients that do not send.


def test_half_requests_are_limited_and_delay_no_other(server, limits):
    limits()
    assert request(server, "/metrics")[0] == 200
    before = list_threads()
    with ExitStack() as open_:
        halves = [open_.enter_context(connect(server, HALF)) for _ in range(300)]
        assert request(server, "/metrics")[0] == 200
        wait_until(lambda: list_threads() <= before, what="the end of the threads")
        open_connections = [half for half in halves if not is_closed(half)]
        assert 0 < len(open_connections) <= protocol_module.CLIENT_CONNECTIONS
        for half in open_connections:  # the last connections that were opened
            half.settimeout(TIMEOUT_S)
            half.sendall(b"ff\r\nConnection: close\r\n\r\n")
            assert read_all(half).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", b"GET", HALF, b"GET / HTTP/1.1\r\nHost: k\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_a_client_that_sends_no_more_is_disconnected(server, limits, sent):
    limits(REQUEST_S=0.2)
    with connect(server, sent) as half:
        assert b"\r\n\r\n" not in read_all(half, ConnectionError).partition(b"</html>")[2]


def test_a_client_gets_no_more_time_for_each_byte(server, limits):
    limits(REQUEST_S=0.5)
    with connect(server, SCRAPE[:-2]) as slow:

        def drip() -> bool:
            try:
                slow.sendall(b"a: b\r\n")
            except ConnectionError:
                return True
            return is_closed(slow)

        wait_until(drip, what="the end of the connection")


def test_the_second_request_of_a_connection_has_its_own_deadline(server, limits):
    limits()
    with connect(server, HEALTH) as connection:
        assert read_response(connection) == (200, b"ok\n")
        limits(REQUEST_S=2.0)  # not before: the first request may come late on a busy machine
        began_s = time.monotonic()
        while time.monotonic() - began_s < 3.0:  # for longer than the limit of one request
            connection.sendall(HEALTH)
            assert read_response(connection) == (200, b"ok\n")
        connection.sendall(HALF)
        assert read_all(connection) == b""


def test_many_idle_connections_do_not_keep_out_a_scrape(server, limits):
    limits(CLIENT_CONNECTIONS=1000, ALL_CONNECTIONS=5)
    with ExitStack() as open_:
        used = open_.enter_context(connect(server, HEALTH))
        assert read_response(used) == (200, b"ok\n")
        for _ in range(20):
            open_.enter_context(connect(server))
        assert request(server, "/metrics")[0] == 200
        # A connection that has served a request is closed last.
        used.sendall(HEALTH)
        assert read_response(used) == (200, b"ok\n")


def test_a_client_whose_connections_are_all_served_gets_no_more(server, limits, monkeypatch):
    limits(CLIENT_CONNECTIONS=3)
    with ExitStack() as open_:
        with hold_renders(monkeypatch) as begun:
            scrapes = [open_.enter_context(connect(server, SCRAPE)) for _ in range(3)]
            wait_until(lambda: begun, what="the render")
            wait_until_requested(server, 3)
            refused = exchange(server, b"")
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert refused.endswith(b"\r\n\r\ntoo many connections\n")
        for scrape in scrapes:
            assert scrape.recv(12) == b"HTTP/1.1 200"


# Clients that go away.


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("accepted", [b"identity", b"gzip"])
def test_an_aborted_scrape_leaves_only_lines_of_json(server, logged, accepted):
    scrape = SCRAPE[:-2] + b"Accept-Encoding: %b\r\n\r\n" % accepted
    for _ in range(5):
        with connect(server, scrape, received_bytes=4096) as aborted:
            aborted.recv(12)
            reset(aborted)
    wait_until_all_are_gone(server)
    assert request(server, "/metrics")[0] == 200
    assert not logged()


def test_clients_that_go_away_during_a_render_do_not_end_it(server, monkeypatch, logged):
    with connect(server) as waiting:
        with hold_renders(monkeypatch) as begun:
            waiting.sendall(SCRAPE)
            wait_until(lambda: begun, what="the render")
            for _ in range(5):
                with connect(server, SCRAPE) as aborted:
                    reset(aborted)
        assert waiting.recv(12) == b"HTTP/1.1 200"
    assert request(server, "/metrics")[0] == 200
    assert not logged()


@pytest.mark.parametrize("sent", [SCRAPE, b"GET /metrics HTTP/1.0\r\n\r\n"])
def test_a_client_that_has_closed_its_direction_gets_its_response(server, monkeypatch, sent):
    with connect(server) as connection:
        with hold_renders(monkeypatch) as begun:
            connection.sendall(sent)
            wait_until(lambda: begun, what="the render")
            connection.shutdown(socket.SHUT_WR)
            assert request(server, "/healthz")[0] == 200
        assert read_all(connection).startswith(b"HTTP/1.1 200")


# Clients that send what they should not.


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 37\r\n\r\nGET /other HTTP/1.1\r\nHost: koff\r\n\r\n..",
        b"Transfer-Encoding: chunked\r\n\r\n25\r\nGET /other HTTP/1.1\r\nHost: koff\r\n\r\n..\r\n0\r\n\r\n",
    ],
)
def test_the_body_of_a_request_is_not_a_second_request(server, body):
    first = b"GET /healthz HTTP/1.1\r\nHost: koff\r\n" + body
    second = b"GET /readyz HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n"
    received = exchange(server, first + second)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200"]
    assert received.endswith(b"ready\n")


def test_requests_that_are_sent_together_are_answered_in_order(either_server):
    sent = b"GET /healthz HTTP/1.1\r\nHost: k\r\nContent-Length: 5\r\n\r\nhello"
    sent += b"".join(
        b"GET %b HTTP/1.1\r\nHost: koff\r\n\r\n" % path for path in (b"/metrics", b"/x", b"/readyz")
    )
    with dial(either_server, sent + HEALTH[:-2] + b"Connection: close\r\n\r\n") as connection:
        received = read_all(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200", b"404", b"200", b"200"]
    assert received.endswith(b"ok\n")


@pytest.mark.parametrize("accepted", [b"", b"Accept-Encoding: gzip\r\n"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_a_client_of_http_1_0_gets_no_chunks(server, method, accepted):
    received = exchange(server, method + b" /metrics HTTP/1.0\r\n" + accepted + b"\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0]
    assert b"chunked" not in head.lower()
    if method == b"GET":
        assert f"content-length: {len(body)}".encode() in head.lower()
    else:
        assert body == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",  # without a host
        b"GET /metrics HTTP/1.1\r\nHost: koff\r\nno colon\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: koff\r\nContent-Length: many\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: koff\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: koff\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
        b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"GET http://other/none HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"CONNECT other:443 HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"BREW /metrics HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: koff\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
        b"GET /nowhere HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n",
        b"GET /metrics/ HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: koff\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_no_request_for_a_page_gets_a_short_plain_answer(server, logged, sent):
    received = exchange(server, sent)
    head, _, body = received.partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 4\d\d ", head)
    assert b"content-type: text/plain" in head.lower()
    assert len(received) < 1000
    assert not re.search(rb"Traceback|File |\.py|koff/|evil", body)
    assert request(server, "/metrics")[0] == 200
    assert not logged()


@pytest.mark.parametrize(
    ("begun", "repeated"),
    [
        (b"GET /", b"a" * 1000),
        (b"GET / HTTP/1.1\r\nHost: k\r\na: ", b"b" * 1000),
        (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 100),
    ],
)
def test_a_head_without_end_is_refused(server, limits, begun, repeated):
    limits()
    with connect(server, begun) as connection:
        received, sent_bytes = b"", 0
        try:
            while sent_bytes < 10_000_000:
                connection.sendall(repeated)
                sent_bytes += len(repeated)
            received = read_all(connection)
        except ConnectionError:
            pass  # the server did not read all
        assert sent_bytes < 10_000_000
    assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
    assert request(server, "/metrics")[0] == 200


def test_a_body_that_turns_out_to_be_wrong_ends_the_connection(server, logged):
    with connect(
        server, b"GET /healthz HTTP/1.1\r\nHost: koff\r\nTransfer-Encoding: chunked\r\n\r\n"
    ) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"no size of a chunk\r\n")
        wait_until(lambda: is_closed(connection), what="the end of the connection")
    assert not logged()


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz", "/", "/nowhere"])
def test_a_head_request_gets_the_head_only(server, path):
    status, headers, _ = request(server, path)
    received = exchange(server, f"HEAD {path} HTTP/1.1\r\nHost: koff\r\nConnection: close\r\n\r\n".encode())
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert f"content-type: {headers['Content-Type']}".encode() in head
    assert body == b""


# Faults and ends of the server.


@pytest.mark.usefixtures("large")
def test_a_server_stops_although_connections_are_open(source, limits, monkeypatch):
    limits()
    before = list_threads()
    with ExitStack() as open_:
        with Server(source, ServeConf("127.0.0.1:0")) as server:
            for sent in (b"", HALF, SCRAPE):
                open_.enter_context(connect(server, sent))
            slow = open_.enter_context(connect(server, SCRAPE, received_bytes=4096))
            assert slow.recv(12) == b"HTTP/1.1 200"
            renders = open_.enter_context(hold_renders(monkeypatch))
            source.later = [take_view(fill_tracker())]
            open_.enter_context(connect(server, SCRAPE))
            wait_until(lambda: renders, what="the render")
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 20
        with pytest.raises(ConnectionRefusedError):
            request(server, "/healthz")
    wait_until(lambda: list_threads() <= before, what="the end of the threads")


def test_a_server_that_has_hardly_started_can_stop():
    for _ in range(5):
        with Server(Source(take_view(fill_tracker())), ServeConf("127.0.0.1:0")):
            pass
