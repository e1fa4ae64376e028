"""Streams groups, KIP-1071 (docs/records-format.md 4.8): members have tasks, and a topology says what those read."""

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
from koff.tracker.groups.plain_state import assignment, plain, strings
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
    union,
)

MEMBER_STATES = {1: STABLE, 2: "UnrevokedTasks", 3: "UnreleasedTasks"}
NO_TASKS = Tasks()
NEVER = -1
"""The topology epoch that was validated, as long as none was."""
_UNKNOWN_TOPOLOGY = Topology(NEVER, {})


class StreamsGroupState(ModernGroupState[Tasks]):
    """A Streams group; assignments are by the names of the topics that active tasks read."""

    __slots__ = ("_topology", "_validated")

    kind: ClassVar[str] = "streams"
    records: ClassVar[tuple[type[Any], ...]] = (
        StreamsGroupMetadata,
        StreamsGroupMemberMetadata,
        StreamsGroupTargetAssignmentMetadata,
        StreamsGroupTargetAssignmentMember,
        StreamsGroupCurrentMemberAssignment,
        StreamsGroupTopology,
    )
    nothing: ClassVar[Tasks] = NO_TASKS

    def __init__(self) -> None:
        super().__init__()
        self._topology: Topology | None = None
        self._validated = NEVER

    def has(self, topology: Topology | None, *, validated: bool) -> Self:
        """The same group, of which a coordinator told this topology too."""
        self._topology = topology
        self._validated = topology.epoch if topology and validated else NEVER
        return self

    @property
    def state(self) -> str:
        if self._members() and (self._topology is None or self._topology.epoch != self._validated):
            return "NotReady"
        return super().state

    def _take(self, record: Record) -> None:
        match record:
            case StreamsGroupCurrentMemberAssignment(member_id=member, value=now):
                self._stand(member, None if now is None else _current(now))
            case StreamsGroupTargetAssignmentMember(member_id=member, value=target):
                self._aim(member, None if target is None else _target(target))
            case StreamsGroupMemberMetadata(member_id=member, value=who):
                self._join(member, None if who is None else _profile(who))
            case StreamsGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case StreamsGroupTopology(value=topology):
                self._topology = None if topology is None else _topology(topology)
            case StreamsGroupMetadata(value=own) if own is not None:
                self.epoch, self._validated = own.epoch, own.validated_topology_epoch

    def _group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "streams",
            "",
            self._views(),
            self.assignment_epoch,
            topology=self._topology,
        )

    def _member(self, id_: str, who: Profile, now: Current[Tasks], target: Tasks | None) -> Member:
        topology = self._topology or _UNKNOWN_TOPOLOGY
        tasks = now.held if now.revoking == NO_TASKS else _both(now.held, now.revoking)
        return Member(
            id_,
            who.client_id,
            who.client_host,
            who.instance_id,
            topology.read_by(tasks.active),
            who.rack_id,
            GroupSubscription(topology.topics),
            topology.read_by(now.revoking.active),
            None if target is None else topology.read_by(target.active),
            now.epoch,
            now.state,
            now.epoch >= 0,
            tasks=tasks,
            process_id=who.process_id,
        )

    def save(self) -> dict[str, Any]:
        return super().save() | {"validated": self._validated, "topology": plain(self._topology)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._validated = saved["validated"]
        if saved["topology"] is not None:
            epoch, parts = saved["topology"]
            group._topology = Topology(
                epoch, {sys.intern(id_): GroupSubtopology(*map(strings, each)) for id_, each in parts.items()}
            )
        return group

    @staticmethod
    def _plain(held: Tasks) -> Any:
        return held.active, held.standby, held.warmup

    @classmethod
    def _held(cls, saved: Any) -> Tasks:
        return Tasks(*map(assignment, saved))


def _by_subtopology(parts: Iterable[TaskIds | AssignedTasks]) -> Assignment:
    return union((each.subtopology_id, each.partitions) for each in parts)


def _both(held: Tasks, revoking: Tasks) -> Tasks:
    return Tasks(
        union((*held.active.items(), *revoking.active.items())),
        union((*held.standby.items(), *revoking.standby.items())),
        union((*held.warmup.items(), *revoking.warmup.items())),
    )


def _current(value: StreamsGroupCurrentMemberAssignmentValue) -> Current[Tasks]:
    return Current(
        value.member_epoch,
        MEMBER_STATES.get(value.state, UNKNOWN),
        Tasks(
            _by_subtopology(value.active_tasks),
            _by_subtopology(value.standby_tasks),
            _by_subtopology(value.warmup_tasks),
        ),
        Tasks(
            _by_subtopology(value.active_tasks_pending_revocation),
            _by_subtopology(value.standby_tasks_pending_revocation),
            _by_subtopology(value.warmup_tasks_pending_revocation),
        ),
    )


def _target(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(
        _by_subtopology(value.active_tasks),
        _by_subtopology(value.standby_tasks),
        _by_subtopology(value.warmup_tasks),
    )


def _profile(value: StreamsGroupMemberMetadataValue) -> Profile:
    return Profile(
        sys.intern(value.client_id),
        sys.intern(value.client_host),
        value.instance_id,
        value.rack_id or None,
        process_id=sys.intern(value.process_id),
    )


def _topology(value: StreamsGroupTopologyValue) -> Topology:
    return Topology(
        value.epoch, {sys.intern(each.subtopology_id): _subtopology(each) for each in value.subtopologies}
    )


def _subtopology(record: SubtopologyRecord) -> GroupSubtopology:
    return GroupSubtopology(
        strings(record.source_topics),
        tuple(sys.intern(topic.name) for topic in record.repartition_source_topics),
        record.source_topic_regex,
    )
