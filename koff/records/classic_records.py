"""Committed offsets, record types 0 and 1, and groups of the classic protocol, record type 2."""

from koff.proto.primitives import ZERO_UUID
from koff.proto.schema import BYTES, INT32, INT64, STRING, UUID, array, field, nested, nullable, struct
from koff.records.structs import Key, Part, Value, record


@struct(versions=(0, 4), flexible_since=4)
class OffsetCommitValue(Value):
    """Timestamps are in milliseconds, -1 if absent. `leader_epoch` -1 and `topic_id` zero: unknown."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1)  # KIP-320
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1)  # dropped by KIP-211
    topic_id: str = field(UUID, since=4, tag=0, default=ZERO_UUID)


@record(1)
class OffsetCommit(Key):
    """Brokers of 0.8.2 wrote type 0, later ones type 1. Brokers up to 4.0 read any value version of both."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)
    value: OffsetCommitValue | None


@struct()
class ClassicMember(Part):
    """`subscription` and `assignment` are in the format of the protocol type: see `consumer_protocol`.

    Timeouts are in milliseconds. `rebalance_timeout` -1: absent, the session timeout is used instead.
    """

    member_id: str = field(STRING)
    group_instance_id: str | None = field(nullable(STRING), since=3, default=None)  # KIP-345
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@struct(versions=(0, 4), flexible_since=4)
class GroupMetadataValue(Value):
    """`protocol_type` is "consumer", or "connect" for Kafka Connect's workers, or "" if there is none.

    `current_state_timestamp` is in milliseconds: when the group entered its state. -1: absent.
    """

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(nullable(STRING))
    leader: str | None = field(nullable(STRING))
    current_state_timestamp: int = field(INT64, since=2, default=-1)
    members: tuple[ClassicMember, ...] = field(array(nested(ClassicMember)))


@record(2)
class GroupMetadata(Key):
    group: str = field(STRING)
    value: GroupMetadataValue | None
