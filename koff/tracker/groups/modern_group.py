"""What consumer, share and streams groups have in common: epochs, and members known by three records each.

One record says who a member is (types 5, 10, 19), one where it shall be (7, 13, 21), one where it is
(8, 14, 22). After compaction they may come in any order, and before the group's own.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from koff.records import Record
from koff.tracker.groups.plain_state import strings
from koff.tracker.groups.views import STABLE, Group, GroupSubscription, Member

Held = TypeVar("Held")
"""What a member has: an `Assignment`, or `Tasks`."""
LEFT = -1
"""The epoch of a member whose record of where it is was deleted, and of an assignment that was."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a member said of itself."""

    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    subscription: GroupSubscription = field(default_factory=GroupSubscription)
    assignor: str = ""
    classic: bool = False
    process_id: str = ""


class Current(NamedTuple, Generic[Held]):
    """Where a member is. `revoking` is not in `held`, but the member may still be reading it."""

    epoch: int
    state: str
    held: Held
    revoking: Held


class Told(NamedTuple, Generic[Held]):
    """A member as a coordinator describes it. `target` None: it was not told."""

    who: Profile
    now: Current[Held]
    target: Held | None


UNSEEN = Profile()


class ModernGroupState(ABC, Generic[Held]):
    """A group that is built up record by record. What a record of its kind says, `apply` takes in."""

    __slots__ = ("_current", "_profiles", "_targets", "_view", "assignment_epoch", "epoch")

    kind: ClassVar[str]
    records: ClassVar[tuple[type[Any], ...]]
    """The records it is built from; the first is the group's own, whose tombstone ends it."""
    nothing: ClassVar[Any]
    """The `Held` of a member that has nothing."""

    def __init__(self) -> None:
        self.epoch = 0
        self.assignment_epoch = 0
        self._profiles: dict[str, Profile] = {}
        self._targets: dict[str, Held] = {}
        self._current: dict[str, Current[Held]] = {}
        self._view: Group | None = None

    @classmethod
    def told(cls, epoch: int, assignment_epoch: int, members: Mapping[str, Told[Held]]) -> Self:
        """The group that a coordinator described, as its records would have built it."""
        group = cls()
        group.epoch, group.assignment_epoch = epoch, assignment_epoch
        for id_, (who, now, target) in members.items():
            group._join(id_, who)
            group._aim(id_, target)
            group._stand(id_, now)
        return group

    def apply(self, record: Record) -> None:
        """Takes one of `records`, value or tombstone, except the tombstone that ends the group."""
        self._view = None
        self._take(record)

    def view(self, name: str) -> Group:
        """The group as it is now: the same object until the next record."""
        if self._view is None:
            self._view = self._group(name)
        return self._view

    @property
    def state(self) -> str:
        """Kafka's word for it, by the rules of its class of that name (ConsumerGroup and so on)."""
        members = self._members()
        if not members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(self._is_reconciled(self._now(member)) for member in members):
            return STABLE
        return "Reconciling"

    @abstractmethod
    def _take(self, record: Record) -> None: ...

    @abstractmethod
    def _group(self, name: str) -> Group: ...

    @abstractmethod
    def _member(self, id_: str, who: Profile, now: Current[Held], target: Held | None) -> Member: ...

    def _views(self) -> tuple[Member, ...]:
        return tuple(
            self._member(id_, self._profiles.get(id_, UNSEEN), self._now(id_), self._targets.get(id_))
            for id_ in sorted(self._members())
        )

    def _members(self) -> Iterable[str]:
        """Those of whom it is known who or where they are; a target alone makes no member."""
        return self._profiles.keys() | self._current.keys()

    def _now(self, member: str) -> Current[Held]:
        return self._current.get(member) or Current(0, STABLE, self.nothing, self.nothing)

    def _is_reconciled(self, now: Current[Held]) -> bool:
        return now.state == STABLE and now.epoch == self.assignment_epoch

    def _join(self, member: str, who: Profile | None) -> None:
        """None: the member is no more."""
        if who is not None:
            self._profiles[member] = who
        else:
            self._profiles.pop(member, None)
            self._current.pop(member, None)

    def _aim(self, member: str, target: Held | None) -> None:
        if target is None:
            self._targets.pop(member, None)
        else:
            self._targets[member] = target

    def _stand(self, member: str, now: Current[Held] | None) -> None:
        """None: the member, if there is one, has nothing now, and remains until it is no more."""
        if now is not None:
            target = self._targets.get(member)
            self._current[member] = now._replace(held=target) if target == now.held else now  # one copy
        elif member in self._profiles or member in self._current:
            self._current[member] = Current(LEFT, STABLE, self.nothing, self.nothing)

    def save(self) -> dict[str, Any]:
        """What `load` makes the same group of."""
        members = self._profiles.keys() | self._current.keys() | self._targets.keys()
        return {
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "members": {id_: self._saved(id_) for id_ in sorted(members)},
        }

    def _saved(self, member: str) -> list[Any]:
        """There are many of these: what nobody writes into is not copied."""
        who, now, target = self._profiles.get(member), self._current.get(member), self._targets.get(member)
        return [
            None if who is None else _saved_profile(who),
            None if now is None else (now.epoch, now.state, self._plain(now.held), self._plain(now.revoking)),
            None if target is None else self._plain(target),
        ]

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        group = cls()
        group.epoch, group.assignment_epoch = saved["epoch"], saved["assignment_epoch"]
        for id_, pieces in saved["members"].items():
            who, now, target = pieces
            if who is not None:
                group._profiles[id_] = _profile(*who)
            if target is not None:
                group._targets[id_] = cls._held(target)
            if now is not None:
                epoch, state, held, revoking = now
                group._stand(id_, Current(epoch, sys.intern(state), cls._held(held), cls._held(revoking)))
        return group

    @staticmethod
    def _plain(held: Held) -> Any:
        """Of dicts, tuples and numbers, for `_held`."""
        return held

    @classmethod
    @abstractmethod
    def _held(cls, saved: Any) -> Held:
        """What `_plain` made `saved` of."""


def _saved_profile(who: Profile) -> tuple[Any, ...]:
    asked = (who.subscription.topics, who.subscription.regex)
    more = (who.assignor, who.classic, who.process_id)
    return (who.client_id, who.client_host, who.instance_id, who.rack_id, asked, *more)


def _profile(
    client_id: str,
    client_host: str,
    instance_id: str | None,
    rack_id: str | None,
    asked: tuple[Iterable[str], str | None],
    *more: Any,
) -> Profile:
    return Profile(
        sys.intern(client_id), sys.intern(client_host), instance_id, rack_id, asked_for(*asked), *more
    )


def asked_for(topics: Iterable[str], regex: str | None = None) -> GroupSubscription:
    """The subscription; an empty pattern is none."""
    return GroupSubscription(strings(topics), sys.intern(regex) if regex else None)
