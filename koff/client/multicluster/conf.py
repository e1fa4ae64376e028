"""Configuration of the reader and the writer of many clusters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from koff.client.broker.conf import Compression
from koff.client.cluster_conf import Isolation, TopicPartition
from koff.client.delivery.conf import Redelivery
from koff.client.members import normalize_members
from koff.client.message import Message
from koff.client.multicluster.balancers import Balancer, Hash
from koff.client.multicluster.errors import WriteErrors
from koff.client.patience import PATIENCE_S
from koff.client.start_offset import StartOffset, parse_start
from koff.client.topic_names import find_topic_fault
from koff.errors import ConfigError

FIRST_OFFSET, LAST_OFFSET = StartOffset.OLDEST, StartOffset.NEWEST

PartitionsChanged = Callable[[Sequence[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class ReaderConf:
    """What to read from each cluster: a partition of a topic, or the partitions assigned to a group's member.

    - `cluster`: the name of the only cluster to read it from; "": from each of the reader's clusters.
    - `partition`: 0 by default. `group_id`: joins this group, and reads the partitions that it is assigned.
    - `fail_after_s`: when the cluster has not responded for this time, each further attempt fails, about
      one a second. `max_attempts`: the reader has failed when so many attempts in a row had an error. It
      recovers at the next response.
    - `commit_interval_s`: how often a group's member commits the offsets of messages that `read_message`
      returned; it also commits at rebalances and when the reader is closed.
    - `on_assigned`, `on_revoked`: called with the partitions that a group's member got or gave up, by the
      thread that reads. Unread messages of revoked partitions are dropped before `on_revoked`. They must not
      use the reader; an error that they raise is logged.
    - `redelivery`: the application calls `ack` or `nack` once for each message. A group commits what is
      acknowledged, up to the first message that is not; a message that failed is delivered again after the
      delays of `redelivery`, up to `max_redeliveries` times, and then passed over (`Reader.errors`). None:
      both calls have no effect.
    - `min_bytes`, `max_bytes`, `max_wait_s`: of a fetch request.
    - `queue_capacity`: about how many fetched messages may wait to be read.

    Raises `ConfigError` when the values contradict each other.
    """

    topic: str
    partition: int | None = None
    group_id: str = ""
    cluster: str = ""
    start_offset: int = FIRST_OFFSET
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    max_wait_s: float = 0.5
    queue_capacity: int = 1_000
    commit_interval_s: float = 1.0
    fail_after_s: float = PATIENCE_S
    max_attempts: int = 1
    on_assigned: PartitionsChanged | None = None
    on_revoked: PartitionsChanged | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    redelivery: Redelivery | None = None
    max_redeliveries: int = 3

    def __post_init__(self) -> None:
        normalize_members(self, isolation=Isolation)
        object.__setattr__(self, "start_offset", parse_start(self.start_offset, "start_offset "))
        if fault := find_topic_fault(self.topic):
            raise ConfigError(fault)
        if self.group_id and self.partition is not None:
            raise ConfigError(
                "a reader has either a partition or a group_id, not both: leave one of them out"
            )
        if self.group_id and self.start_offset not in (FIRST_OFFSET, LAST_OFFSET):
            raise ConfigError(
                "a group without a commit starts at FIRST_OFFSET or LAST_OFFSET: use one as start_offset"
            )
        if self.queue_capacity < 1 or self.max_attempts < 1:
            raise ConfigError("queue_capacity and max_attempts must each be at least 1")


class RWMode(Enum):
    """Which cluster a writer uses: all clusters in turn, or the first cluster while it can be reached."""

    ROUND_ROBIN = "round_robin"
    PRIMARY_BACKUP = "primary_backup"


Completion = Callable[[Sequence[Message], WriteErrors | None], None]
"""Called once for each `write_messages` call, when each message was written or has failed for good. The
arguments are the messages, and the errors (None if all messages were written)."""


@dataclass(frozen=True, slots=True)
class WriterConf:
    """How to write to `topic`, which has the same name in each cluster.

    - `max_attempts`: how often a message is sent. An attempt fails when a cluster does not acknowledge the
      message within `write_timeout_s`. `give_up_after_s`: how long a message is tried in all, also while no
      cluster can be reached. The message has failed when one of both is used up.
    - `batch_size`, `batch_bytes`, `batch_timeout_s`: a batch has messages of one partition. It is sent when
      it has `batch_size` messages or `batch_bytes` bytes, or after `batch_timeout_s`.
    - `balancer`: called once for each cluster; makes that cluster's `Balancer`.
    - `queue_capacity`: the most messages in flight; `write_messages` waits until its messages fit.
    - `asynchronous`: `write_messages` does not wait for acknowledgements.
    - `on_completion` gets the result of each call. It usually runs in a thread of the writer: it must not
      block and must not write.

    Raises `ConfigError` when `max_attempts` or `queue_capacity` is less than 1.
    """

    topic: str
    mode: RWMode = RWMode.ROUND_ROBIN
    balancer: Callable[[], Balancer] = Hash
    max_attempts: int = 10
    write_timeout_s: float = 10.0
    give_up_after_s: float = PATIENCE_S
    batch_size: int = 100
    batch_bytes: int = 1 << 20
    batch_timeout_s: float = 0.01
    queue_capacity: int = 100_000
    compression: Compression = Compression.NONE
    asynchronous: bool = False
    on_completion: Completion | None = None

    def __post_init__(self) -> None:
        normalize_members(self, mode=RWMode, compression=Compression)
        if fault := find_topic_fault(self.topic):
            raise ConfigError(fault)
        if self.max_attempts < 1 or self.queue_capacity < 1:
            raise ConfigError("max_attempts and queue_capacity must each be at least 1")
