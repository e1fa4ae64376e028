"""What the broker side of the client stack can be told, and what it does when it is told nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from koff.client.cluster import ClusterConf, Isolation

START_OFFSET_NEWEST = -1
"""Start with what is produced after the consumer was made."""
START_OFFSET_OLDEST = -2
"""Start with the oldest message that is there."""


class Compression(Enum):
    """How batches of messages are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class RequiredAcks(IntEnum):
    """Who has to have written a message before it counts as written: nobody, its leader, all in sync."""

    NONE = 0
    LOCAL = 1
    ALL = -1


@dataclass(frozen=True, slots=True)
class BrokerConf:
    """How to reach a cluster and how long to try. `properties` are librdkafka's and win (TLS, SASL).

    `leader_retry_*`: questions to a partition's leader. `dial_retry_*`: the first metadata. A retry limit
    counts what comes after the first try.
    """

    client_id: str = "koff"
    leader_retry_limit: int = 10
    leader_retry_wait_s: float = 0.5
    allow_topic_creation: bool = False
    dial_timeout_s: float = 10.0
    dial_retry_limit: int = 10
    dial_retry_wait_s: float = 0.5
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets

    def cluster(self, addresses: str) -> ClusterConf:
        """The same for the part of the stack that all of koff stands on."""
        return ClusterConf(
            addresses,
            properties={"socket.timeout.ms": str(int(self.dial_timeout_s * 1000)), **self.properties},
            client_id=self.client_id,
            connect_timeout_s=self.dial_timeout_s,
            request_timeout_s=self.dial_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class ProducerConf:
    """How messages are written. With `required_acks` ALL a retry makes no duplicates (idempotence)."""

    compression: Compression = Compression.NONE
    required_acks: RequiredAcks = RequiredAcks.ALL
    request_timeout_s: float = 5.0
    retry_limit: int = 10
    retry_wait_s: float = 0.2


@dataclass(frozen=True, slots=True)
class ConsumerConf:
    """What a consumer reads, from where, and how long it waits.

    A fetch waits `request_timeout_s` at the broker for `min_fetch_bytes`; at the end of the partition the
    next one follows `retry_wait_s` later as far as `retry_limit` counts (-1: wait for ever), and
    `retry_err_*` say the same of fetches that fail, each of which looks for the leader as the broker's
    `leader_retry_*` say. Consumers whose fetches are alike share a client.
    """

    topic: str
    partition: int = 0
    start_offset: int = START_OFFSET_OLDEST
    retry_limit: int = -1
    request_timeout_s: float = 0.05
    retry_wait_s: float = 0.05
    retry_err_limit: int = 10
    retry_err_wait_s: float = 0.5
    min_fetch_bytes: int = 1
    max_fetch_bytes: int = 2_000_000
    isolation: Isolation = Isolation.READ_COMMITTED

    @property
    def no_data_after_s(self) -> float:
        """How long the end of the partition lasts before it is `NoData`."""
        return max(self.retry_limit, 0) * (self.request_timeout_s + self.retry_wait_s)


@dataclass(frozen=True, slots=True)
class OffsetCoordinatorConf:
    """Which group, and how long to try."""

    consumer_group: str
    retry_err_limit: int = 10
    retry_err_wait_s: float = 0.5
