"""Groups of the consumer protocol (KIP-848): record types 3 to 8 and 16.

Kafka 3.7 (early access) wrote other layouts of types 4, 5, 7 and 8 under the same version 0.
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
from koff.records.structs import Key, Part, Value, record


@struct(flexible_since=0)
class ConsumerGroupMetadataValue(Value):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0, default=0)  # since 4.1


@record(3)
class ConsumerGroupMetadata(Key):
    group_id: str = field(STRING)
    value: ConsumerGroupMetadataValue | None


@struct()
class PartitionRacks(Part):
    partition: int = field(INT32)
    racks: tuple[str, ...] = field(array(STRING))


@struct()
class SubscribedTopicMetadata(Part):
    topic_id: str = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: tuple[PartitionRacks, ...] = field(array(nested(PartitionRacks)))


@struct(flexible_since=0)
class ConsumerGroupPartitionMetadataValue(Value):
    epoch: int = field(INT32, only_in="3.7", default=-1)
    topics: tuple[SubscribedTopicMetadata, ...] = field(array(nested(SubscribedTopicMetadata)))


@record(4)
class ConsumerGroupPartitionMetadata(Key):
    """Brokers up to 4.0 write this record. Later brokers write only its tombstones."""

    group_id: str = field(STRING)
    value: ConsumerGroupPartitionMetadataValue | None


@struct()
class ClassicProtocol(Part):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@struct()
class ClassicMemberMetadata(Part):
    """The classic protocol's part of a member that uses that protocol in a consumer group."""

    session_timeout_ms: int = field(INT32, default=0)
    supported_protocols: tuple[ClassicProtocol, ...] = field(array(nested(ClassicProtocol)), default=())


@struct()
class Assignor(Part):
    """A client-side assignor. Only 3.7 has it."""

    name: str = field(STRING)
    minimum_version: int = field(INT16)
    maximum_version: int = field(INT16)
    reason: int = field(INT8)
    version: int = field(INT16)
    metadata: bytes = field(BYTES)


@struct(flexible_since=0)
class ConsumerGroupMemberMetadataValue(Value):
    """`classic_member_metadata` is absent, null or empty if the member uses the consumer protocol.

    An absent one is decoded as the empty one, as in Kafka: the schema's default `null` is not quoted, and
    Kafka's generator makes the empty struct of it.
    """

    instance_id: str | None = field(nullable(STRING))
    rack_id: str | None = field(nullable(STRING))
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: tuple[str, ...] = field(array(STRING))
    subscribed_topic_regex: str | None = field(nullable(STRING))
    rebalance_timeout_ms: int = field(INT32)
    server_assignor: str | None = field(nullable(STRING))
    # 3.7 has no tagged field here, but this array before the tags.
    assignors: tuple[Assignor, ...] = field(array(nested(Assignor)), only_in="3.7", default=())
    classic_member_metadata: ClassicMemberMetadata | None = field(
        nullable(nested(ClassicMemberMetadata)), tag=0, not_in="3.7", default=ClassicMemberMetadata()
    )


@record(5)
class ConsumerGroupMemberMetadata(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupMemberMetadataValue | None


@struct(flexible_since=0)
class ConsumerGroupTargetAssignmentMetadataValue(Value):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, default=0)  # since 4.3


@record(6)
class ConsumerGroupTargetAssignmentMetadata(Key):
    group_id: str = field(STRING)
    value: ConsumerGroupTargetAssignmentMetadataValue | None


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


@record(7)
class ConsumerGroupTargetAssignmentMember(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupTargetAssignmentMemberValue | None


@struct()
class AssignedPartitions(Part):
    """Partitions of a topic, and the epoch in which each was assigned, which brokers write since 4.3."""

    topic_id: str = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32))
    # The schema's default is an unquoted null, which Kafka's generator makes an empty array.
    assignment_epochs: tuple[int, ...] | None = field(nullable(array(INT32)), tag=0, default=())


@struct(flexible_since=0)
class ConsumerGroupCurrentMemberAssignmentValue(Value):
    """The assignment that the member has now.

    `state`: 0 stable, 1 unrevoked partitions (has some to give up), 2 unreleased partitions (waits for other
    members to give up theirs), 127 unknown. `member_epoch` -2: a static member that left for a while.
    """

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    # 3.7 has an epoch in the place of the state.
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


@record(8)
class ConsumerGroupCurrentMemberAssignment(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ConsumerGroupCurrentMemberAssignmentValue | None


@struct(flexible_since=0)
class ConsumerGroupRegularExpressionValue(Value):
    topics: tuple[str, ...] = field(array(STRING))
    image_version: int = field(INT64, schema_name="version")
    """The version of the metadata image in which the broker resolved the pattern."""
    timestamp: int = field(INT64)


@record(16)
class ConsumerGroupRegularExpression(Key):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)
    value: ConsumerGroupRegularExpressionValue | None
