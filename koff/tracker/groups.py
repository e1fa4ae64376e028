"""What the records say of a group beside its offsets: kind, state, members (RECORDS.md 4.5, 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koff.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    GroupMetadata,
    Message,
    Record,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A member: who it is, and what it reads now, by topic (a topic id where the record names only that)."""

    id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A group as Kafka would describe it: `type` simple, classic or consumer; `state` in Kafka's words.

    `epoch` is the generation of a classic group, the group epoch of a consumer group, -1 for a simple one.
    """

    name: str
    type: str = "simple"
    state: str = "Empty"
    epoch: int = -1
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()

    @property
    def assigned_by_id(self) -> bool:
        """Whether members' assignments name topics by their ids."""
        return self.type == "consumer"


class ConsumerState:
    """A group of the new consumer protocol (KIP-848), built up record by record."""

    def __init__(self) -> None:
        self.epoch = 0
        self.assignment_epoch = -1
        self._clients: dict[str, Member] = {}
        self._current: dict[str, tuple[int, int, dict[str, tuple[int, ...]]]] = {}

    def apply(self, record: Record) -> None:
        """Takes one of the records of types 3 and 5 to 8; ignores others."""
        match record:
            case ConsumerGroupMetadata(value=value) if value is not None:
                self.epoch = value.epoch
            case ConsumerGroupMemberMetadata(member_id=member, value=None):
                self._clients.pop(member, None)
                self._current.pop(member, None)
            case ConsumerGroupMemberMetadata(member_id=member, value=value) if value is not None:
                self._clients[member] = Member(member, value.client_id, value.client_host, value.instance_id)
            case ConsumerGroupTargetAssignmentMetadata(value=value):
                self.assignment_epoch = -1 if value is None else value.assignment_epoch
            case ConsumerGroupCurrentMemberAssignment(member_id=member, value=None):
                self._current[member] = (-1, 0, {})
            case ConsumerGroupCurrentMemberAssignment(member_id=member, value=value) if value is not None:
                assigned: dict[str, tuple[int, ...]] = {}
                for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
                    assigned[topic.topic_id] = (*assigned.get(topic.topic_id, ()), *topic.partitions)
                self._current[member] = (value.member_epoch, value.state, assigned)

    def view(self, name: str) -> Group:
        """The group as it is now."""
        members = tuple(
            Member(m.id, m.client_id, m.client_host, m.instance_id, self._assigned(m.id))
            for m in self._clients.values()
        )
        return Group(name, "consumer", self._state(), self.epoch, "consumer", "", members)

    def _assigned(self, member: str) -> Mapping[str, tuple[int, ...]]:
        return self._current[member][2] if member in self._current else {}

    def _state(self) -> str:
        if not self._clients:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        for member in self._clients:
            epoch, state, _ = self._current.get(member, (-1, 0, {}))
            if state != 0 or epoch != self.assignment_epoch:
                return "Reconciling"
        return "Stable"


def classic(message: Message) -> Group:
    """The group that a GroupMetadata value describes; it replaces whatever the group was."""
    record, group = message.record, message.group_message
    assert isinstance(record, GroupMetadata)
    assert record.value is not None
    assert group is not None
    instances = {m.member_id: m.group_instance_id for m in record.value.members}
    members = []
    for m in group.members:
        assigned: dict[str, tuple[int, ...]] = {}
        for at in m.assignment:
            assigned[at.topic] = (*assigned.get(at.topic, ()), at.partition)
        members.append(Member(m.id, m.client_id, m.client_host, instances.get(m.id), assigned))
    return Group(
        message.consumer,
        "classic" if group.protocol_type or members else "simple",
        "Stable" if members else "Empty",
        group.generation_id,
        group.protocol_type,
        group.protocol or "",
        tuple(members),
    )


GROUP_RECORDS = (
    ConsumerGroupMetadata,
    ConsumerGroupMemberMetadata,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupCurrentMemberAssignment,
)
"""The records that a `ConsumerState` is built from."""
