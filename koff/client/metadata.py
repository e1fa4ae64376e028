"""A cluster's metadata: its brokers, its topics, and the leader of each partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """A broker as the cluster advertises it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition: its leader, its replicas, and the replicas that are in sync, as broker ids.

    `leader` is -1 if the partition has no leader.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of a cluster at one moment.

    `topics` leaves out the topics that this user may not describe, and topics for which the broker
    returned an error.
    """

    cluster_id: str
    controller: int
    brokers: tuple[Node, ...]
    topics: Mapping[str, tuple[PartitionMetadata, ...]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
