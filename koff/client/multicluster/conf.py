"""What a reader and a writer of many clusters can be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from koff.client.cluster import ClusterConf, Isolation
from koff.client.message import Message
from koff.client.multicluster.balancers import Balancer, Hash
from koff.client.multicluster.errors import WriteErrors
from koff.errors import ConfigError

FIRST_OFFSET = -2
"""The first offset that the partition still has."""
LAST_OFFSET = -1
"""The end of the partition: only what is written from now on."""


@dataclass(frozen=True, slots=True)
class ReaderConf:
    """What to read from one cluster: a partition of a topic (0 by default), or all that a group is given.

    `name` goes into each message as its cluster; by default that is `brokers`. A reader that has had no
    answer for `fail_after_s` has failed, until there is one again. A group commits what was read every
    `commit_interval_s`, and at its end.
    """

    brokers: str
    topic: str
    partition: int | None = None
    group_id: str = ""
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    start_offset: int = FIRST_OFFSET
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    max_wait_s: float = 0.5
    queue_capacity: int = 1_000
    commit_interval_s: float = 1.0
    fail_after_s: float = 10.0
    isolation: Isolation = Isolation.READ_COMMITTED

    def __post_init__(self) -> None:
        if self.group_id and self.partition is not None:
            raise ConfigError("a reader has a partition or a group_id, not both: leave one out")
        if self.group_id and self.start_offset not in (FIRST_OFFSET, LAST_OFFSET):
            raise ConfigError("a group starts at FIRST_OFFSET or LAST_OFFSET where it has no commit")
        if self.start_offset < FIRST_OFFSET:
            raise ConfigError(f"start_offset {self.start_offset} is no offset: FIRST_OFFSET or LAST_OFFSET?")
        if self.queue_capacity < 1:
            raise ConfigError("queue_capacity must be 1 at least")

    def cluster(self) -> ClusterConf:
        """How to reach the cluster. A broker that hangs is left for another."""
        waits_ms = int(self.max_wait_s * 1000)
        patience = {
            "socket.timeout.ms": str(waits_ms + 10_000),
        }
        return ClusterConf(self.brokers, {**patience, **self.properties}, request_timeout_s=2.0)


class RWMode(Enum):
    """Which cluster is written to: each in turn, or the first one as long as it can be."""

    ROUND_ROBIN = "round_robin"
    PRIMARY_BACKUP = "primary_backup"


Completion = Callable[[Sequence[Message], WriteErrors | None], None]
"""Told the messages of one call when each of them was written or given up."""


@dataclass(frozen=True, slots=True)
class WriterConf:
    """How to write to `topic`, which has that name in each cluster.

    An attempt is a cluster that did not take a message within `write_timeout_s`, or finding none that can be
    reached. Batches are by partition: full with `batch_size` messages or `batch_bytes`, sent half full after
    `batch_timeout_s`. With `asynchronous` a write returns at once (it waits only while `queue_capacity`
    messages are under way), and `on_completion` hears how it went, from a thread of the writer's that
    it must not hold up: no waiting and no writing in there.
    """

    topic: str
    mode: RWMode = RWMode.ROUND_ROBIN
    balancer: Callable[[], Balancer] = Hash
    max_attempts: int = 10
    write_timeout_s: float = 10.0
    batch_size: int = 100
    batch_bytes: int = 1 << 20
    batch_timeout_s: float = 0.01
    queue_capacity: int = 100_000
    compression: str = "none"
    asynchronous: bool = False
    on_completion: Completion | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.queue_capacity < 1:
            raise ConfigError("max_attempts and queue_capacity must be 1 at least")
