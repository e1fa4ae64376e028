"""Records as tests want them: a group commits, a group rebalances, bytes included."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from koff.lag import NO_TIMESTAMP, Status
from koff.records import (
    AssignedPartitions,
    AssignedTasks,
    ClassicMember,
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpression,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTargetAssignmentMetadataValue,
    DecodedMessage,
    DecodedRecord,
    GroupMetadata,
    GroupMetadataValue,
    OffsetCommit,
    OffsetCommitValue,
    ShareGroupCurrentMemberAssignment,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadata,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadata,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadata,
    ShareGroupTargetAssignmentMetadataValue,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadata,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadata,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopology,
    StreamsGroupTopologyValue,
    Subtopology,
    TaskIds,
    TopicPartitions,
    decode,
    decode_share_state,
    encode,
)
from koff.records.streams_records import InternalTopic
from koff.tracker import LaggingRow, Snapshot, Tracker

Pair = tuple[bytes, bytes | None]


def commit(
    group: str,
    topic: str,
    partition: int,
    offset: int | None,
    *,
    at: int = 1000,
    version: int = 4,
    type: int = 1,
) -> Pair:
    """The commit of `offset` at `at` ms; None deletes."""
    value = None
    if offset is not None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=at, version=version)
    return encode(OffsetCommit(group=group, topic=topic, partition=partition, value=value, type=type))


def apply(
    tracker: Tracker, *pairs: tuple[bytes | None, bytes | None], partition: int = 0, **more: Any
) -> None:
    """The tracker applies these records of a partition of the offsets topic."""
    tracker.apply(partition, [key for key, _ in pairs], [value for _, value in pairs], **more)


def assign(topic: str, *partitions: int) -> bytes:
    """An assignment blob."""
    numbers = b"".join(partition.to_bytes(4) for partition in partitions)
    name = len(topic).to_bytes(2) + topic.encode()
    return b"\0\0" + (1).to_bytes(4) + name + len(partitions).to_bytes(4) + numbers + b"\xff" * 4


def list_unread(tracker: Tracker, now_ms: int, without: Collection[str] = ()) -> list[LaggingRow]:
    """All rows whose first record is worth reading."""
    return tracker.find_unread_rows(lambda keys: np.arange(len(keys)), now_ms, without=without)


def note_records(tracker: Tracker, now_ms: int, written_ms: int) -> None:
    """All of them are read: the first record is at the committed offset, and was written then."""
    tracker.note_first_records(
        [(row, (row.committed, written_ms, NO_TIMESTAMP)) for row in list_unread(tracker, now_ms)]
    )


def list_statuses(snapshot: Snapshot) -> dict[tuple[str, str, int], Status]:
    """Burrow's status of each row."""
    places = snapshot.partitions
    return {
        (shard.groups[group].name, places.topic[partition], places.partition[partition]): Status(status)
        for shard in snapshot.shards.values()
        for group, partition, status in zip(
            shard.group.tolist(), shard.partition.tolist(), snapshot.statuses(shard).tolist(), strict=True
        )
    }


def classic_group(
    group: str,
    members: dict[str, bytes] | None,
    *,
    protocol_type: str = "consumer",
    generation: int = 7,
    since_ms: int = 1000,
) -> Pair:
    """A classic group with these members (client id to assignment blob); None deletes it.

    It has its state since `since_ms`.
    """
    value = None
    if members is not None:
        value = GroupMetadataValue(
            version=3,
            protocol_type=protocol_type,
            generation=generation,
            protocol="range" if members else None,
            leader=None,
            current_state_timestamp=since_ms,
            members=tuple(
                ClassicMember(
                    member_id=f"{client}-id",
                    client_id=client,
                    client_host="/10.0.0.1",
                    session_timeout=1000,
                    subscription=bytes.fromhex("0000 00000001 0001 74 ffffffff"),
                    assignment=blob,
                )
                for client, blob in members.items()
            ),
        )
    return encode(GroupMetadata(group=group, value=value))


ASSIGNED_T_0_1 = assign("t", 0, 1)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def consumer_group(
    group: str, *, epoch: int, assignment_epoch: int, members: dict[str, tuple[int, int]]
) -> list[Pair]:
    """A KIP-848 group whose members have (epoch, state), all reading partition 3 of topic `TOPIC_ID`."""
    records: list[DecodedRecord] = [
        ConsumerGroupMetadata(group_id=group, value=ConsumerGroupMetadataValue(version=0, epoch=epoch)),
        ConsumerGroupTargetAssignmentMetadata(
            group_id=group,
            value=ConsumerGroupTargetAssignmentMetadataValue(version=0, assignment_epoch=assignment_epoch),
        ),
    ]
    for member, (member_epoch, state) in members.items():
        records.append(
            ConsumerGroupMemberMetadata(
                group_id=group,
                member_id=member,
                value=ConsumerGroupMemberMetadataValue(
                    version=0,
                    instance_id=None,
                    rack_id=None,
                    client_id=f"{member}-client",
                    client_host="/10.0.0.2",
                    subscribed_topic_names=("t",),
                    subscribed_topic_regex=None,
                    rebalance_timeout_ms=1000,
                    server_assignor=None,
                ),
            )
        )
        records.append(
            ConsumerGroupCurrentMemberAssignment(
                group_id=group,
                member_id=member,
                value=ConsumerGroupCurrentMemberAssignmentValue(
                    version=0,
                    member_epoch=member_epoch,
                    previous_member_epoch=0,
                    state=state,
                    assigned_partitions=(AssignedPartitions(topic_id=TOPIC_ID, partitions=(3,)),),
                    partitions_pending_revocation=(),
                ),
            )
        )
    return [encode(record) for record in records]


Held = Mapping[str, tuple[int, ...]]
"""Partitions by topic id or subtopology."""
GOLDEN = Path(__file__).parents[1] / "golden" / "golden.jsonl"


def said(record: Any) -> DecodedMessage:
    """The record as it comes off the wire."""
    return decode(*encode(record))


def gone(record: Any) -> Any:
    """The tombstone of what the record says."""
    return dataclasses.replace(record, value=None)


def golden_messages(topic: str = "__consumer_offsets") -> list[DecodedMessage]:
    """What a broker wrote, in log order, one partition after the other."""
    read = decode if topic == "__consumer_offsets" else decode_share_state
    with GOLDEN.open(encoding="utf-8") as lines:
        cases = [case for case in map(json.loads, lines) if case["topic"] == topic]
    return [
        read(bytes.fromhex(case["key_hex"]), case["value_hex"] and bytes.fromhex(case["value_hex"]))
        for case in cases
    ]


class Consumer:
    """The records of a consumer group."""

    kind = "consumer"
    stable = 0
    places = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")

    @staticmethod
    def own(group: str, epoch: int) -> Any:
        value = ConsumerGroupMetadataValue(version=0, epoch=epoch)
        return ConsumerGroupMetadata(group_id=group, value=value)

    @staticmethod
    def member(group: str, member: str, **fields: Any) -> Any:
        """A member; `classic=True` when it speaks the classic protocol."""
        blobs = ClassicMemberMetadata(session_timeout_ms=1000) if fields.pop("classic", False) else None
        about = {
            "instance_id": None,
            "rack_id": None,
            "client_id": f"{member}-client",
            "client_host": "/10.0.0.2",
            "subscribed_topic_names": ("t",),
            "subscribed_topic_regex": "",
            "rebalance_timeout_ms": 1000,
            "server_assignor": None,
            "classic_member_metadata": blobs,
        } | fields
        value = ConsumerGroupMemberMetadataValue(version=0, **about)
        return ConsumerGroupMemberMetadata(group_id=group, member_id=member, value=value)

    @staticmethod
    def assigned(group: str, epoch: int) -> Any:
        value = ConsumerGroupTargetAssignmentMetadataValue(version=0, assignment_epoch=epoch)
        return ConsumerGroupTargetAssignmentMetadata(group_id=group, value=value)

    @staticmethod
    def target(group: str, member: str, held: Held) -> Any:
        parts = tuple(TopicPartitions(topic_id=id_, partitions=each) for id_, each in held.items())
        value = ConsumerGroupTargetAssignmentMemberValue(version=0, topic_partitions=parts)
        return ConsumerGroupTargetAssignmentMember(group_id=group, member_id=member, value=value)

    @staticmethod
    def current(
        group: str, member: str, epoch: int, held: Held, revoking: Held | None = None, *, state: int = 0
    ) -> Any:
        kept, given_up = (
            tuple(AssignedPartitions(topic_id=id_, partitions=each) for id_, each in parts.items())
            for parts in (held, revoking or {})
        )
        value = ConsumerGroupCurrentMemberAssignmentValue(
            version=0,
            member_epoch=epoch,
            previous_member_epoch=0,
            state=state,
            assigned_partitions=kept,
            partitions_pending_revocation=given_up,
        )
        return ConsumerGroupCurrentMemberAssignment(group_id=group, member_id=member, value=value)

    @staticmethod
    def pattern(group: str, regex: str, *topics: str) -> Any:
        value = ConsumerGroupRegularExpressionValue(version=0, topics=topics, image_version=1, timestamp=1)
        return ConsumerGroupRegularExpression(group_id=group, regular_expression=regex, value=value)


class Share:
    """The records of a share group."""

    kind = "share"
    stable = 0
    places = Consumer.places

    @staticmethod
    def own(group: str, epoch: int) -> Any:
        return ShareGroupMetadata(group_id=group, value=ShareGroupMetadataValue(version=0, epoch=epoch))

    @staticmethod
    def member(group: str, member: str, **fields: Any) -> Any:
        about = {
            "rack_id": None,
            "client_id": f"{member}-client",
            "client_host": "/10.0.0.3",
            "subscribed_topic_names": ("t",),
        } | fields
        value = ShareGroupMemberMetadataValue(version=0, **about)
        return ShareGroupMemberMetadata(group_id=group, member_id=member, value=value)

    @staticmethod
    def assigned(group: str, epoch: int) -> Any:
        value = ShareGroupTargetAssignmentMetadataValue(version=0, assignment_epoch=epoch)
        return ShareGroupTargetAssignmentMetadata(group_id=group, value=value)

    @staticmethod
    def target(group: str, member: str, held: Held) -> Any:
        parts = tuple(TopicPartitions(topic_id=id_, partitions=each) for id_, each in held.items())
        value = ShareGroupTargetAssignmentMemberValue(version=0, topic_partitions=parts)
        return ShareGroupTargetAssignmentMember(group_id=group, member_id=member, value=value)

    @staticmethod
    def current(
        group: str, member: str, epoch: int, held: Held, revoking: Held | None = None, *, state: int = 0
    ) -> Any:
        """What it has to give up, a member of a share group gives up at once."""
        parts = tuple(TopicPartitions(topic_id=id_, partitions=each) for id_, each in held.items())
        value = ShareGroupCurrentMemberAssignmentValue(
            version=0, member_epoch=epoch, previous_member_epoch=0, state=state, assigned_partitions=parts
        )
        return ShareGroupCurrentMemberAssignment(group_id=group, member_id=member, value=value)


class Streams:
    """The records of a Streams group."""

    kind = "streams"
    stable = 1
    places = ("0", "1")

    @staticmethod
    def own(group: str, epoch: int, *, validated: int = 0) -> Any:
        value = StreamsGroupMetadataValue(
            version=0, epoch=epoch, metadata_hash=0, validated_topology_epoch=validated
        )
        return StreamsGroupMetadata(group_id=group, value=value)

    @staticmethod
    def member(group: str, member: str, **fields: Any) -> Any:
        about = {
            "instance_id": None,
            "rack_id": None,
            "client_id": f"{member}-client",
            "client_host": "/10.0.0.4",
            "rebalance_timeout_ms": 1000,
            "topology_epoch": 0,
            "process_id": "p",
            "user_endpoint": None,
            "client_tags": (),
        } | fields
        value = StreamsGroupMemberMetadataValue(version=0, **about)
        return StreamsGroupMemberMetadata(group_id=group, member_id=member, value=value)

    @staticmethod
    def assigned(group: str, epoch: int) -> Any:
        value = StreamsGroupTargetAssignmentMetadataValue(version=0, assignment_epoch=epoch)
        return StreamsGroupTargetAssignmentMetadata(group_id=group, value=value)

    @staticmethod
    def target(group: str, member: str, held: Held, *, standby: Held | None = None) -> Any:
        active, waiting = (
            tuple(TaskIds(subtopology_id=id_, partitions=each) for id_, each in parts.items())
            for parts in (held, standby or {})
        )
        value = StreamsGroupTargetAssignmentMemberValue(
            version=0, active_tasks=active, standby_tasks=waiting, warmup_tasks=()
        )
        return StreamsGroupTargetAssignmentMember(group_id=group, member_id=member, value=value)

    @staticmethod
    def current(
        group: str,
        member: str,
        epoch: int,
        held: Held,
        revoking: Held | None = None,
        *,
        state: int = 1,
        standby: Held | None = None,
    ) -> Any:
        kept, given_up, waiting = (
            tuple(AssignedTasks(subtopology_id=id_, partitions=each) for id_, each in parts.items())
            for parts in (held, revoking or {}, standby or {})
        )
        value = StreamsGroupCurrentMemberAssignmentValue(
            version=0,
            member_epoch=epoch,
            previous_member_epoch=0,
            state=state,
            active_tasks=kept,
            standby_tasks=waiting,
            warmup_tasks=(),
            active_tasks_pending_revocation=given_up,
            standby_tasks_pending_revocation=(),
            warmup_tasks_pending_revocation=(),
        )
        return StreamsGroupCurrentMemberAssignment(group_id=group, member_id=member, value=value)

    @staticmethod
    def topology(group: str, epoch: int = 0) -> Any:
        """Subtopology 0 reads in-a and in-b and writes `again`, which subtopology 1 reads."""
        again = InternalTopic(name="again", partitions=0, replication_factor=1, topic_configs=())
        parts = tuple(
            Subtopology(
                subtopology_id=id_,
                source_topics=sources,
                source_topic_regex=(),
                state_changelog_topics=(),
                repartition_sink_topics=(),
                repartition_source_topics=internal,
                copartition_groups=(),
            )
            for id_, sources, internal in (("0", ("in-a", "in-b"), ()), ("1", (), (again,)))
        )
        value = StreamsGroupTopologyValue(version=0, epoch=epoch, subtopologies=parts)
        return StreamsGroupTopology(group_id=group, value=value)
