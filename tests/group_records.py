"""The records of groups of every kind, as coordinators write them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from koff import records
from koff.records import (
    AssignedPartitions,
    AssignedTasks,
    ClassicMember,
    ClassicMemberMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupRegularExpressionValue,
    GroupMetadata,
    GroupMetadataValue,
    StreamsGroupTopology,
    StreamsGroupTopologyValue,
    Subtopology,
    TaskIds,
    TopicPartitions,
)
from koff.records.streams_records import InternalTopic

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
Held = Mapping[str, tuple[int, ...]]
"""Partitions by topic id or subtopology."""


def gone(record: Any) -> Any:
    """The tombstone of what the record says."""
    return dataclasses.replace(record, value=None)


def assign(*topics: tuple[str, Iterable[int]]) -> bytes:
    """The assignment of a member of a classic group: partitions by topic."""
    parts = (
        _string(topic) + _array(number.to_bytes(4, signed=True) for number in numbers)
        for topic, numbers in topics
    )
    return b"\0\0" + _array(parts) + b"\xff" * 4


def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def _array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return len(parts).to_bytes(4) + b"".join(parts)


def classic_member(
    id_: str, client: str, assignment: bytes, *, topics: Iterable[str] = ("t",), instance: str | None = None
) -> ClassicMember:
    """A member of a classic group that subscribes to these topics."""
    return ClassicMember(
        member_id=id_,
        group_instance_id=instance,
        client_id=client,
        client_host="/10.0.0.1",
        session_timeout=1000,
        subscription=b"\0\0" + _array(map(_string, topics)) + b"\xff" * 4,
        assignment=assignment,
    )


def classic_group_record(
    group: str,
    generation: int,
    members: Iterable[ClassicMember],
    *,
    protocol_type: str = "consumer",
    since_ms: int = 1000,
    leader: str | None = None,
) -> GroupMetadata:
    """The record of a classic group, which has its state since `since_ms`. Without members it is empty."""
    members = tuple(members)
    value = GroupMetadataValue(
        version=3,
        protocol_type=protocol_type,
        generation=generation,
        protocol="range" if members else None,
        leader=leader,
        current_state_timestamp=since_ms,
        members=members,
    )
    return GroupMetadata(group=group, value=value)


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
        return topology_record(group, epoch, ("0", ("in-a", "in-b"), ()), ("1", (), (again,)))


def topology_record(
    group: str, epoch: int, *parts: tuple[str, tuple[str, ...], tuple[InternalTopic, ...]]
) -> StreamsGroupTopology:
    """A topology: the id of each subtopology, with its source topics and its repartition source topics."""
    subtopologies = tuple(
        Subtopology(
            subtopology_id=id_,
            source_topics=sources,
            source_topic_regex=(),
            state_changelog_topics=(),
            repartition_sink_topics=(),
            repartition_source_topics=internal,
            copartition_groups=(),
        )
        for id_, sources, internal in parts
    )
    value = StreamsGroupTopologyValue(version=0, epoch=epoch, subtopologies=subtopologies)
    return StreamsGroupTopology(group_id=group, value=value)
