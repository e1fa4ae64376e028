"""`/api/v1/events`: streams that resume, end, and are read slowly; and the list."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from starlette.requests import Request

from koff.kafkatest import wait_until
from koff.serve import protocol as protocol_module
from koff.serve import uvicorn_server as uvicorn_module
from koff.serve.events import event_log as event_log_module
from koff.serve.events import stream as stream_module
from koff.serve.events.event import Severity
from koff.serve.events.watcher import Events
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.events.test_webhook import make_event
from tests.unit.serve.requests import connect, read_all, request
from tests.unit.serve.views import Source, fill_tracker, take_view

NOW_MS = 1_800_000_000_000


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def server(events: Events) -> Iterator[Server]:
    source = Source(take_view(fill_tracker()))
    with Server(source, ServeConf("127.0.0.1:0"), events=events) as server:
        yield server


def add(events: Events, *numbers: int, **fields: Any) -> None:
    events.log.add([make_event(number, **fields) for number in numbers], NOW_MS)


class Stream:
    """A client of the stream."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = dict(
            line.decode().rstrip().split(": ", 1) for line in iter(self._file.readline, b"\r\n")
        )
        self._lines = b""

    def read_block(self) -> dict[str, str]:
        """The fields of the next block: an event, a comment, or what has neither."""
        while b"\n\n" not in self._lines:
            self._lines += self._read_chunk()
        block, _, self._lines = self._lines.partition(b"\n\n")
        return dict(line.split(": ", 1) for line in block.decode().split("\n"))

    def read_texts(self, count: int) -> list[str]:
        """The next events: their texts, and "missed N"."""
        texts: list[str] = []
        while len(texts) < count:
            block = self.read_block()
            if "event" in block:
                data = json.loads(block["data"])
                texts.append(f"missed {data['count']}" if block["event"] == "missed" else data["text"])
        return texts

    def _read_chunk(self) -> bytes:
        size = int(self._file.readline(), 16)
        chunk = self._file.read(size)
        self._file.readline()
        if not size:
            raise EOFError
        return chunk

    def read_to_end(self) -> None:
        with suppress(EOFError):
            while True:
                self.read_block()


def open_stream(
    server: Server, stack: ExitStack, query: str = "", *headers: str, received_bytes: int | None = None
) -> Stream:
    lines = [f"GET /api/v1/events{query} HTTP/1.1", "Host: koff", *headers]
    sent = "".join(f"{line}\r\n" for line in [*lines, ""]).encode()
    return Stream(stack.enter_context(connect(server, sent, received_bytes=received_bytes)))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_stream_has_the_events_from_now_on(server, events, stack):
    add(events, 1)
    stream = open_stream(server, stack)
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert stream.headers["cache-control"] == "no-store"
    assert stream.read_block() == {"retry": "3000"}
    add(events, 2, topic="t\n\n", details={"a": "\r\n"})
    block = stream.read_block()
    assert (block["id"], block["event"]) == (events.log.format_id(2), "records_lost")
    data = json.loads(block["data"])
    assert (data["id"], data["text"], data["topic"]) == (block["id"], "event 2", "t\n\n")


@pytest.mark.parametrize("by_header", [True, False])
def test_a_client_resumes_after_the_last_event_it_has(server, events, stack, by_header):
    add(events, 1, 2, 3)
    last = events.log.format_id(1)
    given = ("", f"Last-Event-ID: {last}") if by_header else (f"?since={last}",)
    stream = open_stream(server, stack, *given)
    add(events, 4)
    assert stream.read_texts(3) == ["event 2", "event 3", "event 4"]


def test_a_client_is_told_what_it_missed(server, events, stack, monkeypatch):
    monkeypatch.setattr(event_log_module, "MOST_EVENTS", 2)
    add(events, 1, 2, 3, 4, 5)
    stream = open_stream(server, stack, f"?since={events.log.format_id(1)}")
    assert stream.read_texts(3) == ["missed 2", "event 4", "event 5"]


def test_a_client_is_told_once_that_all_is_gone(server, events, stack, monkeypatch):
    monkeypatch.setattr(event_log_module, "MOST_BYTES", 1000)
    add(events, 1)
    stream = open_stream(server, stack, f"?since={events.log.format_id(1)}")
    stream.read_block()
    add(events, 2, details={"why": "x" * 2000})
    assert stream.read_texts(1) == ["missed 1"]
    add(events, 3)
    assert stream.read_texts(1) == ["event 3"]


def test_a_client_of_the_process_before_gets_all_that_there_is(server, events, stack, monkeypatch):
    monkeypatch.setattr(event_log_module, "MOST_EVENTS", 2)
    add(events, 1, 2, 3)
    stream = open_stream(server, stack, "?since=1700000000000-9")
    assert stream.read_texts(3) == ["missed None", "event 2", "event 3"]


def test_filters(server, events, stack):
    queries = {
        "?group=pay*": ["event 1", "event 2"],
        "?group=pay.eu&group=o?der": ["event 1", "event 3"],
        "?kind=offsets_reset,blind": ["event 2", "event 5"],
        "?min_severity=warning&group=*": ["event 2", "event 3"],
        "?cluster=other": [],
        "?cluster=c&cluster=d&min_severity=error": ["event 3", "event 5"],
    }
    streams = {query: open_stream(server, stack, query) for query in queries}
    for stream in streams.values():
        stream.read_block()
    add(events, 1, group="pay.eu", severity=Severity.INFO)
    add(events, 2, group="pay.us", severity=Severity.WARNING, kind="offsets_reset")
    add(events, 3, group="order")
    add(events, 4, group="order", severity=Severity.INFO)
    add(events, 5, group=None, kind="blind")
    events.log.close()
    for query, texts in queries.items():
        assert streams[query].read_texts(len(texts)) == texts if texts else True, query
        streams[query].read_to_end()


def test_there_is_a_comment_with_the_newest_id_while_nothing_happens(server, events, stack, monkeypatch):
    monkeypatch.setattr(stream_module, "KEEP_ALIVE_S", 0.01)
    add(events, 1)
    stream = open_stream(server, stack)
    stream.read_block()
    assert stream.read_block() == {"": "keep-alive", "id": events.log.format_id(1)}


def test_streams_end_when_the_server_stops(events, stack, monkeypatch):
    monkeypatch.setattr(uvicorn_module, "_STOP_S", 3600)  # so long would uvicorn wait for responses
    with Server(Source(take_view(fill_tracker())), ServeConf("127.0.0.1:0"), events=events) as server:
        stream = open_stream(server, stack)
        stream.read_block()
    stream.read_to_end()


def add_more_than_buffers_hold(events: Events) -> None:
    for number in range(1, 1001):
        add(events, number, details={"why": "x" * 10_000})


def test_a_client_that_does_not_read_delays_no_other(server, events, stack, monkeypatch):
    monkeypatch.setattr(protocol_module, "RESPONSE_S", 3600.0)
    open_stream(server, stack, received_bytes=4096)
    good = open_stream(server, stack)
    good.read_block()
    add_more_than_buffers_hold(events)
    assert good.read_texts(1000)[-1] == "event 1000"
    wait_until(
        lambda: list_deadlines(server) == ["response"], timeout_s=30, what="the end of that of the other"
    )


def test_a_client_that_does_not_read_is_cut_off(server, events, stack, monkeypatch):
    monkeypatch.setattr(protocol_module, "RESPONSE_S", 0.1)
    sent = b"GET /api/v1/events HTTP/1.1\r\nHost: koff\r\n\r\n"
    slow = stack.enter_context(connect(server, sent, received_bytes=4096))
    wait_until(lambda: events.log._waiting, timeout_s=30, what="the stream")
    add_more_than_buffers_hold(events)
    wait_until(lambda: is_reset(slow), timeout_s=60, what="the end of the connection")


def is_reset(connection: socket.socket) -> bool:
    """Whether the server has closed the connection. Reads nothing."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def test_a_client_that_was_behind_once_is_not_cut_off_later(server, events, stack, monkeypatch):
    monkeypatch.setattr(protocol_module, "RESPONSE_S", 3600.0)
    stream = open_stream(server, stack, received_bytes=4096)
    stream.read_block()
    add_more_than_buffers_hold(events)
    wait_until(lambda: list_deadlines(server) == ["response"], timeout_s=30, what="the deadline")
    assert stream.read_texts(1000)[-1] == "event 1000"
    wait_until(lambda: not list_deadlines(server), timeout_s=30, what="the end of the deadline")
    add(events, 1001)
    assert stream.read_texts(1) == ["event 1001"]


def list_deadlines(server: Server) -> list[str]:
    """The deadlines of all connections."""
    connections: list[Any] = list(server._uvicorn.server_state.connections)
    return [name for connection in connections for name in list(connection._deadlines)]


def test_a_client_and_all_clients_have_a_limit_of_streams(server, events, stack, monkeypatch):
    monkeypatch.setattr(stream_module, "CLIENT_STREAMS", 2)
    first, _ = open_stream(server, stack), open_stream(server, stack)
    refused = open_stream(server, stack)
    assert refused.status == 503
    assert request(server, "/metrics")[0] == 200
    events.log.close()
    first.read_to_end()


def test_a_client_that_goes_away_leaves_nothing(server, events, monkeypatch):
    monkeypatch.setattr(stream_module, "CLIENT_STREAMS", 1)
    monkeypatch.setattr(stream_module, "KEEP_ALIVE_S", 3600.0)  # nothing is written
    for _ in range(3):
        with ExitStack() as stack:

            def is_free(stack: ExitStack = stack) -> bool:
                return open_stream(server, stack).status == 200

            wait_until(is_free, timeout_s=30, what="the stream before to end")
    wait_until(lambda: not events.log._waiting, timeout_s=30, what="the last stream to end")


def test_the_list_has_the_newest_events_or_those_after_an_id(server, events):
    add(events, 1, 2, 3, 4)

    def get(query: str) -> tuple[list[str], int | None]:
        status, headers, body = request(server, f"/api/v1/events{query}", Accept="application/json")
        assert (status, headers["content-type"]) == (200, "application/json")
        read = json.loads(body)
        return [event["text"] for event in read["events"]], read["missed"]

    assert get("?limit=2") == (["event 3", "event 4"], 0)
    assert get(f"?limit=2&since={events.log.format_id(1)}") == (["event 2", "event 3"], 0)
    assert get("?since=1700000000000-1&kind=blind") == ([], None)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?kind=nothing", "kind 'nothing' is not one of"),
        ("?min_severity=bad", "min_severity must be info, warning or error"),
        ("?since=yesterday", "'yesterday' is not the id of an event"),
        ("?limit=0", "limit must be a whole number from 1"),
        ("?limit=99999999999999999999", "limit must be a whole number from 1"),
        (f"?limit=000000001{'9' * 5000}", "limit must be a whole number from 1"),
        ("?" + "&".join(["group=a"] * 11), "group may be given 10 times"),
        (f"?group={'*' * 301}", "group may be given 10 times, with 300 characters each"),
        ("?groups=a", "'groups' is no parameter: use cluster, group"),
    ],
)
def test_a_wrong_parameter_is_explained(server, query, why):
    status, headers, body = request(server, f"/api/v1/events{query}", Accept="application/json")
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert why in json.loads(body)["detail"]


def test_head_ends_at_once(server):
    status, headers, body = request(server, "/api/v1/events", method="HEAD")
    assert (status, headers["content-type"], body) == (200, "text/event-stream; charset=utf-8", b"")


def test_a_pattern_takes_little_time_whatever_it_is(server, events):
    add(events, 1, group="a" * 5000)
    began_s = time.monotonic()
    pattern = "*a" * 149 + "b"
    assert request(server, f"/api/v1/events?group={pattern}", Accept="application/json")[0] == 200
    assert time.monotonic() - began_s < 25


def test_other_requests_have_their_turn_while_a_list_is_filtered(events, monkeypatch):
    # The event loop that filters also serves /metrics and /healthz.
    monkeypatch.setattr(stream_module, "_AT_ONCE", 10)
    add(events, *range(100), group="g" * 250)
    (route,) = stream_module.build_event_routes(events.log)
    query = "&".join(["group=" + "*g" * 100 + "x"] * 10)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/events",
        "query_string": query.encode(),
        "headers": [(b"accept", b"application/json")],
        "client": ("127.0.0.1", 1),
    }

    async def count_turns() -> int:
        response, turns = asyncio.ensure_future(route.endpoint(Request(scope))), 0
        while not response.done():
            turns += 1
            await asyncio.sleep(0)
        assert json.loads((await response).body) == {"events": [], "missed": 0}
        return turns

    assert asyncio.run(count_turns()) >= 10


def test_an_old_client_can_read_a_stream(server, events):
    with connect(server, b"GET /api/v1/events HTTP/1.0\r\n\r\n") as connection:
        wait_until(lambda: events.log._waiting, timeout_s=30, what="the stream")
        add(events, 1)
        events.log.close()
        assert b'"text":"event 1"' in read_all(connection)
