"""The common part of consumer, share and streams groups: epochs, and members with three records each.

The records of a member are its metadata (types 5, 10, 19), its target assignment (7, 13, 21) and its current
assignment (8, 14, 22). After compaction they may come in any order, and before the group's own record.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from koff.records import Record
from koff.tracker.groups.plain_state import intern_strings
from koff.tracker.groups.views import STABLE, Group, GroupSubscription, Member

AssignmentT = TypeVar("AssignmentT")
"""The assignment of a member: an `Assignment`, or `Tasks`."""
LEFT = -1
"""The epoch of a member whose current assignment was deleted, and of a deleted target assignment."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The metadata of a member, as the member sent it."""

    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    subscription: GroupSubscription = field(default_factory=GroupSubscription)
    assignor: str = ""
    classic: bool = False
    process_id: str = ""


class Current(NamedTuple, Generic[AssignmentT]):
    """The current assignment of a member. `revoking` is not part of `assigned`, but may still be read."""

    epoch: int
    state: str
    assigned: AssignmentT
    revoking: AssignmentT


class MemberDescription(NamedTuple, Generic[AssignmentT]):
    """A member as a coordinator described it. `target` is None if the response did not have it."""

    profile: Profile
    current: Current[AssignmentT]
    target: AssignmentT | None


UNKNOWN_PROFILE = Profile()


class ModernGroupState(ABC, Generic[AssignmentT]):
    """A group that is built from its records, one by one (`apply`)."""

    __slots__ = ("_current", "_profiles", "_targets", "_view", "assignment_epoch", "epoch")

    kind: ClassVar[str]
    record_types: ClassVar[tuple[type[Any], ...]]
    """The record types of the group. The tombstone of the first type deletes the group."""
    no_assignment: ClassVar[Any]
    """The `AssignmentT` of a member with nothing assigned."""

    def __init__(self) -> None:
        self.epoch = 0
        self.assignment_epoch = 0
        self._profiles: dict[str, Profile] = {}
        self._targets: dict[str, AssignmentT] = {}
        self._current: dict[str, Current[AssignmentT]] = {}
        self._view: Group | None = None

    @classmethod
    def from_description(
        cls, epoch: int, assignment_epoch: int, members: Mapping[str, MemberDescription[AssignmentT]]
    ) -> Self:
        """The group that a coordinator described, in the state that its records would have built."""
        group = cls()
        group.epoch, group.assignment_epoch = epoch, assignment_epoch
        for id_, (profile, current, target) in members.items():
            group._set_profile(id_, profile)
            group._set_target(id_, target)  # before the current one, which may share its object
            group._set_current(id_, current)
        return group

    def apply(self, record: Record) -> None:
        """Applies a record of `record_types`, value or tombstone, but not the group's own tombstone."""
        self._view = None
        self._apply_record(record)

    def view(self, name: str) -> Group:
        """The present group: the same object until the next record."""
        if self._view is None:
            self._view = self._build_group(name)
        return self._view

    @property
    def state(self) -> str:
        """The state in Kafka's words, by the rules of Kafka's class `ConsumerGroup`, or `StreamsGroup`."""
        members = self._member_ids()
        if not members:
            return "Empty"
        # The group has changed since the target assignment was computed.
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(self._is_reconciled(self._current_of(member)) for member in members):
            return STABLE
        return "Reconciling"

    @abstractmethod
    def _apply_record(self, record: Record) -> None: ...

    @abstractmethod
    def _build_group(self, name: str) -> Group: ...

    @abstractmethod
    def _build_member(
        self, id_: str, profile: Profile, current: Current[AssignmentT], target: AssignmentT | None
    ) -> Member: ...

    def _build_members(self) -> tuple[Member, ...]:
        return tuple(
            self._build_member(
                id_, self._profiles.get(id_, UNKNOWN_PROFILE), self._current_of(id_), self._targets.get(id_)
            )
            for id_ in sorted(self._member_ids())
        )

    def _member_ids(self) -> Iterable[str]:
        """The ids with metadata or a current assignment. A target assignment alone makes no member."""
        return self._profiles.keys() | self._current.keys()

    def _current_of(self, member: str) -> Current[AssignmentT]:
        # A member without a record of its current assignment has joined, but was assigned nothing yet.
        return self._current.get(member) or Current(0, STABLE, self.no_assignment, self.no_assignment)

    def _is_reconciled(self, current: Current[AssignmentT]) -> bool:
        return current.state == STABLE and current.epoch == self.assignment_epoch

    def _set_profile(self, member: str, profile: Profile | None) -> None:
        """Sets the metadata of a member. None removes the member."""
        if profile is not None:
            self._profiles[member] = profile
        else:
            # The target stays until its own tombstone: alone it makes no member.
            self._profiles.pop(member, None)
            self._current.pop(member, None)

    def _set_target(self, member: str, target: AssignmentT | None) -> None:
        """Sets the target assignment of a member. None removes it."""
        if target is None:
            self._targets.pop(member, None)
        else:
            self._targets[member] = target

    def _set_current(self, member: str, current: Current[AssignmentT] | None) -> None:
        """Sets the current assignment of a member.

        None sets it to nothing, with epoch LEFT: the member stays until its metadata is deleted.
        """
        if current is not None:
            target = self._targets.get(member)
            # In most cases the target is equal: both then share one object.
            self._current[member] = (
                current._replace(assigned=target) if target == current.assigned else current
            )
        elif member in self._profiles or member in self._current:
            self._current[member] = Current(LEFT, STABLE, self.no_assignment, self.no_assignment)

    def save(self) -> dict[str, Any]:
        """The state of the group, for `load`."""
        members = self._profiles.keys() | self._current.keys() | self._targets.keys()
        return {
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "members": {id_: self._save_member(id_) for id_ in sorted(members)},
        }

    def _save_member(self, member: str) -> list[Any]:
        """The three records of a member. Assignments never change, so they are not copied."""
        profile, current, target = (
            self._profiles.get(member),
            self._current.get(member),
            self._targets.get(member),
        )
        return [
            None if profile is None else _save_profile(profile),
            None
            if current is None
            else (
                current.epoch,
                current.state,
                self._save_assignment(current.assigned),
                self._save_assignment(current.revoking),
            ),
            None if target is None else self._save_assignment(target),
        ]

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        """The group from `save`."""
        group = cls()
        group.epoch, group.assignment_epoch = saved["epoch"], saved["assignment_epoch"]
        for id_, records in saved["members"].items():
            profile, current, target = records
            if profile is not None:
                group._profiles[id_] = _load_profile(*profile)
            # The target first: `_set_current` shares its object if the current assignment is equal.
            if target is not None:
                group._targets[id_] = cls._load_assignment(target)
            if current is not None:
                epoch, state, assigned, revoking = current
                group._set_current(
                    id_,
                    Current(
                        epoch,
                        sys.intern(state),
                        cls._load_assignment(assigned),
                        cls._load_assignment(revoking),
                    ),
                )
        return group

    @staticmethod
    def _save_assignment(assigned: AssignmentT) -> Any:
        """The assignment as dicts, tuples and numbers, for `_load_assignment`."""
        return assigned

    @classmethod
    @abstractmethod
    def _load_assignment(cls, saved: Any) -> AssignmentT:
        """The assignment from `_save_assignment`."""


def _save_profile(profile: Profile) -> tuple[Any, ...]:
    subscribed = (profile.subscription.topics, profile.subscription.regex)
    more = (profile.assignor, profile.classic, profile.process_id)
    return (profile.client_id, profile.client_host, profile.instance_id, profile.rack_id, subscribed, *more)


def _load_profile(
    client_id: str,
    client_host: str,
    instance_id: str | None,
    rack_id: str | None,
    subscribed: tuple[Iterable[str], str | None],
    *more: Any,
) -> Profile:
    return Profile(
        sys.intern(client_id),
        sys.intern(client_host),
        instance_id,
        rack_id,
        make_subscription(*subscribed),
        *more,
    )


def make_subscription(topics: Iterable[str], regex: str | None = None) -> GroupSubscription:
    """A subscription. An empty regular expression means none."""
    return GroupSubscription(intern_strings(topics), sys.intern(regex) if regex else None)
