"""Which rows the members of a shard's groups read, so that numbers of rows can be summed by member."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koff.tracker import Group, Member, ShardSnapshot, Snapshot

Ints = NDArray[np.int64]


class ShardMembers(NamedTuple):
    """The members with rows (M,): of each, the number of its `group`, and its `rank` in the group.

    `of_rows` (N,) is the number of each row's member: M for rows without one, so that sums have M + 1 places.
    `whole` (M + 1,) says where no row is withheld, or may be missing.
    """

    members: list[Member]
    group: Ints
    rank: Ints
    of_rows: Ints
    whole: NDArray[np.bool_]


def find_shard_members(snapshot: Snapshot, shard: ShardSnapshot) -> ShardMembers:
    """The members that are present. A partition of a share group has several members: they have no rows."""
    rows = _number_rows(snapshot, shard)
    numbers: dict[tuple[int, str], int] = {}
    members, ranks, of_rows = list[Member](), list[int](), dict[int, int]()
    for number, group in enumerate(shard.groups):
        before = len(members)
        for topic, partition, member in _list_read(snapshot, group):
            row = rows.get((number, topic, partition))
            if row is None:
                continue
            if (number, member.id) not in numbers:
                numbers[number, member.id] = len(members)
                ranks.append(len(members) - before)
                members.append(member)
            of_rows[row] = numbers[number, member.id]
    groups = np.array([number for number, _ in numbers], np.int64)
    column = np.full(len(shard.group), len(members), np.int64)
    column[list(of_rows)] = list(of_rows.values())
    whole = np.append(shard.summable_groups()[groups], False)
    whole[column[shard.is_withheld()]] = False
    return ShardMembers(members, groups, np.array(ranks, np.int64), column, whole)


def _number_rows(snapshot: Snapshot, shard: ShardSnapshot) -> dict[tuple[int, str, int], int]:
    """The number of each row by group, topic and partition."""
    places = snapshot.partitions
    pairs = zip(shard.group.tolist(), shard.partition.tolist(), strict=True)
    return {(group, places.topic[at], places.partition[at]): row for row, (group, at) in enumerate(pairs)}


def _list_read(snapshot: Snapshot, group: Group) -> Iterator[tuple[str, int, Member]]:
    """What each present member reads alone: topic, partition and member."""
    for topic, partition, member in snapshot.assignments(group) if group.type != "share" else ():
        if topic is not None and member.present:
            yield topic, partition, member
