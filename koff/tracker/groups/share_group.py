"""Share groups, KIP-932 (docs/records-format.md 4.7). What they have read is in `__share_group_state`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from koff.records import (
    NamedTopicPartitions,
    Record,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from koff.tracker.groups.consumer_group import MEMBER_STATES, by_topic, partition_member
from koff.tracker.groups.modern_group import LEFT, Current, ModernGroupState, Profile, asked_for
from koff.tracker.groups.plain_state import assignment, plain
from koff.tracker.groups.views import NOTHING, STABLE, UNKNOWN, Assignment, Group, Member, ShareTopic


class ShareGroupState(ModernGroupState[Assignment]):
    """A share group; assignments are by topic id, and members may share a partition."""

    __slots__ = ("_topics",)

    kind: ClassVar[str] = "share"
    records: ClassVar[tuple[type[Any], ...]] = (
        ShareGroupMetadata,
        ShareGroupMemberMetadata,
        ShareGroupTargetAssignmentMetadata,
        ShareGroupTargetAssignmentMember,
        ShareGroupCurrentMemberAssignment,
        ShareGroupStatePartitionMetadata,
    )
    nothing: ClassVar[Assignment] = NOTHING

    def __init__(self) -> None:
        super().__init__()
        self._topics: tuple[ShareTopic, ...] = ()

    @property
    def state(self) -> str:
        return STABLE if self._members() else "Empty"

    def _take(self, record: Record) -> None:
        match record:
            case ShareGroupCurrentMemberAssignment(member_id=member, value=None):
                self._stand(member, None)
            case ShareGroupCurrentMemberAssignment(member_id=member, value=now) if now:
                held, state = by_topic(now.assigned_partitions), MEMBER_STATES.get(now.state, UNKNOWN)
                self._stand(member, Current(now.member_epoch, state, held, NOTHING))
            case ShareGroupTargetAssignmentMember(member_id=member, value=target):
                self._aim(member, None if target is None else by_topic(target.topic_partitions))
            case ShareGroupMemberMetadata(member_id=member, value=None):
                self._join(member, None)
            case ShareGroupMemberMetadata(member_id=member, value=who) if who:
                client, host = sys.intern(who.client_id), sys.intern(who.client_host)
                asked = asked_for(who.subscribed_topic_names)
                self._join(member, Profile(client, host, None, who.rack_id or None, asked))
            case ShareGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case ShareGroupStatePartitionMetadata(value=topics):
                self._topics = () if topics is None else _share_topics(topics)
            case ShareGroupMetadata(value=own) if own is not None:
                self.epoch = own.epoch

    def _group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "share",
            "",
            self._views(),
            self.assignment_epoch,
            share_topics=self._topics,
        )

    def _member(self, id_: str, who: Profile, now: Current[Assignment], target: Assignment | None) -> Member:
        return partition_member(id_, who, now, target)

    def save(self) -> dict[str, Any]:
        return super().save() | {"topics": plain(self._topics)}

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = super().load(saved)
        group._topics = tuple(
            ShareTopic(sys.intern(topic_id), sys.intern(topic), tuple(partitions), stage)
            for topic_id, topic, partitions, stage in saved["topics"]
        )
        return group

    @classmethod
    def _held(cls, saved: Any) -> Assignment:
        return assignment(saved)


def _share_topics(value: ShareGroupStatePartitionMetadataValue) -> tuple[ShareTopic, ...]:
    deleting = (
        ShareTopic(sys.intern(each.topic_id), sys.intern(each.topic_name), (), "deleting")
        for each in value.deleting_topics
    )
    return (
        *_in_stage(value.initializing_topics, "initializing"),
        *_in_stage(value.initialized_topics, "initialized"),
        *deleting,
    )


def _in_stage(topics: Iterable[NamedTopicPartitions], stage: str) -> Iterable[ShareTopic]:
    for each in topics:
        yield ShareTopic(sys.intern(each.topic_id), sys.intern(each.topic_name), each.partitions, stage)
