"""Classic groups: one record holds the whole group (docs/records-format.md 4.5)."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from koff.records import Assignment as AssignmentBlob
from koff.records import ClassicMember as MemberRecord
from koff.records import GroupMetadataValue, decode_assignment, decode_subscription
from koff.records import Subscription as SubscriptionBlob
from koff.tracker.groups.plain_state import intern_strings, load_assignment
from koff.tracker.groups.views import NOTHING, Assignment, Group, GroupSubscription, Member, merge_assignments
from koff.tracker.impossible import count_impossible

CONSUMER = "consumer"


def build_classic_group(name: str, value: GroupMetadataValue, impossible: Counter[str]) -> Group:
    """The group of a GroupMetadata value. It replaces a group of any type.

    `impossible` counts what is left out of the assignments.
    """
    # Kafka Connect and others have formats of their own in the blobs.
    blobs = value.protocol_type == CONSUMER
    return _build_group(
        name,
        value.generation,
        value.protocol_type,
        value.protocol or "",
        value.current_state_timestamp,
        tuple(_build_member(member, value.generation, impossible, blobs=blobs) for member in value.members),
    )


def save_classic_group(group: Group) -> list[Any]:
    """The group for `load_classic_group`. Assignments never change, so they are not copied."""
    members = [
        (m.id, m.client_id, m.client_host, m.instance_id, m.rack_id, m.subscription.topics, m.assigned)
        for m in group.members
    ]
    return [group.epoch, group.protocol_type, group.protocol, group.state_timestamp_ms, members]


def load_classic_group(name: str, saved: list[Any]) -> Group:
    epoch, protocol_type, protocol, state_timestamp_ms, saved_members = saved
    members = (
        _make_member(epoch, *(*facts, load_assignment(assigned))) for (*facts, assigned) in saved_members
    )
    return _build_group(name, epoch, protocol_type, protocol, state_timestamp_ms, tuple(members))


def _make_member(
    epoch: int,
    id_: str,
    client_id: str,
    client_host: str,
    instance_id: str | None,
    rack_id: str | None,
    topics: Iterable[str],
    assigned: Assignment,
) -> Member:
    """A member. Equal names share their memory."""
    client_id, client_host = sys.intern(client_id), sys.intern(client_host)
    subscription = GroupSubscription(intern_strings(topics))
    return Member(id_, client_id, client_host, instance_id, assigned, rack_id, subscription, epoch=epoch)


def _build_group(
    name: str,
    epoch: int,
    protocol_type: str,
    protocol: str,
    state_timestamp_ms: int,
    members: tuple[Member, ...],
) -> Group:
    """A group with neither protocol type nor members is simple: commits alone make such a group."""
    return Group(
        name,
        "classic" if protocol_type or members else "simple",
        "Stable" if members else "Empty",
        epoch,
        sys.intern(protocol_type),
        sys.intern(protocol),
        members,
        state_timestamp_ms=state_timestamp_ms,
    )


def _build_member(member: MemberRecord, generation: int, impossible: Counter[str], *, blobs: bool) -> Member:
    """A member from its record; `blobs` is whether to decode subscription and assignment.

    A member with blobs that cannot be decoded stays in the group: clients may write any bytes into them.
    """
    subscription = decode_subscription(member.subscription) if blobs else None
    assignment = decode_assignment(member.assignment) if blobs else None
    topics: tuple[str, ...] = ()
    rack_id, assigned = None, NOTHING
    if isinstance(subscription, SubscriptionBlob):
        topics, rack_id = subscription.topics, subscription.rack_id
    if isinstance(assignment, AssignmentBlob):
        parts = [(part.topic, part.partitions) for part in assignment.assigned_partitions]
        count_impossible(impossible, parts)
        assigned = merge_assignments(parts)
    # librdkafka sends "" for no rack.
    given = (member.member_id, member.client_id, member.client_host, member.group_instance_id)
    return _make_member(generation, *given, rack_id or None, topics, assigned)
