"""Streams groups, KIP-1071 (docs/records-format.md 4.8).

Members are assigned tasks. The topology has the topics that the tasks read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from koff.records import (
    AssignedTasks,
    Record,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadata,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadata,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
    StreamsGroupTopologyValue,
    TaskIds,
)
from koff.records import Subtopology as SubtopologyRecord
from koff.tracker.groups.modern_group import LEFT, Current, ModernGroupState, Profile
from koff.tracker.groups.plain_state import intern_strings, load_assignment, to_plain
from koff.tracker.groups.views import (
    STABLE,
    UNKNOWN,
    Assignment,
    Group,
    GroupSubscription,
    GroupSubtopology,
    Member,
    Tasks,
    Topology,
    merge_assignments,
)

# The numbers differ from those of consumer groups.
MEMBER_STATES = {1: STABLE, 2: "UnrevokedTasks", 3: "UnreleasedTasks"}
NO_TASKS = Tasks()
NOT_VALIDATED = -1
"""The validated topology epoch while no topology is validated."""
_UNKNOWN_TOPOLOGY = Topology(NOT_VALIDATED, {})


class StreamsGroupState(ModernGroupState[Tasks]):
    """A Streams group. Its assignments are by topic name: the topics that the active tasks read."""

    __slots__ = ("_topology", "_validated_epoch")

    kind: ClassVar[str] = "streams"
    record_types: ClassVar[tuple[type[Any], ...]] = (
        StreamsGroupMetadata,
        StreamsGroupMemberMetadata,
        StreamsGroupTargetAssignmentMetadata,
        StreamsGroupTargetAssignmentMember,
        StreamsGroupCurrentMemberAssignment,
        StreamsGroupTopology,
    )
    no_assignment: ClassVar[Tasks] = NO_TASKS

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

    def _apply_record(self, record: Record) -> None:
        # A value of None is a tombstone.
        match record:
            case StreamsGroupCurrentMemberAssignment(member_id=member, value=current):
                self._set_current(member, None if current is None else _current_from_record(current))
            case StreamsGroupTargetAssignmentMember(member_id=member, value=target):
                self._set_target(member, None if target is None else _target_from_record(target))
            case StreamsGroupMemberMetadata(member_id=member, value=profile):
                self._set_profile(member, None if profile is None else _profile_from_record(profile))
            case StreamsGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case StreamsGroupTopology(value=topology):
                self._topology = None if topology is None else _topology_from_record(topology)
            case StreamsGroupMetadata(value=own) if own is not None:  # `GroupTable` handles its tombstone
                self.epoch, self._validated_epoch = own.epoch, own.validated_topology_epoch

    def _build_group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "streams",
            "",
            self._build_members(),
            self.assignment_epoch,
            topology=self._topology,
        )

    def _build_member(
        self, id_: str, profile: Profile, current: Current[Tasks], target: Tasks | None
    ) -> Member:
        topology = self._topology or _UNKNOWN_TOPOLOGY
        # The member may still be running the tasks that it must give up.
        tasks = (
            current.assigned
            if current.revoking == NO_TASKS
            else _merge_tasks(current.assigned, current.revoking)
        )
        return Member(
            id_,
            profile.client_id,
            profile.client_host,
            profile.instance_id,
            topology.partitions_read_by(tasks.active),  # standby and warm-up tasks commit nothing
            profile.rack_id,
            GroupSubscription(topology.topics),
            topology.partitions_read_by(current.revoking.active),
            None if target is None else topology.partitions_read_by(target.active),
            current.epoch,
            current.state,
            current.epoch >= 0,
            tasks=tasks,
            process_id=profile.process_id,
        )

    def save(self) -> dict[str, Any]:
        return super().save() | {"validated": self._validated_epoch, "topology": to_plain(self._topology)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._validated_epoch = saved["validated"]
        if saved["topology"] is not None:
            epoch, parts = saved["topology"]
            group._topology = Topology(
                epoch,
                {
                    sys.intern(id_): GroupSubtopology(*map(intern_strings, fields))
                    for id_, fields in parts.items()
                },
            )
        return group

    @staticmethod
    def _save_assignment(assigned: Tasks) -> Any:
        return assigned.active, assigned.standby, assigned.warmup

    @classmethod
    def _load_assignment(cls, saved: Any) -> Tasks:
        return Tasks(*map(load_assignment, saved))


def _partitions_by_subtopology(parts: Iterable[TaskIds | AssignedTasks]) -> Assignment:
    return merge_assignments((part.subtopology_id, part.partitions) for part in parts)


def _merge_tasks(assigned: Tasks, revoking: Tasks) -> Tasks:
    return Tasks(
        merge_assignments((*assigned.active.items(), *revoking.active.items())),
        merge_assignments((*assigned.standby.items(), *revoking.standby.items())),
        merge_assignments((*assigned.warmup.items(), *revoking.warmup.items())),
    )


def _current_from_record(value: StreamsGroupCurrentMemberAssignmentValue) -> Current[Tasks]:
    return Current(
        value.member_epoch,
        MEMBER_STATES.get(value.state, UNKNOWN),
        Tasks(
            _partitions_by_subtopology(value.active_tasks),
            _partitions_by_subtopology(value.standby_tasks),
            _partitions_by_subtopology(value.warmup_tasks),
        ),
        Tasks(
            _partitions_by_subtopology(value.active_tasks_pending_revocation),
            _partitions_by_subtopology(value.standby_tasks_pending_revocation),
            _partitions_by_subtopology(value.warmup_tasks_pending_revocation),
        ),
    )


def _target_from_record(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(
        _partitions_by_subtopology(value.active_tasks),
        _partitions_by_subtopology(value.standby_tasks),
        _partitions_by_subtopology(value.warmup_tasks),
    )


def _profile_from_record(value: StreamsGroupMemberMetadataValue) -> Profile:
    return Profile(
        sys.intern(value.client_id),
        sys.intern(value.client_host),
        value.instance_id,
        value.rack_id or None,
        process_id=sys.intern(value.process_id),
    )


def _topology_from_record(value: StreamsGroupTopologyValue) -> Topology:
    return Topology(
        value.epoch,
        {sys.intern(part.subtopology_id): _subtopology_from_record(part) for part in value.subtopologies},
    )


def _subtopology_from_record(record: SubtopologyRecord) -> GroupSubtopology:
    return GroupSubtopology(
        intern_strings(record.source_topics),
        tuple(sys.intern(topic.name) for topic in record.repartition_source_topics),
        record.source_topic_regex,
    )
