"""Classic groups: one record says all of a group (docs/records-format.md 4.5)."""

from __future__ import annotations

import sys
from typing import Any

from koff.records import Assignment as AssignmentBlob
from koff.records import ClassicMember as MemberRecord
from koff.records import GroupMetadataValue, subscription
from koff.records import Subscription as SubscriptionBlob
from koff.records import assignment as assignment_blob
from koff.tracker.groups.plain_state import assignment, strings
from koff.tracker.groups.views import NOTHING, Group, GroupSubscription, Member, union

CONSUMER = "consumer"


def classic_group(name: str, value: GroupMetadataValue) -> Group:
    """The group that a GroupMetadata value describes; it replaces whatever the group was."""
    blobs = value.protocol_type == CONSUMER
    return _group(
        name,
        value.generation,
        sys.intern(value.protocol_type),
        sys.intern(value.protocol or ""),
        value.current_state_timestamp,
        tuple(_member(member, value.generation, blobs=blobs) for member in value.members),
    )


def save(group: Group) -> list[Any]:
    """What `load` makes the same classic group of. What nobody writes into is not copied."""
    members = [
        (m.id, m.client_id, m.client_host, m.instance_id, m.rack_id, m.subscription.topics, m.assigned)
        for m in group.members
    ]
    return [group.epoch, group.protocol_type, group.protocol, group.state_timestamp_ms, members]


def load(name: str, saved: list[Any]) -> Group:
    epoch, protocol_type, protocol, state_timestamp_ms, members = saved
    return _group(
        name,
        epoch,
        sys.intern(protocol_type),
        sys.intern(protocol),
        state_timestamp_ms,
        tuple(_loaded(epoch, *member) for member in members),
    )


def _loaded(
    epoch: int, id_: str, client: str, host: str, instance: str | None, rack: str | None, *blobs: Any
) -> Member:
    topics, assigned = blobs
    asked, given = GroupSubscription(strings(topics)), assignment(assigned)
    client, host = sys.intern(client), sys.intern(host)
    return Member(id_, client, host, instance, given, rack, asked, epoch=epoch)


def _group(
    name: str,
    epoch: int,
    protocol_type: str,
    protocol: str,
    state_timestamp_ms: int,
    members: tuple[Member, ...],
) -> Group:
    """Without protocol type and members a group is what commits alone would make: a simple one."""
    return Group(
        name,
        "classic" if protocol_type or members else "simple",
        "Stable" if members else "Empty",
        epoch,
        protocol_type,
        protocol,
        members,
        state_timestamp_ms=state_timestamp_ms,
    )


def _member(member: MemberRecord, generation: int, *, blobs: bool) -> Member:
    """A member whose blobs do not decode stays a member; those of other protocol types are not looked at."""
    asked = subscription(member.subscription) if blobs else None
    given = assignment_blob(member.assignment) if blobs else None
    topics: tuple[str, ...] = ()
    rack_id, assigned = None, NOTHING
    if isinstance(asked, SubscriptionBlob):
        topics, rack_id = strings(asked.topics), asked.rack_id
    if isinstance(given, AssignmentBlob):
        assigned = union((each.topic, each.partitions) for each in given.assigned_partitions)
    return Member(
        member.member_id,
        sys.intern(member.client_id),
        sys.intern(member.client_host),
        member.group_instance_id,
        assigned,
        rack_id or None,
        GroupSubscription(topics),
        epoch=generation,
    )
