"""Consumer groups of the new protocol, KIP-848 (docs/records-format.md 4.6)."""

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
from koff.tracker.groups.modern_group import LEFT, Current, ModernGroupState, Profile, make_subscription
from koff.tracker.groups.plain_state import intern_strings, load_assignment, to_plain
from koff.tracker.groups.views import NOTHING, STABLE, UNKNOWN, Assignment, Group, Member, merge_assignments

MEMBER_STATES = {0: STABLE, 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"}


class ConsumerGroupState(ModernGroupState[Assignment]):
    """A group of the consumer protocol. Its assignments are by topic id."""

    __slots__ = ("_patterns",)

    kind: ClassVar[str] = "consumer"
    record_types: ClassVar[tuple[type[Any], ...]] = (
        ConsumerGroupMetadata,
        ConsumerGroupPartitionMetadata,
        ConsumerGroupMemberMetadata,
        ConsumerGroupTargetAssignmentMetadata,
        ConsumerGroupTargetAssignmentMember,
        ConsumerGroupCurrentMemberAssignment,
        ConsumerGroupRegularExpression,
    )
    no_assignment: ClassVar[Assignment] = NOTHING

    def __init__(self) -> None:
        super().__init__()
        self._patterns: dict[str, tuple[str, ...]] = {}

    def _apply_record(self, record: Record) -> None:
        # A value of None is a tombstone.
        match record:
            case ConsumerGroupCurrentMemberAssignment(member_id=member, value=current):
                self._set_current(member, None if current is None else _current_from_record(current))
            case ConsumerGroupTargetAssignmentMember(member_id=member, value=target):
                self._set_target(
                    member, None if target is None else partitions_by_topic(target.topic_partitions)
                )
            case ConsumerGroupMemberMetadata(member_id=member, value=profile):
                self._set_profile(member, None if profile is None else _profile_from_record(profile))
            case ConsumerGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case ConsumerGroupRegularExpression(regular_expression=regex, value=None):
                self._patterns.pop(regex, None)
            case ConsumerGroupRegularExpression(regular_expression=regex, value=resolved) if resolved:
                self._patterns[regex] = intern_strings(resolved.topics)
            case ConsumerGroupMetadata(value=own) if own is not None:  # `GroupTable` handles its tombstone
                self.epoch = own.epoch

    def _build_group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "consumer",
            self._assignor(),
            self._build_members(),
            self.assignment_epoch,
            patterns=dict(self._patterns),
        )

    def _build_member(
        self, id_: str, profile: Profile, current: Current[Assignment], target: Assignment | None
    ) -> Member:
        return build_partition_member(id_, profile, current, target)

    def _assignor(self) -> str:
        """The assignor that most members name; "" stands for the broker's default.

        Of assignors with the same number of members, it is the first by name; Kafka may choose another one.
        """
        counts = Counter(profile.assignor for profile in self._profiles.values() if profile.assignor)
        return min(counts, key=lambda name: (-counts[name], name), default="")

    def save(self) -> dict[str, Any]:
        return super().save() | {"patterns": to_plain(self._patterns)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._patterns = {regex: intern_strings(topics) for regex, topics in saved["patterns"].items()}
        return group

    @classmethod
    def _load_assignment(cls, saved: Any) -> Assignment:
        return load_assignment(saved)


def build_partition_member(
    id_: str, profile: Profile, current: Current[Assignment], target: Assignment | None
) -> Member:
    """A member of a consumer or share group, which is assigned partitions by topic id."""
    # The member may still be reading the partitions that it must give up.
    assigned = current.assigned
    if current.revoking:
        assigned = merge_assignments((*current.assigned.items(), *current.revoking.items()))
    return Member(
        id_,
        profile.client_id,
        profile.client_host,
        profile.instance_id,
        assigned,
        profile.rack_id,
        profile.subscription,
        current.revoking,
        target,
        current.epoch,
        current.state,
        current.epoch >= 0,
        profile.classic,
    )


def partitions_by_topic(parts: Iterable[TopicPartitions | AssignedPartitions]) -> Assignment:
    """Partitions by topic id."""
    return merge_assignments((part.topic_id, part.partitions) for part in parts)


def _current_from_record(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current[Assignment]:
    return Current(
        value.member_epoch,
        _member_state_3_7(value) if value.layout == "3.7" else MEMBER_STATES.get(value.state, UNKNOWN),
        partitions_by_topic(value.assigned_partitions),
        partitions_by_topic(value.partitions_pending_revocation),
    )


def _member_state_3_7(value: ConsumerGroupCurrentMemberAssignmentValue) -> str:
    """The member state in a record of Kafka 3.7, which has no state field but two pending lists."""
    if value.partitions_pending_revocation:
        return MEMBER_STATES[1]
    return MEMBER_STATES[2] if value.partitions_pending_assignment else STABLE


def _profile_from_record(value: ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    return Profile(
        sys.intern(value.client_id),
        sys.intern(value.client_host),
        value.instance_id,
        value.rack_id or None,
        make_subscription(value.subscribed_topic_names, value.subscribed_topic_regex),
        sys.intern(value.server_assignor or ""),
        # An absent tag reads as an empty struct, which means "not given".
        classic is not None and bool(classic.supported_protocols or classic.session_timeout_ms),
    )
