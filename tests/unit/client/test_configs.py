"""The settings of topics, as brokers return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from koff.client.configs import fetch_topic_configs
from koff.client.wire.brokers import Brokers
from koff.errors import ConnectError
from koff.proto.requests import Api, build_struct
from tests.fake_brokers import FakeBrokers, written

CONFIGS = Api.DESCRIBE_CONFIGS
NAMES = ("retention.ms", "cleanup.policy")


def respond(**topics: dict[str, str | None] | ErrorCode) -> Callable[[int], bytes]:
    def encode(version: int) -> bytes:
        kinds = load_payload_module(CONFIGS, version, EntityType.response)
        results = tuple(describe(kinds, name, configs) for name, configs in topics.items())
        return written(kinds.DescribeConfigsResponse, throttle_time=timedelta(0), results=results)

    return encode


def describe(kinds: Any, name: str, configs: dict[str, str | None] | ErrorCode) -> Any:
    is_known = isinstance(configs, dict)
    entries = configs.items() if isinstance(configs, dict) else ()
    return kinds.DescribeConfigsResult(
        error_code=ErrorCode.none if is_known else configs,
        error_message=None,
        resource_type=2,
        resource_name=name,
        configs=tuple(
            kinds.DescribeConfigsResourceResult(
                name=key, value=value, read_only=False, is_sensitive=False, synonyms=(), documentation=None
            )
            for key, value in entries
        ),
    )


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers(2) as made:
        for number in (1, 2):
            made[number].versions[CONFIGS] = (1, 4)
            made[number].bodies[CONFIGS] = respond(
                t={"retention.ms": "60000", "cleanup.policy": None}, u=ErrorCode.topic_authorization_failed
            )
        yield made


def test_the_settings_of_many_topics_come_in_one_request(brokers: FakeBrokers) -> None:
    with Brokers(brokers.conf_of(1)) as asked:
        found = fetch_topic_configs(asked, ("t", "u", "v"), NAMES, timeout_s=20)
    assert found == {"t": {"retention.ms": "60000"}, "u": "TOPIC_AUTHORIZATION_FAILED"}
    ((_, version, request),) = [each for each in brokers[1].requests if each[0] == CONFIGS]
    resource = {"resource_type": 2, "configuration_keys": NAMES}
    assert request.resources == tuple(
        build_struct(CONFIGS, version, "DescribeConfigsResource", resource_name=topic, **resource)
        for topic in ("t", "u", "v")
    )


def test_another_broker_is_asked_when_one_hangs(brokers: FakeBrokers) -> None:
    brokers[1].hangs.add(CONFIGS)
    with Brokers(brokers.conf_of(1, 2)) as asked:
        assert fetch_topic_configs(asked, ("t",), NAMES, timeout_s=20)["t"] == {"retention.ms": "60000"}
        brokers[2].hangs.add(CONFIGS)
        with pytest.raises(ConnectError):
            fetch_topic_configs(asked, ("t",), NAMES, timeout_s=0.2)
