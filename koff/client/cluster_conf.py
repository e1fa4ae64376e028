"""How to reach a cluster, and the terms for its partitions and offsets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from koff.client import msk_iam
from koff.client.patience import PATIENCE_S
from koff.client.secret_file import read_again, read_secret

TOPIC_PROPAGATION_S = 1.0
"""How long it may take until all brokers know a new topic."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetSpec(Enum):
    """Which offset of a partition: its first, or the next one to be written."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Isolation(Enum):
    """What "latest" means: the high watermark, or the last stable offset."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ListedOffset(NamedTuple):
    """An offset of a partition.

    `leader_epoch` is that of the record before it (of the present leader, for the end offset); -1: unknown.
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it: its id (22 characters, "" if unknown) and partition count."""

    name: str
    partitions: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ClusterConf:
    """How to reach a cluster. `properties` are librdkafka's, and override koff's own choices.

    `connect_timeout_s` is of each connection, with TLS and the log-in, and of the first response of the
    cluster, and `request_timeout_s` of each request. `patience_s` is how long a call is tried again while the
    cluster does not respond. A property `file:PATH` is the content of that file, and is read again for each
    connection. `name` is what messages have as `cluster`; by default `brokers`. Raises `ConfigError` for a
    file that cannot be read.
    """

    brokers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    client_id: str = "koff"
    connect_timeout_s: float = 8.0
    request_timeout_s: float = 10.0
    patience_s: float = PATIENCE_S
    name: str = ""

    def __post_init__(self) -> None:
        properties = {name: read_secret(value, name) for name, value in self.properties.items()}
        object.__setattr__(self, "properties", properties)

    @property
    def cluster_name(self) -> str:
        """The name of the cluster, or its brokers if it has none."""
        return self.name or self.brokers

    def read_properties(self) -> dict[str, str]:
        """The properties, with the present content of files."""
        return read_again(self.properties)

    def librdkafka_properties(self, **defaults: Any) -> dict[str, Any]:
        """The properties for one librdkafka client. The user's properties override `defaults`.

        Raises `ConfigError` if a library or a setting of the log-in is missing.
        """
        # Level 2 (critical): koff reports connection errors itself, and librdkafka would repeat them.
        quiet = {} if "debug" in self.properties else {"log_level": 2}
        properties: dict[str, Any] = self.read_properties()
        if msk_iam.uses_iam(properties):
            msk_iam.check(self.brokers)  # librdkafka would only say that it got no token
            properties = {name: value for name, value in properties.items() if name != "sasl.mechanisms"}
            properties |= {
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": msk_iam.TokenCallback(self.brokers),
            }
        return {
            "client.id": self.client_id,
            # librdkafka allows no less than a second.
            "socket.connection.setup.timeout.ms": max(int(self.connect_timeout_s * 1000), 1000),
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 5000,
            # Otherwise a metadata request of a producer or an admin client for an unknown topic creates it.
            "allow.auto.create.topics": False,
            **quiet,
            **defaults,
            **properties,
            "bootstrap.servers": self.brokers,
        }
