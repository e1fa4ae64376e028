"""`Record`: the union of all record types. A type checker can prove that a `match` over it is complete.

For a new type, declare its structs, with the type's number, and add the class to a union here.
"""

from koff.proto.frozen import frozen
from koff.records import consumer_records as consumer
from koff.records import share_records as share
from koff.records import streams_records as streams
from koff.records.classic_records import GroupMetadata, OffsetCommit
from koff.records.share_state_records import ShareSnapshot, ShareUpdate


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
    | consumer.ConsumerGroupMetadata
    | consumer.ConsumerGroupPartitionMetadata
    | consumer.ConsumerGroupMemberMetadata
    | consumer.ConsumerGroupTargetAssignmentMetadata
    | consumer.ConsumerGroupTargetAssignmentMember
    | consumer.ConsumerGroupCurrentMemberAssignment
    | consumer.ConsumerGroupRegularExpression
    | share.ShareGroupPartitionMetadata
    | share.ShareGroupMemberMetadata
    | share.ShareGroupMetadata
    | share.ShareGroupTargetAssignmentMetadata
    | share.ShareGroupTargetAssignmentMember
    | share.ShareGroupCurrentMemberAssignment
    | share.ShareGroupStatePartitionMetadata
    | streams.StreamsGroupMetadata
    | streams.StreamsGroupMemberMetadata
    | streams.StreamsGroupTargetAssignmentMetadata
    | streams.StreamsGroupTargetAssignmentMember
    | streams.StreamsGroupCurrentMemberAssignment
    | streams.StreamsGroupTopology
)
"""A decoded record of `__consumer_offsets`."""

ShareStateRecord = ShareSnapshot | ShareUpdate
"""A decoded record of `__share_group_state`."""

DecodedRecord = OffsetsRecord | ShareStateRecord
Record = DecodedRecord | Unknown | Undecodable
