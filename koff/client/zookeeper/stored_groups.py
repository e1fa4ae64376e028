"""The consumer groups that are stored in ZooKeeper, fetched without joining them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from koff.client.cluster_conf import TopicPartition
from koff.client.zookeeper.session import NoNode, Session
from koff.client.zookeeper.znodes import CONSUMERS, GroupPaths, Registration, find_member
from koff.errors import Denied

_MAX_PENDING = 500
_MAX_DIGITS = 19


class StoredOffset(NamedTuple):
    """The next offset to process, as a group stored it."""

    offset: int
    stored_at_ms: int


@dataclass(slots=True)
class StoredGroup:
    """The offsets of a group, its live members, and the member that owns each partition."""

    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    members: dict[str, Registration] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)


class FetchedStoredGroups(NamedTuple):
    """The groups that have an offset or a member, by name.

    `refused` are the groups of which this user may not READ a node, and the path of that node.
    """

    groups: dict[str, StoredGroup]
    refused: dict[str, str]


def fetch_stored_groups(session: Session) -> FetchedStoredGroups:
    """All groups. Raises `ConnectError`, and `Denied` if the groups may not be listed."""
    try:
        names = session.list_children(CONSUMERS)
    except Denied as error:
        raise Denied(f"{error}: READ of {CONSUMERS} is refused") from error
    paths = [GroupPaths(name) for name in names]
    groups = {name: StoredGroup() for name in names}
    refused: dict[str, str] = {}
    # Members first: the data of an owner node is looked up among the members' ids.
    for path, (data, _) in _fetch_children(session, [each.ids for each in paths], refused):
        _, _, group, _, member = path.split("/")
        groups[group].members[member] = Registration.decode(data)
    roots = [each.offsets for each in paths]
    for group, partition, data, stat in _fetch_partition_nodes(session, roots, refused):
        # Data that is not a decimal number, or is beyond every offset, is no offset: leave it out.
        if data.isdigit() and len(data) <= _MAX_DIGITS:
            groups[group].offsets[partition] = StoredOffset(int(data), stat.mtime)
    roots = [each.owners for each in paths]
    for group, partition, data, _ in _fetch_partition_nodes(session, roots, refused):
        owner = find_member(data.decode(errors="replace"), groups[group].members)
        if owner is not None:
            groups[group].owners[partition] = owner
    known = {
        name: group
        for name, group in groups.items()
        if name not in refused and (group.offsets or group.members)
    }
    return FetchedStoredGroups(known, refused)


def _fetch_partition_nodes(
    session: Session, roots: Iterable[str], refused: dict[str, str]
) -> Iterator[tuple[str, TopicPartition, bytes, Any]]:
    """Group, partition, data and stat of each node `ROOT/TOPIC/PARTITION`."""
    topics = _list_children(session, roots, refused)
    for path, (data, stat) in _fetch_children(session, topics, refused):
        _, _, group, _, topic, partition = path.split("/")
        if partition.isdecimal() and len(partition) <= _MAX_DIGITS:
            yield group, TopicPartition(topic, int(partition)), data, stat


def _fetch_children(
    session: Session, folders: Iterable[str], refused: dict[str, str]
) -> Iterator[tuple[str, tuple[bytes, Any]]]:
    """Path, data and stat of the folders' child nodes."""
    return _fetch_all(session, "get", _list_children(session, folders, refused), refused)


def _list_children(session: Session, folders: Iterable[str], refused: dict[str, str]) -> Iterator[str]:
    """The paths of the folders' child nodes."""
    for folder, children in _fetch_all(session, "get_children", folders, refused):
        yield from (f"{folder}/{child}" for child in children)


def _fetch_all(
    session: Session, operation: str, paths: Iterable[str], refused: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """The path and the result of the operation for each path whose node exists.

    A path that may not be READ is added to `refused`, by group.
    """
    # Up to `_MAX_PENDING` requests are under way at a time: sent one after another, each would take a whole
    # round trip.
    remaining = iter(paths)
    while batch := list(islice(remaining, _MAX_PENDING)):
        pending = [(path, session.submit(operation, path)) for path in batch]
        for path, request in pending:
            try:
                result = session.wait_for_result(request)
            except NoNode:
                continue
            except Denied:
                refused.setdefault(path.split("/")[2], path)
                continue
            yield path, result
