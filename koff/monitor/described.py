"""Groups as coordinators describe them, in the tracker's terms: as their records would have built them.

What a description leaves out is left at what is usual: the topics that patterns stand for, what a member is
to give up, a classic group's generation. The records say it, sooner or later.
"""

import sys
from collections.abc import Mapping

from koff.client.groups.responses import Assigned, DescribedGroup, DescribedMember
from koff.tracker.groups import (
    NOTHING,
    STABLE,
    Assignment,
    ConsumerGroupState,
    Current,
    Described,
    Group,
    GroupSubscription,
    GroupSubtopology,
    Member,
    MemberDescription,
    Profile,
    ShareGroupState,
    StreamsGroupState,
    Tasks,
    Topology,
    merge_assignments,
)

NOT_READY = "NotReady"
UNRELEASED_PARTITIONS, UNRELEASED_TASKS = "UnreleasedPartitions", "UnreleasedTasks"


def build_group(group: DescribedGroup, topic_ids: Mapping[str, str]) -> Described:
    """The group; `topic_ids` by name, of the topics for which `group.topic_ids` has none."""
    ids = {**topic_ids, **group.topic_ids}
    match group.type:
        case "consumer":
            return ConsumerGroupState.from_description(
                *_epochs(group), {m.id: _partitions(m, group, ids) for m in group.members}
            )
        case "share":
            return ShareGroupState.from_description(
                *_epochs(group), {m.id: _partitions(m, group, ids) for m in group.members}
            )
        case "streams":
            made = StreamsGroupState.from_description(
                *_epochs(group), {m.id: _tasks(m, group) for m in group.members}
            )
            return made.set_topology(_topology(group), validated=group.state != NOT_READY)
        case _:
            return _classic(group)


def _epochs(group: DescribedGroup) -> tuple[int, int]:
    return group.epoch or 0, group.assignment_epoch or 0


def _classic(group: DescribedGroup) -> Group:
    """Stable or Empty, as its record will say: that a rebalance is under way is written down nowhere."""
    return Group(
        group.name,
        "classic" if group.protocol_type or group.members else "simple",
        STABLE if group.members else "Empty",
        protocol_type=sys.intern(group.protocol_type),
        protocol=sys.intern(group.protocol),
        members=tuple(
            Member(
                m.id,
                sys.intern(m.client_id),
                sys.intern(m.client_host),
                m.instance_id,
                _assignment(m.assigned),
                m.rack_id,
                GroupSubscription(m.subscribed),
            )
            for m in group.members
        ),
    )


def _partitions(
    member: DescribedMember, group: DescribedGroup, ids: Mapping[str, str]
) -> MemberDescription[Assignment]:
    held = _assignment({ids.get(topic, topic): at for topic, at in member.assigned.items()})
    target = None
    if member.target is not None:
        target = _assignment({ids.get(topic, topic): at for topic, at in member.target.items()})
    waits = target is not None and held != target and member.epoch == group.assignment_epoch
    state = UNRELEASED_PARTITIONS if waits else STABLE
    return MemberDescription(_profile(member), Current(member.epoch or 0, state, held, NOTHING), target)


def _tasks(member: DescribedMember, group: DescribedGroup) -> MemberDescription[Tasks]:
    held = Tasks(_assignment(member.assigned), *map(_assignment, member.others))
    target = Tasks(_assignment(member.target or {}), *map(_assignment, member.target_others))
    waits = held != target and member.epoch == group.assignment_epoch
    state = UNRELEASED_TASKS if waits else STABLE
    return MemberDescription(_profile(member), Current(member.epoch or 0, state, held, Tasks()), target)


def _profile(member: DescribedMember) -> Profile:
    return Profile(
        sys.intern(member.client_id),
        sys.intern(member.client_host),
        member.instance_id,
        member.rack_id,
        GroupSubscription(member.subscribed, member.pattern),
        classic=member.classic,
        process_id=member.process_id,
    )


def _topology(group: DescribedGroup) -> Topology | None:
    if group.topology_epoch is None:
        return None
    parts = {}
    for id_, topics in group.topics.items():
        internal = group.repartition_topics.get(id_, ())
        parts[sys.intern(id_)] = GroupSubtopology(tuple(t for t in topics if t not in internal), internal)
    return Topology(group.topology_epoch, parts)


def _assignment(given: Assigned) -> Assignment:
    return merge_assignments((topic, tuple(partitions)) for topic, partitions in given.items() if partitions)
