"""Streams groups, KIP-1071 (docs/records-format.md 4.8).

Members are assigned tasks. The topology has the topics that the tasks read.
"""

import sys
from typing import Any, ClassVar, Self

from koff.records import (
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
    StreamsGroupTopologyValue,
)
from koff.tracker.groups.modern_group import GroupRecords, ModernGroupState, Profile
from koff.tracker.groups.plain_state import intern_strings, to_plain
from koff.tracker.groups.views import (
    STABLE,
    Assignment,
    GroupSubscription,
    GroupSubtopology,
    Tasks,
    Topology,
)

NOT_VALIDATED = -1
"""The validated topology epoch while no topology is validated."""
_UNKNOWN_TOPOLOGY = Topology(NOT_VALIDATED, {})
_TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")


class StreamsGroupState(ModernGroupState[Tasks]):
    """A Streams group. Its assignments are by topic name: the topics that the active tasks read."""

    __slots__ = ("_topology", "_validated_epoch")

    kind = "streams"
    records: ClassVar = GroupRecords(
        group=StreamsGroupMetadata,
        profile=StreamsGroupMemberMetadata,
        target_epoch=StreamsGroupTargetAssignmentMetadata,
        target=StreamsGroupTargetAssignmentMember,
        current=StreamsGroupCurrentMemberAssignment,
        others=(StreamsGroupTopology,),
        part_key="subtopology_id",
        target_fields=_TASKS,
        assigned_fields=_TASKS,
        revoking_fields=tuple(f"{name}_pending_revocation" for name in _TASKS),
        # The numbers differ from those of consumer groups.
        member_states={1: STABLE, 2: "UnrevokedTasks", 3: "UnreleasedTasks"},
    )
    join = Tasks

    def __init__(self) -> None:
        super().__init__()
        self._topology: Topology | None = None
        self._validated_epoch = NOT_VALIDATED

    def set_topology(self, topology: Topology | None, *, validated: bool) -> Self:
        """Sets the topology that a coordinator described, and returns the group itself."""
        self._topology = topology
        self._validated_epoch = topology.epoch if topology and validated else NOT_VALIDATED
        return self

    @property
    def state(self) -> str:
        # The internal topics of the topology may not exist yet.
        if self._member_ids() and (self._topology is None or self._topology.epoch != self._validated_epoch):
            return "NotReady"
        return super().state

    def _apply_own(self, record: Any) -> None:
        if isinstance(record, StreamsGroupTopology):
            self._topology = None if record.value is None else _read_topology(record.value)
        elif isinstance(record, StreamsGroupMetadata) and record.value is not None:
            self._validated_epoch = record.value.validated_topology_epoch

    def _own_facts(self) -> dict[str, Any]:
        return {"topology": self._topology}

    def _find_partitions(self, assigned: Tasks) -> Assignment:
        # Standby and warm-up tasks commit nothing.
        return (self._topology or _UNKNOWN_TOPOLOGY).partitions_read_by(assigned.active)

    def _find_subscription(self, profile: Profile) -> GroupSubscription:
        return GroupSubscription((self._topology or _UNKNOWN_TOPOLOGY).topics)

    def save(self) -> dict[str, Any]:
        return super().save() | {"validated": self._validated_epoch, "topology": to_plain(self._topology)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._validated_epoch = saved["validated"]
        if saved["topology"] is not None:
            epoch, parts = saved["topology"]
            loaded = {
                sys.intern(id_): GroupSubtopology(*map(intern_strings, own)) for id_, own in parts.items()
            }
            group._topology = Topology(epoch, loaded)
        return group


def _read_topology(value: StreamsGroupTopologyValue) -> Topology:
    parts = {
        sys.intern(part.subtopology_id): GroupSubtopology(
            intern_strings(part.source_topics),
            intern_strings(topic.name for topic in part.repartition_source_topics),
            part.source_topic_regex,
        )
        for part in value.subtopologies
    }
    return Topology(value.epoch, parts)
