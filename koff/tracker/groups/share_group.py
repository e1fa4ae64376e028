"""Share groups, KIP-932 (docs/records-format.md 4.7). Their progress is in `__share_group_state`."""

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
from koff.tracker.groups.consumer_group import MEMBER_STATES, build_partition_member, partitions_by_topic
from koff.tracker.groups.modern_group import LEFT, Current, ModernGroupState, Profile, make_subscription
from koff.tracker.groups.plain_state import load_assignment, to_plain
from koff.tracker.groups.views import NOTHING, STABLE, UNKNOWN, Assignment, Group, Member, ShareTopic
from koff.tracker.impossible import possible_partitions


class ShareGroupState(ModernGroupState[Assignment]):
    """A share group. Its assignments are by topic id, and several members may have one partition."""

    __slots__ = ("_topics",)

    kind: ClassVar[str] = "share"
    record_types: ClassVar[tuple[type[Any], ...]] = (
        ShareGroupMetadata,
        ShareGroupMemberMetadata,
        ShareGroupTargetAssignmentMetadata,
        ShareGroupTargetAssignmentMember,
        ShareGroupCurrentMemberAssignment,
        ShareGroupStatePartitionMetadata,
    )
    no_assignment: ClassVar[Assignment] = NOTHING

    def __init__(self) -> None:
        super().__init__()
        self._topics: tuple[ShareTopic, ...] = ()

    @property
    def state(self) -> str:
        # Kafka has no other states of a share group, except Dead, which is never stored.
        return STABLE if self._member_ids() else "Empty"

    def _apply_record(self, record: Record) -> None:
        # A value of None is a tombstone.
        match record:
            case ShareGroupCurrentMemberAssignment(member_id=member, value=None):
                self._set_current(member, None)
            case ShareGroupCurrentMemberAssignment(member_id=member, value=current) if current:
                assigned, state = (
                    partitions_by_topic(current.assigned_partitions),
                    MEMBER_STATES.get(current.state, UNKNOWN),
                )
                self._set_current(member, Current(current.member_epoch, state, assigned, NOTHING))
            case ShareGroupTargetAssignmentMember(member_id=member, value=target):
                self._set_target(
                    member, None if target is None else partitions_by_topic(target.topic_partitions)
                )
            case ShareGroupMemberMetadata(member_id=member, value=None):
                self._set_profile(member, None)
            case ShareGroupMemberMetadata(member_id=member, value=profile) if profile:
                client, host = sys.intern(profile.client_id), sys.intern(profile.client_host)
                subscription = make_subscription(profile.subscribed_topic_names)
                self._set_profile(member, Profile(client, host, None, profile.rack_id or None, subscription))
            case ShareGroupTargetAssignmentMetadata(value=assigned):
                self.assignment_epoch = LEFT if assigned is None else assigned.assignment_epoch
            case ShareGroupStatePartitionMetadata(value=topics):
                self._topics = () if topics is None else _share_topics(topics)
            case ShareGroupMetadata(value=own) if own is not None:  # `GroupTable` handles its tombstone
                self.epoch = own.epoch

    def _build_group(self, name: str) -> Group:
        return Group(
            name,
            self.kind,
            self.state,
            self.epoch,
            "share",
            "",
            self._build_members(),
            self.assignment_epoch,
            share_topics=self._topics,
        )

    def _build_member(
        self, id_: str, profile: Profile, current: Current[Assignment], target: Assignment | None
    ) -> Member:
        return build_partition_member(id_, profile, current, target)

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

    @classmethod
    def _load_assignment(cls, saved: Any) -> Assignment:
        return load_assignment(saved)


def _share_topics(value: ShareGroupStatePartitionMetadataValue) -> tuple[ShareTopic, ...]:
    deleting = (
        ShareTopic(sys.intern(topic.topic_id), sys.intern(topic.topic_name), (), "deleting")
        for topic in value.deleting_topics
    )
    return (
        *_share_topics_in_stage(value.initializing_topics, "initializing"),
        *_share_topics_in_stage(value.initialized_topics, "initialized"),
        *deleting,
    )


def _share_topics_in_stage(topics: Iterable[NamedTopicPartitions], stage: str) -> Iterable[ShareTopic]:
    for topic in topics:
        partitions = possible_partitions(topic.partitions)
        yield ShareTopic(sys.intern(topic.topic_id), sys.intern(topic.topic_name), partitions, stage)
