"""Consumer groups of the new protocol, KIP-848 (docs/records-format.md 4.6)."""

from collections import Counter
from typing import Any, ClassVar, Self

from koff.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)
from koff.tracker.groups.modern_group import GroupRecords, ModernGroupState, join_partitions
from koff.tracker.groups.plain_state import intern_strings, to_plain
from koff.tracker.groups.views import STABLE, Assignment

MEMBER_STATES = {0: STABLE, 1: "UnrevokedPartitions", 2: "UnreleasedPartitions"}


class ConsumerGroupState(ModernGroupState[Assignment]):
    """A group of the consumer protocol. Its assignments are by topic id."""

    __slots__ = ("_patterns",)

    kind = "consumer"
    records: ClassVar = GroupRecords(
        group=ConsumerGroupMetadata,
        profile=ConsumerGroupMemberMetadata,
        target_epoch=ConsumerGroupTargetAssignmentMetadata,
        target=ConsumerGroupTargetAssignmentMember,
        current=ConsumerGroupCurrentMemberAssignment,
        others=(ConsumerGroupPartitionMetadata, ConsumerGroupRegularExpression),
        part_key="topic_id",
        target_fields=("topic_partitions",),
        assigned_fields=("assigned_partitions",),
        revoking_fields=("partitions_pending_revocation",),
        member_states=MEMBER_STATES,
    )
    join = staticmethod(join_partitions)

    def __init__(self) -> None:
        super().__init__()
        self._patterns: dict[str, tuple[str, ...]] = {}

    def _apply_own(self, record: Any) -> None:
        if isinstance(record, ConsumerGroupRegularExpression):
            if record.value is None:
                self._patterns.pop(record.regular_expression, None)
            else:
                self._patterns[record.regular_expression] = intern_strings(record.value.topics)

    def _own_facts(self) -> dict[str, Any]:
        return {"protocol": self._find_assignor(), "patterns": dict(self._patterns)}

    def _find_assignor(self) -> str:
        """The assignor that most members name; "" stands for the broker's default.

        Of assignors with the same number of members, it is the first by name; Kafka may choose another one.
        """
        counts = Counter(profile.assignor for profile in self._profiles.values() if profile.assignor)
        return min(counts, key=lambda name: (-counts[name], name), default="")

    def _find_state(self, value: Any) -> str:
        if value.layout != "3.7":
            return super()._find_state(value)
        # A record of Kafka 3.7 has no state, but two pending lists.
        if value.partitions_pending_revocation:
            return MEMBER_STATES[1]
        return MEMBER_STATES[2] if value.partitions_pending_assignment else STABLE

    def save(self) -> dict[str, Any]:
        return super().save() | {"patterns": to_plain(self._patterns)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._patterns = {regex: intern_strings(topics) for regex, topics in saved["patterns"].items()}
        return group
