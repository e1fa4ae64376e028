"""A connection of koff's own: versions, responses that make no sense, and requests under way."""

from __future__ import annotations

import datetime
import io
import re
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.serial import entity_writer

from koff.client import ClusterConf
from koff.client.wire.connection import MAX_IN_FLIGHT, Connection
from koff.client.wire.credentials import check_properties
from koff.errors import Closed, ConfigError, ConnectError
from koff.proto.requests import Api, encode_request

T = TypeVar("T")

# A broker of a few lines


def entity(kind: Callable[..., T], **fields: Any) -> T:
    """One of kio's classes from plain numbers and names, for which kio has types of its own."""
    return kind(**fields)


def written(entity: Any) -> bytes:
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return body.getvalue()


def known(error: ErrorCode = ErrorCode.none) -> bytes:
    """What a broker says that knows ListGroups, and OffsetFetch only in the far future."""
    keys = (
        entity(ApiVersion, api_key=Api.LIST_GROUPS, min_version=0, max_version=99),
        entity(ApiVersion, api_key=Api.OFFSET_FETCH, min_version=98, max_version=99),
    )
    return written(ApiVersionsResponse(error_code=error, api_keys=keys))


def groups(*names: str) -> bytes:
    listed = (
        entity(
            ListedGroup, group_id=name, protocol_type="consumer", group_state="Stable", group_type="Classic"
        )
        for name in names
    )
    answer = entity(ListGroupsResponse, throttle_time=ZERO, error_code=ErrorCode.none, groups=tuple(listed))
    return b"\0" + written(answer)


ZERO = datetime.timedelta(0)
Answer = Callable[[int, int, int], bytes | None]


@contextmanager
def broker(answer: Answer) -> Iterator[tuple[ClusterConf, str, int]]:
    """Answers each request of one client by `answer(number, api, version)`; None hangs up.

    What `answer` gives stands behind the correlation id; versions are told as version 0 has it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, answer))
        thread.start()
        host, port = server.getsockname()
        try:
            yield ClusterConf(f"{host}:{port}", {}, request_timeout_s=60, connect_timeout_s=60), host, port
        finally:
            thread.join()


def _serve(server: socket.socket, answer: Answer) -> None:
    client, _ = server.accept()
    with client, client.makefile("rb") as requests, suppress(ConnectionError):
        for number in range(1000):
            head = requests.read(4)
            if len(head) < 4:
                return
            request = requests.read(int.from_bytes(head, "big"))
            api, version, correlation = struct.unpack_from(">hhi", request)
            said = answer(number, api, version)
            if said is None:
                return
            frame = struct.pack(">i", correlation) + said
            client.sendall(struct.pack(">i", len(frame)) + frame if said[:4] != RAW else said[4:])


RAW = b"RAW:"
"""Before bytes that are sent as they are, for a frame."""


def versions_then(*answers: bytes | None) -> Answer:
    def answer(number: int, api: int, version: int) -> bytes | None:
        if api == Api.API_VERSIONS:
            return known() if version == 0 else known(ErrorCode.unsupported_version)
        return answers[number - 2] if number - 2 < len(answers) else None

    return answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (RAW + b"\x15\x03\x03\x00\x02\x02\x28", "it expects TLS: set security.protocol to ssl or sasl_ssl"),
        (
            RAW + b"HTTP/1.1 400 Bad Request",
            "this is not a Kafka broker; check the port and the property security",
        ),
        (None, "Disconnected; check the port and the property security.protocol"),
    ],
    ids=["tls", "http", "closed"],
)
def test_a_listener_of_another_protocol_is_named(answer: bytes | None, said: str):
    with broker(lambda *_: answer) as (conf, host, port), pytest.raises(ConnectError, match=re.escape(said)):
        Connection.connect(conf, host, port)


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_missing_is_named_with_its_property(name: str):
    conf = ClusterConf("127.0.0.1:1", {"security.protocol": "ssl", name: "/nowhere/x.pem"})
    with pytest.raises(ConfigError, match=f"cannot read /nowhere/x.pem, the file of {name}: No such file"):
        check_properties(conf)


def test_a_length_alone_takes_no_memory_and_a_long_response_is_read_whole():
    names = [f"{number:01000d}" for number in range(3000)]
    announced = RAW + struct.pack(">i", 90_000_000) + b"and no more"
    with (
        broker(versions_then(groups(*names), announced)) as (conf, host, port),
        Connection.connect(conf, host, port) as wire,
    ):
        assert [group.group_id for group in wire.send_request(ListGroupsRequest()).groups] == names
        tracemalloc.start()
        wire.deadline = time.monotonic() + 0.5
        with pytest.raises(ConnectError):
            wire.send_request(ListGroupsRequest())
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_a_broker_that_knows_no_newer_way_is_asked_for_its_versions_in_the_oldest():
    with (
        broker(versions_then(groups("g"))) as (conf, host, port),
        Connection.connect(conf, host, port) as wire,
    ):
        assert wire.highest_version(Api.LIST_GROUPS) == 5
        assert wire.highest_version(Api.OFFSET_FETCH) is None
        assert wire.highest_version(Api.METADATA) is None
        answer = wire.send_request(ListGroupsRequest())
        assert [group.group_id for group in answer.groups] == ["g"]


@pytest.mark.parametrize("silent_first", [True, False])
def test_a_name_with_several_addresses_is_reached_through_the_one_that_responds(monkeypatch, silent_first):
    with (
        broker(versions_then()) as (conf, host, port),
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
    ):
        # The backlog of `silent` is full: further connections get no response.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        addresses = [silent.getsockname(), (host, port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args: found if silent_first else found[::-1])
        with Connection.connect(conf, "two.example", port, timeout_s=6.0) as wire:
            assert wire.highest_version(Api.LIST_GROUPS) == 5
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    ("value", "family"), [("any", socket.AF_UNSPEC), ("v4", socket.AF_INET), ("v6", socket.AF_INET6)]
)
def test_the_family_of_addresses_is_that_of_the_properties(monkeypatch, value, family):
    asked = []

    def resolve(host, port, asked_family, kind):
        asked.append(asked_family)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ConnectError, match="no such name"):
        Connection.connect(ClusterConf("x:1", {"broker.address.family": value}), "x", 1)
    assert asked == [family]


def test_answers_come_in_order_and_few_questions_are_under_way():
    asked: list[int] = []

    def questions() -> Iterator[Any]:
        for number in range(10):
            asked.append(number)
            yield encode_request(ListGroupsRequest())

    answers = versions_then(*(groups(f"g{number}") for number in range(10)))
    with broker(answers) as (conf, host, port), Connection.connect(conf, host, port) as wire:
        for number, answer in enumerate(wire.send_requests(questions())):
            assert len(asked) <= number + MAX_IN_FLIGHT
            assert answer.groups[0].group_id == f"g{number}"
    assert len(asked) == 10


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, r"Disconnected.*security\.protocol"),
        (RAW, "no response in time"),
        (RAW + b"\0\0", "no response in time"),
        (RAW + b"HTTP/1.1 400", "Invalid response size"),
        (RAW + b"\0\0\0\5\0\0\0\x63\0", "belongs to no request"),
        (b"\0\0\0", "Invalid response to request 16"),
        (groups("g")[:-5], "Invalid response to request 16"),
    ],
)
def test_an_answer_that_is_none_is_said_in_one_line_and_ends_the_connection(answer, words):
    with broker(versions_then(answer)) as (conf, host, port):
        timeout_s = 1.0 if words == "no response in time" else 60
        wire = Connection.connect(replace(conf, request_timeout_s=timeout_s), host, port)
        with wire, pytest.raises(ConnectError, match=words) as failure:
            wire.send_request(ListGroupsRequest())
        assert wire.closed
        assert "\n" not in str(failure.value)
        with pytest.raises(Closed):
            wire.send_request(ListGroupsRequest())


# OffsetFetch
