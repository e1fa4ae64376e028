"""What the records of the model mean.

Facts are hashable, so that the bytes of a record that is written often are encoded once (`encoding`).
"""

from base64 import urlsafe_b64encode
from typing import NamedTuple

Assigned = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic name (classic groups), topic id (consumer and share groups) or subtopology."""
LEFT = -2
"""The member epoch of a static member that left for a while."""


class Commit(NamedTuple):
    """A committed offset; None deletes. `topic_id` is "" if the record has none."""

    group: str
    topic: str
    partition: int
    offset: int | None
    topic_id: str = ""
    version: int = 4


class ClassicMember(NamedTuple):
    """A member of a classic group. A negative partition, or a huge one, is possible in `assigned`."""

    id: str
    instance_id: str | None
    topics: tuple[str, ...]
    assigned: Assigned


class Classic(NamedTuple):
    """A classic group. `members` None deletes the group."""

    group: str
    generation: int
    members: tuple[ClassicMember, ...] | None
    protocol_type: str = "consumer"


class Own(NamedTuple):
    """The group's own record, of a consumer, share or Streams group; epoch None deletes the group."""

    kind: str
    group: str
    epoch: int | None


class Profile(NamedTuple):
    """What a member subscribes to; `topics` None removes the member."""

    kind: str
    group: str
    member: str
    topics: tuple[str, ...] | None
    instance_id: str | None = None
    classic: bool = False


class TargetEpoch(NamedTuple):
    """The epoch of the target assignment; None deletes it."""

    kind: str
    group: str
    epoch: int | None


class Target(NamedTuple):
    """The target assignment of a member; None deletes it."""

    kind: str
    group: str
    member: str
    assigned: Assigned | None


class Current(NamedTuple):
    """The current assignment of a member; epoch None deletes it. `state` 0 is stable, 1 and 2 are not."""

    kind: str
    group: str
    member: str
    epoch: int | None
    state: int = 0
    assigned: Assigned = ()
    revoking: Assigned = ()


class Topology(NamedTuple):
    """The topology of a Streams group; epoch None deletes it."""

    group: str
    epoch: int | None
    topics: tuple[str, ...] = ()


class ShareTopics(NamedTuple):
    """The partitions whose share state is initialized: (topic id, name, partitions); None deletes."""

    group: str
    topics: tuple[tuple[str, str, tuple[int, ...]], ...] | None


class PartitionMetadata(NamedTuple):
    """The tombstone that brokers write of a record type which they no longer use."""

    group: str


class ShareProgress(NamedTuple):
    """A snapshot or an update of a share partition. `start` None deletes the state.

    In an update, `start` -1 means "not changed". `completed` -1 means "unknown".
    """

    group: str
    topic_id: str
    partition: int
    snapshot: bool
    start: int | None
    completed: int = -1


Fact = (
    Commit
    | Classic
    | Own
    | Profile
    | TargetEpoch
    | Target
    | Current
    | Topology
    | ShareTopics
    | PartitionMetadata
    | ShareProgress
)


def topic_id(number: int) -> str:
    """The id number `number` in Kafka's notation."""
    return urlsafe_b64encode(number.to_bytes(16, "big")).rstrip(b"=").decode()
