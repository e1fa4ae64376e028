"""What a user may do in a cluster, and the settings of a broker: for checks before koff is used."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from koff.client.cluster import Cluster
from koff.client.configs import fetch_broker_configs
from koff.client.wire.connection import Connection
from koff.errors import ConnectError
from koff.proto.requests import Api, EncodedRequest, encode_request, error_name

_ABSENT, _DENIED = "UNKNOWN_TOPIC_OR_PARTITION", "CLUSTER_AUTHORIZATION_FAILED"
_OPERATIONS = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
"""Kafka's AclOperation, by the bit that stands for it."""
_NOT_SAID = -(1 << 31)
Operations = frozenset[str]
"""Names of Kafka's operations: READ, DESCRIBE, DESCRIBE_CONFIGS, ..."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user may do. Without an authorizer, brokers allow everything.

    `cluster` is None if the broker does not say it. A topic that does not exist is None; one that the user
    may not describe has no operations; one of which the broker does not say it is missing.
    """

    cluster: Operations | None = None
    topics: Mapping[str, Operations | None] = field(default_factory=dict)


def fetch_rights(cluster: Cluster, topics: Collection[str], timeout_s: float = 10.0) -> Rights:
    """The rights on the cluster and on these topics. Raises `ConnectError`."""
    deadline = time.monotonic() + timeout_s

    def build_describe(connection: Connection) -> EncodedRequest[Any]:
        flags = {"include_cluster_authorized_operations": True}
        return encode_request(connection.build_request(Api.DESCRIBE_CLUSTER, **flags))

    def build_metadata(connection: Connection) -> EncodedRequest[Any]:
        named = (connection.build_struct(Api.METADATA, "MetadataRequestTopic", name=name) for name in topics)
        flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        return encode_request(connection.build_request(Api.METADATA, topics=tuple(named), **flags))

    _, described = cluster.brokers.send_to_any(build_describe, deadline=deadline)
    _, metadata = cluster.brokers.send_to_any(build_metadata, deadline=deadline)
    found: dict[str, Operations | None] = {}
    for topic in metadata.topics:
        if topic.error_code:
            found[topic.name] = None if error_name(topic.error_code) == _ABSENT else Operations()
        elif (operations := _read_operations(topic.topic_authorized_operations)) is not None:
            found[topic.name] = operations
    return Rights(_read_operations(described.cluster_authorized_operations), found)


def fetch_broker_settings(cluster: Cluster, broker: int, timeout_s: float = 10.0) -> dict[str, str] | None:
    """The settings of a broker; None without DESCRIBE_CONFIGS on the cluster. Raises `ConnectError`."""
    address = cluster.find_address(broker)
    settings = fetch_broker_configs(cluster.brokers, address, broker, timeout_s=timeout_s)
    if settings == _DENIED:
        return None
    if isinstance(settings, str):
        raise ConnectError(f"broker {broker} does not return its settings: {settings}")
    return settings


def _read_operations(bits: int) -> Operations | None:
    if bits == _NOT_SAID:
        return None
    return Operations(name for bit, name in _OPERATIONS.items() if bits >> bit & 1)
