"""What a tracker is given to begin with, when it does not begin at the start of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from koff.records.placement import group_partition

Codes = NDArray[np.int32]


class Commits(Protocol):
    """Committed offsets as columns, a row each; `group` and `topic` are places in `groups` and `topics`."""

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
    """The commits of some groups; satisfies `Commits`. No (group, topic, partition) comes twice."""

    groups: list[str]
    topics: list[str]
    group: Codes
    topic: Codes
    partition: Codes
    offset: NDArray[np.int64]

    @classmethod
    def of(cls, commits: Commits, rows: NDArray[np.intp]) -> Self:
        """Those rows of the commits."""
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


def by_home(commits: Commits, partitions: int) -> Iterator[tuple[int, Seed]]:
    """The commits by the partition of the offsets topic that their groups live in, of so many."""
    if not len(commits.group):
        return
    home = np.array([group_partition(name, partitions) for name in commits.groups], np.int32)[commits.group]
    order = np.argsort(home, kind="stable")
    numbers, starts = np.unique(home[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield number, Seed.of(commits, rows)
