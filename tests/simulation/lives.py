"""The lives of groups: what the coordinators write while members of every kind come, go and commit.

The order of the records in a batch is that of Apache Kafka 4.3 (docs/records-format.md, 4.5 to 4.8). A life
has no state of a group but what the coordinator knows: after a truncation it continues from there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.coordinators import GroupShard, GroupState
from tests.simulation.facts import (
    LEFT,
    Assigned,
    Classic,
    ClassicMember,
    Commit,
    Current,
    Fact,
    Own,
    PartitionMetadata,
    Profile,
    ShareProgress,
    ShareTopics,
    Target,
    TargetEpoch,
    Topology,
)

if TYPE_CHECKING:
    from tests.simulation.logs import PlainLog, Topic
    from tests.simulation.quiet_cluster import QuietCluster

KINDS = ("simple", "classic", "consumer", "share", "streams")


class Life:
    """One group's. `transactional`: commits are part of transactions."""

    def __init__(
        self, group: str, kind: str, topics: list[str], *, transactional: bool, producer: int
    ) -> None:
        self.group = group
        self.kind = kind
        self.topics = topics
        self.transactional = transactional
        self.producer = producer
        self._joined = 0

    def step(self, cluster: QuietCluster) -> None:
        """Does one thing, if the coordinator can be reached."""
        shard = cluster.shard(self.group)
        topics = [cluster.topics[name] for name in self.topics if name in cluster.topics]
        if shard is None:
            return
        if not topics:
            self._subscribe_again(cluster)
            return
        group = shard.groups.get(self.group)
        if self.kind != "simple" and group is None:
            cluster.write(self.group, self._born(topics, cluster.rng))
        elif cluster.rng.random() < 0.8:
            self._progress(cluster, shard, topics)
        elif self.kind == "simple" or group is None:
            self._delete_offset(cluster, shard)
        else:
            self._change(cluster, group, topics)

    def _subscribe_again(self, cluster: QuietCluster) -> None:
        """After all its topics were deleted, the group reads others."""
        names = cluster.ordinary_topics()
        if names:
            self.topics = cluster.rng.sample(names, min(len(names), 2))

    # Offsets

    def _progress(self, cluster: QuietCluster, shard: GroupShard, topics: list[Topic]) -> None:
        if self.kind == "share":
            self._deliver(cluster, topics)
            return
        committed = shard.commits.get(self.group, {})
        # A producer has one transaction at a time.
        transactional = self.transactional and not cluster.has_transaction(self.producer)
        facts: list[Fact] = []
        for topic in topics:
            for number, log in enumerate(topic.partitions):
                if cluster.rng.random() < 0.3:
                    continue
                slot = committed.get((topic.name, number))
                offset = _next_offset(cluster.rng, log, log.start if slot is None else slot.offset)
                version = 4 if cluster.rng.random() < 0.9 else cluster.rng.choice((1, 3))
                known_id = "" if transactional or version < 4 else topic.id
                facts.append(Commit(self.group, topic.name, number, offset, known_id, version))
        if not facts:
            return
        if transactional:
            cluster.write(self.group, facts, self.producer)
            delay = cluster.rng.choice((0.02, 0.2, 2.0)) * cluster.rng.random()
            commit = cluster.rng.random() < 0.8
            cluster.after(delay, partial(cluster.end_transaction, self.producer, commit=commit))
        else:
            cluster.write(self.group, facts)

    def _deliver(self, cluster: QuietCluster, topics: list[Topic]) -> None:
        """A share group's progress: an update, or now and then a snapshot."""
        rng = cluster.rng
        for topic in topics:
            for number, log in enumerate(topic.partitions):
                shard = cluster.share_shard(self.group, topic.id, number)
                if shard is None or rng.random() < 0.3:
                    continue
                state = shard.states.get((self.group, topic.id, number))
                if state is None:  # not initialized, or initialized at the log start
                    start = -1 if rng.random() < 0.3 else log.start
                    fact = ShareProgress(self.group, topic.id, number, True, start, 0)
                else:
                    start = max(state.start, log.start)
                    start = rng.randint(start, max(log.end, start))
                    completed = rng.randint(0, max(log.end - start, 0)) if rng.random() < 0.5 else 0
                    completed = -1 if rng.random() < 0.02 else completed
                    snapshot = rng.random() < 0.2
                    told = -1 if start == state.start and not snapshot else start
                    fact = ShareProgress(self.group, topic.id, number, snapshot, told, completed)
                cluster.write_share([fact])

    def _delete_offset(self, cluster: QuietCluster, shard: GroupShard) -> None:
        """OffsetDelete."""
        committed = sorted(shard.commits.get(self.group, {}))
        if committed and cluster.rng.random() < 0.3:
            topic, partition = cluster.rng.choice(committed)
            cluster.write(self.group, [Commit(self.group, topic, partition, None)])

    # Members

    def _born(self, topics: list[Topic], rng: random.Random) -> list[Fact]:
        if self.kind == "classic":
            return [Classic(self.group, 0, (), "")]
        return list(self._join(GroupState(self.kind), topics, rng))

    def _change(self, cluster: QuietCluster, group: GroupState, topics: list[Topic]) -> None:
        rng = cluster.rng
        choice = rng.random()
        facts: Iterable[Fact] = ()
        if group.kind == "classic":
            if choice < 0.7:
                facts = [self._rebalance(group, topics, rng)]
            elif group.members and choice < 0.85:
                facts = [Classic(self.group, group.epoch + 1, ())]
            elif choice < 0.93:
                facts = self._replace_static(group)
            else:
                facts = self._convert_to_consumer(group, topics, rng)
        elif group.members and group.epoch > group.assignment_epoch:
            facts = self._assign(group.kind, group.epoch, list(group.members), topics)
        elif (choice < 0.2 and len(group.members) < 4) or not group.members:
            facts = self._join(group, topics, rng)
        elif choice < 0.55:
            facts = self._reconcile(group, rng)
        elif choice < 0.7:
            facts = self._leave(group, topics, rng)
        elif choice < 0.9 and group.kind == "consumer":
            facts = self._leave_or_return(group)
        elif group.kind == "consumer" and choice > 0.95:
            facts = self._convert_to_classic(group, topics)
        cluster.write(self.group, list(facts))

    def _rebalance(self, group: GroupState, topics: list[Topic], rng: random.Random) -> Classic:
        names = [self._new_name() for _ in range(rng.randint(1, 3))]
        shares = _share_out(topics, len(names), by_id=False)
        members = tuple(
            ClassicMember(name, _instance_of(name, rng), tuple(self.topics), assigned)
            for name, assigned in zip(names, shares, strict=True)
        )
        return Classic(self.group, group.epoch + 1, members)

    def _replace_static(self, group: GroupState) -> Iterator[Fact]:
        """A static member of a classic group comes back with another member id, without a rebalance."""
        static = [name for name, member in group.members.items() if member.instance_id is not None][:1]
        members = tuple(
            ClassicMember(
                self._new_name() if name in static else name,
                member.instance_id,
                member.topics,
                member.assigned,
            )
            for name, member in group.members.items()
        )
        if static:
            yield Classic(self.group, group.epoch, members)

    def _join(self, group: GroupState, topics: list[Topic], rng: random.Random) -> Iterator[Fact]:
        name, kind = self._new_name(), group.kind
        instance = _instance_of(name, rng) if kind == "consumer" else None
        if kind == "streams" and group.topology is None:
            yield Topology(self.group, 0, tuple(self.topics))
        yield Profile(kind, self.group, name, tuple(self.topics), instance)
        yield Own(kind, self.group, group.epoch + 1)
        if kind == "share":
            yield ShareTopics(
                self.group, tuple((t.id, t.name, tuple(range(len(t.partitions)))) for t in topics)
            )
        if rng.random() < 0.8:  # otherwise the target assignment is computed later
            yield from self._assign(kind, group.epoch + 1, [*group.members, name], topics)
        yield Current(kind, self.group, name, group.epoch + 1)

    def _assign(self, kind: str, epoch: int, names: list[str], topics: list[Topic]) -> Iterator[Fact]:
        """A new target assignment."""
        for name, assigned in zip(names, self._targets(kind, names, topics), strict=True):
            yield Target(kind, self.group, name, assigned)
        yield TargetEpoch(kind, self.group, epoch)

    def _targets(self, kind: str, names: list[str], topics: list[Topic]) -> list[Assigned]:
        if kind == "streams":
            width = max(len(topic.partitions) for topic in topics)
            tasks = [tuple(range(width))[place :: len(names)] for place in range(len(names))]
            return [(("0", each),) if each else () for each in tasks]
        return _share_out(topics, len(names), by_id=True)

    def _reconcile(self, group: GroupState, rng: random.Random) -> Iterator[Fact]:
        """Members that are present reach their target, some after they gave up what they had."""
        for name, member in group.members.items():
            target = group.targets.get(name, ())
            if member.epoch == LEFT or (member.epoch == group.epoch and member.assigned == target):
                continue
            if member.assigned and group.kind != "share" and rng.random() < 0.3:
                yield Current(group.kind, self.group, name, member.epoch, 1, (), member.assigned)
            else:
                yield Current(group.kind, self.group, name, group.epoch, 0, target)

    def _leave(self, group: GroupState, topics: list[Topic], rng: random.Random) -> Iterator[Fact]:
        name = rng.choice(sorted(group.members))
        yield from self._remove(group.kind, name)
        yield Own(group.kind, self.group, group.epoch + 1)
        rest = [each for each in group.members if each != name]
        if rest:
            yield from self._assign(group.kind, group.epoch + 1, rest, topics)
        else:
            yield TargetEpoch(group.kind, self.group, group.epoch + 1)

    def _remove(self, kind: str, name: str) -> Iterator[Fact]:
        yield Current(kind, self.group, name, None)
        yield Target(kind, self.group, name, None)
        yield Profile(kind, self.group, name, None)

    def _leave_or_return(self, group: GroupState) -> Iterator[Fact]:
        """A static member leaves for a while, or comes back with another member id."""
        for name, member in group.members.items():
            if member.instance_id is None:
                continue
            target = group.targets.get(name, ())
            if member.epoch != LEFT:
                yield Current("consumer", self.group, name, LEFT, 0, member.assigned)
                return
            new = self._new_name()
            yield from self._remove("consumer", name)
            yield Profile("consumer", self.group, new, member.topics, member.instance_id)
            yield Target("consumer", self.group, new, target)
            yield Current("consumer", self.group, new, group.epoch, 0, target)
            return

    def _new_name(self) -> str:
        self._joined += 1
        return f"{self.group}-m{self._joined}"

    # Conversions, and the end

    def _convert_to_consumer(
        self, group: GroupState, topics: list[Topic], rng: random.Random
    ) -> Iterator[Fact]:
        """The old members come along with the classic protocol, then the one joins that caused it."""
        names = list(group.members)
        yield Classic(self.group, 0, None)
        for name in names:
            yield Profile("consumer", self.group, name, tuple(self.topics), None, True)
        yield Own("consumer", self.group, group.epoch)
        targets = self._targets("consumer", names, topics) if names else []
        for name, assigned in zip(names, targets, strict=True):
            yield Target("consumer", self.group, name, assigned)
        yield TargetEpoch("consumer", self.group, group.epoch)
        for name, assigned in zip(names, targets, strict=True):
            yield Current("consumer", self.group, name, group.epoch, 0, assigned)
        converted = GroupState("consumer", group.epoch, members=group.members)
        yield from self._join(converted, topics, rng)

    def _convert_to_classic(self, group: GroupState, topics: list[Topic]) -> Iterator[Fact]:
        yield from tombstones(self.group, group)
        names = [name for name, member in group.members.items() if member.epoch >= 0]
        shares = _share_out(topics, len(names), by_id=False) if names else []
        members = tuple(
            ClassicMember(name, group.members[name].instance_id, tuple(self.topics), assigned)
            for name, assigned in zip(names, shares, strict=True)
        )
        yield Classic(self.group, group.epoch, members)


def tombstones(name: str, group: GroupState) -> Iterator[Fact]:
    """All records that end the group, without those of its offsets."""
    kind = group.kind
    if kind == "classic":
        yield Classic(name, 0, None)
        return
    for member in group.members:
        yield Current(kind, name, member, None)
    for member in group.targets:
        yield Target(kind, name, member, None)
    yield TargetEpoch(kind, name, None)
    for member in group.members:
        yield Profile(kind, name, member, None)
    if kind == "consumer":
        yield PartitionMetadata(name)
    if kind == "share":
        yield ShareTopics(name, None)
    yield Own(kind, name, None)
    if kind == "streams":
        yield Topology(name, None)


def _instance_of(name: str, rng: random.Random) -> str | None:
    """The instance id of a new member: some are static."""
    return f"static-{name}" if rng.random() < 0.4 else None


def _share_out(topics: list[Topic], members: int, *, by_id: bool) -> list[Assigned]:
    """The partitions of the topics, shared out among that many members."""
    return [
        tuple(
            (topic.id if by_id else topic.name, mine)
            for topic in topics
            if (mine := tuple(range(len(topic.partitions)))[place::members])
        )
        for place in range(members)
    ]


def _next_offset(rng: random.Random, log: PlainLog, committed: int) -> int:
    """Most commits are progress. Some are a reset, ahead of the log, or -1."""
    choice = rng.random()
    if choice < 0.01:
        return -1
    if choice < 0.02:
        return log.end + rng.randint(1, 50)
    if choice < 0.06:
        return rng.randint(min(log.start, log.end), log.end)
    if choice < 0.3 or committed >= log.end:
        return max(committed, 0) if choice < 0.9 else log.end
    return rng.randint(max(committed, 0), log.end)
