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


class RecordType(NamedTuple):
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
    RecordType(0, offsets.OffsetCommit, offsets.OffsetCommitValue, name="LegacyOffsetCommit"),
    RecordType(1, offsets.OffsetCommit, offsets.OffsetCommitValue),
    RecordType(2, classic.GroupMetadata, classic.GroupMetadataValue),
    RecordType(3, consumer.ConsumerGroupMetadata, consumer.ConsumerGroupMetadataValue),
    RecordType(
        4, consumer.ConsumerGroupPartitionMetadata, consumer.ConsumerGroupPartitionMetadataValue, ("3.7",)
    ),
    RecordType(5, consumer.ConsumerGroupMemberMetadata, consumer.ConsumerGroupMemberMetadataValue, ("3.7",)),
    RecordType(
        6, consumer.ConsumerGroupTargetAssignmentMetadata, consumer.ConsumerGroupTargetAssignmentMetadataValue
    ),
    RecordType(
        7,
        consumer.ConsumerGroupTargetAssignmentMember,
        consumer.ConsumerGroupTargetAssignmentMemberValue,
        ("3.7",),
    ),
    RecordType(
        8,
        consumer.ConsumerGroupCurrentMemberAssignment,
        consumer.ConsumerGroupCurrentMemberAssignmentValue,
        ("3.7",),
    ),
    RecordType(9, share.ShareGroupPartitionMetadata, consumer.ConsumerGroupPartitionMetadataValue),
    RecordType(10, share.ShareGroupMemberMetadata, share.ShareGroupMemberMetadataValue),
    RecordType(11, share.ShareGroupMetadata, share.ShareGroupMetadataValue, ("4.0",)),
    RecordType(12, share.ShareGroupTargetAssignmentMetadata, share.ShareGroupTargetAssignmentMetadataValue),
    RecordType(13, share.ShareGroupTargetAssignmentMember, share.ShareGroupTargetAssignmentMemberValue),
    RecordType(14, share.ShareGroupCurrentMemberAssignment, share.ShareGroupCurrentMemberAssignmentValue),
    RecordType(
        15, share.ShareGroupStatePartitionMetadata, share.ShareGroupStatePartitionMetadataValue, ("4.0",)
    ),
    RecordType(16, consumer.ConsumerGroupRegularExpression, consumer.ConsumerGroupRegularExpressionValue),
    RecordType(17, streams.StreamsGroupMetadata, streams.StreamsGroupMetadataValue),
    RecordType(19, streams.StreamsGroupMemberMetadata, streams.StreamsGroupMemberMetadataValue),
    RecordType(
        20, streams.StreamsGroupTargetAssignmentMetadata, streams.StreamsGroupTargetAssignmentMetadataValue
    ),
    RecordType(
        21, streams.StreamsGroupTargetAssignmentMember, streams.StreamsGroupTargetAssignmentMemberValue
    ),
    RecordType(
        22, streams.StreamsGroupCurrentMemberAssignment, streams.StreamsGroupCurrentMemberAssignmentValue
    ),
    RecordType(23, streams.StreamsGroupTopology, streams.StreamsGroupTopologyValue),
)
SHARE_STATE_ROWS = (
    RecordType(0, share_state.ShareSnapshot, share_state.ShareSnapshotValue, ("4.0",)),
    RecordType(1, share_state.ShareUpdate, share_state.ShareUpdateValue, ("4.0",)),
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
