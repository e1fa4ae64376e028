"""Groups of the consumer protocol, KIP-848: types 3 to 8 and 16.

Kafka 3.7 wrote other layouts of 4, 5, 7 and 8 under the same version.
"""

from koff.proto.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    nested,
    nullable,
    struct,
)
from koff.records.structs import Key, Part, Value


@struct(flexible_since=0)
class ConsumerGroupMetadataValue(Value):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0, default=0)


@struct()
class ConsumerGroupMetadata(Key):
    group_id: str = field(STRING)
    value: ConsumerGroupMetadataValue | None
    type: int = 3


@struct()
class PartitionRacks(Part):
    partition: int = field(INT32)
    racks: tuple[str, ...] = field(array(STRING))


@struct()
class TopicMetadata(Part):
    topic_id: str = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: tuple[PartitionRacks, ...] = field(array(nested(PartitionRacks)))


@struct(flexible_since=0)
class ConsumerGroupPartitionMetadataValue(Value):
    epoch: int = field(INT32, only_in="3.7", default=-1)
    topics: tuple[TopicMetadata, ...] = field(array(nested(TopicMetadata)))


@struct()
class ConsumerGroupPartitionMetadata(Key):
    """Written up to 4.0; later releases only write its tombstones."""

    group_id: str = field(STRING)
    value: ConsumerGroupPartitionMetadataValue | None
    type: int = 4


@struct()
class ClassicProtocol(Part):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@struct()
class ClassicMemberMetadata(Part):
    """Of a member that speaks the classic protocol to a consumer group."""

    session_timeout_ms: int = field(INT32, default=0)
    supported_protocols: tuple[ClassicProtocol, ...] = field(array(nested(ClassicProtocol)), default=())


@struct()
class Assignor(Part):
    """A client-side assignor, as 3.7 had it in mind."""

    name: str = field(STRING)
    minimum_version: int = field(INT16)
    maximum_version: int = field(INT16)
    reason: int = field(INT8)
    version: int = field(INT16)
    metadata: bytes = field(BYTES)


@struct(flexible_since=0)
class ConsumerGroupMemberMetadataValue(Value):
    """Of `classic_member_metadata`, absent, null and empty all say that the member is none.

    Absent is the empty one: Kafka's schema has its default null unquoted, and so its generator takes it.
    """

    instance_id: str | None = field(nullable(STRING))
    rack_id: str | None = field(nullable(STRING))
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: tuple[str, ...] = field(array(STRING))
    subscribed_topic_regex: str | None = field(nullable(STRING))
    rebalance_timeout_ms: int = field(INT32)
    server_assignor: str | None = field(nullable(STRING))
    assignors: tuple[Assignor, ...] = field(array(nested(Assignor)), only_in="3.7", default=())
    classic_member_metadata: ClassicMemberMetadata | None = field(
        nullable(nested(ClassicMemberMetadata)), tag=0, not_in="3.7", default=ClassicMemberMetadata()
    )


@struct()
class ConsumerGroupMemberMetadata(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupMemberMetadataValue | None
    type: int = 5


@struct(flexible_since=0)
class ConsumerGroupTargetAssignmentMetadataValue(Value):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, default=0)


@struct()
class ConsumerGroupTargetAssignmentMetadata(Key):
    group_id: str = field(STRING)
    value: ConsumerGroupTargetAssignmentMetadataValue | None
    type: int = 6


@struct()
class TopicPartitions(Part):
    topic_id: str = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32))


@struct(flexible_since=0)
class ConsumerGroupTargetAssignmentMemberValue(Value):
    error: int = field(INT8, only_in="3.7", default=0)
    topic_partitions: tuple[TopicPartitions, ...] = field(array(nested(TopicPartitions)))
    metadata_version: int = field(INT16, only_in="3.7", default=0)
    metadata_bytes: bytes = field(BYTES, only_in="3.7", default=b"")


@struct()
class ConsumerGroupTargetAssignmentMember(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupTargetAssignmentMemberValue | None
    type: int = 7


@struct()
class AssignedPartitions(Part):
    """Partitions of a topic, and the epoch each was assigned in, if the release wrote that down."""

    topic_id: str = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32))
    assignment_epochs: tuple[int, ...] | None = field(nullable(array(INT32)), tag=0, default=())


@struct(flexible_since=0)
class ConsumerGroupCurrentMemberAssignmentValue(Value):
    """`state`: 0 stable, 1 has partitions to give up, 2 waits for those of others, 127 unknown."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8, not_in="3.7", default=127)
    target_member_epoch: int = field(INT32, only_in="3.7", default=-1)
    assigned_partitions: tuple[AssignedPartitions, ...] = field(array(nested(AssignedPartitions)))
    partitions_pending_revocation: tuple[AssignedPartitions, ...] = field(array(nested(AssignedPartitions)))
    partitions_pending_assignment: tuple[AssignedPartitions, ...] = field(
        array(nested(AssignedPartitions)), only_in="3.7", default=()
    )
    error: int = field(INT8, only_in="3.7", default=0)
    metadata_version: int = field(INT16, only_in="3.7", default=0)
    metadata_bytes: bytes = field(BYTES, only_in="3.7", default=b"")


@struct()
class ConsumerGroupCurrentMemberAssignment(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupCurrentMemberAssignmentValue | None
    type: int = 8


@struct(flexible_since=0)
class ConsumerGroupRegularExpressionValue(Value):
    topics: tuple[str, ...] = field(array(STRING))
    image_version: int = field(INT64, called="version")
    """Of the metadata image that the topics were looked up in."""
    timestamp: int = field(INT64)


@struct()
class ConsumerGroupRegularExpression(Key):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)
    value: ConsumerGroupRegularExpressionValue | None
    type: int = 16
