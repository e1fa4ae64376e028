"""ListOffsets and Metadata: encoded requests, and tables of their responses.

Layouts: ListOffsetsRequest.json, ListOffsetsResponse.json, MetadataRequest.json and MetadataResponse.json.
koff uses the versions that Kafka 2.8 introduced, and later ones as long as their layout is the same. Metadata
is of Kafka 2.4 at least.
"""

import struct as numbers
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from koff.client.cluster_conf import TopicPartition
from koff.client.wire.connection import Connection, UnsupportedVersion
from koff.proto.primitives import ZERO_UUID, Malformed, write_uvarint
from koff.proto.readers import compile_struct_reader
from koff.proto.requests import Api, EncodedRequest
from koff.proto.schema import INT8, INT16, INT32, INT64, STRING, UUID, array, field, nested, nullable, struct

T = TypeVar("T")

LIST_OFFSETS_VERSIONS = (6, 9)
METADATA_VERSIONS = (9, 12)
LATEST, EARLIEST = -1, -2
"""The timestamps that stand for the end and the start of the log."""

_ROW = numbers.Struct(">iiqx")
"""A partition, its leader epoch, the timestamp, no tags."""
_NO_EPOCH = -1
"""The leader responds whatever its epoch is. With an epoch, each new epoch of the same leader would give an
error until the metadata is fetched again."""
_FIRST_WITH_IDS = 10
"""Version 9 of Metadata, the newest of Azure Event Hubs, has no topic ids."""
_NO_TOPIC_ID = b"\0" * 16


@struct()
class PartitionOffset:
    """The offset of one partition, or its error code. `leader_epoch` -1: unknown."""

    partition: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64)
    offset: int = field(INT64)
    leader_epoch: int = field(INT32)


@struct()
class TopicOffsets:
    """The offsets of one topic."""

    name: str = field(STRING)
    partitions: tuple[PartitionOffset, ...] = field(array(nested(PartitionOffset)))


@struct(versions=LIST_OFFSETS_VERSIONS, flexible_since=6)
class ListOffsetsResponse:
    """The response to ListOffsets."""

    throttle_time_ms: int = field(INT32)
    topics: tuple[TopicOffsets, ...] = field(array(nested(TopicOffsets)))


@struct()
class BrokerMetadata:
    """A broker as the cluster advertises it."""

    id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING))


@struct()
class LeaderMetadata:
    """A partition and its leader, -1 if it has none."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    replicas: tuple[int, ...] = field(array(INT32))
    in_sync: tuple[int, ...] = field(array(INT32))
    offline: tuple[int, ...] = field(array(INT32))


@struct()
class TopicMetadata:
    """A topic with its partitions, or its error code."""

    error_code: int = field(INT16)
    name: str | None = field(nullable(STRING))
    topic_id: str = field(UUID, since=10, default=ZERO_UUID)
    is_internal: int = field(INT8)
    partitions: tuple[LeaderMetadata, ...] = field(array(nested(LeaderMetadata)))
    authorized_operations: int = field(INT32)


@struct(versions=METADATA_VERSIONS, flexible_since=9)
class MetadataResponse:
    """The response to Metadata."""

    throttle_time_ms: int = field(INT32)
    brokers: tuple[BrokerMetadata, ...] = field(array(nested(BrokerMetadata)))
    cluster_id: str | None = field(nullable(STRING))
    controller: int = field(INT32)
    topics: tuple[TopicMetadata, ...] = field(array(nested(TopicMetadata)))
    authorized_operations: int = field(INT32, until=10, default=0)


def encode_list_offsets(
    version: int, partitions: Mapping[str, Iterable[TopicPartition]], *, timestamp: int, read_committed: bool
) -> EncodedRequest[ListOffsetsResponse]:
    """A request for the offset of each partition, by topic, at a time in ms, or `LATEST` or `EARLIEST`."""
    body = bytearray(numbers.pack(">ib", -1, read_committed))  # -1: the sender is no replica
    write_uvarint(body, len(partitions) + 1)
    for topic, of_topic in partitions.items():
        rows = [_ROW.pack(partition, _NO_EPOCH, timestamp) for _, partition in of_topic]
        _write_string(body, topic)
        write_uvarint(body, len(rows) + 1)
        body += b"".join(rows)
        body += b"\0"  # no tags of the topic
    body += b"\0"  # no tags of the request
    return EncodedRequest(
        Api.LIST_OFFSETS, version, bytes(body), partial(decode_response, ListOffsetsResponse, version)
    )


def encode_metadata(version: int, topics: Collection[str] | None) -> EncodedRequest[MetadataResponse]:
    """A request for the brokers, and for the leaders of these topics, or of all. It creates no topic."""
    body = bytearray()
    write_uvarint(body, 0 if topics is None else len(topics) + 1)
    for name in topics or ():
        body += _NO_TOPIC_ID if version >= _FIRST_WITH_IDS else b""
        _write_string(body, name)
        body += b"\0"
    # No topic is created, and no authorized operations are returned. Version 10 still has one flag more.
    body += b"\0\0\0" if version <= _FIRST_WITH_IDS else b"\0\0"
    body += b"\0"
    return EncodedRequest(
        Api.METADATA, version, bytes(body), partial(decode_response, MetadataResponse, version)
    )


def choose_version(connection: Connection, api: Api, versions: tuple[int, int]) -> int:
    """The highest of these versions that the broker supports. Raises `UnsupportedVersion`."""
    first, last = connection.supported_versions(api)
    highest = min(last, versions[1])
    if highest < max(first, versions[0]):
        raise UnsupportedVersion(
            f"Kafka at {connection.address} supports no version of {api.name} that koff sends"
        )
    return highest


def _write_string(body: bytearray, text: str) -> None:
    data = text.encode()
    write_uvarint(body, len(data) + 1)
    body += data


def decode_response(kind: type[T], version: int, buffer: bytes, at: int) -> T:
    """The response in `buffer` from position `at` on. Raises `Malformed`."""
    decoded: T
    decoded, end = compile_struct_reader(kind, version, lenient=True)(buffer, at)
    if end != len(buffer):
        raise Malformed("the response does not end where it should")
    return decoded
