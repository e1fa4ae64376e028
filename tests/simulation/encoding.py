"""The bytes of the records of the model. Most are encoded by `koff.records`, which is not under test here."""

import struct
from base64 import urlsafe_b64decode
from functools import lru_cache
from typing import Any

from koff import records as r
from tests.group_records import (
    Consumer,
    Share,
    Streams,
    assign,
    classic_group_record,
    classic_member,
    gone,
    topology_record,
)
from tests.simulation.facts import (
    Classic,
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


_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Consumer, Share, Streams)}


def _classic(fact: Classic) -> Any:
    members = [
        classic_member(
            member.id,
            f"{member.id}-client",
            assign(*member.assigned) if member.assigned else b"",  # as from a follower
            topics=member.topics,
            instance=member.instance_id,
        )
        for member in fact.members or ()
    ]
    leader = members[0].member_id if members else None
    record = classic_group_record(
        fact.group, fact.generation, members, protocol_type=fact.protocol_type, leader=leader
    )
    return gone(record) if fact.members is None else record


def _own(fact: Own) -> Any:
    record = _KINDS[fact.kind].own(fact.group, fact.epoch or 0)
    return gone(record) if fact.epoch is None else record


def _profile(fact: Profile) -> Any:
    fields: dict[str, Any] = {} if fact.kind == "streams" else {"subscribed_topic_names": fact.topics or ()}
    if fact.kind == "consumer":
        fields |= {"instance_id": fact.instance_id, "classic": fact.classic}
    record = _KINDS[fact.kind].member(fact.group, fact.member, **fields)
    return gone(record) if fact.topics is None else record


def _target_epoch(fact: TargetEpoch) -> Any:
    record = _KINDS[fact.kind].assigned(fact.group, fact.epoch or 0)
    return gone(record) if fact.epoch is None else record


def _target(fact: Target) -> Any:
    record = _KINDS[fact.kind].target(fact.group, fact.member, dict(fact.assigned or ()))
    return gone(record) if fact.assigned is None else record


def _current(fact: Current) -> Any:
    kind = _KINDS[fact.kind]
    held, revoking = dict(fact.assigned), dict(fact.revoking)
    state = kind.stable + fact.state
    record = kind.current(fact.group, fact.member, fact.epoch or 0, held, revoking, state=state)
    return gone(record) if fact.epoch is None else record


def _topology(fact: Topology) -> Any:
    record = topology_record(fact.group, fact.epoch or 0, ("0", fact.topics, ()))
    return gone(record) if fact.epoch is None else record


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
