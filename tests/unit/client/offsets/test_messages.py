"""ListOffsets and Metadata are the bytes that kio writes and reads, in each version."""

from __future__ import annotations

import struct
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.constants import EntityType

from koff.client import TopicPartition
from koff.client.offsets.messages import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS_VERSIONS,
    METADATA_VERSIONS,
    encode_list_offsets,
    encode_metadata,
)
from koff.proto.primitives import ZERO_UUID, Malformed
from koff.proto.requests import Api, EncodedRequest
from tests.fake_brokers import written

NAMES = st.text(st.sampled_from("abcxyz0189._-"), min_size=1, max_size=249)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
LIST_OFFSETS = range(LIST_OFFSETS_VERSIONS[0], LIST_OFFSETS_VERSIONS[1] + 1)
METADATA = range(METADATA_VERSIONS[0], METADATA_VERSIONS[1] + 1)


def read_by_kio(request: EncodedRequest[Any]) -> Any:
    read, end = entity_reader(load_request_schema(request.api, request.version))(request.body, 0)
    assert end == len(request.body)
    return read


@pytest.mark.parametrize("version", LIST_OFFSETS)
@given(
    partitions=st.dictionaries(NAMES, st.lists(INT32, max_size=200), max_size=4),
    timestamp=st.one_of(st.sampled_from([LATEST, EARLIEST]), st.integers(0, 2**63 - 1)),
    read_committed=st.booleans(),
)
@settings(max_examples=25)
def test_kio_reads_the_request_for_offsets(version, partitions, timestamp, read_committed):
    given = {
        name: [TopicPartition(name, number) for number in numbers] for name, numbers in partitions.items()
    }
    request = encode_list_offsets(version, given, timestamp=timestamp, read_committed=read_committed)
    read = read_by_kio(request)
    assert (read.replica_id, read.isolation_level) == (-1, read_committed)
    assert {
        topic.name: [
            (each.partition_index, each.current_leader_epoch, each.timestamp) for each in topic.partitions
        ]
        for topic in read.topics
    } == {name: [(number, -1, timestamp) for number in numbers] for name, numbers in partitions.items()}


@pytest.mark.parametrize("version", METADATA)
@given(names=st.lists(NAMES, max_size=200))
@settings(max_examples=25)
def test_kio_reads_the_request_for_leaders(version, names):
    read = read_by_kio(encode_metadata(version, names))
    assert [topic.name for topic in read.topics] == names
    assert {getattr(topic, "topic_id", None) for topic in read.topics} <= {None}
    assert not read.allow_auto_topic_creation
    assert not read.include_topic_authorized_operations
    assert not getattr(read, "include_cluster_authorized_operations", False)


@pytest.mark.parametrize("version", LIST_OFFSETS)
@given(
    rows=st.dictionaries(
        NAMES,
        st.lists(st.tuples(INT32, st.sampled_from(list(ErrorCode)), INT64, INT64, INT32), max_size=200),
        max_size=4,
    )
)
@settings(max_examples=25)
def test_the_response_with_offsets_is_read_as_kio_writes_it(version, rows):
    kinds = load_payload_module(Api.LIST_OFFSETS, version, EntityType.response)
    body = written(
        kinds.ListOffsetsResponse,
        throttle_time=timedelta(milliseconds=7),
        topics=tuple(
            kinds.ListOffsetsTopicResponse(
                name=name,
                partitions=tuple(
                    kinds.ListOffsetsPartitionResponse(
                        partition_index=number,
                        error_code=error,
                        timestamp=time,
                        offset=offset,
                        leader_epoch=epoch,
                    )
                    for number, error, time, offset, epoch in partitions
                ),
            )
            for name, partitions in rows.items()
        ),
    )
    request = encode_list_offsets(version, {}, timestamp=LATEST, read_committed=False)
    decoded = request.decode(b"head" + body, 4)
    assert decoded.throttle_time_ms == 7
    assert {
        topic.name: [
            (each.partition, each.error_code, each.timestamp, each.offset, each.leader_epoch)
            for each in topic.partitions
        ]
        for topic in decoded.topics
    } == {
        name: [(each[0], int(each[1]), *each[2:]) for each in partitions] for name, partitions in rows.items()
    }


@pytest.mark.parametrize(
    ("version", "has_id"),
    [(9, False), *((version, has_id) for version in METADATA[1:] for has_id in (True, False))],
)
def test_the_response_with_leaders_is_read_as_kio_writes_it(version, has_id):
    kinds = load_payload_module(Api.METADATA, version, EntityType.response)
    own, none = (
        {"topic_id": each} if version > 9 else {} for each in (uuid.UUID(int=7) if has_id else None, None)
    )
    body = written(
        kinds.MetadataResponse,
        throttle_time=timedelta(0),
        cluster_id="the cluster",
        controller_id=2,
        brokers=(
            kinds.MetadataResponseBroker(node_id=1, host="a", port=9092, rack="r"),
            kinds.MetadataResponseBroker(node_id=2, host="b", port=9093),
        ),
        topics=(
            kinds.MetadataResponseTopic(
                error_code=ErrorCode.none,
                name="t",
                **own,
                partitions=tuple(
                    kinds.MetadataResponsePartition(
                        error_code=ErrorCode.none,
                        partition_index=number,
                        leader_id=number + 1,
                        leader_epoch=number + 5,
                        replica_nodes=tuple(range(number)),
                        isr_nodes=(1,),
                        offline_replicas=(3, 4),
                    )
                    for number in range(3)
                ),
            ),
            kinds.MetadataResponseTopic(
                error_code=ErrorCode.topic_authorization_failed, name="hidden", partitions=(), **none
            ),
        ),
    )
    decoded = encode_metadata(version, []).decode(body, 0)
    assert [(each.id, each.host, each.port) for each in decoded.brokers] == [(1, "a", 9092), (2, "b", 9093)]
    topic, hidden = decoded.topics
    assert (topic.topic_id == ZERO_UUID) is not has_id
    leaders = [(each.partition, each.leader, each.leader_epoch) for each in topic.partitions]
    assert leaders == [(0, 1, 5), (1, 2, 6), (2, 3, 7)]
    assert (hidden.name, hidden.error_code, hidden.partitions) == ("hidden", 29, ())


def test_a_response_that_is_cut_short_or_too_long_is_refused():
    request = encode_list_offsets(6, {}, timestamp=LATEST, read_committed=False)
    row = b"\0\0\0\1" + b"\0\0" + b"\xff" * 8 + b"\0" * 7 + b"\5" + b"\0\0\0\2" + b"\0"
    body = b"\0\0\0\0" + b"\2" + b"\2t" + b"\2" + row + b"\0" + b"\0"
    (topic,) = request.decode(body, 0).topics
    assert topic.partitions[0].offset == 5
    for size in range(len(body)):
        with pytest.raises((Malformed, IndexError, struct.error)):
            request.decode(body[:size], 0)
    with pytest.raises(Malformed, match="does not end"):
        request.decode(body + b"\0", 0)
    # A count that the bytes cannot hold costs no memory.
    with pytest.raises(Malformed):
        request.decode(b"\0\0\0\0" + b"\xff\xff\xff\xff\7" + b"\2t", 0)
