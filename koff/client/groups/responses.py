"""The groups of a cluster and their offsets, as the coordinators or the admin client return them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    """Committed offsets, one row each. `group` and `topic` are indexes into `groups` and `topics`.

    Each name occurs once in `groups` or `topics`. The rows of a group are adjacent, and within a group the
    rows of a topic. `metadata` is a list of texts. `leader_epoch` is -1 if unknown.
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
        """The rows as tuples. Slow: meant for few rows."""
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
    """A share group's position in a partition. `start` is -1 until the group has read the partition.

    `lag` is the coordinator's own figure (KIP-1226); None if the coordinator does not know it, or is older
    than 4.2.
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
    """A member. `assigned` is by topic name; in streams groups it holds the active tasks by subtopology.

    `target` is the assignment that the coordinator wants the member to reach, if the protocol has one
    (KIP-848, streams). `subscribed` holds topic names, `pattern` the regular expression of the subscription
    if there is one. `classic` is true for a member of a consumer group that uses the classic protocol. In
    streams groups, `others` holds the standby and the warm-up tasks, and `target_others` the same of the
    target assignment.
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
    """A group. `type` is classic, consumer, share, streams, or "" if the broker is too old to return it.

    `state` is spelled as Kafka spells it (`Stable`, `PreparingRebalance`). A classic group has no epochs
    here: DescribeGroups does not return its generation. `protocol` is the assignor. `error` is the name of
    Kafka's error if the group could not be described: then only name, type, state and protocol type are
    known. `topics` holds the topics that a streams group reads, by subtopology; `repartition_topics` holds
    the internal ones among them. `topic_ids` maps names of assigned topics to ids, as far as they were
    returned.
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
class FetchedGroups:
    """All groups that this user may describe, and their committed offsets.

    `failed` maps the name of each group of which a part is missing to the reason. `incomplete` lists reasons
    why there may be more groups, with unknown names: for example a coordinator that did not respond.
    `find_incomplete` says which partitions of the offsets topic these groups would belong to. Kafka
    silently leaves out groups and topics on which this user lacks DESCRIBE: only `unlisted` shows such
    groups, if they were known before. `unlisted` maps the name of each known group that no broker lists to
    the reason: GROUP_ID_NOT_FOUND if it was deleted, GROUP_AUTHORIZATION_FAILED if this user may not DESCRIBE
    it. Groups without a response are missing.
    `elsewhere` are the groups that a broker has, or may have, although it does not lead the partition that
    their names belong to, or although that partition is empty: after the offsets topic has grown, a broker
    uses the earlier partition count until it is restarted. Groups that the caller's filter has excluded are
    among them.
    `brokers` is how many brokers listed their groups in the last round.
    """

    offsets: OffsetColumns
    groups: tuple[DescribedGroup, ...]
    failed: Mapping[str, str]
    brokers: int
    seconds: float
    share_offsets: tuple[ShareOffset, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    unlisted: Mapping[str, str] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()
    rounds: int = 1
    partition_count: int = 0
    """The partition count of `__consumer_offsets`; 0 if it is unknown, or there is no such topic."""
    incomplete_partitions: Mapping[int, str] = field(default_factory=dict)
    """By partition of `__consumer_offsets`, why groups of that partition may be missing. Empty if the
    partition count is unknown: see `find_incomplete`."""

    def find_incomplete(self, partitions: Iterable[int], partition_count: int) -> dict[int, str]:
        """The reason for each of these partitions of `__consumer_offsets` of which groups may be missing.

        `partition_count` is what the caller takes for the partition count of the topic. If the brokers have
        another one, or do not describe the topic, and anything is incomplete, that is all of them.
        """
        known = self.partition_count
        if known == partition_count:
            return {p: why for p in partitions if (why := self.incomplete_partitions.get(p))}
        reasons = self.incomplete_partitions.values() if known else self.incomplete
        why = "; ".join(dict.fromkeys(reasons))
        if why:
            return dict.fromkeys(partitions, why)
        # The coordinators of partitions that the brokers do not know yet got no request.
        return {p: "the brokers do not know it yet" for p in partitions if p >= known > 0}


@dataclass(frozen=True, slots=True, eq=False)
class PackedOffsets:
    """Commits of some groups: `counts[i]` rows for group `names[i]` and topic `topics[i]`.

    Each group is in one `PackedOffsets` only.
    """

    names: list[str]
    topics: list[str]
    counts: list[int]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    leader_epoch: npt.NDArray[np.int32]
    metadata: Mapping[int, str]
    """By row number, only where the metadata is not empty."""

    def drop_groups(self, names: Collection[str]) -> PackedOffsets:
        """The commits of the other groups."""
        kept = [index for index, name in enumerate(self.names) if name not in names]
        rows = np.flatnonzero(np.repeat([name not in names for name in self.names], self.counts))
        return PackedOffsets(
            [self.names[index] for index in kept],
            [self.topics[index] for index in kept],
            [self.counts[index] for index in kept],
            self.partition[rows],
            self.offset[rows],
            self.leader_epoch[rows],
            {new: self.metadata[row] for new, row in enumerate(rows.tolist()) if row in self.metadata},
        )


def join_columns(parts: Iterable[PackedOffsets]) -> OffsetColumns:
    """The rows of all parts, one part after the other, with group and topic names as indexes."""
    packed = list(parts)
    # Number the names in the order in which they occur first.
    groups: dict[str, int] = {}
    topics: dict[str, int] = {}
    group_codes = [groups.setdefault(name, len(groups)) for part in packed for name in part.names]
    topic_codes = [topics.setdefault(name, len(topics)) for part in packed for name in part.topics]
    counts = [count for part in packed for count in part.counts]
    # A part numbers its rows from 0; `start` is the number of its first row in the result.
    metadata, start = [""] * sum(counts), 0
    for part in packed:
        for row, row_metadata in part.metadata.items():
            metadata[start + row] = row_metadata
        start += len(part.offset)
    # `np.concatenate` fails on an empty list: each column begins with an empty array.
    return OffsetColumns(
        groups=list(groups),
        topics=list(topics),
        group=np.repeat(np.array(group_codes, np.int32), counts),
        topic=np.repeat(np.array(topic_codes, np.int32), counts),
        partition=np.concatenate([np.empty(0, np.int32), *(part.partition for part in packed)]),
        offset=np.concatenate([np.empty(0, np.int64), *(part.offset for part in packed)]),
        leader_epoch=np.concatenate([np.empty(0, np.int32), *(part.leader_epoch for part in packed)]),
        metadata=metadata,
    )
