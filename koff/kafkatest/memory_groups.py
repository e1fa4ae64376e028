"""Consumer groups of `koff.client.zookeeper` in memory: the members of a `MemoryZooKeeper` share partitions.

    zookeeper = MemoryZooKeeper(MemoryBroker({"orders": 3}))
    with zookeeper.join_consumer_group("billing", ["orders"]) as group:
        for message in group.messages():
            message.ack()

Assignment, redelivery and acknowledgements are those of koff's members; ZooKeeper's sessions, the threads and
offset managers are left out. `broker.fail("commit", ...)` and `broker.delay("commit", ...)` are for commits.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster_conf import TopicPartition
from koff.client.delivery.conf import FailureRule, RedeliveryCounts
from koff.client.delivery.dead_letters import build_dead_letter
from koff.client.delivery.errors import ErrorQueue, PartitionError
from koff.client.delivery.partition import PartitionState
from koff.client.message import Message
from koff.client.start_offset import StartOffset
from koff.client.zookeeper.claims import Claim, find_claim
from koff.client.zookeeper.conf import ConsumerGroupConf, list_topics
from koff.client.zookeeper.errors import AlreadyClosing, ZooKeeperLost, check_processed, raise_close_errors
from koff.client.zookeeper.znodes import Registration, assign_partitions
from koff.errors import Closed, KoffError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.memory_delivery import Cursor, MemoryDelivery
from koff.kafkatest.memory_log import PartitionLog


class MemoryZooKeeper:
    """Where members of groups find each other. `broker` has the messages; it gives the time, too.

    `offsets` maps group, topic and partition to the next offset to process, as it was committed.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.owners: dict[tuple[str, str, int], MemoryConsumerGroup] = {}
        self.members: defaultdict[str, list[MemoryConsumerGroup]] = defaultdict(list)
        self.transactions = itertools.count(1)

    def join_consumer_group(
        self,
        name: str,
        topics: str | Sequence[str],
        zookeeper: str | Sequence[str] = "",
        config: ConsumerGroupConf | None = None,
    ) -> MemoryConsumerGroup:
        """A new member of the group, as `koff.client.zookeeper.join_consumer_group` makes it."""
        names = list_topics(name, topics)
        with self.broker.clock.changed:
            member = MemoryConsumerGroup(self, name, names, config or ConsumerGroupConf())
            if member.conf.reset_offsets and not self.members[name]:
                for key in [key for key in self.offsets if key[0] == name]:
                    del self.offsets[key]
            self.members[name].append(member)
            self.rebalance(name)
        return member

    def expire_session(self, member: MemoryConsumerGroup) -> None:
        """Ends the member's session: it loses its claims without a commit, and registers again."""
        with self.broker.clock.changed:
            member.lose_claims()
            self.rebalance(member.name)

    def rebalance(self, group: str) -> None:
        """Lets each member release partitions and claim others, until nothing changes."""
        members = {member.id: member for member in self.members[group]}
        for topic in {topic for member in members.values() for topic in member.topics}:
            registrations = {
                member.id: Registration(dict.fromkeys(member.topics, 1)) for member in members.values()
            }
            numbers = range(self.broker.count_partitions(topic))
            for member_id, assigned in assign_partitions(registrations, topic, numbers).items():
                members[member_id].assigned[topic] = set(assigned)
        for member in members.values():
            member.release_claims()
        for member in members.values():
            member.claim_partitions()
        self.broker.clock.changed.notify_all()


class MemoryConsumerGroup(Closing):
    """One member of a group, with the interface of `koff.client.zookeeper.ConsumerGroup`."""

    def __init__(
        self, zookeeper: MemoryZooKeeper, name: str, topics: Sequence[str], conf: ConsumerGroupConf
    ) -> None:
        self.name = name
        self.topics = tuple(topics)
        self.conf = conf
        self.id = f"{name}_memory-{next(zookeeper.transactions):04}"
        self.assigned: dict[str, set[int]] = {}
        self._zookeeper, self._broker = zookeeper, zookeeper.broker
        self._clock = zookeeper.broker.clock
        self._claims: dict[TopicPartition, Claim] = {}
        self._processed: dict[Claim, int] = {}
        self._cursors: dict[Claim, Cursor] = {}
        self._errors = ErrorQueue()
        self._iterating: set[int] = set()
        """The threads that iterate over `messages`."""
        self._closing = self._closed = False
        self._drain_timeout_s = conf.processing_timeout_s
        self._committed_at_s = self._clock.now_s
        self._rule = FailureRule(conf.redelivery, conf.max_redeliveries)
        if conf.redelivery.dead_letter_topic:
            self._rule.write_dead_letter = self._write_dead_letter
        self._delivery: MemoryDelivery[Claim] = MemoryDelivery(
            self._clock,
            self._advance,
            is_ready=lambda claim: claim.state is PartitionState.READING,
            on_processed=self._processed.__setitem__,
            on_error=self._report_error,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None:
            self._drain_timeout_s = 0.0
        self._closing = True
        self._shut_down()
        if kind is None:
            raise_close_errors(self.name, self._errors.at_close)

    @property
    def closed(self) -> bool:
        """Whether the shutdown is completed."""
        return self._closed

    def wait_closed(self, timeout_s: float | None = None) -> bool:
        """Waits until the shutdown is completed; returns whether it is."""
        return self._clock.wait_for(lambda: self._closed, float("inf") if timeout_s is None else timeout_s)

    @property
    def claims(self) -> dict[TopicPartition, int]:
        """The partitions that this member owns, each with the number of its claim: later claims have more."""
        with self._clock.changed:
            return {partition: claim.assignment for partition, claim in self._claims.items()}

    def messages(self) -> Iterator[Message]:
        """The messages of this member's partitions, as they arrive; ends when `close` is called."""
        self._iterating.add(threading.get_ident())
        try:
            while True:
                yield from self._delivery.take(1)
        except Closed:
            return
        finally:
            self._iterating.discard(threading.get_ident())
            if self._closing:
                self._shut_down()

    def poll_message(self) -> Message | None:
        """The next message, None if there is none now. Raises `Closed` once the shutdown has begun."""
        with self._clock.changed:
            if self._closing:
                raise Closed(f"the consumer group {self.name} is closed")
            self._advance()
            return next(iter(self._delivery.poll(1)), None)

    def wait_for_message(self, timeout_s: float | None = None) -> bool:
        """Waits until `poll_message` has a message or raises. Returns whether it does after `timeout_s`."""
        return self._delivery.wait_for_messages(timeout_s)

    def errors(self) -> Iterator[KoffError]:
        """The errors of this member, as they occur; ends when the shutdown is completed."""
        return self._errors.take_errors(lambda: self._closed)

    @property
    def redelivery_counts(self) -> RedeliveryCounts:
        """How often this member delivered a message again after `nack`, and passed one over."""
        return self._rule.counts

    def commit_up_to(self, message: Message) -> None:
        """Marks the message, and all before it in its partition, as processed. Raises `ClaimLost`."""
        with self._clock.changed:
            self._delivery.mark_processed_up_to(find_claim(self._claims, message), message.offset)

    def flush_offsets(self) -> None:
        """Commits the offsets of all processed messages now. Raises `KoffError` when that fails."""
        with self._clock.changed:
            self._commit(list(self._processed))

    def instance_registered(self) -> bool:
        """Whether this member is registered."""
        return self in self._zookeeper.members[self.name]

    def owns(self, topic: str, partition: int) -> bool:
        """Whether this member owns the partition."""
        return self._zookeeper.owners.get((self.name, topic, partition)) is self

    def close(self) -> None:
        """Leaves the group as a real member does; a thread that iterates does it after its message."""
        with self._clock.changed:
            if self._closing:
                raise AlreadyClosing(f"the consumer group {self.name} is already shutting down")
            self._closing = True
            self._delivery.close()
        if threading.get_ident() not in self._iterating:
            self._shut_down()
            raise_close_errors(self.name, self._errors.at_close)

    def release_claims(self) -> None:
        """Drains the claims that are not assigned any more, and releases those that are drained."""
        for claim in list(self._claims.values()):
            if claim.state is PartitionState.READING and claim.partition not in self.assigned.get(
                claim.topic, ()
            ):
                claim.deadline = self._clock.now_s + self.conf.processing_timeout_s
                self._delivery.change_state(claim, PartitionState.DRAINING)
                self._clock.call_later(self.conf.processing_timeout_s, lambda: None)
            if claim.state is PartitionState.DRAINING and (
                claim.drained or self._clock.now_s >= claim.deadline
            ):
                self._end_claim(claim)

    def claim_partitions(self) -> None:
        """Claims the assigned partitions that have no owner."""
        for topic, numbers in self.assigned.items():
            for number in sorted(numbers):
                key = (self.name, topic, number)
                if key not in self._zookeeper.owners and not self._closing:
                    self._zookeeper.owners[key] = self
                    czxid, cluster = next(self._zookeeper.transactions), self._broker.name
                    claim = Claim(topic, number, czxid, cluster, self._rule, session_number=0)
                    self._cursors[claim] = Cursor(self._broker.find_log(topic, number), self._find_start(key))
                    self._claims[claim.topic_partition] = claim

    def lose_claims(self) -> None:
        """Ends all claims without a commit, as the end of the session does."""
        for claim in list(self._claims.values()):
            self._delivery.change_state(claim, PartitionState.LOST)
            self._forget(claim)
        self._report_error(ZooKeeperLost("the session with ZooKeeper has ended, and all claims with it"))

    def _find_start(self, key: tuple[str, str, int]) -> int:
        _, topic, partition = key
        if key not in self._zookeeper.offsets:
            log = self._broker.find_log(topic, partition)
            oldest = self.conf.initial_offset is StartOffset.OLDEST
            self._zookeeper.offsets.update({} if oldest else {key: log.end})
            return log.start if oldest else log.end
        return self._zookeeper.offsets[key]

    def _advance(self) -> None:
        """What a real member's threads do: releases and claims partitions, fetches, commits."""
        self._zookeeper.rebalance(self.name)
        for claim in list(self._claims.values()):
            if claim.state is PartitionState.READING:
                self._fetch(claim)
        if self._processed and self._clock.now_s >= self._committed_at_s + self.conf.commit_interval_s:
            try:
                self._commit(list(self._processed))
            except KoffError as error:
                self._report_error(error)

    def _fetch(self, claim: Claim) -> None:
        log, cursor = self._broker.find_log(claim.topic, claim.partition), self._cursors[claim]
        if log is not cursor.log:
            if not claim.drained:
                return
            cursor = self._restart(claim, log)
        if not log.start <= cursor.offset <= log.end:
            start = min(max(cursor.offset, log.start), log.end)
            text = f"offset {cursor.offset} is not there: see {start}"
            self._report_error(PartitionError(claim.topic, claim.partition, text))
            cursor.offset = start
        room = self.conf.buffer_messages - claim.waiting
        self._delivery.put(claim, cursor.read(claim.topic, claim.partition, room))

    def _restart(self, claim: Claim, log: PartitionLog) -> Cursor:
        """Reads the log of a topic that was created again, once the messages of the old one are processed."""
        cursor = self._cursors[claim] = Cursor(log, log.start)
        claim.forget()
        self._processed.pop(claim, None)
        self._zookeeper.offsets[self.name, claim.topic, claim.partition] = log.start
        text = "the topic was deleted and created again: reading resumes at its start"
        self._report_error(PartitionError(claim.topic, claim.partition, text))
        return cursor

    def _commit(self, claims: list[Claim]) -> None:
        """Commits what was processed under these claims."""
        self._committed_at_s = self._clock.now_s
        offsets = {
            claim: self._processed[claim] + 1
            for claim in claims
            if claim in self._processed and self.owns(claim.topic, claim.partition)
        }
        if offsets:
            named = {claim.topic_partition: offset for claim, offset in offsets.items()}
            with self._broker.begin_call("commit", group=self.name, offsets=named):
                for claim, offset in offsets.items():
                    self._zookeeper.offsets[self.name, claim.topic, claim.partition] = offset
                    self._processed.pop(claim)

    def _end_claim(self, claim: Claim) -> None:
        try:
            self._commit([claim])
            check_processed(claim.topic_partition, claim.processed_up_to, claim.last_delivered)
        except KoffError as error:
            self._report_error(error)
        self._delivery.change_state(claim, PartitionState.LOST)
        self._forget(claim)

    def _forget(self, claim: Claim) -> None:
        self._claims.pop(claim.topic_partition, None)
        self._processed.pop(claim, None)
        self._cursors.pop(claim, None)
        self._zookeeper.owners.pop((self.name, claim.topic, claim.partition), None)

    def _shut_down(self) -> None:
        with self._clock.changed:
            if self._closed:
                return
            for claim in self._claims.values():
                claim.deadline = self._clock.now_s + self._drain_timeout_s
                self._delivery.change_state(claim, PartitionState.DRAINING)
            self._clock.wait_for(
                lambda: all(claim.drained for claim in self._claims.values()), self._drain_timeout_s
            )
            for claim in list(self._claims.values()):
                self._end_claim(claim)
            self._delivery.close()
            if self in self._zookeeper.members[self.name]:
                self._zookeeper.members[self.name].remove(self)
            self._zookeeper.rebalance(self.name)
            self._closed = True
            self._clock.changed.notify_all()
        self._errors.wake_all()

    def _report_error(self, error: KoffError) -> None:
        self._errors.put_error(error, at_close=self._closing)

    def _write_dead_letter(self, raw: Any, deliveries: int, cause: BaseException | None) -> None:
        letter = build_dead_letter(self.name, raw, deliveries, cause)
        self._broker.producer().produce(self.conf.redelivery.dead_letter_topic, 0, letter)
