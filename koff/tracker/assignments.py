"""The topic partitions that the members of a shard's groups are assigned, kept up to date group by group."""

from collections.abc import Callable, Mapping

import numpy as np

from koff.tracker.groups import Group, GroupTable
from koff.tracker.impossible import is_possible_name, possible_partitions
from koff.tracker.name_changes import NameChanges
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints

_NONE = np.zeros(0, np.int64)


class AssignmentTable:
    """The numbers of the assigned partitions, and the topic ids in assignments that have no name yet."""

    def __init__(self, registry: Registry) -> None:
        self.changes = NameChanges()
        """The groups whose assignments are to be read again."""
        self._registry = registry
        self._numbers: dict[str, Ints] = {}
        self._unnamed: dict[str, frozenset[str]] = {}
        self._all = _NONE
        self.unnamed_ids: frozenset[str] = frozenset()

    @property
    def numbers(self) -> Ints:
        """The numbers of the assigned partitions, as of the last `update`. A number may repeat."""
        return self._all

    def update(
        self, groups: GroupTable, is_hidden: Callable[[str], bool], topic_names: Mapping[str, str]
    ) -> None:
        """Reads the assignments of the groups in `changes`, and of groups with topic ids that have names now.

        Groups that are hidden count as not assigned anything.
        """
        if not self.unnamed_ids.isdisjoint(topic_names):
            named = (name for name, ids in self._unnamed.items() if not ids.isdisjoint(topic_names))
            self.changes.update(named)
        if not self.changes:
            return
        names = self.changes.drain()
        if names is None:
            names = {*groups.names(), *self._numbers, *self._unnamed}
        # All partitions get their numbers in one call, which is much faster than one for each group.
        pairs: list[tuple[str, int]] = []
        sizes: dict[str, int] = {}
        for name in names:
            self._numbers.pop(name, None)
            self._unnamed.pop(name, None)
            group = None if is_hidden(name) else groups.get(name)
            if group is not None and group.members:
                before = len(pairs)
                unnamed = _list_partitions(group, topic_names, pairs)
                sizes[name] = len(pairs) - before
                if unnamed:
                    self._unnamed[name] = frozenset(unnamed)
        numbers, at = self._registry.partitions.numbers.assign_by_name(pairs), 0
        for name, size in sizes.items():
            if size:
                self._numbers[name] = numbers[at : at + size].copy()  # a view would keep the whole array
            at += size
        self._all = np.unique(np.concatenate([_NONE, *self._numbers.values()]))
        self.unnamed_ids = frozenset().union(*self._unnamed.values())


def list_topic_ids(group: Group) -> set[str]:
    """The topic ids in the assignments of the group's members."""
    if not group.assigned_by_id:
        return set()
    return {topic_id for member in group.members for topic_id in member.assigned}


def _list_partitions(group: Group, topic_names: Mapping[str, str], pairs: list[tuple[str, int]]) -> set[str]:
    """Adds the assigned (topic, partition) to `pairs`, and returns the topic ids without a name."""
    unnamed = set()
    for member in group.members:
        for topic, partitions in member.assigned.items():
            name = topic_names.get(topic) if group.assigned_by_id else topic
            if name is None:
                unnamed.add(topic)
            elif is_possible_name(name):
                pairs += [(name, partition) for partition in possible_partitions(partitions)]
    return unnamed
