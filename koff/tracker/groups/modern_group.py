"""The common part of consumer, share and streams groups: epochs, and members with three records each.

The records of a member are its metadata (types 5, 10, 19), its target assignment (7, 13, 21) and its current
assignment (8, 14, 22). After compaction they may come in any order, and before the group's own record.
"""

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from koff.tracker.groups.plain_state import intern_strings, load_assignment
from koff.tracker.groups.views import (
    NOTHING,
    STABLE,
    UNKNOWN,
    Assignment,
    Group,
    GroupSubscription,
    Member,
    Tasks,
    merge_assignments,
)
from koff.tracker.impossible import count_impossible

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


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """The record types of a kind of group, and the fields of their values that have assignments.

    The tombstone of the type `group` deletes the group. `others` are types that only this kind has. A part of
    a field has partitions, and `part_key` is what they are of: a topic id or a subtopology id.
    """

    group: type[Any]
    profile: type[Any]
    target_epoch: type[Any]
    target: type[Any]
    current: type[Any]
    others: tuple[type[Any], ...]
    part_key: str
    target_fields: tuple[str, ...]
    assigned_fields: tuple[str, ...]
    revoking_fields: tuple[str, ...]
    member_states: Mapping[int, str]

    @property
    def types(self) -> tuple[type[Any], ...]:
        """All record types."""
        return (self.group, self.profile, self.target_epoch, self.target, self.current, *self.others)


UNKNOWN_PROFILE = Profile()


class ModernGroupState(ABC, Generic[AssignmentT]):
    """A group that is built from its records, one by one (`apply`)."""

    __slots__ = ("_current", "_profiles", "_targets", "_view", "assignment_epoch", "epoch")

    kind: ClassVar[str]
    records: ClassVar[GroupRecords]
    join: ClassVar[Callable[..., Any]]
    """The `AssignmentT` with these parts, one for each field with an assignment; without parts: nothing."""

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

    def apply(self, record: Any, impossible: Counter[str]) -> None:
        """Applies a record of `records`, value or tombstone, but not the group's own tombstone.

        `impossible` counts what is left out of assignments.
        """
        self._view = None
        records, kind, value = self.records, type(record), record.value
        if kind is records.current:
            current = None if value is None else self._read_current(value, impossible)
            self._set_current(record.member_id, current)
        elif kind is records.target:
            target = None if value is None else self._read_parts(value, records.target_fields, impossible)
            self._set_target(record.member_id, target)
        elif kind is records.profile:
            self._set_profile(record.member_id, None if value is None else _read_profile(value))
        elif kind is records.target_epoch:
            self.assignment_epoch = LEFT if value is None else value.assignment_epoch
        else:
            if kind is records.group:
                self.epoch = value.epoch
            self._apply_own(record)

    def view(self, name: str) -> Group:
        """The present group: the same object until the next record."""
        if self._view is None:
            members = tuple(map(self._build_member, sorted(self._member_ids())))
            self._view = Group(
                name,
                self.kind,
                self.state,
                self.epoch,
                protocol_type=self.kind,
                members=members,
                assignment_epoch=self.assignment_epoch,
                **self._own_facts(),
            )
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
        currents = map(self._current_of, members)
        if all(each.state == STABLE and each.epoch == self.assignment_epoch for each in currents):
            return STABLE
        return "Reconciling"

    # --- What a kind of group has of its own -------------------------------------------------------------

    def _apply_own(self, record: Any) -> None:
        """Applies what only records of this kind have: those of `records.others`, and the group's own."""

    @abstractmethod
    def _own_facts(self) -> dict[str, Any]:
        """Fields of `Group` that only groups of this kind have."""

    def _find_state(self, value: Any) -> str:
        """The member state in the value of a current assignment."""
        return self.records.member_states.get(value.state, UNKNOWN)

    def _find_partitions(self, assigned: AssignmentT) -> Assignment:
        """The partitions that a member with this assignment reads."""
        return self._split(assigned)[0]

    def _find_subscription(self, profile: Profile) -> GroupSubscription:
        return profile.subscription

    # --- Members -----------------------------------------------------------------------------------------

    @staticmethod
    def _split(assigned: Any) -> tuple[Assignment, ...]:
        """The parts of the assignment, for `join`."""
        return (
            (assigned.active, assigned.standby, assigned.warmup) if type(assigned) is Tasks else (assigned,)
        )

    def _read_parts(self, value: Any, fields: Iterable[str], impossible: Counter[str]) -> AssignmentT:
        key = self.records.part_key
        found = [[(getattr(part, key), part.partitions) for part in getattr(value, name)] for name in fields]
        for parts in found:
            count_impossible(impossible, parts)
        assigned: AssignmentT = self.join(*map(merge_assignments, found))
        return assigned

    def _read_current(self, value: Any, impossible: Counter[str]) -> Current[AssignmentT]:
        return Current(
            value.member_epoch,
            self._find_state(value),
            self._read_parts(value, self.records.assigned_fields, impossible),
            self._read_parts(value, self.records.revoking_fields, impossible),
        )

    def _build_member(self, id_: str) -> Member:
        profile = self._profiles.get(id_, UNKNOWN_PROFILE)
        current, target = self._current_of(id_), self._targets.get(id_)
        # The member may still be reading the partitions, or running the tasks, that it must give up.
        assigned: AssignmentT = current.assigned
        if current.revoking != self.join():
            pairs = zip(self._split(assigned), self._split(current.revoking), strict=True)
            assigned = self.join(*(merge_assignments((*own.items(), *more.items())) for own, more in pairs))
        return Member(
            id_,
            profile.client_id,
            profile.client_host,
            profile.instance_id,
            self._find_partitions(assigned),
            profile.rack_id,
            self._find_subscription(profile),
            self._find_partitions(current.revoking),
            None if target is None else self._find_partitions(target),
            current.epoch,
            current.state,
            current.epoch >= 0,
            profile.classic,
            assigned if isinstance(assigned, Tasks) else None,
            profile.process_id,
        )

    def _member_ids(self) -> Collection[str]:
        """The ids with metadata or a current assignment. A target assignment alone makes no member."""
        return self._profiles.keys() | self._current.keys()

    def _current_of(self, member: str) -> Current[AssignmentT]:
        # A member without a record of its current assignment has joined, but was assigned nothing yet.
        return self._current.get(member) or Current(0, STABLE, self.join(), self.join())

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
            self._current[member] = Current(LEFT, STABLE, self.join(), self.join())

    # --- The saved form ----------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        members = self._profiles.keys() | self._current.keys() | self._targets.keys()
        return {
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "members": {id_: self._save_member(id_) for id_ in sorted(members)},
        }

    def _save_member(self, member: str) -> list[Any]:
        """The three records of a member. Assignments never change, so they are not copied."""
        profile, target = self._profiles.get(member), self._targets.get(member)
        current, split = self._current.get(member), self._split
        return [
            None if profile is None else _save_profile(profile),
            None if current is None else (*current[:2], split(current.assigned), split(current.revoking)),
            None if target is None else split(target),
        ]

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = cls()
        group.epoch, group.assignment_epoch = saved["epoch"], saved["assignment_epoch"]
        for id_, (profile, current, target) in saved["members"].items():
            if profile is not None:
                group._profiles[id_] = _load_profile(*profile)
            # The target first: `_set_current` shares its object if the current assignment is equal.
            if target is not None:
                group._targets[id_] = cls.join(*map(load_assignment, target))
            if current is not None:
                epoch, state, *parts = current
                assigned, revoking = (cls.join(*map(load_assignment, each)) for each in parts)
                group._set_current(id_, Current(epoch, sys.intern(state), assigned, revoking))
        return group


def _read_profile(value: Any) -> Profile:
    """The profile in a record of any kind of group: each kind has some of the fields."""
    classic = getattr(value, "classic_member_metadata", None)
    return Profile(
        sys.intern(value.client_id),
        sys.intern(value.client_host),
        getattr(value, "instance_id", None),
        value.rack_id or None,
        make_subscription(
            getattr(value, "subscribed_topic_names", ()), getattr(value, "subscribed_topic_regex", None)
        ),
        sys.intern(getattr(value, "server_assignor", None) or ""),
        # An absent tag reads as an empty struct, which means "not given".
        classic is not None and bool(classic.supported_protocols or classic.session_timeout_ms),
        sys.intern(getattr(value, "process_id", "")),
    )


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
    client_id, client_host = sys.intern(client_id), sys.intern(client_host)
    return Profile(client_id, client_host, instance_id, rack_id, make_subscription(*subscribed), *more)


def make_subscription(topics: Iterable[str], regex: str | None = None) -> GroupSubscription:
    """A subscription. An empty regular expression means none."""
    return GroupSubscription(intern_strings(topics), sys.intern(regex) if regex else None)


def join_partitions(assigned: Assignment = NOTHING) -> Assignment:
    """The `AssignmentT` of a group whose members are assigned partitions: its only part."""
    return assigned
