"""Groups and offsets through the admin client, with a double in its place."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition

from koff.client import ClusterConf
from koff.client.groups import admin
from koff.client.groups.admin import fetch_through_admin


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


class FakeAdmin:
    """Each group has committed 7 to t-0. `types` are the groups with what ListGroups says of their types."""

    def __init__(self, types: dict[str, ConsumerGroupType]) -> None:
        self.types = types

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        listings = [
            SimpleNamespace(
                group_id=name, type=kind, state=ConsumerGroupState.EMPTY, is_simple_consumer_group=False
            )
            for name, kind in self.types.items()
        ]
        return done(SimpleNamespace(valid=listings, errors=[]))

    def list_consumer_group_offsets(self, requests: list[Any], **_: Any) -> dict[str, Future[Any]]:
        (request,) = requests
        if not request.group_id:  # as confluent-kafka does
            raise ValueError("'group_id' cannot be empty")
        return {request.group_id: done(SimpleNamespace(topic_partitions=[TopicPartition("t", 0, 7)]))}


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> Any:
    def fetch(**types: ConsumerGroupType) -> Any:
        monkeypatch.setattr(admin, "new_client", lambda *_, **__: FakeAdmin(types))
        return fetch_through_admin(ClusterConf("127.0.0.1:1"))

    return fetch


def test_groups_have_offsets_though_brokers_before_3_8_return_no_types(fetch: Any) -> None:
    fetched = fetch(old=ConsumerGroupType.UNKNOWN, new=ConsumerGroupType.CONSUMER)
    assert sorted(fetched.offsets.groups) == ["new", "old"]
    assert {group.name: group.type for group in fetched.groups} == {"old": "classic", "new": "consumer"}
    assert not fetched.failed


def test_a_group_that_cannot_be_asked_about_fails_alone(fetch: Any) -> None:
    fetched = fetch(**{"": ConsumerGroupType.CLASSIC, "a": ConsumerGroupType.CLASSIC})
    assert fetched.offsets.groups == ["a"]
    assert list(fetched.failed) == [""]
