"""The consumer groups that are stored in ZooKeeper, fetched without joining them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from koff.client.cluster import TopicPartition
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import CONSUMERS, GroupPaths, Registration, find_member

_MAX_PENDING = 500
_MAX_DIGITS = 19


class StoredOffset(NamedTuple):
    """The next offset to process, as a group stored it; each write changes `mzxid`."""

    offset: int
    stored_at_ms: int
    mzxid: int


@dataclass(slots=True)
class StoredGroup:
    """The offsets of a group, its live members, and the member that owns each partition."""

    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    members: dict[str, Registration] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)


def fetch_stored_groups(session: Session) -> dict[str, StoredGroup]:
    """All groups that have an offset or a member, by name. Raises `ConnectError`."""
    paths = [GroupPaths(name) for name in session.list_children(CONSUMERS)]
    groups = {group_paths.group: StoredGroup() for group_paths in paths}
    # Members first: the data of an owner node is looked up among the members' ids.
    for (group, member), (data, _) in _fetch_children(session, {p.group: p.ids for p in paths}):
        groups[group].members[member] = Registration.decode(data)
    for group, partition, data, stat in _fetch_partition_nodes(session, {p.group: p.offsets for p in paths}):
        # Data that is not a decimal number, or is beyond every offset, is no offset: leave it out.
        if data.isdigit() and len(data) <= _MAX_DIGITS:
            groups[group].offsets[partition] = StoredOffset(int(data), stat.mtime, stat.mzxid)
    for group, partition, data, _ in _fetch_partition_nodes(session, {p.group: p.owners for p in paths}):
        owner = find_member(data.decode(errors="replace"), groups[group].members)
        if owner is not None:
            groups[group].owners[partition] = owner
    return {name: group for name, group in groups.items() if group.offsets or group.members}


def _fetch_partition_nodes(
    session: Session, roots: dict[str, str]
) -> Iterator[tuple[str, TopicPartition, bytes, Any]]:
    """Group, partition, data and stat of each node `ROOT/TOPIC/PARTITION` below the group's root."""
    topics = {
        (group, topic): f"{roots[group]}/{topic}"
        for (group, children) in _fetch_all(session, "get_children", roots)
        for topic in children
    }
    for ((group, topic), partition), (data, stat) in _fetch_children(session, topics):
        if partition.isdecimal() and len(partition) <= _MAX_DIGITS:
            yield group, TopicPartition(topic, int(partition)), data, stat


def _fetch_children(session: Session, folders: dict[Any, str]) -> Iterator[tuple[Any, Any]]:
    """The data of the folders' child nodes: ((folder's key, child), (data, stat))."""
    paths = {
        (key, child): f"{folders[key]}/{child}"
        for key, children in _fetch_all(session, "get_children", folders)
        for child in children
    }
    yield from _fetch_all(session, "get", paths)


def _fetch_all(session: Session, operation: str, paths: dict[Any, str]) -> Iterator[tuple[Any, Any]]:
    """The key and the result of the operation for each path whose node exists."""
    # Up to `_MAX_PENDING` requests are under way at a time: sent one after another, each would take a whole
    # round trip.
    remaining = iter(paths.items())
    while batch := list(islice(remaining, _MAX_PENDING)):
        pending = [(key, session.submit(operation, path)) for key, path in batch]
        for key, request in pending:
            try:
                result = session.wait_for_result(request)
            except NoNode:
                continue
            yield key, result
