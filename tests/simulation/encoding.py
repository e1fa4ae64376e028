"""The bytes of the records of the model. Most are encoded by `koff.records`, which is not under test here."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from functools import lru_cache
from typing import Any

from koff import records as r
from tests.simulation.facts import (
    Assigned,
    Classic,
    ClassicMember,
    Commit,
    Current,
    Fact,
    Own,
    PartitionMetadata,
    Profile,
    ShareProgress,
    ShareTopics,
    Target,
    TargetEpoch,
    Topology,
)
from tests.simulation.logs import Written


def write(fact: Fact, wall_ms: int) -> Written:
    """The record of that fact."""
    if isinstance(fact, Commit):
        return Written(
            _commit_key(fact.group, fact.topic, fact.partition), _commit_value(fact, wall_ms), fact
        )
    return _write_cached(fact)


@lru_cache(maxsize=1 << 14)
def _commit_key(group: str, topic: str, partition: int) -> bytes:
    return r.encode(r.OffsetCommit(group=group, topic=topic, partition=partition, value=None))[0]


_PLAIN_COMMIT = struct.Struct(">hqihq")
_FLEXIBLE_COMMIT = struct.Struct(">hqibq")
_TOPIC_ID_TAG = bytes((1, 0, 16))
"""One tag, number 0, of 16 bytes."""


def _commit_value(fact: Commit, wall_ms: int) -> bytes | None:
    """Packed here: commits are most of the records, and `encode` takes several times as long."""
    if fact.offset is None:
        return None
    if fact.version == 1:
        return struct.pack(">hqhqq", 1, fact.offset, 0, wall_ms, -1)
    if fact.version == 3:
        return _PLAIN_COMMIT.pack(3, fact.offset, -1, 0, wall_ms)
    # The empty metadata of a flexible version has length 0, which is written as 1.
    head = _FLEXIBLE_COMMIT.pack(4, fact.offset, -1, 1, wall_ms)
    return head + (_TOPIC_ID_TAG + urlsafe_b64decode(fact.topic_id + "==") if fact.topic_id else b"\0")


@lru_cache(maxsize=1 << 14, typed=True)  # facts of two types can be equal as tuples
def _write_cached(fact: Fact) -> Written:
    key, value = r.encode(_ENCODERS[type(fact)](fact))
    return Written(key, value, fact)


_MEMBER: dict[str, Any] = {"client_host": "/10.0.0.1", "rack_id": None}


def _classic(fact: Classic) -> Any:
    if fact.members is None:
        return r.GroupMetadata(group=fact.group, value=None)
    value = r.GroupMetadataValue(
        version=3,
        protocol_type=fact.protocol_type,
        generation=fact.generation,
        protocol="range" if fact.members else None,
        leader=fact.members[0].id if fact.members else None,
        current_state_timestamp=1_000,
        members=tuple(map(_classic_member, fact.members)),
    )
    return r.GroupMetadata(group=fact.group, value=value)


def _classic_member(member: ClassicMember) -> Any:
    return r.ClassicMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=f"{member.id}-client",
        client_host="/10.0.0.1",
        rebalance_timeout=1_000,
        session_timeout=1_000,
        subscription=b"\0\0" + _array(map(_string, member.topics)) + struct.pack(">i", -1),
        assignment=assignment_blob(member.assigned),
    )


def assignment_blob(assigned: Assigned) -> bytes:
    """A classic member's assignment. Empty bytes stand for nothing assigned, as from a follower."""
    if not assigned:
        return b""
    parts = (_string(topic) + _array(struct.pack(">i", n) for n in numbers) for topic, numbers in assigned)
    return b"\0\0" + _array(parts) + struct.pack(">i", -1)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _array(items: Any) -> bytes:
    parts = list(items)
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _own(fact: Own) -> Any:
    key, value = {
        "consumer": (r.ConsumerGroupMetadata, r.ConsumerGroupMetadataValue),
        "share": (r.ShareGroupMetadata, r.ShareGroupMetadataValue),
        "streams": (r.StreamsGroupMetadata, r.StreamsGroupMetadataValue),
    }[fact.kind]
    if fact.epoch is None:
        return key(group_id=fact.group, value=None)
    more = {"metadata_hash": 0, "validated_topology_epoch": 0} if fact.kind == "streams" else {}
    return key(group_id=fact.group, value=value(version=0, epoch=fact.epoch, **more))


def _profile(fact: Profile) -> Any:
    key, value = {
        "consumer": (r.ConsumerGroupMemberMetadata, r.ConsumerGroupMemberMetadataValue),
        "share": (r.ShareGroupMemberMetadata, r.ShareGroupMemberMetadataValue),
        "streams": (r.StreamsGroupMemberMetadata, r.StreamsGroupMemberMetadataValue),
    }[fact.kind]
    if fact.topics is None:
        return key(group_id=fact.group, member_id=fact.member, value=None)
    fields = _MEMBER | {"client_id": f"{fact.member}-client"}
    if fact.kind == "streams":
        fields |= {
            "instance_id": None,
            "rebalance_timeout_ms": 1_000,
            "topology_epoch": 0,
            "process_id": "p",
            "user_endpoint": None,
            "client_tags": (),
        }
    else:
        fields["subscribed_topic_names"] = fact.topics
    if fact.kind == "consumer":
        fields |= {
            "instance_id": fact.instance_id,
            "subscribed_topic_regex": "",
            "rebalance_timeout_ms": 1_000,
            "server_assignor": None,
            "classic_member_metadata": r.ClassicMemberMetadata(session_timeout_ms=1_000)
            if fact.classic
            else None,
        }
    return key(group_id=fact.group, member_id=fact.member, value=value(version=0, **fields))


def _target_epoch(fact: TargetEpoch) -> Any:
    key, value = {
        "consumer": (r.ConsumerGroupTargetAssignmentMetadata, r.ConsumerGroupTargetAssignmentMetadataValue),
        "share": (r.ShareGroupTargetAssignmentMetadata, r.ShareGroupTargetAssignmentMetadataValue),
        "streams": (r.StreamsGroupTargetAssignmentMetadata, r.StreamsGroupTargetAssignmentMetadataValue),
    }[fact.kind]
    epoch = fact.epoch
    return key(group_id=fact.group, value=None if epoch is None else value(version=0, assignment_epoch=epoch))


def _target(fact: Target) -> Any:
    key, value = {
        "consumer": (r.ConsumerGroupTargetAssignmentMember, r.ConsumerGroupTargetAssignmentMemberValue),
        "share": (r.ShareGroupTargetAssignmentMember, r.ShareGroupTargetAssignmentMemberValue),
        "streams": (r.StreamsGroupTargetAssignmentMember, r.StreamsGroupTargetAssignmentMemberValue),
    }[fact.kind]
    if fact.assigned is None:
        return key(group_id=fact.group, member_id=fact.member, value=None)
    if fact.kind == "streams":
        tasks = tuple(r.TaskIds(subtopology_id=id_, partitions=parts) for id_, parts in fact.assigned)
        made = value(version=0, active_tasks=tasks, standby_tasks=(), warmup_tasks=())
    else:
        parts_ = tuple(r.TopicPartitions(topic_id=id_, partitions=parts) for id_, parts in fact.assigned)
        made = value(version=0, topic_partitions=parts_)
    return key(group_id=fact.group, member_id=fact.member, value=made)


def _current(fact: Current) -> Any:
    key, value = {
        "consumer": (r.ConsumerGroupCurrentMemberAssignment, r.ConsumerGroupCurrentMemberAssignmentValue),
        "share": (r.ShareGroupCurrentMemberAssignment, r.ShareGroupCurrentMemberAssignmentValue),
        "streams": (r.StreamsGroupCurrentMemberAssignment, r.StreamsGroupCurrentMemberAssignmentValue),
    }[fact.kind]
    if fact.epoch is None:
        return key(group_id=fact.group, member_id=fact.member, value=None)
    fields: dict[str, Any] = {"member_epoch": fact.epoch, "previous_member_epoch": max(fact.epoch - 1, 0)}
    if fact.kind == "streams":
        tasks, revoking = (
            tuple(r.AssignedTasks(subtopology_id=id_, partitions=parts) for id_, parts in held)
            for held in (fact.assigned, fact.revoking)
        )
        # The member states of Streams groups begin at 1.
        fields |= {
            "state": fact.state + 1,
            "active_tasks": tasks,
            "active_tasks_pending_revocation": revoking,
        }
        fields |= dict.fromkeys(
            (
                "standby_tasks",
                "warmup_tasks",
                "standby_tasks_pending_revocation",
                "warmup_tasks_pending_revocation",
            ),
            (),
        )
        return key(group_id=fact.group, member_id=fact.member, value=value(version=0, **fields))
    # The records of share groups have another class for the same fields.
    part = r.TopicPartitions if fact.kind == "share" else r.AssignedPartitions
    held, given_up = (
        tuple(part(topic_id=id_, partitions=parts) for id_, parts in each)
        for each in (fact.assigned, fact.revoking)
    )
    fields |= {"state": fact.state, "assigned_partitions": held}
    if fact.kind == "consumer":
        fields["partitions_pending_revocation"] = given_up
    return key(group_id=fact.group, member_id=fact.member, value=value(version=0, **fields))


def _topology(fact: Topology) -> Any:
    if fact.epoch is None:
        return r.StreamsGroupTopology(group_id=fact.group, value=None)
    part = r.Subtopology(
        subtopology_id="0",
        source_topics=fact.topics,
        source_topic_regex=(),
        state_changelog_topics=(),
        repartition_sink_topics=(),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    value = r.StreamsGroupTopologyValue(version=0, epoch=fact.epoch, subtopologies=(part,))
    return r.StreamsGroupTopology(group_id=fact.group, value=value)


def _share_topics(fact: ShareTopics) -> Any:
    if fact.topics is None:
        return r.ShareGroupStatePartitionMetadata(group_id=fact.group, value=None)
    topics = tuple(
        r.NamedTopicPartitions(topic_id=id_, topic_name=name, partitions=parts)
        for id_, name, parts in fact.topics
    )
    value = r.ShareGroupStatePartitionMetadataValue(
        version=0, initializing_topics=(), initialized_topics=topics, deleting_topics=()
    )
    return r.ShareGroupStatePartitionMetadata(group_id=fact.group, value=value)


def _partition_metadata(fact: PartitionMetadata) -> Any:
    return r.ConsumerGroupPartitionMetadata(group_id=fact.group, value=None)


def _share_progress(fact: ShareProgress) -> Any:
    key: dict[str, Any] = {"group_id": fact.group, "topic_id": fact.topic_id, "partition": fact.partition}
    if fact.start is None:
        return r.ShareSnapshot(**key, value=None)
    # Delivered records above the start offset are in batches: as many as are completed.
    batches: tuple[r.StateBatch, ...] = ()
    if fact.completed > 0 and fact.start >= 0:
        first = fact.start + 1
        batches = (
            r.StateBatch(
                first_offset=first,
                last_offset=fact.start + fact.completed,
                delivery_state=2,
                delivery_count=1,
            ),
        )
    fields: dict[str, Any] = {
        "version": 0,
        "snapshot_epoch": 0,
        "leader_epoch": 0,
        "start_offset": fact.start,
        "delivery_complete_count": fact.completed,
        "state_batches": batches,
    }
    if fact.snapshot:
        fields |= {"state_epoch": 0, "create_timestamp": 1_000, "write_timestamp": 1_000}
        return r.ShareSnapshot(**key, value=r.ShareSnapshotValue(**fields))
    return r.ShareUpdate(**key, value=r.ShareUpdateValue(**fields))


_ENCODERS: dict[type, Any] = {
    Classic: _classic,
    Own: _own,
    Profile: _profile,
    TargetEpoch: _target_epoch,
    Target: _target,
    Current: _current,
    Topology: _topology,
    ShareTopics: _share_topics,
    PartitionMetadata: _partition_metadata,
    ShareProgress: _share_progress,
}
