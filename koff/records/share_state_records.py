"""Records of `__share_group_state`, whose record types 0 and 1 are not those of `__consumer_offsets`.

4.0 (early access) wrote other layouts of both types under the same version 0.
"""

from koff.proto.schema import INT8, INT16, INT32, INT64, STRING, UINT16, UUID, array, field, nested, struct
from koff.records.structs import Key, Part, Value, record


@struct()
class StateBatch(Part):
    """`delivery_state`: 0 available, 2 acknowledged, 4 archived (rejected, or out of attempts)."""

    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


@struct(flexible_since=0)
class ShareSnapshotValue(Value):
    """The whole state of a share partition.

    `start_offset` -1: not initialised yet. `delivery_complete_count` -1: unknown, as always before 4.2.
    """

    snapshot_epoch: int = field(INT32, instead={"4.0": UINT16})
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, tag=0, not_in="4.0", default=-1)
    # 4.0 has no timestamps.
    create_timestamp: int = field(INT64, not_in="4.0", default=-1)
    write_timestamp: int = field(INT64, not_in="4.0", default=-1)
    state_batches: tuple[StateBatch, ...] = field(array(nested(StateBatch)))


@record(0)
class ShareSnapshot(Key):
    group_id: str = field(STRING)
    topic_id: str = field(UUID)
    partition: int = field(INT32)
    value: ShareSnapshotValue | None


@struct(flexible_since=0)
class ShareUpdateValue(Value):
    """A change of the state of a share partition.

    `start_offset` and `leader_epoch` -1: not changed. `delivery_complete_count` always replaces the old one.
    """

    snapshot_epoch: int = field(INT32, instead={"4.0": UINT16})
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, tag=0, not_in="4.0", default=-1)
    state_batches: tuple[StateBatch, ...] = field(array(nested(StateBatch)))


@record(1)
class ShareUpdate(Key):
    group_id: str = field(STRING)
    topic_id: str = field(UUID)
    partition: int = field(INT32)
    value: ShareUpdateValue | None
