"""What a group is at one moment, in Kafka's words: the views that a `GroupTable` gives out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Assignment = Mapping[str, tuple[int, ...]]
"""Partitions by topic name, topic id or subtopology. Registry between views: nobody writes into one."""
NOTHING: Assignment = {}

STABLE = "Stable"
UNKNOWN = "Unknown"


def _nothing() -> Assignment:
    return NOTHING


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """What a member asked for: topics by name, and a pattern that the coordinator resolves."""

    topics: tuple[str, ...] = ()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a Streams member: partitions by subtopology."""

    active: Assignment = field(default_factory=_nothing)
    standby: Assignment = field(default_factory=_nothing)
    warmup: Assignment = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Member:
    """A member: who it is, what it reads now and where it is going.

    `assigned` is all that it may be reading, by topic name, or topic id in groups that are `assigned_by_id`;
    `revoking` is the part of it that the coordinator wants back (Kafka's tools leave that out of the
    assignment). `target` is what it shall have in the end, None where no record says so. `epoch` is the
    generation in a classic group. A member that is not `present` is a static one that left for a while.
    """

    id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    assigned: Assignment = field(default_factory=_nothing)
    rack_id: str | None = None
    subscription: GroupSubscription = field(default_factory=GroupSubscription)
    revoking: Assignment = field(default_factory=_nothing)
    target: Assignment | None = None
    epoch: int = -1
    state: str = STABLE
    """Stable, UnrevokedPartitions, UnreleasedPartitions, or Tasks instead of Partitions, or Unknown."""
    present: bool = True
    classic: bool = False
    """Whether it speaks the classic protocol to a consumer group."""
    tasks: Tasks | None = None
    """In a Streams group: what `assigned` comes from, and the tasks that read nothing that is committed."""
    process_id: str = ""
    """In a Streams group: the instance of the application."""

    @property
    def awaited(self) -> Assignment:
        """What it still has to get."""
        return less(self.target or NOTHING, self.assigned)

    @property
    def leaving(self) -> Assignment:
        """What it still has to give up: told to already, or only in its target."""
        return NOTHING if self.target is None else less(self.assigned, self.target)


@dataclass(frozen=True, slots=True)
class GroupSubtopology:
    """What the tasks of a subtopology read. `source_patterns` are resolved by nobody that writes it down."""

    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        return self.source_topics + self.repartition_source_topics


@dataclass(frozen=True, slots=True)
class Topology:
    """What a Streams group reads, and so what lag is computed over."""

    epoch: int
    subtopologies: Mapping[str, GroupSubtopology]

    @property
    def source_topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for each in self.subtopologies.values() for topic in each.source_topics}))

    @property
    def repartition_source_topics(self) -> tuple[str, ...]:
        """Internal topics that the application both writes and reads."""
        found = {topic for each in self.subtopologies.values() for topic in each.repartition_source_topics}
        return tuple(sorted(found))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for each in self.subtopologies.values() for topic in each.topics}))

    def read_by(self, tasks: Assignment) -> Assignment:
        """The partitions that these tasks read: task p reads partition p of each of its topics.

        A topic with fewer partitions than its subtopology has tasks lacks the last of them; how many a
        topic has, the records do not say.
        """
        known = ((self.subtopologies.get(id_), partitions) for id_, partitions in tasks.items())
        return union((topic, partitions) for each, partitions in known if each for topic in each.topics)


@dataclass(frozen=True, slots=True)
class ShareTopic:
    """A topic of a share group, and what its state in `__share_group_state` is: being made, there, leaving.

    `stage` is initializing, initialized or deleting; partitions of the last are not written down.
    """

    topic_id: str
    name: str
    partitions: tuple[int, ...]
    stage: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group as Kafka would describe it: `type` simple, classic, consumer, share or streams.

    `epoch` is the generation of a classic group, the group epoch of others, -1 of a simple one without a
    record of its own. `protocol` is a classic group's assignor, or the server's that most members name.
    `patterns` are the topics that members' regular expressions stand for. Times are -1 when not known.
    """

    name: str
    type: str = "simple"
    state: str = "Empty"
    epoch: int = -1
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()
    assignment_epoch: int = -1
    state_timestamp_ms: int = -1
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topology: Topology | None = None
    share_topics: tuple[ShareTopic, ...] = ()

    @property
    def assigned_by_id(self) -> bool:
        """Whether members' assignments name topics by their ids."""
        return self.type in {"consumer", "share"}


def less(these: Assignment, those: Assignment) -> Assignment:
    """Those of `these` partitions that are not among `those`."""
    if these == those:
        return NOTHING
    left = {
        topic: tuple(each for each in partitions if each not in those.get(topic, ()))
        for topic, partitions in these.items()
    }
    return {topic: partitions for topic, partitions in left.items() if partitions}


def union(parts: Iterable[tuple[str, tuple[int, ...]]]) -> Assignment:
    """All of the parts, each partition once, though a topic may occur twice."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in parts:
        before = found.get(topic)
        found[sys.intern(topic)] = partitions if before is None else tuple(dict.fromkeys(before + partitions))
    return found or NOTHING
