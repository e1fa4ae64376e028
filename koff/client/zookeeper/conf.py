"""What a consumer group on ZooKeeper is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from koff.client.cluster import ClusterConf
from koff.client.feed.source import FeedConf
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManager


class InitialOffset(Enum):
    """Where to begin in a partition of which the group has no offset."""

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class ConsumerGroupConf:
    """How a group consumes. Without `cluster`, brokers are looked up in ZooKeeper's `/brokers/ids`.

    `processing_timeout_s` is how long a partition that is given up waits for its messages to be processed;
    `reset_offsets` forgets what the group had committed, in the partitions that this instance gets, once
    each. A message is delivered 1 + `max_redeliveries` times at most. The session lasts
    `session_timeout_s`, which must lie within what the servers allow (2 to 20 of their ticks): an instance
    that is gone without a word is replaced after that long.
    """

    cluster: ClusterConf | None = None
    initial_offset: InitialOffset = InitialOffset.OLDEST
    processing_timeout_s: float = 60.0
    commit_interval_s: float = 10.0
    reset_offsets: bool = False
    max_redeliveries: int = 3
    buffer_messages: int = 1000
    session_timeout_s: float = 6.0
    connect_timeout_s: float = 15.0
    metadata_interval_s: float = 10.0
    feed: FeedConf = field(default_factory=lambda: FeedConf(fetch_wait_ms=100))
    offset_manager: Callable[[GroupHandle], OffsetManager] | None = None
    """Makes the keeper of offsets; None: `ZooKeeperOffsetManager`."""
