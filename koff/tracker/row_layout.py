"""Which rows and groups a snapshot of a shard has, in which order."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koff.tracker.commit_rows import CommitRows
from koff.tracker.groups import GroupTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.shown import ShownNames


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """The live rows, each with its group and partition. The same object until rows or groups come or go.

    `names` are the groups with commits, by the numbers in `group`, then the described groups without commits.
    """

    rows: Ints
    names: list[str]
    group: NDArray[np.int32]
    partition: NDArray[np.int32]

    def select(self, groups: NDArray[np.bool_], rows: NDArray[np.bool_] | bool = True) -> "RowLayout":
        """The layout of the groups in the first mask, and of their rows that are in the second."""
        kept, numbers = groups[self.group] & rows, np.cumsum(groups) - 1
        return RowLayout(
            self.rows[kept],
            [self.names[i] for i in np.flatnonzero(groups).tolist()],
            numbers[self.group[kept]].astype(np.int32),
            self.partition[kept],
        )


class ShownRows:
    """The rows of the groups of a shard as these exist, and those of them that are shown.

    Of share groups, these are the rows from share state; of others, all others. A share group exists as long
    as it has records in the offsets topic.
    """

    def __init__(self, registry: Registry, rows: CommitRows, groups: GroupTable) -> None:
        self.hidden: frozenset[str] = frozenset()
        """Groups that are left out, besides those that are not to be shown at all."""
        self._registry, self._rows, self._groups = registry, rows, groups
        self._share_groups: tuple[int, frozenset[str]] = -1, frozenset()  # as of a version of kinds
        self._all: RowLayout | None = None
        # What `_all` was made of: the arrangement of rows, kinds, described groups and share groups.
        self._made_of: tuple[int, int, list[str], frozenset[str]] = -1, -1, [], frozenset()
        # What `_shown` was made of, and what it is.
        self._shown: tuple[RowLayout, frozenset[str], ShownNames, RowLayout] | None = None
        self._readable: tuple[RowLayout, int, Ints] | None = None
        self._names: tuple[RowLayout, frozenset[str]] | None = None

    def find_share_groups(self) -> frozenset[str]:
        """The names of the groups that are known to be share groups."""
        kinds = self._groups.kinds_version
        if self._share_groups[0] != kinds:
            names = self._groups.names()
            self._share_groups = kinds, frozenset(filter(self._groups.is_share_group, names))
        return self._share_groups[1]

    def arrange_all(self) -> RowLayout:
        """The layout of all rows, shown or hidden. It is made again if rows or described groups changed."""
        arrangement, kinds = self._rows.arrangement, self._groups.kinds_version
        if self._all is not None and self._made_of[:2] == (arrangement, kinds):
            return self._all
        # Which groups are share groups decides which rows from share state are shown.
        described, shares = self._groups.names(), self.find_share_groups()
        if self._all is None or (self._made_of[0], *self._made_of[2:]) != (arrangement, described, shares):
            self._all = self._arrange(described, shares)
        self._made_of = arrangement, kinds, described, shares
        return self._all

    def arrange_shown(self) -> RowLayout:
        """The layout without the groups that are hidden, and with the names to be shown."""
        layout, names = self.arrange_all(), self._registry.shown
        if not self.hidden and names.are_all:
            return layout
        made_of = layout, self.hidden, names
        if self._shown is None or self._shown[:3] != made_of:
            mask = np.array([name not in self.hidden for name in layout.names], np.bool_)
            mask &= names.mask_groups(layout.names)
            shown = layout.select(mask, self.shows_partitions(layout.partition))
            self._shown = *made_of, shown
        return self._shown[3]

    def list_readable(self) -> Ints:
        """The shown rows of groups that are not share groups."""
        # A group may become a share group, or cease to be one, under its name: then the layout is the same.
        layout, kinds = self.arrange_shown(), self._groups.kinds_version
        if self._readable is None or self._readable[:2] != (layout, kinds):
            shares = self.find_share_groups()
            included = np.array([name not in shares for name in layout.names], np.bool_)
            self._readable = layout, kinds, layout.rows[included[layout.group]]
        return self._readable[2]

    def group_names(self) -> Collection[str]:
        """The names of all groups, with commits or without, shown or hidden."""
        if not self._rows.share_partition:
            return self._rows.of_group.keys() | set(self._groups.names())
        layout = self.arrange_all()  # rows from share state alone make no group
        if self._names is None or self._names[0] is not layout:
            self._names = layout, frozenset(layout.names)
        return self._names[1]

    def has_group(self, name: str) -> bool:
        """Whether the group has commits or a description here."""
        if not self._rows.share_partition:
            return name in self._rows.of_group or name in self._groups
        return name in self.group_names()

    def shows_partitions(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Which of the topic partitions with these numbers are of topics that are shown."""
        if not self._registry.shown.topics:
            return np.ones(len(numbers), np.bool_)
        codes, index = np.unique(
            self._registry.partitions.numbers.columns.topic[numbers], return_inverse=True
        )
        topics = self._registry.names.topics.names
        return self._registry.shown.mask_topics([topics[code] for code in codes.tolist()])[index]

    def split_partitions(self, assigned: Ints) -> tuple[Ints, Ints]:
        """The numbers of the topic partitions of the groups that are shown, and of the hidden groups.

        `assigned` are the partitions that members of groups that are shown have.
        """
        rows, names = self._rows, self._registry.names.groups.names
        live = rows.list_live()
        group, partition = rows.group[live], rows.partition[live].astype(np.int64)
        codes, index = np.unique(group, return_inverse=True)
        groups = [names[code] for code in codes.tolist()]
        shown = self._registry.shown.mask_groups(groups)
        shown &= np.array([name not in self.hidden for name in groups], np.bool_)
        is_shown, shows = shown[index] & self.shows_partitions(partition), self.shows_partitions(assigned)
        return (
            np.concatenate([partition[is_shown], assigned[shows]]),
            np.concatenate([partition[~is_shown], assigned[~shows]]),
        )

    def _arrange(self, described: list[str], share_groups: frozenset[str]) -> RowLayout:
        rows, groups = self._rows, self._registry.names.groups
        live = rows.list_live()
        if rows.share_partition or share_groups:
            codes = [groups.assign_code(name) for name in share_groups]
            live = live[np.isin(rows.group[live], codes) == rows.is_shared(live)]
        distinct, group = np.unique(rows.group[live], return_inverse=True)
        names = [groups.names[code] for code in distinct.tolist()]
        with_commits = set(names)
        names += [name for name in described if name not in with_commits]
        return RowLayout(live, names, group.astype(np.int32), rows.partition[live])
