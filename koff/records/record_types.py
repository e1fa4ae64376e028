"""The table of record types.

A row says what a type's key and value are. It is the only thing to extend for a new type (with the
union in `record`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from koff.records import classic_records as classic
from koff.records import commit_records as offsets
from koff.records import consumer_records as consumer
from koff.records import share_records as share
from koff.records import share_state_records as share_state
from koff.records import streams_records as streams
from koff.records.record import DecodedRecord, ShareStateRecord

Struct = type[Any]


class Row(NamedTuple):
    """One record type."""

    type: int
    record: Struct
    value: Struct
    early: tuple[str, ...] = ()
    """Layouts of early-access releases under the same version, newest first."""
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or self.record.__name__


OFFSETS_ROWS = (
    Row(0, offsets.OffsetCommit, offsets.OffsetCommitValue, name="LegacyOffsetCommit"),
    Row(1, offsets.OffsetCommit, offsets.OffsetCommitValue),
    Row(2, classic.GroupMetadata, classic.GroupMetadataValue),
    Row(3, consumer.ConsumerGroupMetadata, consumer.ConsumerGroupMetadataValue),
    Row(4, consumer.ConsumerGroupPartitionMetadata, consumer.ConsumerGroupPartitionMetadataValue, ("3.7",)),
    Row(5, consumer.ConsumerGroupMemberMetadata, consumer.ConsumerGroupMemberMetadataValue, ("3.7",)),
    Row(
        6, consumer.ConsumerGroupTargetAssignmentMetadata, consumer.ConsumerGroupTargetAssignmentMetadataValue
    ),
    Row(
        7,
        consumer.ConsumerGroupTargetAssignmentMember,
        consumer.ConsumerGroupTargetAssignmentMemberValue,
        ("3.7",),
    ),
    Row(
        8,
        consumer.ConsumerGroupCurrentMemberAssignment,
        consumer.ConsumerGroupCurrentMemberAssignmentValue,
        ("3.7",),
    ),
    Row(9, share.ShareGroupPartitionMetadata, consumer.ConsumerGroupPartitionMetadataValue),
    Row(10, share.ShareGroupMemberMetadata, share.ShareGroupMemberMetadataValue),
    Row(11, share.ShareGroupMetadata, share.ShareGroupMetadataValue, ("4.0",)),
    Row(12, share.ShareGroupTargetAssignmentMetadata, share.ShareGroupTargetAssignmentMetadataValue),
    Row(13, share.ShareGroupTargetAssignmentMember, share.ShareGroupTargetAssignmentMemberValue),
    Row(14, share.ShareGroupCurrentMemberAssignment, share.ShareGroupCurrentMemberAssignmentValue),
    Row(15, share.ShareGroupStatePartitionMetadata, share.ShareGroupStatePartitionMetadataValue, ("4.0",)),
    Row(16, consumer.ConsumerGroupRegularExpression, consumer.ConsumerGroupRegularExpressionValue),
    Row(17, streams.StreamsGroupMetadata, streams.StreamsGroupMetadataValue),
    Row(19, streams.StreamsGroupMemberMetadata, streams.StreamsGroupMemberMetadataValue),
    Row(20, streams.StreamsGroupTargetAssignmentMetadata, streams.StreamsGroupTargetAssignmentMetadataValue),
    Row(21, streams.StreamsGroupTargetAssignmentMember, streams.StreamsGroupTargetAssignmentMemberValue),
    Row(22, streams.StreamsGroupCurrentMemberAssignment, streams.StreamsGroupCurrentMemberAssignmentValue),
    Row(23, streams.StreamsGroupTopology, streams.StreamsGroupTopologyValue),
)
SHARE_STATE_ROWS = (
    Row(0, share_state.ShareSnapshot, share_state.ShareSnapshotValue, ("4.0",)),
    Row(1, share_state.ShareUpdate, share_state.ShareUpdateValue, ("4.0",)),
)

RECORD_TYPES: Mapping[int, str] = MappingProxyType({row.type: row.title for row in OFFSETS_ROWS})
"""The types of `__consumer_offsets` by number."""
SHARE_STATE_TYPES: Mapping[int, str] = MappingProxyType({row.type: row.title for row in SHARE_STATE_ROWS})
"""The types of `__share_group_state` by number."""


def record_name(type: int | None) -> str:
    """Kafka's name for a type of `__consumer_offsets`; "Unknown" for others."""
    return RECORD_TYPES.get(type, "Unknown") if type is not None else "Unknown"


def title(record: DecodedRecord) -> str:
    """Kafka's name for the record's type, in the topic it is of."""
    types = SHARE_STATE_TYPES if isinstance(record, ShareStateRecord) else RECORD_TYPES
    return types.get(record.type, type(record).__name__)
