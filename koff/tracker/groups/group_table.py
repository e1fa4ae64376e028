"""The groups of one partition of `__consumer_offsets`, apart from their offsets.

The rules of replay are in docs/records-format.md, 4.5 to 4.8. A group has the type of its last records,
whatever its type was before, so a conversion from one type to another needs no rule of its own. In a correct
log, the records of a group are deleted before it becomes a group of another type. Where they are not, the
last record wins, and the contradiction is counted (a broker refuses to load such a partition).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Self

from koff.errors import KoffError
from koff.records import DecodedMessage, GroupMetadata, GroupMetadataValue, Record
from koff.tracker.groups.classic_group import build_classic_group, load_classic_group, save_classic_group
from koff.tracker.groups.consumer_group import ConsumerGroupState
from koff.tracker.groups.modern_group import ModernGroupState
from koff.tracker.groups.share_group import ShareGroupState
from koff.tracker.groups.streams_group import StreamsGroupState
from koff.tracker.groups.views import Group
from koff.tracker.name_changes import NameChanges

SCHEMA = 2
"""The schema of `GroupTable.to_state`. A state of another schema cannot be restored."""
_MODERN: dict[str, type[ModernGroupState[Any]]] = {
    kind.kind: kind for kind in (ConsumerGroupState, ShareGroupState, StreamsGroupState)
}
_KINDS: dict[type[Any], type[ModernGroupState[Any]]] = {
    record: kind for kind in _MODERN.values() for record in kind.records.types
}
_State = Group | GroupMetadataValue | ModernGroupState[Any]
"""A classic group stays a record value until it is read: in a replay, a later record replaces most values."""
Described = Group | ModernGroupState[Any]
"""A group as a coordinator described it: a classic or simple group, or one that later records change."""


class GroupTable:
    """The groups, built from their records in log order.

    `impossible` counts what is left out of assignments (`koff.tracker.impossible`).
    """

    __slots__ = ("_groups", "_impossible", "changes", "contradictions", "kinds_version")

    def __init__(self, impossible: Counter[str] | None = None) -> None:
        self._groups: dict[str, _State] = {}
        self._impossible = Counter[str]() if impossible is None else impossible
        self.changes = NameChanges()
        """The groups that came, went or changed."""
        self.contradictions = 0
        """The number of records for a group that had another type at that moment."""
        self.kinds_version = 0
        """Changes whenever a group comes, goes, or changes its type."""

    def apply(self, message: DecodedMessage) -> None:
        """Applies the next record in log order. Ignores commits and undecodable records.

        A tombstone for something that does not exist changes nothing, and creates no group.
        """
        record = message.record
        if isinstance(record, GroupMetadata):
            self._apply_classic(message.consumer, record)
        elif (kind := _KINDS.get(type(record))) is not None:
            self._apply_modern(message.consumer, record, kind, tombstone=message.tombstone)

    def put(self, name: str, group: Described) -> None:
        """Sets the group of that name, as a coordinator described it.

        A simple group is left out: it exists only as long as it has commits, and no record says that it ends.
        """
        if _is_simple(group):
            return
        self._groups[name] = group
        self.changes.add(name)
        self.kinds_version += 1

    def replace_all(self, groups: Mapping[str, Described], *, keep: Collection[str] = ()) -> None:
        """Replaces all groups with these, as `put` does, except the groups in `keep`."""
        groups = {name: group for name, group in groups.items() if not _is_simple(group)}
        before, kept = self._groups, {name for name in keep if name in self._groups}
        self.changes.update(name for name in before.keys() | groups.keys() if name not in kept)
        # The present order first: the same names in another order would be another layout.
        names = dict.fromkeys(name for name in before if name in kept or name in groups)
        names.update(dict.fromkeys(groups))
        self._groups = {name: before[name] if name in kept else groups[name] for name in names}
        self.kinds_version += 1

    def is_share_group(self, name: str) -> bool:
        """Whether the group of that name is known to be a share group."""
        group = self._groups.get(name)
        return isinstance(group, ShareGroupState) or (isinstance(group, Group) and group.type == "share")

    def get(self, name: str) -> Group | None:
        """The present group, the same object until it changes; None if the group has nothing but commits."""
        group = self._groups.get(name)
        if isinstance(group, ModernGroupState):
            return group.view(name)
        if isinstance(group, GroupMetadataValue):  # decode its members now, and keep the result
            group = self._groups[name] = build_classic_group(name, group, self._impossible)
        return group

    def names(self) -> list[str]:
        """The names of all groups that have more than commits, in no particular order."""
        return list(self._groups)

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def to_state(self) -> dict[str, Any]:
        """The state as lists, tuples, dicts, strings and numbers, for `from_state`."""
        groups = {name: self._save_group(name) for name in self._groups}
        return {"schema": SCHEMA, "contradictions": self.contradictions, "groups": groups}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], impossible: Counter[str] | None = None) -> Self:
        """The table restored from `to_state`. Raises `KoffError` if it is of another schema."""
        if state.get("schema") != SCHEMA:
            raise KoffError(
                f"saved groups have schema {state.get('schema')}, but this koff reads schema {SCHEMA}: "
                "do not restore them, read the offsets topic again"
            )
        table = cls(impossible)
        table.contradictions = state["contradictions"]
        for name, (type_, saved) in state["groups"].items():
            table._groups[name] = (
                load_classic_group(name, saved) if type_ == "classic" else _MODERN[type_].load(saved)
            )
        table.changes.update(table._groups)
        return table

    def _save_group(self, name: str) -> list[Any]:
        group = self._groups[name]
        if isinstance(group, ModernGroupState):
            return [group.kind, group.save()]
        view = self.get(name)
        assert view is not None
        return ["classic", save_classic_group(view)]

    def _apply_classic(self, name: str, record: GroupMetadata) -> None:
        before = self._groups.get(name)
        if record.value is not None:
            self.contradictions += isinstance(before, ModernGroupState)  # its records were not deleted
            self._groups[name] = record.value
        elif before is None or isinstance(before, ModernGroupState):  # a converted group has taken its place
            return
        else:
            del self._groups[name]
        self.changes.add(name)
        self.kinds_version += before is None or record.value is None or isinstance(before, ModernGroupState)

    def _apply_modern(
        self, name: str, record: Record, kind: type[ModernGroupState[Any]], *, tombstone: bool
    ) -> None:
        group = self._groups.get(name)
        if not isinstance(group, kind):
            if tombstone:
                return
            # The first record that is not a tombstone makes the group: after compaction, the group's own
            # record may come late.
            self.contradictions += not (group is None or _is_simple(group))
            group = self._groups[name] = kind()
            self.kinds_version += 1
        elif tombstone and type(record) is kind.records.group:
            # Brokers write this tombstone after those of the members: drop the rest of the group.
            del self._groups[name]
            self.changes.add(name)
            self.kinds_version += 1
            return
        group.apply(record, self._impossible)
        self.changes.add(name)


def _is_simple(group: _State) -> bool:
    """Whether the group is simple. In Kafka, a group of any type may take the place of a simple group."""
    if isinstance(group, GroupMetadataValue):
        return not (group.protocol_type or group.members)
    return isinstance(group, Group) and group.type == "simple"
