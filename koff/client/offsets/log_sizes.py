"""How many bytes the logs of each topic have on a broker.

Layouts: DescribeLogDirsRequest.json and DescribeLogDirsResponse.json. koff uses the versions that Kafka 2.8
introduced, and later ones as long as their layout is the same.
"""

import time
from collections import Counter
from functools import partial

from koff.client.metadata import Node
from koff.client.offsets.messages import choose_version, decode_response
from koff.client.wire.brokers import Brokers
from koff.client.wire.connection import Connection
from koff.errors import ConnectError, Denied
from koff.proto.requests import Api, EncodedRequest, error_name
from koff.proto.schema import INT8, INT16, INT32, INT64, STRING, array, field, nested, struct

VERSIONS = (2, 4)
_ALL_TOPICS = b"\0\0"
"""The topics are null, and there are no tags."""
_MAX_BYTES = 1 << 53
"""No broker has so much. The sums over all brokers have to fit into 64 bits."""
_DENIED = "CLUSTER_AUTHORIZATION_FAILED"


@struct()
class PartitionSize:
    """The log of a partition. A future log takes the place of another one on this broker soon."""

    partition: int = field(INT32)
    bytes: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future: int = field(INT8)


@struct()
class TopicSizes:
    """The logs of a topic in one log directory."""

    name: str = field(STRING)
    partitions: tuple[PartitionSize, ...] = field(array(nested(PartitionSize)))


@struct()
class LogDirectory:
    """A log directory of the broker. `total_bytes` and `usable_bytes` are those of its disk."""

    error_code: int = field(INT16)
    path: str = field(STRING)
    topics: tuple[TopicSizes, ...] = field(array(nested(TopicSizes)))
    total_bytes: int = field(INT64, since=4, default=-1)
    usable_bytes: int = field(INT64, since=4, default=-1)


@struct(versions=VERSIONS, flexible_since=2)
class DescribeLogDirsResponse:
    """The response to DescribeLogDirs."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3, default=0)
    directories: tuple[LogDirectory, ...] = field(array(nested(LogDirectory)))


def fetch_log_sizes(brokers: Brokers, broker: Node, *, timeout_s: float) -> dict[str, int]:
    """The bytes of each topic's logs on this broker, in all its log directories.

    Needs DESCRIBE on the cluster: raises `Denied` without it. Raises `ConnectError`, also if a directory
    cannot be read: the sizes would be too small.
    """
    response = brokers.send_request(
        (broker.host, broker.port), _encode, deadline=time.monotonic() + timeout_s
    )
    where = f"Kafka at {broker.host}:{broker.port}"
    # Before version 3 the response has no error, and a broker without a directory cannot run.
    if error_name(response.error_code) == _DENIED or not (response.error_code or response.directories):
        raise Denied(f"{where} does not tell the sizes of its logs: grant DESCRIBE on the cluster")
    for code in (response.error_code, *(each.error_code for each in response.directories)):
        if code:
            raise ConnectError(f"{where} cannot read the sizes of all its logs: {error_name(code)}")
    sizes = Counter[str]()
    for directory in response.directories:
        for topic in directory.topics:
            if any(each.bytes < 0 for each in topic.partitions):
                raise ConnectError(f"{where} sends a negative size of a log of {topic.name!r}")
            sizes[topic.name] += sum(each.bytes for each in topic.partitions)
    if sizes.total() >= _MAX_BYTES:
        raise ConnectError(f"{where} sends sizes of logs that are too large: {sizes.total()} bytes")
    return dict(sizes)


def _encode(connection: Connection) -> EncodedRequest[DescribeLogDirsResponse]:
    version = choose_version(connection, Api.DESCRIBE_LOG_DIRS, VERSIONS)
    decode = partial(decode_response, DescribeLogDirsResponse, version)
    return EncodedRequest(Api.DESCRIBE_LOG_DIRS, version, _ALL_TOPICS, decode)
