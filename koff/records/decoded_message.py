"""`DecodedMessage`: a record, the group that it is about, and simple views of commits and classic groups."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from koff.proto.frozen import frozen
from koff.records.classic_records import ClassicMember, GroupMetadata, OffsetCommit
from koff.records.consumer_protocol import (
    CONSUMER,
    Assignment,
    OwnedPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from koff.records.record import Record, Undecodable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class TopicAndPartition:
    """A partition of a topic."""

    topic: str
    partition: int
    """-1 if only the topic is meant."""


@frozen
class OffsetMessage:
    """An offset commit: the group will read `offset` next."""

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at: datetime | None
    """In UTC. None if the time is absent, or beyond what a datetime can hold."""
    expires_at: datetime | None
    """In UTC. None as in `committed_at`; if absent, the broker's retention settings decide."""


@frozen
class GroupMember:
    """A member of a classic group."""

    id: str
    client_id: str
    client_host: str
    session_timeout: timedelta
    rebalance_timeout: timedelta
    subscription: tuple[TopicAndPartition, ...]
    """The topics that the member wants to read: each partition is -1."""
    assignment: tuple[TopicAndPartition, ...]
    complete: bool = True
    """Whether both subscription and assignment could be decoded. If not, the undecodable part is empty."""


@frozen
class GroupMessage:
    """The state of a classic group after a rebalance, or after its last member left."""

    protocol_type: str
    generation_id: int
    leader_id: str
    protocol: str
    members: tuple[GroupMember, ...]

    @property
    def complete(self) -> bool:
        """Whether there are members, and every member's subscription and assignment were decoded."""
        return bool(self.members) and all(member.complete for member in self.members)


@frozen
class DecodedMessage:
    """One record of `__consumer_offsets` or `__share_group_state`."""

    consumer: str
    """The group that the record is about; "" if it cannot be read from the key."""
    record: Record

    @property
    def offset_message(self) -> OffsetMessage | None:
        """The offset commit, a new object each time. None for any other record, and for a tombstone."""
        record = self.record
        if not isinstance(record, OffsetCommit) or record.value is None:
            return None
        value = record.value
        return OffsetMessage(
            topic=record.topic,
            partition=record.partition,
            offset=value.offset,
            metadata=value.metadata,
            committed_at=to_datetime(value.commit_timestamp),
            expires_at=to_datetime(value.expire_timestamp),
        )

    @property
    def group_message(self) -> GroupMessage | None:
        """The classic group, a new object each time. None for any other record, and for a tombstone."""
        record = self.record
        if not isinstance(record, GroupMetadata) or record.value is None:
            return None
        value = record.value
        return GroupMessage(
            protocol_type=value.protocol_type,
            generation_id=value.generation,
            leader_id=value.leader or "",
            protocol=value.protocol or "",
            members=tuple(_group_member(member, value.protocol_type) for member in value.members),
        )

    @property
    def tombstone(self) -> bool:
        """Whether the record is a tombstone: it deletes what its key names."""
        return not isinstance(self.record, Undecodable) and self.record.value is None


def to_datetime(timestamp_ms: int) -> datetime | None:
    """The time in UTC; None if it is negative, or beyond what a datetime can hold."""
    if timestamp_ms < 0:
        return None
    # A huge retention in a commit request makes an expiry beyond the year 9999.
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def _group_member(member: ClassicMember, protocol_type: str) -> GroupMember:
    # Members of another protocol type (Kafka Connect) have blobs in formats of their own.
    subscription = decode_subscription(member.subscription) if protocol_type == CONSUMER else None
    assignment = decode_assignment(member.assignment) if protocol_type == CONSUMER else None
    # Value version 0 has no rebalance timeout: the session timeout is used instead.
    rebalance_ms = member.rebalance_timeout if member.rebalance_timeout != -1 else member.session_timeout
    return GroupMember(
        id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout=timedelta(milliseconds=member.session_timeout),
        rebalance_timeout=timedelta(milliseconds=rebalance_ms),
        subscription=tuple(TopicAndPartition(topic, -1) for topic in subscription.topics)
        if isinstance(subscription, Subscription)
        else (),
        assignment=tuple(_unique_partitions(assignment.assigned_partitions))
        if isinstance(assignment, Assignment)
        else (),
        complete=isinstance(subscription, Subscription) and isinstance(assignment, Assignment),
    )


def _unique_partitions(owned: Iterable[OwnedPartitions]) -> Iterable[TopicAndPartition]:
    """The partitions, each once and in their order, although a topic may occur twice."""
    return dict.fromkeys(
        TopicAndPartition(topic.topic, partition) for topic in owned for partition in topic.partitions
    )
