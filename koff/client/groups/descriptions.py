"""Describes groups: builds the request for each type of group and converts its response.

kio has one class for each version of a response. All versions are converted by the same function, which reads
the fields by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from koff.client.groups.responses import Assigned, DescribedGroup, DescribedMember, ShareOffset
from koff.client.wire.connection import Connection
from koff.proto.requests import Api, EncodedRequest, encode_request, error_name, format_topic_id
from koff.records import Assignment, Subscription, decode_assignment, decode_subscription
from koff.records.consumer_protocol import CONSUMER

_CLASSIC, _UNKNOWN = 0, -1
"""Types of a consumer group's member (ConsumerGroupDescribe v1)."""
BATCH_BYTES = 16 << 10
"""How many bytes of group names go into one request. Few: the groups' members make the response large."""


class GroupListing(NamedTuple):
    """A group in a response to ListGroups. `type` and `state` are "" from brokers too old to return them."""

    name: str
    type: str
    state: str
    protocol_type: str

    def to_described_group(self, error: str = "") -> DescribedGroup:
        """A `DescribedGroup` with only the data of the listing, for a group without a description."""
        return DescribedGroup(self.name, self.type, self.state, self.protocol_type, error=error)

    @property
    def describe_api(self) -> Api | None:
        """The request that describes the group.

        None for a classic group without members, and for a type that koff does not know.
        """
        if self.type in ("", "classic"):
            # "": the broker returned no type (ListGroups below version 5). Treated as classic.
            return None if self.state == "Empty" else Api.DESCRIBE_GROUPS
        return _APIS.get(self.type)


_APIS = {
    "consumer": Api.CONSUMER_GROUP_DESCRIBE,
    "share": Api.SHARE_GROUP_DESCRIBE,
    "streams": Api.STREAMS_GROUP_DESCRIBE,
}


def read_listings(response: Any) -> Iterator[GroupListing]:
    """The groups in a response to ListGroups of any version."""
    # `group_state` came with version 4, `group_type` with version 5.
    for group in response.groups:
        yield GroupListing(
            group.group_id,
            getattr(group, "group_type", "").lower(),
            getattr(group, "group_state", ""),
            group.protocol_type,
        )


def build_describe_requests(
    connection: Connection, api: Api, groups: Sequence[GroupListing]
) -> Iterator[EncodedRequest[list[DescribedGroup]]]:
    """Requests that describe the groups. `api` must be the `describe_api` of all of them."""
    listings = {group.name: group for group in groups}
    # DescribeGroups is older than the other requests and names its field differently.
    field = "groups" if api is Api.DESCRIBE_GROUPS else "group_ids"
    for names in _split_into_batches(listings):
        request = connection.build_request(api, **{field: names}, include_authorized_operations=False)
        yield _convert_response(
            encode_request(request),
            lambda response: [_convert_group(api, group, listings) for group in response.groups],
        )


def build_share_offset_requests(
    connection: Connection, groups: Iterable[str]
) -> Iterator[EncodedRequest[list[tuple[str, str, list[ShareOffset]]]]]:
    """Requests for all offsets of share groups. A response holds each group's name, error and offsets."""
    api = Api.DESCRIBE_SHARE_GROUP_OFFSETS
    for names in _split_into_batches(groups):
        structs = [
            connection.build_struct(api, "DescribeShareGroupOffsetsRequestGroup", group_id=name, topics=None)
            for name in names
        ]
        request = connection.build_request(api, groups=tuple(structs))
        yield _convert_response(encode_request(request), _convert_share_offsets)


def _convert_response(request: EncodedRequest[Any], convert: Callable[[Any], Any]) -> EncodedRequest[Any]:
    """The same request, whose decoded response is passed through `convert`."""
    return EncodedRequest(
        request.api,
        request.version,
        request.body,
        lambda buffer, at: convert(request.decode(buffer, at)),
        flexible=request.flexible,
        flexible_response=request.flexible_response,
    )


def _split_into_batches(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    batch, size = [], 0
    for name in names:
        batch.append(name)
        size += len(name.encode()) + 8  # 8: the length and the fields of an entry
        if size >= BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def _convert_group(api: Api, group: Any, listings: Mapping[str, GroupListing]) -> DescribedGroup:
    listing = listings[group.group_id]
    if group.error_code:
        return listing.to_described_group(error_name(group.error_code))
    if api is Api.DESCRIBE_GROUPS and group.group_state == "Dead":
        # DescribeGroups below version 6 returns no error for a group that does not exist (KIP-1043).
        return listing.to_described_group("GROUP_ID_NOT_FOUND")
    return _CONVERTERS[api](group, listing)


def _convert_classic_group(group: Any, listing: GroupListing) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        listing.type,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members=tuple(_convert_classic_member(member, group.protocol_type) for member in group.members),
    )


def _convert_classic_member(member: Any, protocol_type: str) -> DescribedMember:
    """The member; with assignment and subscription only if it is a consumer.

    Connect's workers and others have formats of their own.
    """
    assigned: Assigned = {}
    subscribed: tuple[str, ...] = ()
    if protocol_type == CONSUMER:
        # The bytes come from the member, and may be anything: both decoders return a value for bad bytes.
        assignment = decode_assignment(bytes(member.member_assignment))
        subscription = decode_subscription(bytes(member.member_metadata))
        if isinstance(assignment, Assignment):
            assigned = _join_topics(
                (topic.topic, topic.partitions) for topic in assignment.assigned_partitions
            )
        if isinstance(subscription, Subscription):
            subscribed = subscription.topics
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        getattr(member, "group_instance_id", None),  # since version 4
        assigned,
        subscribed=subscribed,
    )


def _convert_modern_group(group: Any, listing: GroupListing) -> DescribedGroup:
    """A consumer or a share group. A share group's members have no target assignment and no instance id."""
    return DescribedGroup(
        group.group_id,
        listing.type,
        group.group_state,
        listing.protocol_type,
        group.assignor_name,
        group.group_epoch,
        group.assignment_epoch,
        tuple(map(_convert_modern_member, group.members)),
        topic_ids={
            topic.topic_name: format_topic_id(topic.topic_id)
            for member in group.members
            for assignment in (member.assignment, getattr(member, "target_assignment", None))
            for topic in (assignment.topic_partitions if assignment else ())
            if topic.topic_name
        },
    )


def _convert_modern_member(member: Any) -> DescribedMember:
    target = getattr(member, "target_assignment", None)
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        getattr(member, "instance_id", None),
        _convert_topics(member.assignment),
        None if target is None else _convert_topics(target),
        tuple(member.subscribed_topic_names),
        getattr(member, "subscribed_topic_regex", None) or None,
        member.member_epoch,
        member.rack_id or None,
        getattr(member, "member_type", _UNKNOWN) == _CLASSIC,  # since version 1
    )


def _convert_topics(assignment: Any) -> Assigned:
    """Partitions by topic name. A deleted topic has no name any more: then by topic id."""
    return _join_topics(
        (topic.topic_name or format_topic_id(topic.topic_id), topic.partitions)
        for topic in assignment.topic_partitions
    )


def _convert_streams_group(group: Any, listing: GroupListing) -> DescribedGroup:
    topology = group.topology  # nullable in Kafka's schema
    subtopologies = topology.subtopologies or () if topology else ()
    internal = {
        subtopology.subtopology_id: tuple(topic.name for topic in subtopology.repartition_source_topics)
        for subtopology in subtopologies
    }
    return DescribedGroup(
        group.group_id,
        listing.type,
        group.group_state,
        listing.protocol_type,
        "",
        group.group_epoch,
        group.assignment_epoch,
        tuple(map(_convert_streams_member, group.members)),
        topics={
            subtopology.subtopology_id: (*subtopology.source_topics, *internal[subtopology.subtopology_id])
            for subtopology in subtopologies
        },
        repartition_topics=internal,
        topology_epoch=topology.epoch if topology else None,
    )


def _convert_streams_member(member: Any) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        _convert_tasks(member.assignment.active_tasks),
        _convert_tasks(member.target_assignment.active_tasks),
        epoch=member.member_epoch,
        rack_id=member.rack_id or None,
        process_id=member.process_id,
        others=_standby_and_warmup_tasks(member.assignment),
        target_others=_standby_and_warmup_tasks(member.target_assignment),
    )


def _standby_and_warmup_tasks(assignment: Any) -> tuple[Assigned, Assigned]:
    return _convert_tasks(assignment.standby_tasks), _convert_tasks(assignment.warmup_tasks)


def _convert_tasks(tasks: Any) -> Assigned:
    return _join_topics((task.subtopology_id, task.partitions) for task in tasks)


def _join_topics(entries: Iterable[tuple[str, Iterable[int]]]) -> Assigned:
    """Partitions by name. A name may occur in several entries; their partitions are joined."""
    joined: dict[str, tuple[int, ...]] = {}
    for name, partitions in entries:
        joined[name] = (*joined.get(name, ()), *map(int, partitions))
    return joined


def _convert_share_offsets(response: Any) -> list[tuple[str, str, list[ShareOffset]]]:
    """For each group its name, its first error ("" if there is none), and the offsets without an error."""
    converted = []
    for group in response.groups:
        rows = [(topic, partition) for topic in group.topics for partition in topic.partitions]
        codes = [group.error_code, *(partition.error_code for _, partition in rows)]
        offsets = [
            _convert_share_offset(group, topic, partition)
            for topic, partition in rows
            if not partition.error_code
        ]
        converted.append((group.group_id, error_name(next(filter(None, codes), 0)), offsets))
    return converted


def _convert_share_offset(group: Any, topic: Any, partition: Any) -> ShareOffset:
    lag = getattr(partition, "lag", -1)  # since version 1 (KIP-1226)
    return ShareOffset(
        group.group_id,
        topic.topic_name,
        format_topic_id(topic.topic_id),
        partition.partition_index,
        partition.start_offset,
        partition.leader_epoch,
        None if lag < 0 else lag,
    )


_CONVERTERS = {
    Api.DESCRIBE_GROUPS: _convert_classic_group,
    Api.CONSUMER_GROUP_DESCRIBE: _convert_modern_group,
    Api.SHARE_GROUP_DESCRIBE: _convert_modern_group,
    Api.STREAMS_GROUP_DESCRIBE: _convert_streams_group,
}
