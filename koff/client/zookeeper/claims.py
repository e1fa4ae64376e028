"""A partition that this member owns for a while, until another member does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from koff.client.cluster_conf import TopicPartition
from koff.client.redelivery.delivered_partition import DeliveredPartition


class ClaimState(Enum):
    """How far a claim is from its end.

    READING: messages are handed out. DRAINING: no more messages are handed out; the member waits until the
    messages that it handed out are processed. ENDING: the offsets are finalized. LOST: acknowledgements are
    ignored.
    """

    READING = "reading"
    DRAINING = "draining"
    ENDING = "ending"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Claim(DeliveredPartition):
    """This member's ownership of one partition.

    The claim holds in the ZooKeeper session `session_number`. `czxid` is the transaction that created the
    partition's owner node. Not safe for threads: the caller of its methods holds the lock of `Delivery`.
    """

    session_number: int
    czxid: int
    state: ClaimState = ClaimState.READING
    deadline: float = 0.0
    """Monotonic time at which draining ends, even if handed-out messages are not processed."""
    initialized: bool = False
    """Whether the offset manager has returned the group's last offset. Nothing is committed before that."""
    finalized: bool = False
    """Whether the offset manager has finalized the offsets, with or without an error.

    Only then may the owner node be deleted.
    """
    failed: bool = False
    """Whether an error ended the reading of the partition. The member then releases the claim."""

    # For `Delivery`.
    buffered: deque[Any] = field(default_factory=deque)
    """Fetched messages of confluent-kafka, in log order."""
    delayed: list[tuple[float, Any]] = field(default_factory=list)
    """Messages that failed, each with the time of its next delivery."""

    # For the thread of `Intake`.
    position: int | None = None
    """The offset of the next fetch; None before the partition was read."""
    is_read: bool = False
    """Whether the feed reads the partition. It does not while the buffer is full."""
    out_of_range: bool = False
    """Whether `position` may not be in the log any more."""
    is_recreated: bool = False
    """Whether the topic was created again since `position` was read."""
    retry_at: float = 0.0
    """Monotonic time before which the intake does not try the claim's next step again."""
    failing_since: float | None = None
    """Monotonic time of the first error that is retried; infinity once the errors were reported."""

    @property
    def is_starting(self) -> bool:
        """Whether it is not certain yet from which offset the partition is read."""
        return self.position is None and self.state is ClaimState.READING and not self.failed

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)
