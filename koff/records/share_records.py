"""Share groups (KIP-932): record types 10 to 15, and 9, which only 4.0 (early access) wrote.

4.0 wrote other layouts of types 11 and 15 under the same version 0.
"""

from koff.proto.schema import INT8, INT32, INT64, STRING, UUID, array, field, nested, nullable, struct
from koff.records.consumer_records import ConsumerGroupPartitionMetadataValue, TopicPartitions
from koff.records.structs import Key, Part, Value, record


@record(9)
class ShareGroupPartitionMetadata(Key):
    """Only 4.0 writes it. The value has the layout of type 4."""

    group_id: str = field(STRING)
    value: ConsumerGroupPartitionMetadataValue | None


@struct(flexible_since=0)
class ShareGroupMemberMetadataValue(Value):
    rack_id: str | None = field(nullable(STRING))
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: tuple[str, ...] = field(array(STRING))


@record(10)
class ShareGroupMemberMetadata(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ShareGroupMemberMetadataValue | None


@struct(flexible_since=0)
class ShareGroupMetadataValue(Value):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, not_in="4.0", default=0)


@record(11)
class ShareGroupMetadata(Key):
    group_id: str = field(STRING)
    value: ShareGroupMetadataValue | None


@struct(flexible_since=0)
class ShareGroupTargetAssignmentMetadataValue(Value):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, default=0)  # since 4.3


@record(12)
class ShareGroupTargetAssignmentMetadata(Key):
    group_id: str = field(STRING)
    value: ShareGroupTargetAssignmentMetadataValue | None


@struct(flexible_since=0)
class ShareGroupTargetAssignmentMemberValue(Value):
    topic_partitions: tuple[TopicPartitions, ...] = field(array(nested(TopicPartitions)))


@record(13)
class ShareGroupTargetAssignmentMember(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ShareGroupTargetAssignmentMemberValue | None


@struct(flexible_since=0)
class ShareGroupCurrentMemberAssignmentValue(Value):
    """`state` has the numbers of type 8."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: tuple[TopicPartitions, ...] = field(array(nested(TopicPartitions)))


@record(14)
class ShareGroupCurrentMemberAssignment(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: ShareGroupCurrentMemberAssignmentValue | None


@struct()
class NamedTopicPartitions(Part):
    topic_id: str = field(UUID)
    topic_name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct()
class NamedTopic(Part):
    topic_id: str = field(UUID)
    topic_name: str = field(STRING)


@struct(flexible_since=0)
class ShareGroupStatePartitionMetadataValue(Value):
    """The topics with state in `__share_group_state`, and the topics whose state is being made or deleted."""

    initializing_topics: tuple[NamedTopicPartitions, ...] = field(
        array(nested(NamedTopicPartitions)), not_in="4.0", default=()
    )
    initialized_topics: tuple[NamedTopicPartitions, ...] = field(array(nested(NamedTopicPartitions)))
    deleting_topics: tuple[NamedTopic, ...] = field(array(nested(NamedTopic)))


@record(15)
class ShareGroupStatePartitionMetadata(Key):
    group_id: str = field(STRING)
    value: ShareGroupStatePartitionMetadataValue | None
