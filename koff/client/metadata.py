"""Who a cluster is: its brokers, its topics, and who leads what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Node(NamedTuple):
    """A broker as the cluster advertises it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition: the broker that leads it (-1: none), those that have it, and those of them in sync."""

    partition: int
    leader: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """A cluster at one moment; topics that we may not see are left out."""

    cluster_id: str
    controller: int
    brokers: tuple[Node, ...]
    topics: Mapping[str, tuple[PartitionMetadata, ...]]


def metadata(listed: Any) -> Metadata:
    """What confluent-kafka's ClusterMetadata says."""
    brokers = (Node(each.id, each.host, each.port) for each in listed.brokers.values())
    topics = {
        name: tuple(
            PartitionMetadata(each.id, each.leader, tuple(each.replicas), tuple(each.isrs))
            for _, each in sorted(topic.partitions.items())
        )
        for name, topic in listed.topics.items()
        if topic.error is None
    }
    return Metadata(str(listed.cluster_id), listed.controller_id, tuple(sorted(brokers)), topics)
