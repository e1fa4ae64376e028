"""OffsetFetch against kio: the same requests, and the same offsets in a response."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v9.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from koff.client.groups import offset_fetch
from koff.client.groups.descriptions import GroupListing
from koff.client.groups.responses import join_columns
from koff.proto.primitives import Malformed
from koff.proto.requests import Api, error_name

T = TypeVar("T")
ZERO = datetime.timedelta(0)


def entity(kind: Callable[..., T], **fields: Any) -> T:
    """One of kio's classes from plain numbers and names, for which kio has types of its own."""
    return kind(**fields)


def written(entity: Any) -> bytes:
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return body.getvalue()


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
