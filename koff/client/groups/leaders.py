"""Which broker coordinates groups: those that lead a partition of `__consumer_offsets`."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from koff.client.wire.connection import Connection
from koff.client.wire.requests import Api, error_name
from koff.errors import ConnectError
from koff.records.placement import group_partition
from koff.records.topics import OFFSETS_TOPIC

_ABSENT, _HIDDEN = ("UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED")


class BrokerAddress(NamedTuple):
    """A broker as the cluster advertises it."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"broker {self.id} at {self.host}:{self.port}"


class Led(NamedTuple):
    """Who leads a partition, -1 for nobody; each change of that has an epoch of its own."""

    partition: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The brokers, and the leaders of the offsets topic: None when we may not see it, empty without it.

    Two that are equal, one before and one after asking, say that no group has moved meanwhile.
    """

    brokers: frozenset[BrokerAddress]
    leaders: tuple[Led, ...] | None

    @property
    def coordinators(self) -> tuple[BrokerAddress, ...]:
        """Whom to ask: all brokers, when the leaders do not say."""
        leaders = {each.leader for each in self.leaders or ()}
        return tuple(sorted(each for each in self.brokers if not leaders or each.id in leaders))

    def probes(self, broker: BrokerAddress) -> tuple[str, ...]:
        """For each partition that the broker leads, the name of a group that would be in it."""
        names = _probes(len(self.leaders or ()))
        return tuple(names[each.partition] for each in self.leaders or () if each.leader == broker.id)

    @property
    def headless(self) -> tuple[int, ...]:
        """The partitions that no broker of the cluster leads: nobody knows their groups."""
        known = {each.id for each in self.brokers}
        return tuple(each.partition for each in self.leaders or () if each.leader not in known)


@functools.lru_cache(maxsize=8)
def _probes(partitions: int) -> tuple[str, ...]:
    found: dict[int, str] = {}
    for number in itertools.count():
        if len(found) == partitions:
            break
        name = f"koff-probe-{number}"
        found.setdefault(group_partition(name, partitions), name)
    return tuple(name for _, name in sorted(found.items()))


def layout(wire: Connection) -> Layout:
    """The layout as that broker sees it. Raises `ConnectError`."""
    topic = wire.part(Api.METADATA, "MetadataRequestTopic", name=OFFSETS_TOPIC, topic_id=None)
    request = wire.build(
        Api.METADATA,
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = wire.request(request)
    brokers = frozenset(BrokerAddress(each.node_id, each.host, each.port) for each in answer.brokers)
    (topic,) = answer.topics
    error = error_name(topic.error_code)
    if error == _HIDDEN:
        return Layout(brokers, None)
    if error and error != _ABSENT:
        raise ConnectError(f"Kafka at {wire.address} does not tell the leaders of {OFFSETS_TOPIC}: {error}")
    leaders = (
        Led(each.partition_index, each.leader_id, getattr(each, "leader_epoch", -1))
        for each in topic.partitions
    )
    return Layout(brokers, tuple(sorted(leaders)))
