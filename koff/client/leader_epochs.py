"""Where the log of a partition ended when its leader had some epoch (OffsetForLeaderEpoch, KIP-320)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from koff.client.cluster_conf import TopicPartition
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.connection import Connection
from koff.client.wire.pool import Address
from koff.errors import KoffError, copy_error
from koff.proto.requests import Api, EncodedRequest, encode_request, error_name

_UNKNOWN, _CONSUMER = -1, -1


class EpochEnd(NamedTuple):
    """The leader of a partition, and its epoch. `end_offset` is the end of the requested epoch, or
    of the last one before it; -1 if that is unknown."""

    address: Address
    leader_epoch: int
    end_offset: int = _UNKNOWN


def fetch_epoch_ends(
    lister: OffsetLister, address: Address, epochs: Mapping[TopicPartition, int], deadline: float
) -> dict[TopicPartition, EpochEnd | str | KoffError]:
    """The ends of these epochs, as the leader at `address` returns them. -1: no epoch, and no request."""
    known: dict[str, dict[int, tuple[Address, int]]] = {}
    for at in epochs:
        if at.topic not in known:
            known[at.topic] = lister.find_leader_addresses(at.topic)
    found: dict[TopicPartition, EpochEnd | str | KoffError] = {}
    requested: dict[TopicPartition, tuple[int, int]] = {}
    for at, epoch in epochs.items():
        leader, leader_epoch = known[at.topic].get(at.partition, (address, _UNKNOWN))
        if leader != address:  # it has changed a moment ago
            found[at] = "NOT_LEADER_OR_FOLLOWER"
        elif epoch == _UNKNOWN:
            found[at] = EpochEnd(address, leader_epoch)
        else:
            requested[at] = leader_epoch, epoch
    if not requested:
        return found
    try:
        response = lister.brokers.send_request(
            address, lambda connection: _build(connection, requested), deadline=deadline
        )
    except KoffError as error:
        return found | dict.fromkeys(requested, copy_error(error))
    ends = {
        TopicPartition(topic.topic, each.partition): each
        for topic in response.topics
        for each in topic.partitions
    }
    for at, (leader_epoch, _) in requested.items():
        end = ends.get(at)
        if end is None:
            found[at] = "the broker returned nothing of it"
        else:
            found[at] = error_name(end.error_code) or EpochEnd(address, leader_epoch, end.end_offset)
    return found


def _build(
    connection: Connection, requested: Mapping[TopicPartition, tuple[int, int]]
) -> EncodedRequest[Any]:
    api = Api.OFFSET_FOR_LEADER_EPOCH
    topics: dict[str, list[Any]] = {}
    for at, (leader_epoch, epoch) in requested.items():
        part = connection.build_struct(
            api,
            "OffsetForLeaderPartition",
            partition=at.partition,
            current_leader_epoch=leader_epoch,
            leader_epoch=epoch,
        )
        topics.setdefault(at.topic, []).append(part)
    structs = (
        connection.build_struct(api, "OffsetForLeaderTopic", topic=topic, partitions=tuple(parts))
        for topic, parts in topics.items()
    )
    return encode_request(connection.build_request(api, replica_id=_CONSUMER, topics=tuple(structs)))
