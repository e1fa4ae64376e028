"""`Record`: what a (key, value) can mean. A match over it is exhaustive for type checkers."""

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
    """A record of a type this table does not have. Brokers skip it when they load."""

    type: int
    key: bytes
    value: bytes | None


@frozen
class Undecodable:
    """Bytes that are no record, and why. A broker refuses to load a partition that holds one."""

    key: bytes | None
    value: bytes | None
    reason: str
    type: int | None = None
    """None when not even that could be read."""


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
