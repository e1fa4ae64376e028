"""The families of groups: what Kafka says of their state and members."""

import numpy as np

from koff.serve.metrics.family import Column
from koff.serve.metrics.numbers import SHARDS, Ints, ShardNumbers
from koff.tracker import Group, Member

_GROUP = ("group",)
_NOT_CURRENT = "what koff knows of the group is not current"
_UNKNOWN = f"it is unknown; {_NOT_CURRENT}"


@SHARDS.family(("group", "state"), "1", 'koff_group_state{state=~"Dead|Empty"} == 1', _NOT_CURRENT)
def koff_group_state(numbers: ShardNumbers) -> Column:
    """1 for the present state of the group, by Kafka's name for it."""
    return Column(1, numbers.current_groups, ([group.state for group in numbers.groups],))


@SHARDS.family(_GROUP, "members", "koff_group_members == 0 and koff_group_total_lag > 0", _NOT_CURRENT)
def koff_group_members(numbers: ShardNumbers) -> Column:
    """Members of the group that are present; static members that left for a while are not counted."""
    counts = np.array([group.member_count for group in numbers.groups], np.int64)
    return Column(counts, numbers.current_groups)


@SHARDS.family(
    _GROUP,
    "members",
    "koff_group_members_without_assignment > 0",
    f"{_NOT_CURRENT}; no consumers of Kafka's (Connect)",
    default=False,
)
def koff_group_members_without_assignment(numbers: ShardNumbers) -> Column:
    """Members of the group that are present and have no partition to read."""
    counts = np.array([_count_unassigned(group) for group in numbers.groups], np.int64)
    return Column(counts, (counts >= 0) & numbers.current_groups)


def _count_unassigned(group: Group) -> int:
    """How many members that are present have nothing assigned; -1 if koff does not decode assignments."""
    if group.type not in _ASSIGNED_TYPES or (group.type == "classic" and group.protocol_type != "consumer"):
        return -1
    return sum(member.present and not _has_partitions(member) for member in group.members)


def _has_partitions(member: Member) -> bool:
    parts = [member.assigned]
    if member.tasks is not None:
        parts += [member.tasks.active, member.tasks.standby, member.tasks.warmup]
    return any(partitions for part in parts for partitions in part.values())


_ASSIGNED_TYPES = frozenset({"classic", "consumer", "share", "streams"})


@SHARDS.family(
    ("group", "type", "protocol_type", "protocol", "coordinator"),
    "1",
    "count by (coordinator) (koff_group_info)",
    _NOT_CURRENT,
    default=False,
)
def koff_group_info(numbers: ShardNumbers) -> Column:
    """1 for the type of the group, its protocol type, its assignor, and the broker that coordinates it."""
    further = (
        [group.type for group in numbers.groups],
        [group.protocol_type for group in numbers.groups],
        [group.protocol for group in numbers.groups],
        numbers.find_coordinator(),
    )
    return Column(1, numbers.current_groups, further)


@SHARDS.family(_GROUP, "epoch", "changes(koff_group_epoch[1h])", _UNKNOWN, default=False)
def koff_group_epoch(numbers: ShardNumbers) -> Column:
    """Generation of a classic group; group epoch of the newer types."""
    epochs = _list_epochs(numbers)
    return Column(epochs, (epochs >= 0) & numbers.current_groups)


@SHARDS.family(_GROUP, "epochs", "increase(koff_group_rebalances_total[1h]) > 10", _UNKNOWN)
def koff_group_rebalances_total(numbers: ShardNumbers) -> Column:
    """By how much the generation or the group epoch has grown while koff ran."""
    epochs = _list_epochs(numbers)
    numbers.epochs.add(epochs)
    return Column(numbers.epochs.sums, (epochs >= 0) & numbers.current_groups)


def _list_epochs(numbers: ShardNumbers) -> Ints:
    return np.array([group.epoch for group in numbers.groups], np.int64)
