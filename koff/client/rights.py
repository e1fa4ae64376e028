"""What a user may do in a cluster, and the settings of a broker: for checks before koff is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from koff.client.cluster import ClusterConf, get_result
from koff.client.foreign_errors import extract_kafka_error, make_connect_error
from koff.client.librdkafka import new_client
from koff.client.log_ins import check_log_in

_ABSENT = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
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


def fetch_rights(conf: ClusterConf, topics: Collection[str], timeout_s: float = 10.0) -> Rights:
    """The rights on the cluster and on these topics. Raises `ConnectError`."""
    admin = _new_admin(conf)
    try:
        cluster = admin.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s)
        described = admin.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
        )
        operations = get_result(cluster, timeout_s + 1).authorized_operations
    except (KafkaException, TimeoutError) as error:
        raise _map_error(conf, error) from error
    found: dict[str, Operations | None] = {}
    for name, future in described.items():
        try:
            allowed = get_result(future, timeout_s + 1).authorized_operations
            if allowed is not None:
                found[name] = _name_operations(allowed)
        except TimeoutError as error:
            raise _map_error(conf, error) from error
        except KafkaException as error:
            kafka_error = extract_kafka_error(error)
            is_absent = kafka_error is not None and kafka_error.name() in _ABSENT
            found[name] = None if is_absent else Operations()
    return Rights(None if operations is None else _name_operations(operations), found)


def fetch_broker_settings(conf: ClusterConf, broker: int, timeout_s: float = 10.0) -> dict[str, str] | None:
    """The settings of a broker; None without DESCRIBE_CONFIGS on the cluster. Raises `ConnectError`."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    admin = _new_admin(conf)  # a client that is not referred to gives up its requests
    try:
        future = admin.describe_configs([resource], request_timeout=timeout_s)[resource]
        entries = get_result(future, timeout_s + 1)
    except (KafkaException, TimeoutError) as error:
        kafka_error = extract_kafka_error(error)
        if kafka_error is not None and kafka_error.name() == "CLUSTER_AUTHORIZATION_FAILED":
            return None
        raise _map_error(conf, error) from error
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _new_admin(conf: ClusterConf) -> AdminClient:
    check_log_in(conf)
    admin: AdminClient = new_client(AdminClient, conf.librdkafka_properties(), error_cb=_ignore_error)
    return admin


def _ignore_error(_: Any) -> None:
    """The request has its own error."""


def _name_operations(operations: Collection[Any]) -> Operations:
    return Operations(operation.name for operation in operations)


def _map_error(conf: ClusterConf, error: BaseException) -> Exception:
    kafka_error = extract_kafka_error(error)
    return make_connect_error(conf.brokers, [kafka_error] if kafka_error else [], was_up=True)
