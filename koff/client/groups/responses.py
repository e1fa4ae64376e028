"""What the coordinators of a cluster say about all its groups, whoever asked them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Assigned = Mapping[str, tuple[int, ...]]
"""Partitions by topic name."""


class CommittedOffset(NamedTuple):
    """One row of `OffsetColumns`."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, eq=False)
class OffsetColumns:
    """Committed offsets, a row each. `group` and `topic` are codes: places in `groups` and `topics`.

    Each name occurs once. Rows of a group lie together, and those of a topic in it. `metadata` is a list
    of texts. `leader_epoch` is -1 where unknown.
    """

    groups: Sequence[str]
    topics: Sequence[str]
    group: npt.NDArray[np.int32]
    topic: npt.NDArray[np.int32]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    metadata: list[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.offset)

    def rows(self) -> Iterator[CommittedOffset]:
        """The same, row by row: for looking at few."""
        columns = (
            map(self.groups.__getitem__, self.group.tolist()),
            map(self.topics.__getitem__, self.topic.tolist()),
            self.partition.tolist(),
            self.offset.tolist(),
            self.leader_epoch.tolist(),
            self.metadata,
        )
        return map(CommittedOffset._make, zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group stands in a partition. `start` is -1 before the group has read there.

    `lag` is the coordinator's own (KIP-1226); None where it does not know, or is older than 4.2.
    """

    group: str
    topic: str
    topic_id: str
    partition: int
    start: int
    leader_epoch: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member. `assigned` is by topic name; of streams groups, active tasks by subtopology.

    `target` is what the coordinator has in mind for it, where the protocol tells (KIP-848, streams).
    `subscribed` are topic names, and `pattern` the regular expression that it subscribed to, if it did.
    `classic`: it speaks the classic protocol to a consumer group. Of streams groups also `others`, the
    standby and the warm-up tasks, and those that it shall have.
    """

    id: str
    client_id: str
    client_host: str
    instance_id: str | None
    assigned: Assigned
    target: Assigned | None = None
    subscribed: tuple[str, ...] = ()
    pattern: str | None = None
    epoch: int | None = None
    rack_id: str | None = None
    classic: bool = False
    process_id: str = ""
    others: tuple[Assigned, Assigned] = ({}, {})
    target_others: tuple[Assigned, Assigned] = ({}, {})


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group. `type` is classic, consumer, share, streams, or "" when the broker is too old to tell.

    `state` is as Kafka spells it (`Stable`, `PreparingRebalance`). Classic groups have no epochs here:
    their generation is not told. `protocol` is the assignor. `error` is Kafka's name for why it could not
    be described: then only name, type, state and protocol type are known. `topics` are those that a
    streams group's subtopologies read, and of these `repartition_topics` the internal ones, by subtopology.
    `topic_ids` of assigned topics by name, where they were told.
    """

    name: str
    type: str
    state: str
    protocol_type: str
    protocol: str = ""
    epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[DescribedMember, ...] = ()
    error: str = ""
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    repartition_topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topology_epoch: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class GroupAnswers:
    """All groups that we may see, and what they have committed.

    `failed` names each group of which a part is missing, with the reason. `incomplete` says why there may
    be groups that cannot even be named: a coordinator that did not answer. Kafka leaves out groups and
    topics that we may not DESCRIBE, and says nothing: their absence cannot be seen here.
    """

    offsets: OffsetColumns
    groups: tuple[DescribedGroup, ...]
    failed: Mapping[str, str]
    brokers: int
    seconds: float
    share: tuple[ShareOffset, ...] = ()
    incomplete: tuple[str, ...] = ()
    source: str = "wire"
    """wire or admin."""
    reason: str = ""
    """Why it was not asked over connections of our own."""
    rounds: int = 1
    bytes_read: int = 0
    seconds_by_step: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Offsets:
    """The commits of some groups: `counts[i]` rows for `names[i]` in `topics[i]`. A group comes once."""

    names: list[str]
    topics: list[str]
    counts: list[int]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    metadata: Mapping[int, str]
    """By row, where it is not empty."""


def columns(parts: Iterable[Offsets]) -> OffsetColumns:
    """All parts behind each other, with names as codes."""
    every = list(parts)
    groups: dict[str, int] = {}
    topics: dict[str, int] = {}
    group_codes = [groups.setdefault(name, len(groups)) for each in every for name in each.names]
    topic_codes = [topics.setdefault(name, len(topics)) for each in every for name in each.topics]
    counts = [count for each in every for count in each.counts]
    metadata, start = [""] * sum(counts), 0
    for each in every:
        for row, text in each.metadata.items():
            metadata[start + row] = text
        start += len(each.offset)
    return OffsetColumns(
        groups=list(groups),
        topics=list(topics),
        group=np.repeat(np.array(group_codes, np.int32), counts),
        topic=np.repeat(np.array(topic_codes, np.int32), counts),
        partition=np.concatenate([np.empty(0, np.int32), *(each.partition for each in every)]),
        offset=np.concatenate([np.empty(0, np.int64), *(each.offset for each in every)]),
        leader_epoch=np.concatenate([np.empty(0, np.int32), *(each.leader_epoch for each in every)]),
        metadata=metadata,
    )
