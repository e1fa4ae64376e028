"""The settings of topics, from any broker, many topics in one request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from koff.client.wire.brokers import Brokers
from koff.client.wire.connection import Connection
from koff.proto.requests import Api, Request, encode_request, error_name

TopicConfigs = dict[str, dict[str, str] | str]
"""By topic its settings, or the name of Kafka's error."""
_TOPIC = 2  # Kafka's ConfigResource.Type


def fetch_topic_configs(
    brokers: Brokers, topics: Sequence[str], names: Sequence[str], *, timeout_s: float
) -> TopicConfigs:
    """The settings of these `names`, by topic, with the brokers' defaults. Topics that no broker names are
    left out.

    Needs DESCRIBE_CONFIGS on a topic; else its error is TOPIC_AUTHORIZATION_FAILED. Raises `ConnectError`.
    """

    def build(connection: Connection) -> Request[Any]:
        resources = (
            connection.build_struct(
                Api.DESCRIBE_CONFIGS,
                "DescribeConfigsResource",
                resource_type=_TOPIC,
                resource_name=topic,
                configuration_keys=tuple(names),
            )
            for topic in topics
        )
        return encode_request(connection.build_request(Api.DESCRIBE_CONFIGS, resources=tuple(resources)))

    _, response = brokers.ask_any(build, deadline=time.monotonic() + timeout_s)
    return {
        result.resource_name: error_name(result.error_code)
        or {each.name: each.value for each in result.configs if each.value is not None}
        for result in response.results
    }
