"""Committed offsets as columns, as coordinators and ZooKeeper return them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from koff.records.placement import group_partition
from koff.tracker.impossible import NAME, PARTITION, is_possible_name

Codes = NDArray[np.int32]


class Commits(Protocol):
    """Committed offsets as columns (N,). `group` and `topic` are indexes into `groups` and `topics`."""

    @property
    def groups(self) -> Sequence[str]: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def group(self) -> Codes: ...
    @property
    def topic(self) -> Codes: ...
    @property
    def partition(self) -> Codes: ...
    @property
    def offset(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class CommitColumns:
    """The commits of some groups, as `Commits`. No (group, topic, partition) occurs twice."""

    groups: list[str]
    topics: list[str]
    group: Codes
    topic: Codes
    partition: Codes
    offset: NDArray[np.int64]

    @classmethod
    def select_rows(cls, commits: Commits, rows: NDArray[np.intp]) -> Self:
        """Only these `rows` of the commits."""
        groups, group = np.unique(commits.group[rows], return_inverse=True)
        topics, topic = np.unique(commits.topic[rows], return_inverse=True)
        return cls(
            [commits.groups[code] for code in groups.tolist()],
            [commits.topics[code] for code in topics.tolist()],
            group.astype(np.int32),
            topic.astype(np.int32),
            commits.partition[rows],
            commits.offset[rows],
        )

    @classmethod
    def from_offsets(cls, offsets: Mapping[tuple[str, str, int], int]) -> Self:
        """The columns of committed offsets by (group, topic, partition)."""
        groups: dict[str, int] = {}
        topics: dict[str, int] = {}
        codes = [
            (groups.setdefault(group, len(groups)), topics.setdefault(topic, len(topics)), partition)
            for group, topic, partition in offsets
        ]
        group, topic, partition = np.array(codes, np.int32).reshape(-1, 3).T.copy()
        offset = np.fromiter(offsets.values(), np.int64, len(offsets))
        return cls(list(groups), list(topics), group, topic, partition, offset)


def find_possible_commits(commits: Commits, counts: Counter[str]) -> tuple[Commits, NDArray[np.intp]]:
    """The commits whose partitions and names are possible, and their indexes. Counts the others."""
    groups, topics = (
        np.array([is_possible_name(name) for name in names], np.bool_)
        for names in (commits.groups, commits.topics)
    )
    below, named = commits.partition < 0, np.ones(len(commits.group), np.bool_)
    if not (groups.all() and topics.all()):
        named = groups[commits.group] & topics[commits.topic]
    kept = np.flatnonzero(named & ~below)
    if len(kept) == len(below):  # the usual case
        return commits, kept
    for what, where in ((PARTITION, below), (NAME, ~below & ~named)):
        if found := int(where.sum()):
            counts[what] += found
    return CommitColumns.select_rows(commits, kept), kept


def split_by_offsets_partition(
    commits: Commits, partitions: int, elsewhere: Mapping[str, int] = MappingProxyType({})
) -> Iterator[tuple[int, CommitColumns]]:
    """The commits of each partition of the offsets topic that has any.

    A group belongs to one partition: that in `elsewhere`, or else that of its name (`group_partition`).
    `partitions` is the partition count of the topic.
    """
    if not len(commits.group):
        return
    # Hash each group name once, not once per row.
    numbers_by_group = [elsewhere.get(name, group_partition(name, partitions)) for name in commits.groups]
    by_group = np.array(numbers_by_group, np.int32)
    offsets_partition = by_group[commits.group]
    order = np.argsort(offsets_partition, kind="stable")
    numbers, starts = np.unique(offsets_partition[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield number, CommitColumns.select_rows(commits, rows)
