"""A group at one moment, in Kafka's terms: the immutable objects that a `GroupTable` returns."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koff.tracker.impossible import is_possible_name, possible_partitions

Assignment = Mapping[str, tuple[int, ...]]
"""Partitions by topic name, topic id or subtopology. Members share these objects: never change one."""
NOTHING: Assignment = {}

STABLE = "Stable"
UNKNOWN = "Unknown"


def _nothing() -> Assignment:
    return NOTHING


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """The subscription of a member: topic names, and a regular expression that the coordinator resolves."""

    topics: tuple[str, ...] = ()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a Streams member: partitions by subtopology id."""

    active: Assignment = field(default_factory=_nothing)
    standby: Assignment = field(default_factory=_nothing)
    warmup: Assignment = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, with its current and its target assignment.

    `assigned` has all partitions that the member may be reading, by topic name, or by topic id if the group
    is `assigned_by_id`. `revoking` has the assigned partitions that the member must give up (Kafka's tools
    leave these out of the assignment). `target` is the assignment that the member will get, None if no record
    has one. `epoch` is the member epoch; in a classic group, the generation. A member that is not `present`
    is a static member that left for a while.
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
    """Stable, UnrevokedPartitions, UnreleasedPartitions, UnrevokedTasks, UnreleasedTasks or Unknown."""
    present: bool = True
    classic: bool = False
    """Whether this member of a consumer group uses the classic protocol."""
    tasks: Tasks | None = None
    """In a Streams group: the tasks. `assigned` follows from the active tasks; the others commit nothing."""
    process_id: str = ""
    """In a Streams group: the id of the application instance."""

    @property
    def awaited(self) -> Assignment:
        """The partitions of the target that the member does not have yet."""
        return subtract_assignment(self.target or NOTHING, self.assigned)


@dataclass(frozen=True, slots=True)
class GroupSubtopology:
    """The topics that the tasks of a subtopology read.

    No record has the topics that `source_patterns` stand for.
    """

    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        return self.source_topics + self.repartition_source_topics


@dataclass(frozen=True, slots=True)
class Topology:
    """The topics that a Streams group reads: the lag of the group is computed over these topics."""

    epoch: int
    subtopologies: Mapping[str, GroupSubtopology]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for part in self.subtopologies.values() for topic in part.topics}))

    def partitions_read_by(self, tasks: Assignment) -> Assignment:
        """The partitions that these tasks read: task p reads partition p of each topic of its subtopology.

        The result may have partitions that do not exist: a topic may have fewer partitions than its
        subtopology has tasks, and no record has the partition count of a topic.
        """
        # The topology may not have the subtopology of a task (yet): its topics are unknown.
        with_partitions = ((self.subtopologies.get(id_), partitions) for id_, partitions in tasks.items())
        return merge_assignments(
            (topic, partitions)
            for subtopology, partitions in with_partitions
            if subtopology
            for topic in subtopology.topics
        )


@dataclass(frozen=True, slots=True)
class ShareTopic:
    """A topic of a share group, with the stage of its state in `__share_group_state`.

    `stage` is initializing, initialized or deleting. For the last, the record has no partitions.
    """

    topic_id: str
    name: str
    partitions: tuple[int, ...]
    stage: str


@dataclass(frozen=True, slots=True)
class Group:
    """A group as Kafka describes it. `type` is simple, classic, consumer, share or streams.

    `epoch` is the generation of a classic group, and the group epoch of the newer types; it is -1 for a
    simple group without a record of its own. `protocol` is the assignor of a classic group, or the
    server-side assignor that most members name. `patterns` has the topics that the regular expressions of
    members resolved to. `state_timestamp_ms` is -1 if unknown. Groups of ZooKeeper have the type "zookeeper".
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
    def member_count(self) -> int:
        """How many members are present."""
        return sum(member.present for member in self.members)

    @property
    def assigned_by_id(self) -> bool:
        """Whether the assignments of the members are by topic id."""
        return self.type in {"consumer", "share"}


def subtract_assignment(assignment: Assignment, other: Assignment) -> Assignment:
    """The partitions of `assignment` that are not in `other`."""
    if assignment == other:
        return NOTHING
    remaining = {
        topic: tuple(partition for partition in partitions if partition not in other.get(topic, ()))
        for topic, partitions in assignment.items()
    }
    return {topic: partitions for topic, partitions in remaining.items() if partitions}


def merge_assignments(parts: Iterable[tuple[str, tuple[int, ...]]]) -> Assignment:
    """The union of the parts. A topic may occur in several parts; each of its partitions occurs once.

    Impossible partitions and names are left out.
    """
    merged: dict[str, tuple[int, ...]] = {}
    for topic, given in parts:
        partitions = possible_partitions(given)
        if (given and not partitions) or not is_possible_name(topic):
            continue
        before = merged.get(topic)  # seldom more than one part per topic: then no copy is made
        merged[sys.intern(topic)] = (
            partitions if before is None else tuple(dict.fromkeys(before + partitions))
        )
    return merged or NOTHING
