"""`Message`: a record, whom it is about, and what it says in terms that need no Kafka manual."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from koff.proto.frozen import frozen
from koff.records.classic_records import ClassicMember, GroupMetadata, GroupMetadataValue
from koff.records.commit_records import OffsetCommit
from koff.records.consumer_protocol import (
    CONSUMER,
    Assignment,
    OwnedPartitions,
    Subscription,
    assignment,
    subscription,
)
from koff.records.plain_record import plain_record
from koff.records.record import Record, Undecodable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class TopicAndPartition:
    topic: str
    partition: int
    """-1 where only the topic is named."""


@frozen
class OffsetMessage:
    """A group committed: it will read `offset` next."""

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at: datetime | None
    expires_at: datetime | None
    """None: when the broker's retention says so."""


@frozen
class GroupMember:
    id: str
    client_id: str
    client_host: str
    session_timeout: timedelta
    rebalance_timeout: timedelta
    subscription: tuple[TopicAndPartition, ...]
    """Topics only: the partition is -1."""
    assignment: tuple[TopicAndPartition, ...]
    complete: bool = True
    """Whether subscription and assignment could be decoded; they are empty otherwise."""


@frozen
class GroupMessage:
    """A classic group finished a rebalance, or became empty."""

    protocol_type: str
    generation_id: int
    leader_id: str
    protocol: str
    members: tuple[GroupMember, ...]

    @property
    def complete(self) -> bool:
        """Whether every member's subscription and assignment were decoded."""
        return all(member.complete for member in self.members)


@frozen
class Message:
    """One record of `__consumer_offsets` or `__share_group_state`."""

    consumer: str
    """The group it is about; "" when that cannot be known."""
    record: Record

    @property
    def offset_message(self) -> OffsetMessage | None:
        """The commit, if the record is one. Made anew with every call."""
        record = self.record
        if not isinstance(record, OffsetCommit) or record.value is None:
            return None
        value = record.value
        return OffsetMessage(
            topic=record.topic,
            partition=record.partition,
            offset=value.offset,
            metadata=value.metadata,
            committed_at=moment(value.commit_timestamp),
            expires_at=moment(value.expire_timestamp),
        )

    @property
    def group_message(self) -> GroupMessage | None:
        """The classic group, if the record is one. Made anew with every call."""
        record = self.record
        if not isinstance(record, GroupMetadata) or record.value is None:
            return None
        return _group_message(record.value)

    @property
    def tombstone(self) -> bool:
        """Whether the record deletes what its key names."""
        return not isinstance(self.record, Undecodable) and self.record.value is None

    def to_dict(self) -> dict[str, Any]:
        """The message as plain data for JSON; see `plain_record`."""
        return plain_record(self.record, group=self.consumer)


def moment(timestamp_ms: int) -> datetime | None:
    """The time in UTC; None when negative or beyond the calendar."""
    if timestamp_ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def _group_message(value: GroupMetadataValue) -> GroupMessage:
    return GroupMessage(
        protocol_type=value.protocol_type,
        generation_id=value.generation,
        leader_id=value.leader or "",
        protocol=value.protocol or "",
        members=tuple(_group_member(member, value.protocol_type) for member in value.members),
    )


def _group_member(member: ClassicMember, protocol_type: str) -> GroupMember:
    asked = subscription(member.subscription) if protocol_type == CONSUMER else None
    given = assignment(member.assignment) if protocol_type == CONSUMER else None
    rebalance_ms = member.rebalance_timeout if member.rebalance_timeout != -1 else member.session_timeout
    return GroupMember(
        id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout=timedelta(milliseconds=member.session_timeout),
        rebalance_timeout=timedelta(milliseconds=rebalance_ms),
        subscription=tuple(TopicAndPartition(topic, -1) for topic in asked.topics)
        if isinstance(asked, Subscription)
        else (),
        assignment=tuple(_union(given.assigned_partitions)) if isinstance(given, Assignment) else (),
        complete=isinstance(asked, Subscription) and isinstance(given, Assignment),
    )


def _union(owned: Iterable[OwnedPartitions]) -> Iterable[TopicAndPartition]:
    """Each once, though a topic may occur twice."""
    return dict.fromkeys(
        TopicAndPartition(each.topic, partition) for each in owned for partition in each.partitions
    )
