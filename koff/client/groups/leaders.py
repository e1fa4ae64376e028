"""The brokers that coordinate groups: the leaders of the partitions of `__consumer_offsets`."""

import functools
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from koff.client.offsets.messages import MetadataResponse
from koff.errors import ConnectError
from koff.proto.requests import error_name
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


class PartitionLeader(NamedTuple):
    """The leader of a partition, -1 if there is none. Each change of leader has a new leader epoch."""

    partition: int
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OffsetsLeaders:
    """The brokers, and the leaders of the offsets topic.

    `leaders` is None if this user may not describe the topic, and empty if the topic does not exist. If
    `leaders` is known and equal before and after a round of requests, no group has moved to another broker
    meanwhile.
    """

    brokers: frozenset[BrokerAddress]
    leaders: tuple[PartitionLeader, ...] | None
    wanted: frozenset[int] | None = None
    """Only groups of these partitions are fetched; None: of all."""

    @property
    def coordinators(self) -> tuple[BrokerAddress, ...]:
        """The brokers that lead a partition; all brokers if `leaders` is None or empty.

        Empty if all partitions are leaderless.
        """
        # If all partitions are leaderless, `leaders` is {-1}: not empty, and no broker has this id.
        leaders = {each.leader for each in self.leaders or () if self.is_wanted(each.partition)}
        return tuple(sorted(broker for broker in self.brokers if not leaders or broker.id in leaders))

    def is_wanted(self, partition: int) -> bool:
        """Whether groups of this partition are fetched."""
        return self.wanted is None or partition in self.wanted

    def probe_groups(self, broker: BrokerAddress) -> tuple[str, ...]:
        """For each partition that the broker leads, the name of a group that would belong to it."""
        names = _probe_names(len(self.leaders or ()))
        return tuple(
            names[partition.partition] for partition in self.leaders or () if partition.leader == broker.id
        )

    def is_leader_of(self, broker: BrokerAddress, group: str) -> bool:
        """Whether the broker leads the partition of the group, or nobody knows which broker does."""
        leaders = self.leaders or ()
        return not leaders or leaders[group_partition(group, len(leaders))].leader == broker.id

    @property
    def epochs(self) -> dict[int, tuple[int, int]]:
        """The leader and its epoch by partition; empty if `leaders` is None or empty."""
        return {each.partition: (each.leader, each.epoch) for each in self.leaders or ()}

    @property
    def leaderless(self) -> tuple[int, ...]:
        """The partitions that no broker of the cluster leads: their groups have no coordinator."""
        # The leader is -1, or a broker that has died and is not in the metadata any more.
        broker_ids = {broker.id for broker in self.brokers}
        return tuple(
            each.partition
            for each in self.leaders or ()
            if each.leader not in broker_ids and self.is_wanted(each.partition)
        )


@functools.lru_cache(maxsize=8)
def _probe_names(partitions: int) -> tuple[str, ...]:
    """A group name for each partition, found by trying names until every partition has one."""
    names: dict[int, str] = {}
    # The partition is a hash of the name: no formula leads from a partition to a name.
    for number in itertools.count():
        if len(names) == partitions:
            break
        name = f"koff-probe-{number}"
        names.setdefault(group_partition(name, partitions), name)
    return tuple(name for _, name in sorted(names.items()))


def read_layout(metadata: MetadataResponse, wanted: frozenset[int] | None) -> OffsetsLeaders:
    """The layout by metadata of the offsets topic. Raises `ConnectError` if it has another error."""
    brokers = frozenset(BrokerAddress(broker.id, broker.host, broker.port) for broker in metadata.brokers)
    (topic,) = metadata.topics
    error = error_name(topic.error_code)
    if error == _HIDDEN:
        return OffsetsLeaders(brokers, None, wanted)
    if error and error != _ABSENT:
        raise ConnectError(
            f"Kafka does not return the leaders of {OFFSETS_TOPIC}: {error}; check the state of this topic"
        )
    leaders = sorted(
        PartitionLeader(each.partition, each.leader, each.leader_epoch) for each in topic.partitions
    )
    return OffsetsLeaders(brokers, tuple(leaders), wanted)
