"""A connection of our own: log-in, properties, answers that make no sense, OffsetFetch against kio."""

from __future__ import annotations

import datetime
import io
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema
from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.offset_fetch.v9.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.client import ClusterConf
from koff.client.addresses import parse_addresses
from koff.client.groups import offset_fetch
from koff.client.groups.descriptions import GroupListing
from koff.client.groups.responses import join_columns
from koff.client.wire.connection import MAX_IN_FLIGHT, Connection
from koff.client.wire.credentials import build_tls_context, check_properties, read_credentials
from koff.client.wire.sasl import Exchange, Refused, oauthbearer_exchange, plain_exchange, scram_exchange
from koff.errors import Closed, ConfigError, ConnectError
from koff.proto.primitives import Malformed
from koff.proto.requests import Api, encode_request, error_name

T = TypeVar("T")

# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_says_what_the_rfc_says():
    exchange = scram_exchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
    assert next(exchange) == b"n,,n=user,r=" + NONCE.encode()
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def log_in(exchange: Exchange, *answers: bytes) -> None:
    next(exchange)
    for answer in answers:
        exchange.send(answer)


@pytest.mark.parametrize(
    ("first", "final", "why"),
    [
        (SERVER_FIRST, b"v=AAAA", "does not know the password"),
        (SERVER_FIRST, b"e=invalid-proof", "invalid-proof"),
        (SERVER_FIRST, b"", "does not know the password"),
        (SERVER_FIRST.replace(b"r=r", b"r=x"), b"", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=0"), b"", "requires 0 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), b"", "requires 1 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), b"", "requires 4095 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), b"", "requires 1000001 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 40), b"", "SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), b"", "is missing or invalid"),
        (b"e=other-error", b"", "other-error"),
        (b"\xff\xff", b"", "is missing or invalid"),
    ],
)
def test_scram_refuses_a_server_that_proves_nothing(first, final, why):
    with pytest.raises(Refused, match=why):
        log_in(scram_exchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE), first, final)


def test_scram_escapes_names_and_makes_a_new_nonce_each_time():
    first, second = (next(scram_exchange("SCRAM-SHA-512", "a=b,c", "p")) for _ in range(2))
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert first != second


def test_plain_and_bearer_tokens_are_one_message():
    assert list(plain_exchange("ä", "p")) == [b"\0\xc3\xa4\0p"]
    exchange = oauthbearer_exchange("abc")
    assert next(exchange) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Refused):
        exchange.send(b"")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, ""),
        ({"security.protocol": "SSL"}, ""),
        ({"security.protocol": "sasl_ssl", "sasl.mechanisms": "scram-sha-512"}, ""),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "DIGEST-MD5"}, "DIGEST-MD5"),
        ({"security.protocol": "ssl", "ssl.engine.id": "x"}, r"ssl\.engine\.id"),
        ({"security.protocol": "odd"}, "odd"),
    ],
)
def test_it_is_said_what_koff_does_not_support(properties, reason):
    conf = ClusterConf("a:1", {"sasl.username": "u", "sasl.password": "p", **properties})
    with pytest.raises(ConfigError, match=reason) if reason else nullcontext():
        read_credentials(conf)


def test_what_it_takes_to_log_in_is_asked_for_and_never_shown():
    properties = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with pytest.raises(ConfigError, match=r"SASL/PLAIN needs sasl\.password"):
        read_credentials(ClusterConf("a:1", properties))
    conf = ClusterConf("a:1", {**properties, "sasl.password": "hush"})
    assert "hush" not in repr(read_credentials(conf)) + repr(conf)
    assert read_credentials(conf).tls


SPELLINGS = [
    "true",
    "True",
    "tRUE",
    "t",
    "T",
    "1",
    "false",
    "F",
    "f",
    "0",
    "",
    " true",
    "yes",
    "on",
    "2",
    "no",
]
ENDPOINT_CHECKS = ["https", "HTTPS", "none", "None", "", "htps", "https ", "true", "0"]


@pytest.mark.parametrize(
    ("name", "value", "attribute"),
    [("enable.ssl.certificate.verification", each, "verify_mode") for each in SPELLINGS]
    + [("ssl.endpoint.identification.algorithm", each, "check_hostname") for each in ENDPOINT_CHECKS],
)
def test_a_check_is_off_only_where_librdkafka_reads_the_same_value_as_off(name, value, attribute):
    """`1` and `t` are true to librdkafka: koff once read them as false, and verified nothing."""
    try:
        Producer({"bootstrap.servers": "", name: value, "log_level": 0})
    except KafkaException:
        with pytest.raises(ConfigError, match=name):
            build_tls_context({name: value})
        return
    on = value.lower() in {"true", "t", "1", "https"}
    assert bool(getattr(build_tls_context({name: value}), attribute)) is on


def test_tls_is_checked_unless_the_properties_say_otherwise(tmp_path):
    assert build_tls_context({}).check_hostname
    assert not build_tls_context({"ssl.endpoint.identification.algorithm": "none"}).check_hostname
    assert not build_tls_context({"enable.ssl.certificate.verification": "false"}).verify_mode
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("secret nonsense")
    for name in ("ssl.ca.location", "ssl.certificate.location"):
        with pytest.raises(ConfigError, match=name) as refused:
            build_tls_context({name: str(nonsense), "ssl.key.password": "hush"})
        assert "hush" not in str(refused.value)


def test_addresses_are_read_as_librdkafka_reads_them():
    given = "a:1, SSL://b:2,[::1]:3,c,::1,[::1],fe80::1%eth0,"
    assert list(parse_addresses(given)) == [
        ("a", 1),
        ("b", 2),
        ("::1", 3),
        ("c", 9092),
        *[("::1", 9092)] * 2,
        ("fe80::1%eth0", 9092),
    ]
    for impossible in ("a:b", "a:0", "a:65536", "a:9092:1", "[a:1]:2", "[::1"):
        with pytest.raises(ConfigError, match="is not an address"):
            list(parse_addresses(f"b:1,{impossible}"))


def test_kio_is_not_imported_before_it_is_needed():
    code = "import sys, koff.client.groups.coordinators; assert 'kio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


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
        timeout_s = 0.3 if words == "no response in time" else 60
        wire = Connection.connect(replace(conf, request_timeout_s=timeout_s), host, port)
        with wire, pytest.raises(ConnectError, match=words) as failure:
            wire.send_request(ListGroupsRequest())
        assert wire.closed
        assert "\n" not in str(failure.value)
        with pytest.raises(Closed):
            wire.send_request(ListGroupsRequest())


# OffsetFetch


def read(body: bytes) -> offset_fetch.FetchedOffsets:
    """What the body says; every truncation of it is refused."""
    for size in range(len(body)):
        with pytest.raises((Malformed, IndexError)):
            offset_fetch.decode_response(body[:size], 0)
    return offset_fetch.decode_response(body, 0)


def expected(response: OffsetFetchResponse) -> tuple[list[Any], dict[Any, str]]:
    """Rows of groups without errors, and the errors of the others, as kio has it all."""
    rows, errors = [], {}
    for group in response.groups:
        codes = [p.error_code for topic in group.topics for p in topic.partitions if p.error_code]
        if group.error_code or codes:
            errors[group.group_id] = error_name(int(group.error_code or codes[0]))
        else:
            rows += [
                (group.group_id, topic.name, *numbers(p), p.metadata or "")
                for topic in group.topics
                for p in topic.partitions
            ]
    return rows, errors


def numbers(of: OffsetFetchResponsePartitions) -> tuple[int, int, int]:
    return of.partition_index, of.committed_offset, of.committed_leader_epoch


def committed(metadata: str | None = "", error: int = 0, **given: int) -> OffsetFetchResponsePartitions:
    return entity(
        OffsetFetchResponsePartitions,
        partition_index=given.get("partition", 1),
        committed_offset=given.get("offset", 2),
        committed_leader_epoch=given.get("epoch", -1),
        metadata=metadata,
        error_code=ErrorCode(error),
    )


ERRORS = st.sampled_from([0, 0, 0, 16, 30])
PARTITIONS = st.builds(
    committed,
    st.sampled_from(["", "", "", None, "m", "x" * 200, "\x01\0\0\0"]),
    ERRORS,
    partition=st.integers(0, 2**31 - 1),
    offset=st.sampled_from([0, 0x0100000001000000, 2**63 - 1, -1]),
    epoch=st.integers(-1, 2**31 - 1),
)
TOPICS = st.builds(
    lambda name, rows: entity(OffsetFetchResponseTopics, name=name, partitions=tuple(rows)),
    st.sampled_from(["t", "u" * 150, "ü"]),
    st.lists(PARTITIONS, max_size=4),
)


@st.composite
def responses(draw: st.DrawFn) -> OffsetFetchResponse:
    names = draw(st.lists(st.sampled_from(["a", "b", "g" * 200, "ö"]), unique=True))
    found = tuple(
        entity(
            OffsetFetchResponseGroup,
            group_id=name,
            topics=tuple(draw(st.lists(TOPICS, max_size=3))),
            error_code=ErrorCode(draw(ERRORS)),
        )
        for name in names
    )
    return entity(OffsetFetchResponse, throttle_time=ZERO, groups=found)


@given(responses())
def test_offsets_are_read_as_kio_reads_them(response):
    rows, errors = expected(response)
    fetched = offset_fetch.decode_response(written(response), 0)
    assert [tuple(row) for row in join_columns([fetched.offsets]).rows()] == rows
    assert fetched.errors == errors
    assert sorted([*fetched.groups, *fetched.errors]) == sorted(group.group_id for group in response.groups)


@pytest.mark.parametrize("rows", [[""], ["", ""], ["", "odd", ""], ["odd"], [None, ""], []])
def test_truncated_answers_are_refused(rows):
    topic = entity(OffsetFetchResponseTopics, name="t", partitions=tuple(map(committed, rows)))
    group = entity(OffsetFetchResponseGroup, group_id="g", topics=(topic,), error_code=ErrorCode.none)
    fetched = read(written(entity(OffsetFetchResponse, throttle_time=ZERO, groups=(group,))))
    assert fetched.groups == ("g",)
    assert len(fetched.offsets.offset) == len(rows)


def test_requests_are_what_kio_would_write_and_no_larger_than_allowed():
    names = [f"group-{number}" for number in range(3000)] + ["ö" * 300]
    for version in (8, 9):
        kind = load_request_schema(Api.OFFSET_FETCH, version)
        asked = list(offset_fetch.build_requests(names, version, max_bytes=4000))
        requests = [entity_reader(kind)(each.body, 0)[0] for each in asked]
        assert [group.group_id for request in requests for group in request.groups] == names
        assert all(group.topics is None for request in requests for group in request.groups)
        assert not any(request.require_stable for request in requests)
        assert max(len(each.body) for each in asked) < 4010


def test_a_broker_before_kafka_3_is_asked_for_one_group_in_a_request():
    kind = load_request_schema(Api.OFFSET_FETCH, 7)
    asked = list(offset_fetch.build_requests(["a", "ö"], 7, max_bytes=4000))
    requests = [entity_reader(kind)(each.body, 0)[0] for each in asked]
    assert [(each.group_id, each.topics, each.require_stable) for each in requests] == [
        ("a", None, False),
        ("ö", None, False),
    ]
    old = load_payload_module(Api.OFFSET_FETCH, 7, EntityType.response)
    row = {"partition_index": 2, "committed_offset": 9, "committed_leader_epoch": 1, "metadata": "m"}
    partition = entity(old.OffsetFetchResponsePartition, **row, error_code=ErrorCode.none)
    topic = entity(old.OffsetFetchResponseTopic, name="t", partitions=(partition,))
    for code, found in ((ErrorCode.none, ("a",)), (ErrorCode.not_coordinator, ())):
        response = entity(old.OffsetFetchResponse, throttle_time=ZERO, topics=(topic,), error_code=code)
        fetched = asked[0].decode(written(response), 0)
        assert fetched.groups == found
        rows = [tuple(each) for each in join_columns([fetched.offsets]).rows()]
        assert rows == ([("a", "t", 2, 9, 1, "m")] if found else [])
        assert fetched.errors == ({} if found else {"a": "NOT_COORDINATOR"})


def test_columns_of_several_answers_share_their_names():
    def part(group: str, topic: str, metadata: str) -> offset_fetch.FetchedOffsets:
        rows = entity(OffsetFetchResponseTopics, name=topic, partitions=(committed(), committed(metadata)))
        told = entity(OffsetFetchResponseGroup, group_id=group, topics=(rows,), error_code=ErrorCode.none)
        return offset_fetch.decode_response(
            written(entity(OffsetFetchResponse, throttle_time=ZERO, groups=(told,))), 0
        )

    found = join_columns(
        [part("a", "t", "x").offsets, part("b", "t", "").offsets, part("c", "u", "y").offsets]
    )
    assert (found.groups, found.topics) == (["a", "b", "c"], ["t", "u"])
    assert found.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.topic.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.metadata == ["", "x", "", "", "", "y"]
    assert len(join_columns([])) == 0


def test_a_classic_group_without_members_needs_no_description():
    assert GroupListing("g", "classic", "Empty", "").describe_api is None
    assert GroupListing("g", "classic", "Stable", "consumer").describe_api is Api.DESCRIBE_GROUPS
    assert GroupListing("g", "consumer", "Empty", "consumer").describe_api is Api.CONSUMER_GROUP_DESCRIBE
    assert GroupListing("g", "of-the-future", "Stable", "").describe_api is None
