"""A partition that this member owns for a while, until another member does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from koff.client.cluster_conf import TopicPartition
from koff.client.redelivery.delivered_partition import DeliveredPartition


class ClaimState(Enum):
    """How far a claim is from its end.

    READING: messages are handed out. DRAINING: no more messages are handed out; the member waits until the
    messages that it handed out are processed. LOST: acknowledgements are ignored.
    """

    READING = "reading"
    DRAINING = "draining"
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

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)
