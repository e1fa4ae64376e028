"""Share groups, KIP-932 (docs/records-format.md 4.7). Their progress is in `__share_group_state`."""

import sys
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from koff.records import (
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from koff.tracker.groups.consumer_group import MEMBER_STATES
from koff.tracker.groups.modern_group import GroupRecords, ModernGroupState, join_partitions
from koff.tracker.groups.plain_state import to_plain
from koff.tracker.groups.views import STABLE, Assignment, ShareTopic
from koff.tracker.impossible import possible_partitions


class ShareGroupState(ModernGroupState[Assignment]):
    """A share group. Its assignments are by topic id, and several members may have one partition."""

    __slots__ = ("_topics",)

    kind = "share"
    records: ClassVar = GroupRecords(
        group=ShareGroupMetadata,
        profile=ShareGroupMemberMetadata,
        target_epoch=ShareGroupTargetAssignmentMetadata,
        target=ShareGroupTargetAssignmentMember,
        current=ShareGroupCurrentMemberAssignment,
        others=(ShareGroupStatePartitionMetadata,),
        part_key="topic_id",
        target_fields=("topic_partitions",),
        assigned_fields=("assigned_partitions",),
        revoking_fields=(),
        member_states=MEMBER_STATES,
    )
    join = staticmethod(join_partitions)

    def __init__(self) -> None:
        super().__init__()
        self._topics: tuple[ShareTopic, ...] = ()

    @property
    def state(self) -> str:
        # Kafka has no other states of a share group, except Dead, which is never stored.
        return STABLE if self._member_ids() else "Empty"

    def _apply_own(self, record: Any) -> None:
        if isinstance(record, ShareGroupStatePartitionMetadata):
            self._topics = () if record.value is None else tuple(_list_topics(record.value))

    def _own_facts(self) -> dict[str, Any]:
        return {"share_topics": self._topics}

    def save(self) -> dict[str, Any]:
        return super().save() | {"topics": to_plain(self._topics)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._topics = tuple(
            ShareTopic(sys.intern(topic_id), sys.intern(topic), tuple(partitions), stage)
            for topic_id, topic, partitions, stage in saved["topics"]
        )
        return group


def _list_topics(value: ShareGroupStatePartitionMetadataValue) -> Iterator[ShareTopic]:
    for stage, topics in (
        ("initializing", value.initializing_topics),
        ("initialized", value.initialized_topics),
    ):
        for topic in topics:
            partitions = possible_partitions(topic.partitions)
            yield ShareTopic(sys.intern(topic.topic_id), sys.intern(topic.topic_name), partitions, stage)
    for gone in value.deleting_topics:
        yield ShareTopic(sys.intern(gone.topic_id), sys.intern(gone.topic_name), (), "deleting")
