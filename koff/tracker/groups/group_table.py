"""The groups of one partition of `__consumer_offsets`, beside their offsets, by docs/records-format.md 4.5 to 4.8.

A group is what its last records say, whatever it was before: conversions need no more than that. In a
sound log a group is brought to its end before it becomes one of another type; where it is not, the last
writer wins, which is counted. (A broker would refuse to load such a partition.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from koff.errors import KoffError
from koff.records import GroupMetadata, GroupMetadataValue, Message, Record
from koff.tracker.groups.classic_group import classic_group, load, save
from koff.tracker.groups.consumer_group import ConsumerGroupState
from koff.tracker.groups.modern_group import ModernGroupState
from koff.tracker.groups.share_group import ShareGroupState
from koff.tracker.groups.streams_group import StreamsGroupState
from koff.tracker.groups.views import Group

SCHEMA = 1
"""Of what `to_state` gives. A state with another is of no use."""
_MODERN: dict[str, type[ModernGroupState[Any]]] = {
    kind.kind: kind for kind in (ConsumerGroupState, ShareGroupState, StreamsGroupState)
}
_KINDS: dict[type[Any], type[ModernGroupState[Any]]] = {
    record: kind for kind in _MODERN.values() for record in kind.records
}
_State = Group | GroupMetadataValue | ModernGroupState[Any]
"""A classic group's record is taken apart when somebody looks: on the way there are many."""
Described = Group | ModernGroupState[Any]
"""A classic or simple group, or one that records go on to build."""
_ENDS = {kind.records[0] for kind in _MODERN.values()}


class GroupTable:
    """Takes the records about groups in log order; leaves commits and what is no record alone."""

    __slots__ = ("_groups", "contradictions")

    def __init__(self) -> None:
        self._groups: dict[str, _State] = {}
        self.contradictions = 0
        """How often a record was about a group of another type than the one that was there."""

    def apply(self, message: Message) -> None:
        """Takes the next record. A tombstone of what never was changes nothing, and makes no group."""
        record = message.record
        if isinstance(record, GroupMetadata):
            self._apply_classic(message.consumer, record)
        elif (kind := _KINDS.get(type(record))) is not None:
            self._apply_modern(message.consumer, record, kind, tombstone=message.tombstone)

    def put(self, name: str, group: Described) -> None:
        """Takes the group as a coordinator described it, in place of whatever there was."""
        self._groups[name] = group

    def be(self, groups: Mapping[str, Described]) -> None:
        """Takes these groups in place of all that there were."""
        self._groups = dict(groups)

    def get(self, name: str) -> Group | None:
        """The group as it is now, the same object until it changes; None where there are commits at most."""
        group = self._groups.get(name)
        if isinstance(group, ModernGroupState):
            return group.view(name)
        if isinstance(group, GroupMetadataValue):
            group = self._groups[name] = classic_group(name, group)
        return group

    def names(self) -> list[str]:
        """Of all groups that have more than commits, in no particular order."""
        return list(self._groups)

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def to_state(self) -> dict[str, Any]:
        """All of it in lists, tuples, dicts, strings and numbers, for `from_state`."""
        groups = {name: self._save(name) for name in self._groups}
        return {"schema": SCHEMA, "contradictions": self.contradictions, "groups": groups}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The table that gave the state. Raises `KoffError` when another version of koff did."""
        if state.get("schema") != SCHEMA:
            raise KoffError(f"saved groups have schema {state.get('schema')}, this koff reads {SCHEMA}")
        table = cls()
        table.contradictions = state["contradictions"]
        for name, (type_, saved) in state["groups"].items():
            table._groups[name] = load(name, saved) if type_ == "classic" else _MODERN[type_].load(saved)
        return table

    def _save(self, name: str) -> list[Any]:
        group = self._groups[name]
        if isinstance(group, ModernGroupState):
            return [group.kind, group.save()]
        view = self.get(name)
        assert view is not None
        return ["classic", save(view)]

    def _apply_classic(self, name: str, record: GroupMetadata) -> None:
        before = self._groups.get(name)
        if record.value is not None:
            self.contradictions += isinstance(before, ModernGroupState)
            self._groups[name] = record.value
        elif not isinstance(
            before, ModernGroupState
        ):  # that would be one that took the classic group's place
            self._groups.pop(name, None)

    def _apply_modern(
        self, name: str, record: Record, kind: type[ModernGroupState[Any]], *, tombstone: bool
    ) -> None:
        group = self._groups.get(name)
        if not isinstance(group, kind):
            if tombstone:
                return
            self.contradictions += not (group is None or _is_simple(group))
            group = self._groups[name] = kind()
        elif tombstone and type(record) in _ENDS:
            del self._groups[name]
            return
        group.apply(record)


def _is_simple(group: _State) -> bool:
    """Whether Kafka lets any group take its place."""
    if isinstance(group, GroupMetadataValue):
        return not (group.protocol_type or group.members)
    return isinstance(group, Group) and group.type == "simple"
