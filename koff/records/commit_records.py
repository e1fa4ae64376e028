"""Committed offsets: record types 0 and 1."""

from koff.proto.primitives import ZERO_UUID
from koff.proto.schema import INT32, INT64, STRING, UUID, field, struct
from koff.records.structs import Key, Value, record


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
