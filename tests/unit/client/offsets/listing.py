"""A lister of fake brokers, and what it has listed."""

from __future__ import annotations

from koff.client import TopicPartition
from koff.client.offsets.lister import Listed, OffsetLister
from koff.proto.requests import Api
from tests.fake_brokers import FakeBrokers


def make_lister(brokers: FakeBrokers, *bootstrap: int) -> OffsetLister:
    conf = brokers.conf_of(*bootstrap) if bootstrap else brokers.conf
    return OffsetLister(conf)


def at(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def ends(listed: Listed) -> dict[tuple[str, int], int | str]:
    return {at: found if isinstance(found, str) else found.offset for at, found in listed.items()}


def metadata_requests(brokers: FakeBrokers) -> dict[int, int]:
    """How many requests for metadata each broker was sent."""
    return {number: broker.count(Api.METADATA) for number, broker in brokers.brokers.items()}
