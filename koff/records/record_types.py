"""The table of record types.

A row names the structs of a type's key and value. For a new type add a row here, and the class to the union
in `record`.
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
    """A record type: the structs of its key (with the value: the record) and of its value."""

    type: int
    record: Struct
    value: Struct
    early: tuple[str, ...] = ()
    """The layouts of early-access releases under the same version, newest first."""
    name: str = ""
    """Kafka's name for the type, if it is not the name of the record's class."""

    @property
    def kafka_name(self) -> str:
        """Kafka's name for the type."""
        return self.name or self.record.__name__


# No release is known to have written type 18. Only 4.0 wrote type 9.
OFFSETS_ROWS = (
    # Kafka 4.1 and later accept type 0 only with value version 0, releases up to 4.0 with any version.
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

RECORD_TYPES: Mapping[int, str] = MappingProxyType({row.type: row.kafka_name for row in OFFSETS_ROWS})
"""Kafka's names for the types of `__consumer_offsets`, by number."""
SHARE_STATE_TYPES: Mapping[int, str] = MappingProxyType(
    {row.type: row.kafka_name for row in SHARE_STATE_ROWS}
)
"""Kafka's names for the types of `__share_group_state`, by number."""


def type_name(type: int | None) -> str:
    """Kafka's name for a type of `__consumer_offsets`; "Unknown" for other numbers and for None."""
    return RECORD_TYPES.get(type, "Unknown") if type is not None else "Unknown"


def record_type_name(record: DecodedRecord) -> str:
    """Kafka's name for the type of the record."""
    types = SHARE_STATE_TYPES if isinstance(record, ShareStateRecord) else RECORD_TYPES
    return types.get(record.type, type(record).__name__)
