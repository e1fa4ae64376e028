"""The state of all groups in memory. Batches of records go in, snapshots come out.

`as` tells type checkers that a name is public.
"""

from koff.tracker.commit_columns import Commits as Commits
from koff.tracker.groups import Described as Described
from koff.tracker.groups import Group as Group
from koff.tracker.groups import Member as Member
from koff.tracker.lagging_rows import LaggingRow as LaggingRow
from koff.tracker.rows import GroupTotal as GroupTotal
from koff.tracker.rows import PartitionLag as PartitionLag
from koff.tracker.saved_state import STATE_SCHEMA as STATE_SCHEMA
from koff.tracker.saved_state import State as State
from koff.tracker.shard import Shard as Shard
from koff.tracker.share_commits import ShareLag as ShareLag
from koff.tracker.shown import Objective as Objective
from koff.tracker.shown import Rule as Rule
from koff.tracker.shown import ShownNames as ShownNames
from koff.tracker.shown import compile_expression as compile_expression
from koff.tracker.snapshot import Snapshot as Snapshot
from koff.tracker.snapshot_columns import ShardSnapshot as ShardSnapshot
from koff.tracker.tracker import Tracker as Tracker
