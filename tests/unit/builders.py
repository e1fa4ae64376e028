"""Records as tests want them: a group commits, a group rebalances, bytes included."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from koff import records
from koff.lag import NO_TIMESTAMP, Status
from koff.records import (
    AssignedPartitions,
    AssignedTasks,
    ClassicMember,
    ClassicMemberMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupRegularExpressionValue,
    DecodedMessage,
    GroupMetadata,
    GroupMetadataValue,
    OffsetCommit,
    OffsetCommitValue,
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


def committed(tracker: Tracker) -> dict[tuple[str, str, int], int | None]:
    """The committed offsets that the tracker shows, each row once."""
    found = [((row.group, row.topic, row.partition), row.committed) for row in tracker.take_snapshot().rows()]
    assert len(found) == len(dict(found)), "a row occurs twice"
    return dict(found)


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
    written = [Consumer.own(group, epoch), Consumer.assigned(group, assignment_epoch)]
    for member, (member_epoch, state) in members.items():
        written += [
            Consumer.member(group, member, subscribed_topic_regex=None),
            Consumer.current(group, member, member_epoch, {TOPIC_ID: (3,)}, state=state),
        ]
    return [encode(record) for record in written]


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


def _list_parts(of: Any, held: Held | None, key: str = "topic_id") -> tuple[Any, ...]:
    return tuple(of(**{key: id_, "partitions": each}) for id_, each in (held or {}).items())


class _NewKind:
    """The records of a group that has a record for each member. Kafka names them alike for all such kinds."""

    kind = ""
    stable = 0
    """The state of a member that is assigned all that it is to have."""
    places = (TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAg")
    member_fields: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _build(cls, record: str, fields: dict[str, Any], **names: str) -> Any:
        name = f"{cls.kind.title()}Group{record}"
        value = getattr(records, f"{name}Value")(version=0, **fields)
        return getattr(records, name)(**names, value=value)

    @classmethod
    def own(cls, group: str, epoch: int, **fields: Any) -> Any:
        return cls._build("Metadata", {"epoch": epoch, **fields}, group_id=group)

    @classmethod
    def member(cls, group: str, member: str, **fields: Any) -> Any:
        about = {"client_id": f"{member}-client", **cls.member_fields, **fields}
        return cls._build("MemberMetadata", about, group_id=group, member_id=member)

    @classmethod
    def assigned(cls, group: str, epoch: int) -> Any:
        return cls._build("TargetAssignmentMetadata", {"assignment_epoch": epoch}, group_id=group)

    @classmethod
    def target(cls, group: str, member: str, held: Held) -> Any:
        parts = {"topic_partitions": _list_parts(TopicPartitions, held)}
        return cls._build("TargetAssignmentMember", parts, group_id=group, member_id=member)

    @classmethod
    def _build_current(cls, group: str, member: str, epoch: int, state: int, **parts: Any) -> Any:
        fields = {"member_epoch": epoch, "previous_member_epoch": 0, "state": state, **parts}
        return cls._build("CurrentMemberAssignment", fields, group_id=group, member_id=member)


class Consumer(_NewKind):
    """The records of a consumer group."""

    kind = "consumer"
    member_fields: ClassVar[dict[str, Any]] = {
        "instance_id": None,
        "rack_id": None,
        "client_host": "/10.0.0.2",
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": "",
        "rebalance_timeout_ms": 1000,
        "server_assignor": None,
    }

    @classmethod
    def member(cls, group: str, member: str, *, classic: bool = False, **fields: Any) -> Any:
        """A member; `classic` when it speaks the classic protocol."""
        if classic:
            fields["classic_member_metadata"] = ClassicMemberMetadata(session_timeout_ms=1000)
        return super().member(group, member, **fields)

    @classmethod
    def current(
        cls, group: str, member: str, epoch: int, held: Held, revoking: Held | None = None, *, state: int = 0
    ) -> Any:
        return cls._build_current(
            *(group, member, epoch, state),
            assigned_partitions=_list_parts(AssignedPartitions, held),
            partitions_pending_revocation=_list_parts(AssignedPartitions, revoking),
        )

    @staticmethod
    def pattern(group: str, regex: str, *topics: str) -> Any:
        value = ConsumerGroupRegularExpressionValue(version=0, topics=topics, image_version=1, timestamp=1)
        return ConsumerGroupRegularExpression(group_id=group, regular_expression=regex, value=value)


class Share(_NewKind):
    """The records of a share group."""

    kind = "share"
    member_fields: ClassVar[dict[str, Any]] = {
        "rack_id": None,
        "client_host": "/10.0.0.3",
        "subscribed_topic_names": ("t",),
    }

    @classmethod
    def current(
        cls, group: str, member: str, epoch: int, held: Held, revoking: Held | None = None, *, state: int = 0
    ) -> Any:
        """What it has to give up, a member of a share group gives up at once."""
        kept = _list_parts(TopicPartitions, held)
        return cls._build_current(group, member, epoch, state, assigned_partitions=kept)


class Streams(_NewKind):
    """The records of a Streams group."""

    kind = "streams"
    stable = 1
    places = ("0", "1")
    member_fields: ClassVar[dict[str, Any]] = {
        "instance_id": None,
        "rack_id": None,
        "client_host": "/10.0.0.4",
        "rebalance_timeout_ms": 1000,
        "topology_epoch": 0,
        "process_id": "p",
        "user_endpoint": None,
        "client_tags": (),
    }

    @classmethod
    def own(cls, group: str, epoch: int, *, validated: int = 0, **fields: Any) -> Any:
        return super().own(group, epoch, metadata_hash=0, validated_topology_epoch=validated, **fields)

    @classmethod
    def target(cls, group: str, member: str, held: Held, *, standby: Held | None = None) -> Any:
        active, waiting = (_list_parts(TaskIds, each, "subtopology_id") for each in (held, standby))
        tasks = {"active_tasks": active, "standby_tasks": waiting, "warmup_tasks": ()}
        return cls._build("TargetAssignmentMember", tasks, group_id=group, member_id=member)

    @classmethod
    def current(
        cls,
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
            _list_parts(AssignedTasks, each, "subtopology_id") for each in (held, revoking, standby)
        )
        return cls._build_current(
            *(group, member, epoch, state),
            active_tasks=kept,
            standby_tasks=waiting,
            warmup_tasks=(),
            active_tasks_pending_revocation=given_up,
            standby_tasks_pending_revocation=(),
            warmup_tasks_pending_revocation=(),
        )

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
