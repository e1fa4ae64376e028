"""The coordinators of the model: what the records of one partition of an internal topic amount to.

A coordinator appends records and applies them. A broker that becomes the leader applies the whole log again.
The rules are those of docs/records-format.md, sections 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.simulation.facts import (
    Assigned,
    Classic,
    Commit,
    Current,
    Own,
    Profile,
    ShareProgress,
    Target,
    TargetEpoch,
    Topology,
)
from tests.simulation.logs import LogRecord, PartitionLog

TopicPartition = tuple[str, int]
_MODERN = (Own, Profile, TargetEpoch, Target, Current)


@dataclass(frozen=True)
class DescribedMember:
    """A member. `epoch` is the generation in a classic group, -2 of a static member that left for a while.

    The assignments are by topic name in classic groups, by topic id in consumer and share groups, and by
    subtopology in Streams groups.
    """

    id: str
    client_id: str
    instance_id: str | None
    epoch: int
    assigned: dict[str, tuple[int, ...]]
    target: dict[str, tuple[int, ...]]

    @property
    def present(self) -> bool:
        """Whether the member is there at present."""
        return self.epoch >= 0


@dataclass(frozen=True)
class DescribedGroup:
    """A group. `kind` is "simple", "classic", "consumer", "share" or "streams"; `state` is Kafka's word."""

    name: str
    kind: str
    state: str
    epoch: int
    assignment_epoch: int
    protocol_type: str
    members: tuple[DescribedMember, ...]


class Slot(NamedTuple):
    """A committed offset. `log_offset` is that of its record."""

    offset: int
    topic_id: str
    log_offset: int


@dataclass
class Member:
    """A member of a group, as its records say."""

    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    epoch: int = 0
    state: int = 0
    assigned: Assigned = ()
    revoking: Assigned = ()


@dataclass
class GroupState:
    """A group with records of its own."""

    kind: str
    epoch: int = 0
    assignment_epoch: int = 0
    protocol_type: str = "consumer"
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Assigned] = field(default_factory=dict)
    topology: int | None = None
    topology_topics: tuple[str, ...] = ()

    @property
    def present(self) -> int:
        """The number of members that are present."""
        return sum(member.epoch >= 0 for member in self.members.values())

    @property
    def word(self) -> str:
        """The state in Kafka's words, by the rules of Kafka's group classes."""
        if not self.members:
            return "Empty"
        if self.kind in {"classic", "share"}:
            return "Stable"
        if self.kind == "streams" and self.topology != 0:  # the groups of the model validated topology 0
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(m.state == 0 and m.epoch == self.assignment_epoch for m in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    def describe(self, name: str) -> DescribedGroup:
        """The group as its coordinator describes it."""
        members = tuple(
            DescribedMember(
                id_,
                f"{id_}-client",
                member.instance_id,
                member.epoch,
                _merge((*member.assigned, *member.revoking)),
                _merge(self.targets.get(id_, ())),
            )
            for id_, member in sorted(self.members.items())
        )
        simple = self.kind == "classic" and not self.protocol_type and not members
        return DescribedGroup(
            name,
            "simple" if simple else self.kind,
            self.word,
            self.epoch,
            self.assignment_epoch,
            self.protocol_type,
            members,
        )


class GroupShard:
    """The groups and commits of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupState] = {}
        self.commits: dict[str, dict[TopicPartition, Slot]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], Slot]] = {}
        self._superseded: dict[int, dict[tuple[str, TopicPartition], Slot]] = {}
        self._passing: list[tuple[str, TopicPartition, int]] = []

    def take_passing(self) -> list[tuple[str, TopicPartition, int]]:
        """Commits of transactions that ended, and never took effect: a newer record was there before.

        A read_committed reader that another open transaction holds back in between sees them for a time.
        """
        passing, self._passing = self._passing, []
        return passing

    @classmethod
    def load(cls, log: PartitionLog) -> GroupShard:
        """The state that the whole log amounts to."""
        shard = cls()
        for record in log.records:
            shard.apply(record)
        return shard

    def names(self) -> set[str]:
        """The groups that exist: with records of their own, or with commits."""
        return self.groups.keys() | self.commits.keys()

    def pending(self) -> list[tuple[str, TopicPartition]]:
        """The group and the topic partition of each commit whose transaction is open."""
        return [place for slots in self._pending.values() for place in slots]

    def apply(self, record: LogRecord) -> set[str]:
        """Applies the next record of the log; returns the groups that it changed."""
        fact = record.fact
        if record.marker:
            return self._end_transaction(record)
        if isinstance(fact, Commit):
            return self._commit(fact, record)
        if isinstance(fact, Classic):
            self._apply_classic(fact)
        elif isinstance(fact, _MODERN):
            self._apply_modern(fact)
        elif isinstance(fact, Topology):
            self._apply_topology(fact)
        else:
            return set()
        return {fact.group}

    def _commit(self, fact: Commit, record: LogRecord) -> set[str]:
        place = (fact.topic, fact.partition)
        if fact.offset is None:
            for producer, slots in self._pending.items():
                dropped = slots.pop((fact.group, place), None)
                if dropped is not None:
                    self._superseded.setdefault(producer, {})[fact.group, place] = dropped
            slots_ = self.commits.get(fact.group, {})
            slots_.pop(place, None)
            if not slots_:
                self.commits.pop(fact.group, None)
            return {fact.group}
        slot = Slot(fact.offset, fact.topic_id, record.offset)
        if record.producer is None:
            self.commits.setdefault(fact.group, {})[place] = slot
            return {fact.group}
        self._pending.setdefault(record.producer, {})[fact.group, place] = slot
        return set()

    def _end_transaction(self, record: LogRecord) -> set[str]:
        ended = self._pending.pop(record.producer or 0, {})
        superseded = self._superseded.pop(record.producer or 0, {})
        if record.marker == "abort":
            return set()
        for (group, place), slot in ended.items():
            slots = self.commits.setdefault(group, {})
            # The commit with the newest record wins, whichever took effect last.
            if place not in slots or slots[place].log_offset < slot.log_offset:
                slots[place] = slot
            else:
                superseded[group, place] = slot
        self._passing += [(group, place, slot.offset) for (group, place), slot in superseded.items()]
        return {group for group, _ in ended}

    def _apply_classic(self, fact: Classic) -> None:
        if fact.members is None:
            self.groups.pop(fact.group, None)
            return
        members = {
            member.id: Member(member.instance_id, member.topics, fact.generation, 0, member.assigned)
            for member in fact.members
        }
        self.groups[fact.group] = GroupState(
            "classic", fact.generation, fact.generation, fact.protocol_type, members
        )

    def _apply_modern(self, fact: Own | Profile | TargetEpoch | Target | Current) -> None:
        group = self.groups.get(fact.group)
        if isinstance(fact, Own) and fact.epoch is None:
            if group is not None and group.kind == fact.kind:
                del self.groups[fact.group]
            return
        if group is None or group.kind != fact.kind:
            if _is_tombstone(fact):
                return
            group = self.groups[fact.group] = GroupState(fact.kind, protocol_type=fact.kind)
        match fact:
            case Own(epoch=int(epoch)):
                group.epoch = epoch
            case TargetEpoch(epoch=epoch_):
                group.assignment_epoch = -1 if epoch_ is None else epoch_
            case Target(assigned=None):
                group.targets.pop(fact.member, None)
            case Target(assigned=tuple(assigned)):
                group.targets[fact.member] = assigned
            case Profile(topics=None):
                group.members.pop(fact.member, None)
            case Profile():
                member = group.members.setdefault(fact.member, Member())
                member.instance_id, member.topics = fact.instance_id, fact.topics or ()
            case Current():
                _set_current(group, fact)

    def _apply_topology(self, fact: Topology) -> None:
        group = self.groups.get(fact.group)
        if group is None and fact.epoch is not None:
            group = self.groups[fact.group] = GroupState("streams", protocol_type="streams")
        if group is not None and group.kind == "streams":
            group.topology, group.topology_topics = fact.epoch, fact.topics


def _set_current(group: GroupState, fact: Current) -> None:
    if fact.epoch is not None:
        member = group.members.setdefault(fact.member, Member())
        group.members[fact.member] = replace(
            member, epoch=fact.epoch, state=fact.state, assigned=fact.assigned, revoking=fact.revoking
        )
    elif fact.member in group.members:
        member = group.members[fact.member]
        group.members[fact.member] = replace(member, epoch=-1, state=0, assigned=(), revoking=())


def _is_tombstone(fact: Own | Profile | TargetEpoch | Target | Current) -> bool:
    """Whether the fact deletes: such a record creates no group."""
    match fact:
        case Profile(topics=value) | Target(assigned=value):
            return value is None
        case Own(epoch=value) | TargetEpoch(epoch=value) | Current(epoch=value):
            return value is None


def _merge(assigned: Assigned) -> dict[str, tuple[int, ...]]:
    merged: dict[str, tuple[int, ...]] = {}
    for topic, partitions in assigned:
        merged[topic] = tuple(sorted({*merged.get(topic, ()), *partitions}))
    return merged


@dataclass
class SharePartition:
    """The state of a share partition. `record` is the offset of the snapshot, or first update, behind it."""

    start: int
    completed: int
    record: int

    @property
    def committed(self) -> int | None:
        """The start offset plus the completed deliveries; None if either is unknown."""
        return None if self.start < 0 or self.completed < 0 else self.start + self.completed


class ShareShard:
    """The share partitions of one partition of `__share_group_state`, by group, topic id and partition."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str, int], SharePartition] = {}

    @classmethod
    def load(cls, log: PartitionLog) -> ShareShard:
        """The state that the whole log amounts to."""
        shard = cls()
        for record in log.records:
            shard.apply(record)
        return shard

    def apply(self, record: LogRecord) -> set[str]:
        """Applies the next record of the log; returns the groups that it changed."""
        fact = record.fact
        if not isinstance(fact, ShareProgress):
            return set()
        key = (fact.group, fact.topic_id, fact.partition)
        before = self.states.get(key)
        if fact.start is None:
            self.states.pop(key, None)
        elif fact.snapshot or before is None:
            self.states[key] = SharePartition(fact.start, fact.completed, record.offset)
        else:
            start = before.start if fact.start == -1 else fact.start
            self.states[key] = SharePartition(start, fact.completed, before.record)
        return {fact.group}

    def first_needed(self, end: int) -> int:
        """The oldest record that any share partition needs; `end` if none does."""
        return min((state.record for state in self.states.values()), default=end)
