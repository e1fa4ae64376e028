"""The reset of a group's offsets before its first member starts to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, TopicPartition
from koff.client.zookeeper.conf import ConsumerGroupConf
from koff.client.zookeeper.intake import INITIAL
from koff.client.zookeeper.offset_manager import OffsetManager
from koff.client.zookeeper.session import Session
from koff.client.zookeeper.znodes import GroupPaths
from koff.errors import ConfigError, ConnectError
from koff.logs import get_logger

log = get_logger("client.zookeeper")


@runtime_checkable
class Resettable(Protocol):
    """An offset manager that can set the offsets of a group without members, as koff's own can."""

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores the next offset of each partition. Raises `KoffError`."""


def reset_offsets(
    session: Session,
    paths: GroupPaths,
    cluster: Cluster,
    partition_counts: Mapping[str, int],
    offsets: OffsetManager,
    conf: ConsumerGroupConf,
) -> None:
    """Sets the group's offsets to the initial offset, unless a member is registered.

    Raises `ConfigError` if the offset manager is not `Resettable`, and `ConnectError`.
    """
    others = session.list_children(paths.ids)
    if others:
        log.warning(
            "offsets are not reset: other members are registered", group=paths.group, others=len(others)
        )
        return
    if not isinstance(offsets, Resettable):
        raise ConfigError(
            "reset_offsets: the configured offset manager cannot reset offsets; give it a method reset, or "
            "reset the offsets in its store"
        )
    # Fetch the initial offset of each partition. If one is missing, no offset is reset.
    partitions = [
        TopicPartition(topic, partition)
        for topic, count in partition_counts.items()
        for partition in range(count)
    ]
    isolation = Isolation(conf.feed.isolation)
    fetched = cluster.fetch_offsets(partitions, INITIAL[conf.initial_offset], isolation)
    failed = {partition: reason for partition, reason in fetched.items() if isinstance(reason, str)}
    if failed:
        (topic, partition), reason = next(iter(failed.items()))
        raise ConnectError(
            f"offsets are not reset: cannot fetch the offset of {topic}/{partition}: {reason}; "
            "check that its leader runs"
        )
    offsets.reset({partition: offset for partition, offset in fetched.items() if isinstance(offset, int)})
