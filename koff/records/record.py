"""`Record`: the union of all record types. A type checker can prove that a `match` over it is complete."""

from koff.proto.frozen import frozen
from koff.records.classic_records import GroupMetadata
from koff.records.commit_records import OffsetCommit
from koff.records.consumer_records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)
from koff.records.share_records import (
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupPartitionMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from koff.records.share_state_records import ShareSnapshot, ShareUpdate
from koff.records.streams_records import (
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
)


@frozen
class Unknown:
    """A record of a type that koff does not know. Brokers skip an unknown type when they load a partition."""

    type: int
    key: bytes
    value: bytes | None


@frozen
class Undecodable:
    """A key and value that cannot be decoded, and why. A broker cannot load a partition that holds one."""

    key: bytes | None
    value: bytes | None
    reason: str
    type: int | None = None
    """None if the key is null, or ends before its type does."""


OffsetsRecord = (
    OffsetCommit
    | GroupMetadata
    | ConsumerGroupMetadata
    | ConsumerGroupPartitionMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
    | ShareGroupPartitionMetadata
    | ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | StreamsGroupMetadata
    | StreamsGroupMemberMetadata
    | StreamsGroupTargetAssignmentMetadata
    | StreamsGroupTargetAssignmentMember
    | StreamsGroupCurrentMemberAssignment
    | StreamsGroupTopology
)
"""A decoded record of `__consumer_offsets`."""

ShareStateRecord = ShareSnapshot | ShareUpdate
"""A decoded record of `__share_group_state`."""

DecodedRecord = OffsetsRecord | ShareStateRecord
Record = DecodedRecord | Unknown | Undecodable
