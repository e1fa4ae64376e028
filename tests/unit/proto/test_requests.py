"""Frames, headers, requests and responses: what a client encodes, a broker decodes, and vice versa."""

import struct
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.errors import ConfigError
from koff.proto import (
    Api,
    ErrorCode,
    Frames,
    Malformed,
    build_request,
    build_response,
    build_struct,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    kio_versions,
)


def unframe(framed: bytes) -> bytes:
    (frame,) = Frames().feed(framed)
    return frame


def versions_request(version: int) -> Any:
    return build_request(Api.API_VERSIONS, version, client_software_name="koff", client_software_version="1")


@pytest.mark.parametrize("version", kio_versions(Api.API_VERSIONS))
def test_a_request_and_its_response_arrive_in_every_version(version: int):
    request = versions_request(version)
    encoded = encode_request(request)
    header, received = decode_request(unframe(encoded.encode_frame(7, "a-client")))
    assert (header.api, header.version, header.correlation, header.client_id) == (18, version, 7, "a-client")
    assert received == request

    response = build_response(
        Api.API_VERSIONS, version, error_code=ErrorCode.none, api_keys=(), throttle_time=timedelta(0)
    )
    assert decode_response(unframe(encode_response(response, header.correlation)), encoded) == (7, response)


def test_structs_are_built_in_the_version_of_their_request():
    topic = build_struct(Api.METADATA, 12, "MetadataRequestTopic", name="orders", topic_id=None)
    request = build_request(
        Api.METADATA,
        12,
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    _, received = decode_request(unframe(encode_request(request).encode_frame(1, "")))
    assert received.topics[0].name == "orders"


def test_the_api_keys_are_those_of_kio():
    for api in Api:
        assert kio_versions(api)


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
def test_frames_are_cut_however_the_stream_arrives(frames: list[bytes], step: int):
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = Frames()
    found = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert found == frames


def test_a_stream_of_another_protocol_is_refused():
    with pytest.raises(Malformed, match="not Kafka's protocol"):
        list(Frames().feed(b"HTTP/1.1 400 Bad Request"))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_malformed(data: bytes):
    for frame in (data, struct.pack(">hhi", 18, 3, 1) + data):
        try:
            decode_request(frame)
        except Malformed:
            pass


@given(st.binary(max_size=60))
def test_any_bytes_are_a_response_or_malformed(data: bytes):
    try:
        decode_response(data, encode_request(versions_request(3)))
    except Malformed:
        pass


def test_a_version_that_kio_has_not_is_malformed():
    with pytest.raises(Malformed, match="METADATA in version 99"):
        decode_request(struct.pack(">hhih", 3, 99, 1, -1))


def test_a_field_that_is_not_given_has_the_default_of_kafka():
    request = build_request(Api.METADATA, 12)
    assert request.topics == ()  # not None, which would be all topics
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False
    topic = build_struct(Api.METADATA, 12, "MetadataRequestTopic", name="orders")
    assert (topic.name, topic.topic_id) == ("orders", None)


@pytest.mark.parametrize("api", Api)
def test_each_request_can_be_built_without_a_field_and_is_written_and_read(api):
    for version in kio_versions(api):
        request = encode_request(build_request(api, version))
        header, read = decode_request(request.encode_frame(7, "test")[4:])
        assert (header.api, header.version) == (api, version)
        assert read == build_request(api, version)


@pytest.mark.parametrize("api", Api)
def test_each_response_can_be_built_without_a_field_and_is_written_and_read(api):
    for version in kio_versions(api):
        request = encode_request(build_request(api, version))
        response = build_response(api, version)
        assert decode_response(unframe(encode_response(response, 7)), request) == (7, response)


def test_arrays_that_are_null_by_default_in_kafka_are_null():
    assert build_request(Api.LIST_PARTITION_REASSIGNMENTS, 0).topics is None
    assert build_request(Api.CONSUMER_GROUP_HEARTBEAT, 1).topic_partitions is None
    streams = build_request(Api.STREAMS_GROUP_HEARTBEAT, 0)
    assert (streams.active_tasks, streams.client_tags, streams.task_end_offsets) == (None, None, None)


@pytest.mark.parametrize("build", [build_request, build_response])
def test_a_version_that_kio_has_not_is_an_error_of_koff(build):
    with pytest.raises(ConfigError, match="METADATA has no version 99: use 0 to"):
        build(Api.METADATA, 99)
    with pytest.raises(ConfigError, match="METADATA has no version -1"):
        build(Api.METADATA, -1)


def test_a_field_of_a_wrong_type_is_an_error_of_koff():
    with pytest.raises(ConfigError, match="MetadataRequest cannot be encoded"):
        encode_request(build_request(Api.METADATA, 12, topics=7))


def test_a_name_that_no_version_has_is_refused():
    complete = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    for fields in ({"topics": None}, complete):
        with pytest.raises(ConfigError, match="allow_topic_creation"):
            build_request(Api.METADATA, 12, **fields, allow_topic_creation=False)
    with pytest.raises(ConfigError, match="nmae"):
        build_struct(Api.METADATA, 12, "MetadataRequestTopic", name="orders", topic_id=None, nmae="x")
    # That other versions have it is no mistake.
    assert build_request(Api.METADATA, 12, include_cluster_authorized_operations=True).topics == ()
