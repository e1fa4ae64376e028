"""Configuration of the broker connection, its producers, consumers and offset coordinators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from koff.client.cluster_conf import ClusterConf, Isolation
from koff.client.members import normalize_members
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset, parse_start

START_OFFSET_NEWEST = StartOffset.NEWEST
START_OFFSET_OLDEST = StartOffset.OLDEST


class Compression(StrEnum):
    """How the producer compresses record batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class RequiredAcks(IntEnum):
    """Which replicas must have written a message before it counts as written.

    NONE: no replica; the broker sends no acknowledgement. LOCAL: the leader. ALL: all in-sync replicas.
    """

    NONE = 0
    LOCAL = 1
    ALL = -1


@dataclass(frozen=True, slots=True)
class BrokerConf:
    """How to connect to a cluster, and how often to retry.

    - `properties`: librdkafka's (TLS, SASL); they override koff's own choices.
    - `name`: the cluster's name, set as `cluster` in each message that is read; by default the addresses.
    - `patience_s`: how long each call of the connection, and of what it makes, is tried again while the
      cluster does not respond.
    - `dial_retry_*`: of `dial`, which connects and fetches the first metadata.
    - `leader_retry_*`: of requests for metadata and offsets.
    - `allow_topic_creation`: a producer does not check that a topic exists, so the cluster may create it.

    A retry limit replaces `patience_s`: then so many retries are made, however long they take. It does not
    count the first try. A wait is the pause between two tries.
    """

    client_id: str = "koff"
    patience_s: float = PATIENCE_S
    leader_retry_limit: int | None = None
    leader_retry_wait_s: float = 0.5
    allow_topic_creation: bool = False
    dial_timeout_s: float = 10.0
    dial_retry_limit: int | None = None
    dial_retry_wait_s: float = 0.5
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    name: str = ""

    def cluster_conf(self, addresses: str) -> ClusterConf:
        """The same settings for koff's cluster connection to `addresses` (comma-separated "host:port")."""
        return ClusterConf(
            addresses,
            properties={"socket.timeout.ms": str(int(self.dial_timeout_s * 1000)), **self.properties},
            client_id=self.client_id,
            connect_timeout_s=self.dial_timeout_s,
            request_timeout_s=self.dial_timeout_s,
            patience_s=self.patience_s,
            name=self.name,
        )


@dataclass(frozen=True, slots=True)
class ProducerConf:
    """How a producer writes messages.

    With `required_acks` ALL and a retry limit other than 0, a retry makes no duplicate: the producer is
    idempotent. `request_timeout_s` is the timeout of one produce request. `retry_limit` None: the messages of
    a call are tried for `patience_s` of the connection.
    """

    compression: Compression = Compression.NONE
    required_acks: RequiredAcks = RequiredAcks.ALL
    request_timeout_s: float = 5.0
    retry_limit: int | None = None
    retry_wait_s: float = 0.2

    def __post_init__(self) -> None:
        normalize_members(self, compression=Compression, required_acks=RequiredAcks)


@dataclass(frozen=True, slots=True)
class ConsumerConf:
    """Which partition a consumer reads, from where, and how long it waits.

    - `start_offset`: an offset, StartOffset.OLDEST or StartOffset.NEWEST.
    - `on_out_of_range`: where the consumer continues when the partition does not have the next offset, OLDEST
      or NEWEST; it logs that, and counts the offsets that it skips (`skipped`). None: `OffsetOutOfRange`.
    - `request_timeout_s`: how long the broker waits until `min_fetch_bytes` are there.
    - `retry_limit`, `retry_wait_s`: how often an empty fetch at the end of the partition is repeated before
      `NoData` is raised, and the pause before each (in effect a time: `no_data_after_s`). -1: waits for ever.
    - `retry_err_limit`, `retry_err_wait_s`: the same for fetches that fail, before `ConnectError` is raised.
      None: they are repeated for `patience_s` of the connection.
    - `max_fetch_bytes`: the most bytes of the partition in one fetch response.

    Consumers of one broker with the same fetch settings share one librdkafka client. Raises `ConfigError` for
    a start offset that is none of these.
    """

    topic: str
    partition: int = 0
    start_offset: int = StartOffset.OLDEST
    on_out_of_range: StartOffset | None = None
    retry_limit: int = -1
    request_timeout_s: float = 0.05
    retry_wait_s: float = 0.05
    retry_err_limit: int | None = None
    retry_err_wait_s: float = 0.5
    min_fetch_bytes: int = 1
    max_fetch_bytes: int = 2_000_000
    isolation: Isolation = Isolation.READ_COMMITTED

    def __post_init__(self) -> None:
        normalize_members(self, isolation=Isolation)
        object.__setattr__(self, "start_offset", parse_start(self.start_offset, "start_offset "))
        if self.on_out_of_range is not None:
            normalize_members(self, on_out_of_range=StartOffset)

    @property
    def no_data_after_s(self) -> float:
        """How long a consumer stays at the end of the partition before it raises `NoData`."""
        return max(self.retry_limit, 0) * (self.request_timeout_s + self.retry_wait_s)


@dataclass(frozen=True, slots=True)
class OffsetCoordinatorConf:
    """The group whose offsets are committed and fetched, and how often a failed request is repeated.

    `retry_err_limit` None: for `patience_s` of the connection.
    """

    consumer_group: str
    retry_err_limit: int | None = None
    retry_err_wait_s: float = 0.5
