"""Describing groups: the request for each type of group, and what its answers mean in koff's words.

Answers are kio's, one class a version; they are taken by field name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from koff.client.groups.responses import Assigned, DescribedGroup, DescribedMember, ShareOffset
from koff.client.wire.connection import Connection
from koff.client.wire.requests import Api, Question, error_name, question, topic_id
from koff.records import Assignment, Subscription, assignment, subscription
from koff.records.consumer_protocol import CONSUMER

_CLASSIC, _UNTOLD = 0, -1
"""Types of a consumer group's member (ConsumerGroupDescribe v1)."""
BATCH_BYTES = 16 << 10
"""Of group names in a request. Members make answers large, not requests."""


class Listed(NamedTuple):
    """What ListGroups says of a group. `type` and `state` are "" from brokers that do not tell them."""

    name: str
    type: str
    state: str
    protocol_type: str

    def described(self, error: str = "") -> DescribedGroup:
        """As a description, for a group of which there is no more to say, or nothing was asked."""
        return DescribedGroup(self.name, self.type, self.state, self.protocol_type, error=error)

    @property
    def described_by(self) -> Api | None:
        """The request that tells more than this; None for a classic group without members."""
        if self.type in ("", "classic"):
            return None if self.state == "Empty" else Api.DESCRIBE_GROUPS
        return _APIS.get(self.type)


_APIS = {
    "consumer": Api.CONSUMER_GROUP_DESCRIBE,
    "share": Api.SHARE_GROUP_DESCRIBE,
    "streams": Api.STREAMS_GROUP_DESCRIBE,
}


def listed(response: Any) -> Iterator[Listed]:
    """The groups in a response to ListGroups, of whatever version."""
    for group in response.groups:
        yield Listed(
            group.group_id,
            getattr(group, "group_type", "").lower(),
            getattr(group, "group_state", ""),
            group.protocol_type,
        )


def descriptions(
    wire: Connection, api: Api, groups: Sequence[Listed]
) -> Iterator[Question[list[DescribedGroup]]]:
    """Requests that describe the groups, all of which have `api` for it."""
    known = {group.name: group for group in groups}
    field = "groups" if api is Api.DESCRIBE_GROUPS else "group_ids"
    for names in _batches(known):
        request = wire.build(api, **{field: names}, include_authorized_operations=False)
        yield _then(
            question(request), lambda answer: [_described(api, each, known) for each in answer.groups]
        )


def share_offsets(
    wire: Connection, groups: Iterable[str]
) -> Iterator[Question[list[tuple[str, str, list[ShareOffset]]]]]:
    """Requests for all offsets of share groups; of each group its name, error and offsets come back."""
    api = Api.DESCRIBE_SHARE_GROUP_OFFSETS
    for names in _batches(groups):
        each = [
            wire.part(api, "DescribeShareGroupOffsetsRequestGroup", group_id=name, topics=None)
            for name in names
        ]
        yield _then(question(wire.build(api, groups=tuple(each))), _share_offsets)


def _then(asked: Question[Any], meaning: Callable[[Any], Any]) -> Question[Any]:
    return Question(
        asked.api,
        asked.version,
        asked.body,
        lambda buffer, at: meaning(asked.read(buffer, at)),
        flexible=asked.flexible,
        flexible_answer=asked.flexible_answer,
    )


def _batches(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    batch, size = [], 0
    for name in names:
        batch.append(name)
        size += len(name.encode()) + 8
        if size >= BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def _described(api: Api, group: Any, known: Mapping[str, Listed]) -> DescribedGroup:
    listed = known[group.group_id]
    if group.error_code:
        return listed.described(error_name(group.error_code))
    return _MEANINGS[api](group, listed)


def _classic(group: Any, listed: Listed) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        listed.type,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members=tuple(_classic_member(member, group.protocol_type) for member in group.members),
    )


def _classic_member(member: Any, protocol_type: str) -> DescribedMember:
    """Connect's workers and others have assignments of their own, which we do not read."""
    assigned: Assigned = {}
    subscribed: tuple[str, ...] = ()
    if protocol_type == CONSUMER:
        given = assignment(bytes(member.member_assignment))
        wanted = subscription(bytes(member.member_metadata))
        if isinstance(given, Assignment):
            assigned = _by_topic((each.topic, each.partitions) for each in given.assigned_partitions)
        if isinstance(wanted, Subscription):
            subscribed = wanted.topics
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        getattr(member, "group_instance_id", None),
        assigned,
        subscribed=subscribed,
    )


def _modern(group: Any, listed: Listed) -> DescribedGroup:
    """Consumer and share groups; of the latter, members are told neither target nor instance."""
    return DescribedGroup(
        group.group_id,
        listed.type,
        group.group_state,
        listed.protocol_type,
        group.assignor_name,
        group.group_epoch,
        group.assignment_epoch,
        tuple(map(_modern_member, group.members)),
        topic_ids={
            each.topic_name: topic_id(each.topic_id)
            for member in group.members
            for of in (member.assignment, getattr(member, "target_assignment", None))
            for each in (of.topic_partitions if of else ())
            if each.topic_name
        },
    )


def _modern_member(member: Any) -> DescribedMember:
    target = getattr(member, "target_assignment", None)
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        getattr(member, "instance_id", None),
        _topics(member.assignment),
        None if target is None else _topics(target),
        tuple(member.subscribed_topic_names),
        getattr(member, "subscribed_topic_regex", None) or None,
        member.member_epoch,
        member.rack_id or None,
        getattr(member, "member_type", _UNTOLD) == _CLASSIC,
    )


def _topics(of: Any) -> Assigned:
    """By name; a topic that is gone has but its id."""
    return _by_topic(
        (each.topic_name or topic_id(each.topic_id), each.partitions) for each in of.topic_partitions
    )


def _streams(group: Any, listed: Listed) -> DescribedGroup:
    topology = group.topology
    parts = topology.subtopologies or () if topology else ()
    internal = {each.subtopology_id: tuple(t.name for t in each.repartition_source_topics) for each in parts}
    return DescribedGroup(
        group.group_id,
        listed.type,
        group.group_state,
        listed.protocol_type,
        "",
        group.group_epoch,
        group.assignment_epoch,
        tuple(map(_streams_member, group.members)),
        topics={
            id_: (*each.source_topics, *internal[id_]) for each in parts for id_ in [each.subtopology_id]
        },
        repartition_topics=internal,
        topology_epoch=topology.epoch if topology else None,
    )


def _streams_member(member: Any) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        _tasks(member.assignment.active_tasks),
        _tasks(member.target_assignment.active_tasks),
        epoch=member.member_epoch,
        rack_id=member.rack_id or None,
        process_id=member.process_id,
        others=_others(member.assignment),
        target_others=_others(member.target_assignment),
    )


def _others(of: Any) -> tuple[Assigned, Assigned]:
    return _tasks(of.standby_tasks), _tasks(of.warmup_tasks)


def _tasks(tasks: Any) -> Assigned:
    return _by_topic((each.subtopology_id, each.partitions) for each in tasks)


def _by_topic(given: Iterable[tuple[str, Iterable[int]]]) -> Assigned:
    """A topic may occur twice: what it has there belongs together."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in given:
        found[topic] = (*found.get(topic, ()), *map(int, partitions))
    return found


def _share_offsets(answer: Any) -> list[tuple[str, str, list[ShareOffset]]]:
    """Of each group the offsets that it has, and the first error if there is any."""
    found = []
    for group in answer.groups:
        rows = [(topic, partition) for topic in group.topics for partition in topic.partitions]
        codes = [group.error_code, *(partition.error_code for _, partition in rows)]
        offsets = [
            _share_offset(group, topic, partition) for topic, partition in rows if not partition.error_code
        ]
        found.append((group.group_id, error_name(next(filter(None, codes), 0)), offsets))
    return found


def _share_offset(group: Any, topic: Any, partition: Any) -> ShareOffset:
    lag = getattr(partition, "lag", -1)
    return ShareOffset(
        group.group_id,
        topic.topic_name,
        topic_id(topic.topic_id),
        partition.partition_index,
        partition.start_offset,
        partition.leader_epoch,
        None if lag < 0 else lag,
    )


_MEANINGS = {
    Api.DESCRIBE_GROUPS: _classic,
    Api.CONSUMER_GROUP_DESCRIBE: _modern,
    Api.SHARE_GROUP_DESCRIBE: _modern,
    Api.STREAMS_GROUP_DESCRIBE: _streams,
}
