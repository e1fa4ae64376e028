"""A partition that this member owns for a while, until another member does."""

from collections.abc import Mapping
from dataclasses import dataclass

from koff.client.cluster_conf import TopicPartition
from koff.client.delivery.partition import PartitionState, ReadPartition
from koff.client.message import Message
from koff.client.zookeeper.errors import ClaimLost
from koff.errors import KoffError


@dataclass(slots=True, eq=False, kw_only=True)
class Claim(ReadPartition):
    """This member's ownership of one partition, in the ZooKeeper session `session_number`.

    `assignment` is the zxid of the transaction that created the partition's owner node: of two claims of a
    partition, the later claim has the higher zxid, also when two members made them.
    """

    session_number: int
    initialized: bool = False
    """Whether the offset manager has returned the group's last offset. Nothing is committed before that."""
    finalized: bool = False
    """Whether the offset manager has finalized the offsets, with or without an error.

    Only then may the owner node be deleted.
    """


def find_claim(claims: Mapping[TopicPartition, Claim], message: Message) -> Claim:
    """The claim under which the member handed out the message.

    Raises `ClaimLost` if it was lost, also if the member has a newer claim of the partition.
    """
    at = TopicPartition(message.topic, message.partition)
    if not message.assignment:
        raise KoffError(
            f"offset {message.offset} of {at.topic}/{at.partition} is not marked as processed: pass a "
            "message that this member handed out"
        )
    claim = claims.get(at)
    if claim is None or claim.assignment != message.assignment or claim.state is PartitionState.LOST:
        raise ClaimLost(
            f"{at.topic}/{at.partition} was lost after offset {message.offset} was handed out: the offset is "
            "not marked as processed, and the owner resumes from the committed offset"
        )
    return claim
