"""The state of all groups in memory. Batches of records go in, snapshots come out."""

from koff.tracker.first_records import LaggingRow
from koff.tracker.groups import Group, Member
from koff.tracker.saved_state import STATE_SCHEMA, State
from koff.tracker.shard import Shard
from koff.tracker.snapshot import GroupTotal, PartitionLag, ShardSnapshot, Snapshot
from koff.tracker.tracker import Tracker

__all__ = [
    "STATE_SCHEMA",
    "Group",
    "GroupTotal",
    "LaggingRow",
    "Member",
    "PartitionLag",
    "Shard",
    "ShardSnapshot",
    "Snapshot",
    "State",
    "Tracker",
]
