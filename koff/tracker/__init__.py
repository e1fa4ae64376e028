"""The state of all groups in memory: batches of records in, snapshots out."""

from koff.tracker.groups import Group, Member
from koff.tracker.snapshot import GroupTotal, PartitionLag, ShardSnapshot, Snapshot
from koff.tracker.tracker import Tracker

__all__ = ["Group", "GroupTotal", "Member", "PartitionLag", "ShardSnapshot", "Snapshot", "Tracker"]
