"""Consumer groups, KIP-848 (docs/records-format.md 4.6)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from koff.records import (
    AssignedPartitions,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    Record,
    TopicPartitions,
)
from koff.tracker.groups.modern_group import LEFT, Current, ModernGroupState, Profile, asked_for
from koff.tracker.groups.plain_state import assignment, plain, strings
from koff.tracker.groups.views import NOTHING, STABLE, UNKNOWN, Assignment, Group, Member, union

MEMBER_STATES = {0: STABLE, 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"}


class ConsumerGroupState(ModernGroupState[Assignment]):
    """A group of the consumer protocol; assignments are by topic id."""

    __slots__ = ("_patterns",)

    kind: ClassVar[str] = "consumer"
    records: ClassVar[tuple[type[Any], ...]] = (
        ConsumerGroupMetadata,
        ConsumerGroupPartitionMetadata,
        ConsumerGroupMemberMetadata,
        ConsumerGroupTargetAssignmentMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupCurrentMemberAssignment,
        ConsumerGroupRegularExpression,
    )
    nothing: ClassVar[Assignment] = NOTHING

    def __init__(self) -> None:
        super().__init__()
        self._patterns: dict[str, tuple[str, ...]] = {}

    def _take(self, record: Record) -> None:
        match record:
            case ConsumerGroupCurrentMemberAssignment(member_id=member, value=now):
                self._stand(member, None if now is None else _current(now))
            case ConsumerGroupTargetAssignmentMember(member_id=member, value=target):
                self._aim(member, None if target is None else by_topic(target.topic_partitions))
            case ConsumerGroupMemberMetadata(member_id=member, value=who):
                self._join(member, None if who is None else _profile(who))
            case ConsumerGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case ConsumerGroupRegularExpression(regular_expression=regex, value=None):
                self._patterns.pop(regex, None)
            case ConsumerGroupRegularExpression(regular_expression=regex, value=found) if found:
                self._patterns[regex] = strings(found.topics)
            case ConsumerGroupMetadata(value=own) if own is not None:
                self.epoch = own.epoch

    def _group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "consumer",
            self._assignor(),
            self._views(),
            self.assignment_epoch,
            patterns=dict(self._patterns),
        )

    def _member(self, id_: str, who: Profile, now: Current[Assignment], target: Assignment | None) -> Member:
        return partition_member(id_, who, now, target)

    def _assignor(self) -> str:
        """The one that most members name; "" leaves it to the broker's default. Kafka breaks ties its way."""
        named = Counter(who.assignor for who in self._profiles.values() if who.assignor)
        return min(named, key=lambda name: (-named[name], name), default="")

    def save(self) -> dict[str, Any]:
        return super().save() | {"patterns": plain(self._patterns)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._patterns = {regex: strings(topics) for regex, topics in saved["patterns"].items()}
        return group

    @classmethod
    def _held(cls, saved: Any) -> Assignment:
        return assignment(saved)


def partition_member(id_: str, who: Profile, now: Current[Assignment], target: Assignment | None) -> Member:
    """A member that is assigned partitions of topics by id."""
    assigned = now.held
    if now.revoking:
        assigned = union((*now.held.items(), *now.revoking.items()))
    return Member(
        id_,
        who.client_id,
        who.client_host,
        who.instance_id,
        assigned,
        who.rack_id,
        who.subscription,
        now.revoking,
        target,
        now.epoch,
        now.state,
        now.epoch >= 0,
        who.classic,
    )


def by_topic(parts: Iterable[TopicPartitions | AssignedPartitions]) -> Assignment:
    """Partitions by topic id."""
    return union((each.topic_id, each.partitions) for each in parts)


def _current(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current[Assignment]:
    return Current(
        value.member_epoch,
        _state_of_37(value) if value.layout == "3.7" else MEMBER_STATES.get(value.state, UNKNOWN),
        by_topic(value.assigned_partitions),
        by_topic(value.partitions_pending_revocation),
    )


def _state_of_37(value: ConsumerGroupCurrentMemberAssignmentValue) -> str:
    """Kafka 3.7 did not write the state down: what is pending says it."""
    if value.partitions_pending_revocation:
        return MEMBER_STATES[1]
    return MEMBER_STATES[2] if value.partitions_pending_assignment else STABLE


def _profile(value: ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    return Profile(
        sys.intern(value.client_id),
        sys.intern(value.client_host),
        value.instance_id,
        value.rack_id or None,
        asked_for(value.subscribed_topic_names, value.subscribed_topic_regex),
        sys.intern(value.server_assignor or ""),
        classic is not None and bool(classic.supported_protocols or classic.session_timeout_ms),
    )
