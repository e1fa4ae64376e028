"""The state that a tracker starts with when it does not read the offsets topic from its start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from koff.records.placement import group_partition

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
class Seed:
    """The commits of some groups, as `Commits`. No (group, topic, partition) occurs twice."""

    groups: list[str]
    topics: list[str]
    group: Codes
    topic: Codes
    partition: Codes
    offset: NDArray[np.int64]

    @classmethod
    def select_rows(cls, commits: Commits, rows: NDArray[np.intp]) -> Self:
        """A seed with only these `rows` of the commits."""
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


def split_by_offsets_partition(commits: Commits, partitions: int) -> Iterator[tuple[int, Seed]]:
    """The commits of each partition of the offsets topic that has any.

    A group belongs to one partition (`group_partition`). `partitions` is the partition count of the topic.
    """
    if not len(commits.group):
        return
    # Hash each group name once, not once per row.
    by_group = np.array([group_partition(name, partitions) for name in commits.groups], np.int32)
    offsets_partition = by_group[commits.group]
    order = np.argsort(offsets_partition, kind="stable")
    numbers, starts = np.unique(offsets_partition[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield number, Seed.select_rows(commits, rows)
