"""Records as tests want them: a group commits, a group rebalances, bytes included."""

from __future__ import annotations

from koff.records import (
    AssignedPartitions,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadata,
    GroupMetadataValue,
    Member,
    OffsetCommit,
    OffsetCommitValue,
    encode,
)

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


def classic_group(group: str, members: dict[str, bytes] | None, *, protocol_type: str = "consumer") -> Pair:
    """A classic group with these members (client id to assignment blob); None deletes it."""
    value = None
    if members is not None:
        value = GroupMetadataValue(
            version=3,
            protocol_type=protocol_type,
            generation=7,
            protocol="range" if members else None,
            leader=None,
            current_state_timestamp=1000,
            members=tuple(
                Member(
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


ASSIGNED_T_0_1 = bytes.fromhex("0000 00000001 0001 74 00000002 00000000 00000001 ffffffff")
"""An assignment blob: partitions 0 and 1 of topic t."""
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def consumer_group(
    group: str, *, epoch: int, assignment_epoch: int, members: dict[str, tuple[int, int]]
) -> list[Pair]:
    """A KIP-848 group whose members have (epoch, state), all reading partition 3 of topic `TOPIC_ID`."""
    records = [
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
