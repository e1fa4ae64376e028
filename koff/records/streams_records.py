"""Streams groups (KIP-1071): record types 17 and 19 to 23."""

from koff.proto.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    array,
    field,
    nested,
    nullable,
    struct,
)
from koff.records.structs import Key, Part, Value, record


@struct()
class KeyValue(Part):
    key: str = field(STRING)
    value: str = field(STRING)


@struct(flexible_since=0)
class StreamsGroupMetadataValue(Value):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)
    # Both tags exist since 4.2. The schema's default of the second is an unquoted null, which Kafka's
    # generator makes an empty array.
    validated_topology_epoch: int = field(INT32, tag=0, default=-1)
    last_assignment_configs: tuple[KeyValue, ...] | None = field(
        nullable(array(nested(KeyValue))), tag=1, default=()
    )


@record(17)
class StreamsGroupMetadata(Key):
    group_id: str = field(STRING)
    value: StreamsGroupMetadataValue | None


@struct()
class Endpoint(Part):
    host: str = field(STRING)
    port: int = field(UINT16)


@struct(flexible_since=0)
class StreamsGroupMemberMetadataValue(Value):
    instance_id: str | None = field(nullable(STRING))
    rack_id: str | None = field(nullable(STRING))
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout_ms: int = field(INT32)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: Endpoint | None = field(nullable(nested(Endpoint)))
    client_tags: tuple[KeyValue, ...] = field(array(nested(KeyValue)))


@record(19)
class StreamsGroupMemberMetadata(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: StreamsGroupMemberMetadataValue | None


@struct(flexible_since=0)
class StreamsGroupTargetAssignmentMetadataValue(Value):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, default=0)  # since 4.3


@record(20)
class StreamsGroupTargetAssignmentMetadata(Key):
    group_id: str = field(STRING)
    value: StreamsGroupTargetAssignmentMetadataValue | None


@struct()
class TaskIds(Part):
    subtopology_id: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@struct(flexible_since=0)
class StreamsGroupTargetAssignmentMemberValue(Value):
    active_tasks: tuple[TaskIds, ...] = field(array(nested(TaskIds)))
    standby_tasks: tuple[TaskIds, ...] = field(array(nested(TaskIds)))
    warmup_tasks: tuple[TaskIds, ...] = field(array(nested(TaskIds)))


@record(21)
class StreamsGroupTargetAssignmentMember(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: StreamsGroupTargetAssignmentMemberValue | None


@struct()
class AssignedTasks(Part):
    """Tasks of a subtopology, and the epoch in which each was assigned, which brokers write since 4.2."""

    subtopology_id: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))
    assignment_epochs: tuple[int, ...] | None = field(nullable(array(INT32)), tag=0, default=())


@struct(flexible_since=0)
class StreamsGroupCurrentMemberAssignmentValue(Value):
    """The tasks that the member has now.

    `state`: 1 stable, 2 unrevoked tasks (has some to give up), 3 unreleased tasks (waits for other members to
    give up theirs). These are not the numbers of type 8.
    """

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    active_tasks: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))
    standby_tasks: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))
    warmup_tasks: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))
    active_tasks_pending_revocation: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))
    standby_tasks_pending_revocation: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))
    warmup_tasks_pending_revocation: tuple[AssignedTasks, ...] = field(array(nested(AssignedTasks)))


@record(22)
class StreamsGroupCurrentMemberAssignment(Key):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    value: StreamsGroupCurrentMemberAssignmentValue | None


@struct()
class InternalTopic(Part):
    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: tuple[KeyValue, ...] = field(array(nested(KeyValue)))


@struct()
class CopartitionGroup(Part):
    """Topics that must be copartitioned: indexes into the lists of the subtopology."""

    source_topics: tuple[int, ...] = field(array(INT16))
    source_topic_regex: tuple[int, ...] = field(array(INT16))
    repartition_source_topics: tuple[int, ...] = field(array(INT16))


@struct()
class Subtopology(Part):
    subtopology_id: str = field(STRING)
    source_topics: tuple[str, ...] = field(array(STRING))
    source_topic_regex: tuple[str, ...] = field(array(STRING))
    state_changelog_topics: tuple[InternalTopic, ...] = field(array(nested(InternalTopic)))
    repartition_sink_topics: tuple[str, ...] = field(array(STRING))
    repartition_source_topics: tuple[InternalTopic, ...] = field(array(nested(InternalTopic)))
    copartition_groups: tuple[CopartitionGroup, ...] = field(array(nested(CopartitionGroup)))


@struct(flexible_since=0)
class StreamsGroupTopologyValue(Value):
    epoch: int = field(INT32)
    subtopologies: tuple[Subtopology, ...] = field(array(nested(Subtopology)))


@record(23)
class StreamsGroupTopology(Key):
    group_id: str = field(STRING)
    value: StreamsGroupTopologyValue | None
