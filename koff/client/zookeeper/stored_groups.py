"""The groups that there are in ZooKeeper, read by whoever only looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from koff.client.cluster import TopicPartition
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import CONSUMERS, GroupPaths, Registration, member_of

_AT_ONCE = 500


class StoredOffset(NamedTuple):
    """The next offset to process as a group stored it; `change` is another with each time that it did."""

    offset: int
    stored_at_ms: int
    change: int


@dataclass(slots=True)
class StoredGroup:
    """A group: its offsets, its live members and what each of them owns."""

    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    members: dict[str, Registration] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)


def stored_groups(session: Session) -> dict[str, StoredGroup]:
    """All groups with an offset or a member, by name. Raises `ConnectError`."""
    paths = [GroupPaths(name) for name in session.children(CONSUMERS)]
    groups = {each.group: StoredGroup() for each in paths}
    for (group, id_), (data, _) in _read(session, {p.group: p.ids for p in paths}):
        groups[group].members[id_] = Registration.decode(data)
    for group, at, data, stat in _by_partition(session, {p.group: p.offsets for p in paths}):
        if data.isdigit():  # what is none is no offset for the group either
            groups[group].offsets[at] = StoredOffset(int(data), stat.mtime, stat.mzxid)
    for group, at, data, _ in _by_partition(session, {p.group: p.owners for p in paths}):
        member = member_of(data.decode(errors="replace"), groups[group].members)
        if member is not None:
            groups[group].owners[at] = member
    return {name: group for name, group in groups.items() if group.offsets or group.members}


def _by_partition(
    session: Session, roots: dict[str, str]
) -> Iterator[tuple[str, TopicPartition, bytes, Any]]:
    """What stands in `ROOT/TOPIC/PARTITION`, below the root of each group."""
    topics = {
        (group, topic): f"{roots[group]}/{topic}"
        for (group, found) in _many(session, "get_children", roots)
        for topic in found
    }
    for ((group, topic), partition), (data, stat) in _read(session, topics):
        if partition.isdecimal():
            yield group, TopicPartition(topic, int(partition)), data, stat


def _read(session: Session, folders: dict[Any, str]) -> Iterator[tuple[Any, Any]]:
    """What stands in the children of the folders: ((folder's key, child), (data, stat))."""
    paths = {
        (key, child): f"{folders[key]}/{child}"
        for key, found in _many(session, "get_children", folders)
        for child in found
    }
    yield from _many(session, "get", paths)


def _many(session: Session, operation: str, paths: dict[Any, str]) -> Iterator[tuple[Any, Any]]:
    """What the operation gives of each path that is there, many at a time."""
    left = iter(paths.items())
    while some := list(islice(left, _AT_ONCE)):
        under_way = [(key, session.begin(operation, path)) for key, path in some]
        for key, each in under_way:
            try:
                found = session.result(each)
            except NoNode:
                continue
            yield key, found
