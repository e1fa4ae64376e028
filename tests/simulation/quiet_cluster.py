"""A Kafka cluster in virtual time, without faults: topics, brokers, coordinators, and the lives of groups."""

import random
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from itertools import count

from tests.simulation.coordinators import DescribedGroup, GroupShard, SharePartition, ShareShard
from tests.simulation.encoding import write
from tests.simulation.facts import Fact, ShareProgress, topic_id
from tests.simulation.lives import KINDS, Life
from tests.simulation.logs import PartitionLog, PlainLog, Topic, Written
from tests.simulation.placement import kafka_hash, share_key
from tests.simulation.truth import Truth

OFFSETS = "__consumer_offsets"
SHARE_STATE = "__share_group_state"
EPOCH_MS = 1_790_000_000_000
"""The wall-clock time of virtual second 0."""
DAY_MS = 86_400_000
GRACE_S = 30.0
"""A group stays "any" for this long after the reason has gone: what is served may be as old as that."""
WARM_UP_S = 30.0
"""Virtual time that the cluster has lived through when a run begins, at second 0."""


class QuietCluster:
    """A cluster without faults. All that happens by itself is on an agenda, at seeded moments."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = -WARM_UP_S
        self.cluster_id = f"cluster-{rng.randrange(10**6)}"
        self.brokers = dict.fromkeys(range(rng.randint(2, 4)), True)
        self.topics: dict[str, Topic] = {}
        self.retention_ms = rng.choice((DAY_MS, DAY_MS, 3_600_000, 120_000))
        """delete.retention.ms of the offsets topic."""
        self.truth = Truth(self._is_any)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._alive = True
        self._shards: list[GroupShard] = []
        self._share_shards: list[ShareShard] = []
        self._share_needed: dict[PartitionLog, int] = {}  # when the logs were cleaned last
        # The partition count of the offsets topic that each broker knows: it is read when the broker starts.
        self._counts: dict[int, int] = {}
        self._partitions: dict[str, int] = {}
        """The partition in which each group is coordinated."""
        self._topic_names: dict[str, str] = {}
        """The names of ordinary topics by id, also of those that are gone; the newest come last."""
        self._served: dict[str, dict[tuple[str, int], int]] = {}
        self._kept: dict[str, dict[tuple[str, int], int]] = {}
        self._transactions: dict[int, tuple[PartitionLog, int]] = {}
        """The log and the partition of the open transaction of each producer."""
        self._hostile: set[str] = set()
        self._any_until: dict[str, float] = {}
        self._listed = 0  # the partition count of the offsets topic in the last list that koff got
        self.lives: list[Life] = []
        self.create_internal_topics(rng.randint(2, 6), rng.randint(1, 4))
        for number in range(rng.randint(2, 6)):
            self.create_topic(f"topic-{number}", rng.randint(1, 4))
        self._begin_lives()
        self.after(rng.uniform(10, 40), self._clean_share_state)
        self.advance(0.0)

    # Time

    def wall_ms(self) -> int:
        """The brokers' clock, which never steps."""
        return EPOCH_MS + round(self.now * 1000)

    def next_event_s(self) -> float:
        """When the next thing happens by itself."""
        return self._agenda[0][0] if self._agenda else float("inf")

    def advance(self, to_s: float) -> None:
        """Lets happen all that is to happen up to then."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= to_s:
            self.now, _, happen = heappop(agenda)
            happen()
        self.now = max(self.now, to_s)

    def after(self, delay_s: float, happen: Callable[[], None]) -> None:
        """Puts something on the agenda."""
        heappush(self._agenda, (self.now + delay_s, next(self._numbers), happen))

    def stop_lives(self) -> None:
        """From now on, groups do nothing and nothing is produced. What has begun is still finished."""
        self._alive = False

    # What clients are answered

    def ordinary_topics(self) -> list[str]:
        """The names of all topics that are not internal."""
        return [name for name in self.topics if name not in {OFFSETS, SHARE_STATE}]

    def coordinator(self, group: str) -> tuple[int | None, int]:
        """The broker that coordinates the group, if any, and the partition with the group's records."""
        if OFFSETS not in self.topics:
            return None, 0
        partition = self._partition(group)
        leader = self.topics[OFFSETS].partitions[partition].leader
        # A broker with another partition count in mind answers NOT_COORDINATOR.
        if leader is None or kafka_hash(group) % self._counts[leader] != partition:
            return None, partition
        return leader, partition

    def is_coordinator(self, broker: int, group: str) -> bool:
        """Whether this broker takes itself for the coordinator of the group."""
        logs = self.topics[OFFSETS].partitions if OFFSETS in self.topics else []
        partition = kafka_hash(group) % self._counts[broker] if logs else 0
        return partition < len(logs) and logs[partition].leader == broker

    def group_names(self) -> list[str]:
        """All groups that the coordinators list."""
        return sorted({name for broker in self.brokers for name in self.list_groups(broker)})

    def list_groups(self, broker: int) -> list[str]:
        """The groups that this broker lists: those of all partitions that it leads."""
        logs = self.topics[OFFSETS].partitions if OFFSETS in self.topics else []
        led = [shard for log, shard in zip(logs, self._shards, strict=True) if log.leader == broker]
        return sorted({name for shard in led for name in shard.names()})

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets that the coordinator answers; without a coordinator, none.

        For share groups: the start offset plus the completed deliveries. Commits that are pending in a
        transaction, and negative ones, are left out. A commit to an earlier topic of that name is not: the
        coordinator compares topic ids only if the request names them (`fetchAllOffsets` of
        OffsetMetadataManager).
        """
        return {} if self.coordinator(group)[0] is None else self._rows_of(group) | self._kept_of(group)

    def described(self, group: str) -> DescribedGroup | None:
        """The group as its coordinator describes it. None: no such group, or no coordinator."""
        shard = self.shard(group)
        if shard is None:
            return None
        state = shard.groups.get(group)
        if state is not None:
            return state.describe(group)
        return DescribedGroup(group, "simple", "Empty", 0, 0, "", ()) if group in shard.commits else None

    # For the lives

    def shard(self, group: str) -> GroupShard | None:
        """What the group's coordinator knows. None: no broker coordinates the group."""
        broker, partition = self.coordinator(group)
        return None if broker is None else self._shards[partition]

    def share_shard(self, group: str, topic_id: str, partition: int) -> ShareShard | None:
        """What the share coordinator of this share partition knows. None: there is no coordinator."""
        place = self._share_place(group, topic_id, partition)
        if place is None or self.topics[SHARE_STATE].partitions[place].leader is None:
            return None
        return self._share_shards[place]

    def share_states(self, group: str) -> dict[tuple[str, str, int], SharePartition | None]:
        """By topic, topic id and partition, what share coordinators know. None: there is none at present."""
        logs = self.topics[SHARE_STATE].partitions if SHARE_STATE in self.topics else []
        return {
            (self._topic_names[id_], id_, number): None if log.leader is None else state
            for log, shard in zip(logs, self._share_shards, strict=True)
            for (name, id_, number), state in shard.states.items()
            if name == group and self._topic_names.get(id_, "") in self.topics
            if self.topics[self._topic_names[id_]].id == id_
        }

    def write(self, group: str, facts: list[Fact], producer: int | None = None) -> None:
        """Writes one batch to the group's partition, if the group has a coordinator."""
        broker, partition = self.coordinator(group)
        if facts and broker is not None:
            self._append(partition, [write(fact, self.wall_ms()) for fact in facts], producer)

    def write_share(self, facts: Iterable[ShareProgress]) -> None:
        """Writes these records, each to its partition, if that has a leader."""
        for fact in facts:
            if self.share_shard(fact.group, fact.topic_id, fact.partition) is not None:
                place = self._share_place(fact.group, fact.topic_id, fact.partition)
                self._append_share(place or 0, [write(fact, self.wall_ms())])

    def has_transaction(self, producer: int) -> bool:
        """Whether a transaction of this producer is open."""
        return producer in self._transactions

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Writes the control record that ends the transaction, as soon as the partition has a leader."""
        log, partition = self._transactions.get(producer, (None, 0))
        if log is None:
            return
        if log.leader is None:
            self.after(0.2, partial(self.end_transaction, producer, commit=commit))
            return
        del self._transactions[producer]
        log.end_transaction(producer, self.wall_ms(), commit=commit)
        touched = self._shards[partition].apply(log.records[-1])
        self._allow_passing(partition)
        self._sync(touched)

    # Topics

    def create_topic(self, name: str, partitions: int) -> None:
        """Creates an ordinary topic, unless it exists. It is produced to from now on."""
        if name in self.topics:
            return
        logs = [PlainLog(self._any_broker()) for _ in range(partitions)]
        topic = self.topics[name] = Topic(name, topic_id(next(self._numbers)), logs)
        self._topic_names[topic.id] = name
        for number, log in enumerate(logs):
            if self.now < 0:  # a topic with a past
                for age_s in sorted(
                    (self.rng.uniform(30, self.rng.choice((600, 86_400, 10 * 86_400))) for _ in range(4)),
                    reverse=True,
                ):
                    log.write(self.rng.randint(0, 200), EPOCH_MS - round(age_s * 1000))
                log.trim(self.rng.choice((0, 0, log.end // 3)))
            self.truth.set_end(name, number, self.now, log.end)
            self.truth.set_log(name, number, self.now, log)
        rate = self.rng.choice((0.2, 0.5, 1.0))
        self.after(self.rng.expovariate(rate), partial(self._produce, topic, rate))
        self._sync_all()  # commits of an earlier topic of that name no longer count

    def create_internal_topics(self, offsets: int = 3, share_state: int = 2) -> None:
        """Creates those of the two internal topics that do not exist, empty, with that many partitions."""
        if OFFSETS not in self.topics:
            logs = [PartitionLog(self._any_broker()) for _ in range(offsets)]
            self.topics[OFFSETS] = Topic(OFFSETS, topic_id(next(self._numbers)), logs)
            self._shards = [GroupShard() for _ in logs]
            self._counts = dict.fromkeys(self.brokers, offsets)
            self._partitions.clear()
        if SHARE_STATE not in self.topics:
            logs = [PartitionLog(self._any_broker()) for _ in range(share_state)]
            self.topics[SHARE_STATE] = Topic(SHARE_STATE, topic_id(next(self._numbers)), logs)
            self._share_shards = [ShareShard() for _ in logs]
        self._sync_all()

    # What happens by itself

    def _begin_lives(self) -> None:
        rng, names = self.rng, self.ordinary_topics()
        for number in range(rng.randint(3, 12)):
            kind = KINDS[number] if number < len(KINDS) else rng.choice(KINDS)
            topics = rng.sample(names, rng.randint(1, min(3, len(names))))
            transactional = kind in {"classic", "consumer", "streams"} and rng.random() < 0.4
            life = Life(f"group-{number}", kind, topics, transactional=transactional, producer=1000 + number)
            self.lives.append(life)
            pause_s = rng.choice((2.0, 4.0, 8.0))
            self.after(rng.uniform(0, 5), partial(self._live, life, pause_s))

    def _live(self, life: Life, pause_s: float) -> None:
        if self._alive:
            life.step(self)
            self.after(self.rng.expovariate(1 / pause_s), partial(self._live, life, pause_s))

    def _produce(self, topic: Topic, rate: float) -> None:
        if not self._alive or self.topics.get(topic.name) is not topic:
            return
        number = self.rng.randrange(len(topic.partitions))
        log = topic.partitions[number]
        if log.leader is not None:
            if log.open_offset >= 0:
                log.open_offset = -1
            elif self.rng.random() < 0.05:  # a transaction that ends with the next records
                log.open_offset = log.end
            log.write(self.rng.randint(1, 30), self.wall_ms())
            if self.rng.random() < 0.02:
                log.trim(self.rng.randint(log.start, log.end))
                self.truth.set_start(topic.name, number, self.now, log.start)
            self.truth.set_end(topic.name, number, self.now, log.end)
        self.after(self.rng.expovariate(rate), partial(self._produce, topic, rate))

    def _clean_share_state(self) -> None:
        """Share coordinators cut off the front of their logs, up to what a share partition still needs.

        Brokers do it every five minutes. So what was needed until a moment ago is not cut off.
        """
        needed: dict[PartitionLog, int] = {}
        if SHARE_STATE in self.topics:
            for log, shard in zip(self.topics[SHARE_STATE].partitions, self._share_shards, strict=True):
                needed[log] = shard.first_needed(log.end)
                if log.leader is not None:
                    log.trim(min(needed[log], self._share_needed.get(log, 0)))
        self._share_needed = needed
        self.after(self.rng.uniform(20, 60), self._clean_share_state)

    # The coordinators' state, and the truth

    def _append(self, partition: int, written: list[Written], producer: int | None = None) -> None:
        log = self.topics[OFFSETS].partitions[partition]
        if producer is not None:
            self._transactions[producer] = (log, partition)
        touched: set[str] = set()
        for record in log.append(written, self.wall_ms(), producer):
            changed = self._shards[partition].apply(record)
            touched |= changed
            for group in changed:  # a reader may get a part of the batch first
                self.truth.set_members(group, self.now, self._members_of(group))
        self._allow_passing(partition)
        self._sync(touched)

    def _allow_passing(self, partition: int) -> None:
        for group, place, offset in self._shards[partition].take_passing():
            self.truth.allow_committed((group, *place), self.now, offset)

    def _append_share(self, partition: int, written: list[Written]) -> None:
        touched: set[str] = set()
        for record in self.topics[SHARE_STATE].partitions[partition].append(written, self.wall_ms()):
            touched |= self._share_shards[partition].apply(record)
        self._sync(touched)

    def _sync_all(self) -> None:
        names = {name for shard in self._shards for name in shard.names()}
        self._sync(names | self._served.keys())

    def _sync(self, groups: set[str]) -> None:
        """Notes what is true of these groups from now on."""
        for group in sorted(groups):
            before, after = self._served.get(group, {}), self._rows_of(group)
            for place in {**before, **after}:
                if before.get(place) != after.get(place):
                    self.truth.set_committed((group, *place), self.now, after.get(place))
            self._served[group] = after
            self._sync_kept(group)
            self.truth.set_members(group, self.now, self._members_of(group))
            if self._is_any_now(group):
                self._any_until[group] = float("inf")
            elif self._any_until.get(group) == float("inf"):
                self._any_until[group] = self.now + GRACE_S

    def _sync_kept(self, group: str) -> None:
        before, after = self._kept.pop(group, {}), self._kept_of(group)
        for place in {**before, **after}:
            if before.get(place) != after.get(place):
                self.truth.set_kept((group, *place), self.now, after.get(place))
        if after:
            self._kept[group] = after

    def _kept_of(self, group: str) -> dict[tuple[str, int], int]:
        """The commits to earlier topics of these names.

        Its coordinator deletes the commits of a topic at the moment of the deletion. A partition that has no
        leader then keeps them. Kafka's own tool shows them, and so does koff until it knows the topic's id.
        """
        shard = self._shards[self._partition(group)] if OFFSETS in self.topics else GroupShard()
        return {
            place: slot.offset
            for place, slot in shard.commits.get(group, {}).items()
            if slot.offset >= 0 and place[1] >= 0 and self._is_of_earlier_topic(place[0], slot.topic_id)
        }

    def _is_of_earlier_topic(self, name: str, id_: str) -> bool:
        return bool(id_) and name in self.topics and self.topics[name].id != id_

    def _rows_of(self, group: str) -> dict[tuple[str, int], int]:
        if OFFSETS not in self.topics:
            return {}
        shard = self._shards[self._partition(group)]
        state = shard.groups.get(group)
        rows = {
            place: slot.offset
            for place, slot in shard.commits.get(group, {}).items()
            if slot.offset >= 0 and place[1] >= 0
            if not self._is_of_earlier_topic(place[0], slot.topic_id)
        }
        return rows | self._share_rows_of(group) if state and state.kind == "share" else rows

    def _share_rows_of(self, group: str) -> dict[tuple[str, int], int]:
        """Also those of a topic that is gone, as for other groups, until there is another of that name."""
        newest = {name: id_ for id_, name in self._topic_names.items()}
        names = {id_: name for name, id_ in newest.items()}
        return {
            (names[id_], partition): state.committed
            for shard in self._share_shards
            for (name, id_, partition), state in shard.states.items()
            if name == group and id_ in names and state.committed is not None
        }

    def _members_of(self, group: str) -> int | None:
        if OFFSETS not in self.topics:
            return None
        shard = self._shards[self._partition(group)]
        state = shard.groups.get(group)
        if state is None:
            return 0 if group in shard.commits else None
        return state.present

    def _partition(self, group: str) -> int:
        """The partition in which the group is coordinated."""
        found = self._partitions.get(group)
        if found is None:
            found = self._partitions[group] = kafka_hash(group) % min(self._counts.values())
        return found

    def _share_place(self, group: str, topic_id: str, partition: int) -> int | None:
        if SHARE_STATE not in self.topics:
            return None
        return kafka_hash(share_key(group, topic_id, partition)) % len(self._share_shards)

    def _any_broker(self) -> int:
        return self.rng.choice([broker for broker, up in self.brokers.items() if up])

    def note_listed(self, count: int) -> None:
        """koff gets a list of topics, in which the offsets topic has so many partitions."""
        for group in self._served:
            if self._listed and self._moves(group, self._listed, count):
                self._any_until[group] = max(self._any_until.get(group, 0.0), self.now + GRACE_S)
        self._listed = count

    def _moves(self, group: str, before: int, after: int) -> bool:
        return kafka_hash(group) % before != kafka_hash(group) % after

    def _is_any(self, group: str) -> bool:
        if group in self._hostile or self._any_until.get(group, self.now) > self.now:
            return True
        count = len(self.topics[OFFSETS].partitions) if OFFSETS in self.topics else 0
        return bool(count and self._listed) and self._moves(group, self._listed, count)

    def _is_any_now(self, group: str) -> bool:
        if OFFSETS not in self.topics:
            return False
        logs = self.topics[OFFSETS].partitions
        if kafka_hash(group) % len(logs) != self._partition(group):
            return True
        # What a group has left in its earlier partition is dead, but nothing in the log says so before a
        # partition that came later is written to.
        for number, shard in enumerate(self._shards):
            if number != self._partition(group) and (group in shard.groups or group in shard.commits):
                last_written = max((place for place, log in enumerate(logs) if log.end > 0), default=-1)
                earlier = range(last_written + 1, len(logs))
                if any(kafka_hash(group) % count == number for count in earlier):
                    return True
        # Share state outlives its group if the group's records are truncated, or their topic is deleted.
        if group in self._shards[self._partition(group)].groups:
            return False
        return any(key[0] == group for shard in self._share_shards for key in shard.states)
