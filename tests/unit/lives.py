"""Scripted lives of groups: what brokers would write as members of every kind come and go.

Batches are in the order in which Apache Kafka 4.3 writes them (docs/records-format.md 4.5 to 4.8).
"""

import random
from typing import Any

from koff.records import (
    DecodedMessage,
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupStatePartitionMetadata,
    ShareGroupStatePartitionMetadataValue,
)
from koff.records.consumer_records import ConsumerGroupPartitionMetadata, ConsumerGroupPartitionMetadataValue
from koff.tracker.groups import Group, GroupTable
from tests.group_records import Consumer, Held, Share, Streams, classic_group_record, classic_member, gone
from tests.unit.builders import ASSIGNED_T_0_1

Records = list[Any]


def classic(group: str, generation: int, *members: str, protocol_type: str = "consumer") -> Any:
    """The record of a classic group; without members it is empty."""
    found = [classic_member(name, f"{name}-client", ASSIGNED_T_0_1) for name in members]
    more: Any = {
        "protocol_type": protocol_type,
        "since_ms": generation * 1000,
        "leader": next(iter(members), None),
    }
    return classic_group_record(group, generation, found, **more)


def share_topics(group: str, stage: str, topic_id: str = Share.places[0]) -> Any:
    """The state of topic t of a share group."""
    here = (NamedTopicPartitions(topic_id=topic_id, topic_name="t", partitions=(0, 1)),)
    value = ShareGroupStatePartitionMetadataValue(
        version=0,
        initializing_topics=here if stage == "initializing" else (),
        initialized_topics=here if stage == "initialized" else (),
        deleting_topics=(NamedTopic(topic_id=topic_id, topic_name="t"),) if stage == "deleting" else (),
    )
    return ShareGroupStatePartitionMetadata(group_id=group, value=value)


def partition_metadata(group: str) -> Any:
    """Written up to 4.0; later releases write its tombstone."""
    value = ConsumerGroupPartitionMetadataValue(version=0, topics=())
    return ConsumerGroupPartitionMetadata(group_id=group, value=value)


class Life:
    """One group's. Each call of `step` is one batch that the coordinator writes."""

    def __init__(self, group: str, rng: random.Random) -> None:
        self.group = group
        self.rng = rng
        self.kind: Any = None
        self.epoch = 0
        self.members: dict[str, dict[str, Any]] = {}
        self.patterns: set[str] = set()
        self.topology = 0

    def step(self) -> Records:
        if self.kind is None:
            return self._born()
        if self.kind == "classic":
            return self.rng.choice([self._rebalance, self._rebalance, self._empty, self._to_consumer])()
        steps = [self._join, self._assign, self._assign, self._reconcile, self._leave, self._end]
        if self.kind is Consumer:
            steps += [self._away, self._resubscribe, self._pattern, self._to_classic]
        return self.rng.choice(steps)()

    def _born(self) -> Records:
        self.kind = self.rng.choice(["classic", Consumer, Share, Streams])
        self.members, self.patterns = {}, set()
        if self.kind == "classic":
            self.epoch = 0
            return [classic(self.group, 0, protocol_type="")]
        return self._join()

    def _bump(self) -> Any:
        self.epoch += 1
        return self._own()

    def _own(self) -> Any:
        if self.kind is Streams:
            validated = self.topology if self.rng.random() < 0.8 else -1
            return Streams.own(self.group, self.epoch, validated=validated)
        return self.kind.own(self.group, self.epoch)

    # of a classic group

    def _rebalance(self) -> Records:
        self.epoch += 1
        self.members = {name: {} for name in self.rng.sample("abcd", self.rng.randint(1, 4))}
        return [classic(self.group, self.epoch, *self.members)]

    def _empty(self) -> Records:
        if self.members:
            self.epoch += 1
            self.members = {}
            return [classic(self.group, self.epoch)]
        self.kind = None
        return [gone(classic(self.group, 0))]

    def _to_consumer(self) -> Records:
        """The old members come along, speaking the classic protocol; then the one that made it so joins."""
        self.kind = Consumer
        old, held = list(self.members), self._held()
        records = [gone(classic(self.group, 0))]
        records += [Consumer.member(self.group, name, classic=True) for name in old]
        records.append(self._own())
        records += [Consumer.target(self.group, name, held) for name in old]
        records.append(Consumer.assigned(self.group, self.epoch))
        records += [Consumer.current(self.group, name, self.epoch, held) for name in old]
        return records + self._join()

    # of the others

    def _held(self) -> Held:
        places = self.rng.sample(self.kind.places, self.rng.randint(0, 2))
        return {place: tuple(self.rng.sample(range(4), self.rng.randint(1, 3))) for place in places}

    def _join(self) -> Records:
        name = self.rng.choice("abcdefgh")
        self.members.setdefault(name, {})
        records = [self.kind.member(self.group, name)]
        if self.kind is Streams:
            self.topology += self.rng.random() < 0.2
            records.append(Streams.topology(self.group, self.topology))
        if self.kind is Consumer and self.rng.random() < 0.2:
            records.append(partition_metadata(self.group))
        if self.kind is Share:
            records.append(share_topics(self.group, "initializing"))
        return [*records, self._bump()]

    def _assign(self) -> Records:
        """A new target assignment; members are at its epoch when they were heard of."""
        records = [self.kind.target(self.group, name, self._held()) for name in self.members]
        records.append(self.kind.assigned(self.group, self.epoch))
        if self.kind is Share:
            records.append(share_topics(self.group, "initialized"))
        return records + self._reconcile()

    def _reconcile(self) -> Records:
        return [
            self.kind.current(
                self.group,
                name,
                self.rng.choice([self.epoch, self.epoch - 1]),
                self._held(),
                self._held(),
                state=self.kind.stable + self.rng.randint(0, 2),
            )
            for name in self.members
            if self.rng.random() < 0.7
        ]

    def _removed(self, name: str) -> Records:
        group, kind = self.group, self.kind
        return [
            gone(kind.current(group, name, 0, {})),
            gone(kind.target(group, name, {})),
            gone(kind.member(group, name)),
        ]

    def _leave(self) -> Records:
        if not self.members:
            return self._end()
        name = self.rng.choice(list(self.members))
        del self.members[name]
        return [*self._removed(name), self._bump()]

    def _away(self) -> Records:
        """A static member leaves for a while."""
        return [Consumer.current(self.group, name, -2, self._held()) for name in list(self.members)[:1]]

    def _resubscribe(self) -> Records:
        """A member's own record moves behind those of its assignment."""
        asked: dict[str, Any] = {"subscribed_topic_names": ("t", "u"), "subscribed_topic_regex": "t.*"}
        return [Consumer.member(self.group, name, **asked) for name in list(self.members)[:1]] + [
            self._bump()
        ]

    def _pattern(self) -> Records:
        if self.patterns and self.rng.random() < 0.5:
            return [gone(Consumer.pattern(self.group, self.patterns.pop()))]
        regex = self.rng.choice(["t.*", "u.*"])
        self.patterns.add(regex)
        return [Consumer.pattern(self.group, regex, "t", "t2"), self._bump()]

    def _tombstones(self) -> Records:
        """8*, 7*, 6, 5*, 16*, 4, 3."""
        group, kind = self.group, self.kind
        by_member = [self._removed(name) for name in self.members]
        return [
            *(records[0] for records in by_member),
            *(records[1] for records in by_member),
            gone(kind.assigned(group, 0)),
            *(records[2] for records in by_member),
            *(gone(Consumer.pattern(group, regex)) for regex in sorted(self.patterns)),
            *([gone(partition_metadata(group))] if kind is Consumer else []),
            *(
                [share_topics(group, "deleting"), gone(share_topics(group, "deleting"))]
                if kind is Share
                else []
            ),
            gone(kind.own(group, 0)),
            *([gone(Streams.topology(group))] if kind is Streams else []),
        ]

    def _end(self) -> Records:
        """Only an empty group can be deleted."""
        if self.members:
            return []
        records, self.kind, self.patterns = self._tombstones(), None, set()
        return records

    def _to_classic(self) -> Records:
        records = self._tombstones()
        self.kind, self.patterns = "classic", set()
        self.members = {name: {} for name in self.members}
        return [*records, classic(self.group, self.epoch, *self.members)]


def history(seed: int, *, groups: int = 3, steps: int = 120) -> list[DecodedMessage]:
    """The log of a partition with some groups' lives in it."""
    rng = random.Random(seed)
    lives = [Life(f"g{number}", rng) for number in range(groups)]
    return [
        DecodedMessage(life.group, record)
        for _ in range(steps)
        for life in (rng.choice(lives),)
        for record in life.step()
    ]


def key(message: DecodedMessage) -> tuple[Any, ...]:
    """What the log cleaner goes by."""
    record: Any = message.record
    about = getattr(record, "member_id", None), getattr(record, "regular_expression", None)
    return (record.type, message.consumer, *about)


def compacted(log: list[DecodedMessage], *, tombstones: bool = True) -> list[DecodedMessage]:
    """The last record of each key, in order."""
    last = {key(message): place for place, message in enumerate(log)}
    kept = [log[place] for place in sorted(last.values())]
    return kept if tombstones else [message for message in kept if not message.tombstone]


def replayed(log: list[DecodedMessage]) -> GroupTable:
    made = GroupTable()
    for message in log:
        made.apply(message)
    return made


def views(made: GroupTable) -> dict[str, Group | None]:
    return {name: made.get(name) for name in made.names()}
