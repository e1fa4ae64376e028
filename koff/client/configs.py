"""The settings of topics and brokers (DescribeConfigs)."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from koff.client.wire.brokers import Brokers
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.proto.requests import Api, EncodedRequest, encode_request, error_name

Configs = dict[str, dict[str, str] | str]
"""By name its settings, or the name of Kafka's error."""
_TOPIC, _BROKER = 2, 4  # Kafka's ConfigResource.Type


def fetch_topic_configs(
    brokers: Brokers, topics: Sequence[str], names: Sequence[str], *, timeout_s: float
) -> Configs:
    """The settings of these `names`, by topic, with the brokers' defaults, from any broker in one request.

    Topics that the broker does not name are left out. Needs DESCRIBE_CONFIGS on a topic; else its error is
    TOPIC_AUTHORIZATION_FAILED. Raises `ConnectError`.
    """
    build = partial(_build, kind=_TOPIC, resources=topics, names=tuple(names))
    _, response = brokers.send_to_any(build, deadline=time.monotonic() + timeout_s)
    return _convert(response)


def fetch_broker_configs(
    brokers: Brokers, address: Address, broker: int, *, timeout_s: float
) -> dict[str, str] | str:
    """The settings of a broker, from that broker; or the name of Kafka's error. Raises `ConnectError`."""
    build = partial(_build, kind=_BROKER, resources=[str(broker)], names=None)
    response = brokers.send_request(address, build, deadline=time.monotonic() + timeout_s)
    return _convert(response).get(str(broker), "no response")


def _build(
    connection: Connection, *, kind: int, resources: Sequence[str], names: tuple[str, ...] | None
) -> EncodedRequest[Any]:
    structs = (
        connection.build_struct(
            Api.DESCRIBE_CONFIGS,
            "DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=names,
        )
        for name in resources
    )
    return encode_request(connection.build_request(Api.DESCRIBE_CONFIGS, resources=tuple(structs)))


def _convert(response: Any) -> Configs:
    return {
        result.resource_name: error_name(result.error_code)
        or {each.name: each.value for each in result.configs if each.value is not None}
        for result in response.results
    }
