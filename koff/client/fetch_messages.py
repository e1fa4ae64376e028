"""Fetch: the encoded request, and the table of its response.

Layouts: FetchRequest.json and FetchResponse.json, version 12 (Kafka 2.7): the last one with topic names.
"""

import struct as numbers
from collections.abc import Mapping
from functools import partial

from koff.proto.primitives import Malformed, write_uvarint
from koff.proto.readers import compile_struct_reader
from koff.proto.requests import Api, EncodedRequest
from koff.proto.schema import BYTES, INT16, INT32, INT64, STRING, array, field, nested, nullable, struct

FETCH_VERSIONS = (12, 12)
_HEAD = numbers.Struct(">iiiibii")
"""Replica id, wait in ms, least bytes, most bytes, isolation level, session id and epoch."""
_ROW = numbers.Struct(">iiqiqix")
"""Partition, leader epoch, offset, epoch of the last record, log start offset, most bytes, no tags."""
_NO_SESSION = 0, -1
_UNKNOWN = -1


@struct()
class AbortedTransaction:
    """An aborted transaction whose records are among those that were returned."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct()
class FetchedPartition:
    """Whole record batches of a partition, the last one perhaps cut off; or an error code."""

    partition: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64)
    log_start_offset: int = field(INT64)
    aborted: tuple[AbortedTransaction, ...] | None = field(nullable(array(nested(AbortedTransaction))))
    preferred_read_replica: int = field(INT32)
    records: bytes | None = field(nullable(BYTES))


@struct()
class FetchedTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: tuple[FetchedPartition, ...] = field(array(nested(FetchedPartition)))


@struct(versions=FETCH_VERSIONS, flexible_since=12)
class FetchResponse:
    """The response to Fetch."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    session_id: int = field(INT32)
    topics: tuple[FetchedTopic, ...] = field(array(nested(FetchedTopic)))


def encode_fetch(
    topics: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    read_committed: bool,
    partition_bytes: int,
    response_bytes: int,
    wait_ms: int = 0,
    rack: str = "",
) -> EncodedRequest[FetchResponse]:
    """A request for the records from these positions on. The broker waits up to `wait_ms` for the first.

    `topics` has, by topic and partition, the offset and the epoch of the leader. With an epoch, the broker
    refuses the request once it has another one; -1: unknown. The leader may name a follower in `rack`.
    """
    body = bytearray(
        _HEAD.pack(_UNKNOWN, wait_ms, 1 if wait_ms else 0, response_bytes, read_committed, *_NO_SESSION)
    )
    write_uvarint(body, len(topics) + 1)
    for topic, positions in topics.items():
        name = topic.encode()
        write_uvarint(body, len(name) + 1)
        body += name
        write_uvarint(body, len(positions) + 1)
        for partition, (offset, epoch) in positions.items():
            body += _ROW.pack(partition, epoch, offset, _UNKNOWN, _UNKNOWN, partition_bytes)
        body += b"\0"  # no tags of the topic
    own_rack = rack.encode()
    body += b"\1"  # no topic to forget
    write_uvarint(body, len(own_rack) + 1)
    body += own_rack + b"\0"  # no tags of the request
    return EncodedRequest(Api.FETCH, FETCH_VERSIONS[0], bytes(body), partial(_decode, frozenset(topics)))


def _decode(topics: frozenset[str], buffer: bytes, at: int) -> FetchResponse:
    response: FetchResponse
    response, end = compile_struct_reader(FetchResponse, FETCH_VERSIONS[0], lenient=True)(buffer, at)
    if end != len(buffer):
        raise Malformed("the response does not end where it should")
    if any(each.name not in topics for each in response.topics):
        raise Malformed("the response is about another topic")
    return response
