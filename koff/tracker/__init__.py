"""The state of all groups in memory. Batches of records go in, snapshots come out."""

from koff.tracker.commit_columns import Commits
from koff.tracker.groups import Described, Group, Member
from koff.tracker.lagging_rows import LaggingRow
from koff.tracker.rows import GroupTotal, PartitionLag
from koff.tracker.saved_state import STATE_SCHEMA, State
from koff.tracker.shard import Shard
from koff.tracker.share_commits import ShareLag
from koff.tracker.shown import Objective, Rule, ShownNames, compile_expression
from koff.tracker.snapshot import Snapshot
from koff.tracker.snapshot_columns import ShardSnapshot
from koff.tracker.tracker import Tracker

__all__ = [
    "STATE_SCHEMA",
    "Commits",
    "Described",
    "Group",
    "GroupTotal",
    "LaggingRow",
    "Member",
    "Objective",
    "PartitionLag",
    "Rule",
    "Shard",
    "ShardSnapshot",
    "ShareLag",
    "ShownNames",
    "Snapshot",
    "State",
    "Tracker",
    "compile_expression",
]
