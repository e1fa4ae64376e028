"""The cluster of the model, with the faults that are the cluster's own.

Faults between koff and the cluster are not here. Each method is one fault, or the end of one. It does nothing
where it makes no sense: for a topic that does not exist, or a partition out of range.
"""

from functools import partial

from tests.simulation.coordinators import DescribedGroup, DescribedMember, GroupShard, ShareShard
from tests.simulation.encoding import write
from tests.simulation.facts import Classic, Commit, Fact, ShareProgress
from tests.simulation.hostile import write_hostile_record
from tests.simulation.lives import Life, tombstones
from tests.simulation.logs import LogRecord, PartitionLog, PlainLog, Topic, Written
from tests.simulation.placement import kafka_hash
from tests.simulation.quiet_cluster import EPOCH_MS, OFFSETS, SHARE_STATE, QuietCluster
from tests.simulation.truth import Truth

__all__ = [
    "EPOCH_MS",
    "OFFSETS",
    "SHARE_STATE",
    "Cluster",
    "DescribedGroup",
    "DescribedMember",
    "LogRecord",
    "PartitionLog",
    "PlainLog",
    "Topic",
    "Truth",
]


class Cluster(QuietCluster):
    """A cluster whose brokers, partitions and topics fail at the moments that the caller chooses."""

    # Leaders and brokers

    def take_leader(self, topic: str, partition: int) -> None:
        """The partition becomes leaderless."""
        self._elect(topic, partition, None)

    def give_leader(self, topic: str, partition: int) -> None:
        """A leaderless partition gets a leader."""
        log = self._log(topic, partition)
        if log is not None and log.leader is None:
            self._elect(topic, partition, self._any_broker())

    def move_leader(self, topic: str, partition: int) -> None:
        """Another broker becomes the leader, if there is one."""
        log = self._log(topic, partition)
        others = [broker for broker, up in self.brokers.items() if up and log and broker != log.leader]
        if others:
            self._elect(topic, partition, self.rng.choice(others))

    def stop_broker(self, broker: int, *, failover: bool = True) -> None:
        """Stops a broker, but not the last one. Without failover, all that it leads becomes leaderless."""
        others = [other for other, up in self.brokers.items() if up and other != broker]
        if not self.brokers[broker] or not others:
            return
        self.brokers[broker] = False
        for topic, partition, log in self._logs():
            if log.leader == broker:
                log.elect(self.rng.choice(others) if failover else None)
                self._reload(topic, partition)
        self._place_groups()

    def start_broker(self, broker: int) -> None:
        """Starts a broker that is stopped. It leads what was leaderless, and knows all partition counts."""
        if self.brokers[broker]:
            return
        self.brokers[broker] = True
        if OFFSETS in self.topics:
            self._counts[broker] = len(self.topics[OFFSETS].partitions)
        for topic, partition, log in self._logs():
            if log.leader is None:
                log.elect(broker)
                self._reload(topic, partition)
        self._place_groups()

    def restart_broker(self, broker: int) -> None:
        """Stops a broker, and starts it after a few seconds."""
        self.stop_broker(broker, failover=self.rng.random() < 0.5)
        self.after(self.rng.uniform(0.5, 5), partial(self.start_broker, broker))

    def unclean_election(self, topic: str, partition: int) -> None:
        """The last few records are lost, and a broker that did not have them becomes the leader."""
        log = self._log(topic, partition)
        if log is None:
            return
        log.truncate(log.batch_start(log.end - self.rng.randint(1, 10)))
        if isinstance(log, PlainLog):
            self.truth.set_end(topic, partition, self.now, log.end)
        self._elect(topic, partition, self._any_broker())
        if topic == OFFSETS:
            self._adopt_transactions(partition)

    # Topics

    def grow_topic(self, name: str, partitions: int) -> None:
        """Adds partitions, up to that number. `__share_group_state` is never grown.

        After `__consumer_offsets` has grown, a broker uses the new partition count once it was restarted.
        """
        topic = self.topics.get(name)
        if topic is None or name == SHARE_STATE:
            return
        for number in range(len(topic.partitions), partitions):
            if name == OFFSETS:
                topic.partitions.append(PartitionLog(self._any_broker()))
                self._shards.append(GroupShard())
            else:
                log = PlainLog(self._any_broker())
                topic.partitions.append(log)
                self.truth.set_end(name, number, self.now, 0)
                self.truth.set_log(name, number, self.now, log)
        self._sync_all()

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. The coordinators delete its commits, and its share state, within a second."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        if name == OFFSETS:
            self._shards = []
            self._transactions.clear()
            self._partitions.clear()
        elif name == SHARE_STATE:
            self._share_shards = []
        else:
            for number in range(len(topic.partitions)):
                self.truth.set_end(name, number, self.now, None)
            self.after(self.rng.uniform(0.05, 1), partial(self._forget_topic, topic))
        self._sync_all()

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Moves the log start offset of a partition of an ordinary topic."""
        log = self._log(topic, partition)
        if isinstance(log, PlainLog):
            log.trim(offset)
            self.truth.set_start(topic, partition, self.now, log.start)

    def compact(self) -> None:
        """Compacts all partitions of `__consumer_offsets` that have a leader."""
        for log in self.topics[OFFSETS].partitions if OFFSETS in self.topics else ():
            if log.leader is not None:
                log.compact(self.wall_ms(), self.retention_ms)

    # Transactions

    def hang_transaction(self) -> int | None:
        """Begins a transaction with a commit of an ordinary group, and leaves it open.

        Returns its producer; None if no group can commit at present.
        """
        candidates = [
            life
            for life in self.lives
            if life.kind != "share" and self.shard(life.group) is not None and self._topics_of(life)
        ]
        if not candidates:
            return None
        life = self.rng.choice(candidates)
        topic = self._topics_of(life)[0]
        producer = 9_000 + next(self._numbers)
        end = topic.partitions[0].end
        self.write(life.group, [Commit(life.group, topic.name, 0, self.rng.randint(0, end))], producer)
        return producer

    def end_all_transactions(self) -> None:
        """Ends all open transactions, some by commit, some by abort."""
        for producer in list(self._transactions):
            self.end_transaction(producer, commit=self.rng.random() < 0.5)

    # Groups

    def delete_group(self) -> None:
        """DeleteGroups: a group ends, with its offsets. It may begin again later."""
        living = [life for life in self.lives if self._may_be_deleted(life)]
        if living:
            self._end_group(self.rng.choice(living))

    def expire_group(self) -> None:
        """The offsets of an empty group expire, and with them the group."""
        empty = [life for life in self.lives if life.kind != "share" and self._may_be_deleted(life)]
        empty = [life for life in empty if not self.described(life.group).members]
        if empty:
            self._end_group(self.rng.choice(empty))

    def write_hostile(self) -> None:
        """Writes a few records that no broker writes, or of groups that nobody should trust."""
        for _ in range(self.rng.randint(1, 4)):
            write_hostile_record(self)

    def append_hostile(
        self, topic: str, partition: int, written: list[Written], groups: tuple[str, ...] = ()
    ) -> None:
        """Appends hostile records, if the partition has a leader. `groups` become "any"."""
        self._hostile.update(groups)
        log = self._log(topic, partition)
        if log is not None and log.leader is not None:
            (self._append if topic == OFFSETS else self._append_share)(partition, written)

    def end_faults(self) -> None:
        """Ends all faults: brokers run, partitions have leaders, transactions end, internal topics exist.

        Brokers that know an outdated partition count are restarted within a few seconds.
        """
        for broker, up in self.brokers.items():
            if not up:
                self.start_broker(broker)
        self.create_internal_topics()
        for topic, partition, _ in self._logs():
            self.give_leader(topic, partition)
        self.end_all_transactions()
        present = len(self.topics[OFFSETS].partitions)
        outdated = [broker for broker, known in self._counts.items() if known != present]
        for place, broker in enumerate(outdated):
            self.after(place * 1.0, partial(self.stop_broker, broker))
            self.after(place * 1.0 + 0.5, partial(self.start_broker, broker))

    # Details

    def _log(self, topic: str, partition: int) -> PartitionLog | PlainLog | None:
        found = self.topics.get(topic)
        return found.partitions[partition] if found and partition < len(found.partitions) else None

    def _logs(self) -> list[tuple[str, int, PartitionLog | PlainLog]]:
        return [
            (name, number, log)
            for name, topic in self.topics.items()
            for number, log in enumerate(topic.partitions)
        ]

    def _elect(self, topic: str, partition: int, leader: int | None) -> None:
        log = self._log(topic, partition)
        if log is not None:
            log.elect(leader)
            self._reload(topic, partition)
            self._place_groups()

    def _reload(self, topic: str, partition: int) -> None:
        """A new leader of an internal topic reads the whole log. Without a leader, nothing changes."""
        log = self._log(topic, partition)
        if not isinstance(log, PartitionLog) or log.leader is None:
            return
        if topic == OFFSETS:
            before = self._shards[partition].names()
            self._shards[partition] = GroupShard.load(log)
            self._sync(before | self._shards[partition].names())
        else:
            names = {key[0] for key in self._share_shards[partition].states}
            self._share_shards[partition] = ShareShard.load(log)
            self._allow_former_topics(partition)
            self._sync(names | {key[0] for key in self._share_shards[partition].states})

    def _allow_former_topics(self, partition: int) -> None:
        """Truncated state of a topic that was created again: that it was is known to few for a while."""
        for (group, id_, number), state in self._share_shards[partition].states.items():
            name = self._topic_names.get(id_, "")
            if name in self.topics and self.topics[name].id != id_ and state.committed is not None:
                self.truth.allow_committed((group, name, number), self.now, state.committed)

    def _place_groups(self) -> None:
        """Finds the partition in which each group is coordinated now.

        While brokers know different partition counts, a group stays where it is as long as the leader there
        knows the count that names this partition.
        """
        if OFFSETS not in self.topics:
            return
        logs = self.topics[OFFSETS].partitions
        counts = sorted(set(self._counts.values()))
        for group in {**self._served, **dict.fromkeys(life.group for life in self.lives)}:
            places = {kafka_hash(group) % known: known for known in counts}
            possible = [
                place
                for place, known in places.items()
                if (leader := logs[place].leader) is not None
                and kafka_hash(group) % self._counts[leader] == place
            ]
            present = self._partition(group)
            if possible and present not in possible:
                self._partitions[group] = possible[-1]
        self._sync_all()

    def _adopt_transactions(self, partition: int) -> None:
        """Transactions whose control record was lost are open again. They end after some seconds."""
        log = self.topics[OFFSETS].partitions[partition]
        for producer in log.open:
            if producer not in self._transactions:
                self._transactions[producer] = (log, partition)
                commit = self.rng.random() < 0.5
                self.after(
                    self.rng.uniform(1, 5),
                    partial(self.end_transaction, producer, commit=commit),
                )

    def _forget_topic(self, topic: Topic) -> None:
        """Each coordinator deletes the commits of a deleted topic; those without a topic id by its name."""
        logs = self.topics[OFFSETS].partitions if OFFSETS in self.topics else []
        for number, (log, shard) in enumerate(zip(logs, self._shards, strict=True)):
            if log.leader is None:
                continue
            places = {
                (group, place)
                for group, slots in shard.commits.items()
                for place, slot in slots.items()
                if place[0] == topic.name and slot.topic_id in {"", topic.id}
            } | {(group, place) for group, place in shard.pending() if place[0] == topic.name}
            facts = [Commit(group, *place, None) for group, place in sorted(places)]
            self._append(number, [write(fact, self.wall_ms()) for fact in facts])
        self._forget_share_state(topic)

    def _forget_share_state(self, topic: Topic) -> None:
        """Tries again until each partition with state of the topic has a leader."""
        keys = [key for shard in self._share_shards for key in shard.states if key[1] == topic.id]
        for key in keys:
            self.write_share([ShareProgress(*key, True, None)])
        if any(self.share_shard(*key) is None for key in keys):
            self.after(1.0, partial(self._forget_share_state, topic))

    def _topics_of(self, life: Life) -> list[Topic]:
        return [self.topics[name] for name in life.topics if name in self.topics]

    def _may_be_deleted(self, life: Life) -> bool:
        shard = self.shard(life.group)
        if shard is None or life.group not in shard.names():
            return False
        if any(group == life.group for group, _ in shard.pending()):
            return False
        return all(self.share_shard(*key) is not None for key in self._share_keys(life.group))

    def _share_keys(self, group: str) -> list[tuple[str, str, int]]:
        return [key for shard in self._share_shards for key in shard.states if key[0] == group]

    def _end_group(self, life: Life) -> None:
        shard, group = self.shard(life.group), life.group
        if shard is None:
            return
        self.write_share([ShareProgress(*key, True, None) for key in self._share_keys(group)])
        state = shard.groups.get(group)
        if state is not None and state.kind == "classic" and state.members:
            self.write(group, [Classic(group, state.epoch + 1, ())])
        facts: list[Fact] = [Commit(group, *place, None) for place in sorted(shard.commits.get(group, {}))]
        self.write(group, facts + (list(tombstones(group, state)) if state is not None else []))
