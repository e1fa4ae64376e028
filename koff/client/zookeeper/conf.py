"""The configuration of a consumer group on ZooKeeper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koff.client.cluster_conf import ClusterConf
from koff.client.delivery.conf import Redelivery
from koff.client.feed.source import FeedConf
from koff.client.members import normalize_members
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset
from koff.client.topic_names import find_topic_fault
from koff.client.zookeeper.offset_manager import GroupHandle, OffsetManager
from koff.client.zookeeper.session import ZooKeeperLogin
from koff.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConsumerGroupConf:
    """How a member of the group consumes.

    - `cluster`: how to reach Kafka. If it is None, or its `brokers` are "", the brokers are looked up in
      ZooKeeper's `/brokers/ids`: those listeners whose protocol is the `security.protocol` of its properties.
    - `initial_offset`: where the group starts in a partition without a committed offset.
    - `zookeeper_login`: how to log in to ZooKeeper; None: not at all, and without TLS.
    - `processing_timeout_s`: how long a member that has to release a partition waits until the messages that
      it handed out are processed.
    - `commit_interval_s`: how often the offsets of processed messages are committed.
    - `reset_offsets`: before the member registers, sets the group's offsets in all partitions that its topics
      have then to `initial_offset`. Skipped, with a warning, if a member is registered: also one that has
      died and whose session has not ended. Members that start at the same time may each reset. An offset
      manager of your own needs a method `reset` like that of koff's own, or joining raises `ConfigError`.
    - `max_redeliveries`, `redelivery`: a message is handed out at most 1 + `max_redeliveries` times, after
      the delays of `redelivery`. Then it is passed over: reported, counted, and perhaps written elsewhere.
    - `buffer_messages`: about how many fetched messages of each partition wait to be handed out.
    - `session_timeout_s`: how long ZooKeeper keeps the session of a dead member. Only after that can other
      members claim its partitions. The servers change a value that they do not allow (by default 2 to 20
      times their `tickTime` are allowed); koff then uses the changed value.
    - `metadata_interval_s`: how often the partition counts of the topics are fetched again.
    """

    cluster: ClusterConf | None = None
    zookeeper_login: ZooKeeperLogin | None = None
    initial_offset: StartOffset = StartOffset.OLDEST
    processing_timeout_s: float = 60.0
    commit_interval_s: float = 10.0
    reset_offsets: bool = False
    max_redeliveries: int = 3
    redelivery: Redelivery = field(default_factory=Redelivery)
    buffer_messages: int = 1000
    session_timeout_s: float = 6.0
    connect_timeout_s: float = PATIENCE_S
    metadata_interval_s: float = 10.0
    # Small fetches: librdkafka's one queue has the messages of a quiet partition behind those of a busy one.
    feed: FeedConf = field(
        default_factory=lambda: FeedConf(fetch_wait_ms=100, queue_messages=1000, fetch_bytes=256 << 10)
    )
    offset_manager: Callable[[GroupHandle], OffsetManager] | None = None
    """Makes the offset manager; None: `ZooKeeperOffsetManager`."""

    def __post_init__(self) -> None:
        normalize_members(self, initial_offset=StartOffset)


def list_topics(group: str, topics: str | Sequence[str]) -> tuple[str, ...]:
    """The topics, each once; a single name is one topic.

    Raises `ConfigError` if there can be no such group, or no such topic.
    """
    topics = [topics] if isinstance(topics, str) else topics
    if not group or "/" in group or not topics:
        raise ConfigError(
            f"a group needs a name without a slash, and at least one topic: got {group!r} and {list(topics)}"
        )
    for fault in filter(None, map(find_topic_fault, topics)):
        raise ConfigError(fault)
    return tuple(dict.fromkeys(topics))
