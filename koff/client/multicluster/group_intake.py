"""The thread that reads a reader's partitions as a member of a consumer group."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from koff.client import cluster_conf
from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.intake import FETCH_S
from koff.client.delivery.partition import PartitionState
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.foreign_errors import FATAL_AT_START, describe_error, make_connect_error, map_foreign_errors
from koff.client.librdkafka import SilenceTimer, close_consumer, new_client
from koff.client.message import Message
from koff.client.multicluster.conf import LAST_OFFSET, PartitionsChanged, ReaderConf
from koff.client.multicluster.errors import CommitError, ReadError
from koff.client.multicluster.partition_intake import PartitionIntake
from koff.client.multicluster.subscription import ReaderSubscription, SubscribedPartition
from koff.errors import Closed, ConnectError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")

_Offsets = dict[tuple[int, int], int]
"""By partition and assignment: the offset after the last message, which is the offset to commit."""


class GroupIntake(PartitionIntake):
    """A member of a consumer group. `name` is for errors.

    The group and its commits are those of a librdkafka client of their own, whose partitions are paused: they
    are read as partitions without a group. Stored offsets are committed every `commit_interval_s`, at
    rebalances, and at the end.
    """

    def __init__(
        self, subscriptions: Sequence[ReaderSubscription], delivery: Delivery[SubscribedPartition]
    ) -> None:
        super().__init__(subscriptions, delivery)
        self.name = f"group {self._conf.group_id} at {self._cluster_name}"
        self._subscription = subscriptions[0]
        self._silence = SilenceTimer()
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_over = False
        """Whether nobody carries out requests any more. The lock of the delivery guards it."""
        self._assignments = 0
        self._unpaused: list[TopicPartition] = []
        """Partitions of which the member's client must not fetch anything."""
        self._responded_at = time.monotonic()
        self._join_group()

    def _join_group(self) -> None:
        properties = _build_group_properties(self._cluster.conf, self._conf)
        self._member: Consumer = new_client(Consumer, properties)
        self._member.subscribe([self._conf.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    # --- Commits --------------------------------------------------------------------------------------------

    def commit_offsets(self, messages: Sequence[Message]) -> Future[None]:
        """A future that is done when the coordinator has committed the offsets after these messages.

        They, and all before them, count as acknowledged from now on. Raises `Closed` if the reader is closed.
        """
        done: Future[None] = Future()
        offsets: _Offsets = {}
        for message in messages:
            key = message.partition, message.assignment
            offsets[key] = max(message.offset + 1, offsets.get(key, 0))

        def commit() -> None:
            try:
                self._commit_and_wait(offsets)
            except BaseException as error:  # whatever it is, the caller waits for it
                done.set_exception(copy_error(error))
            else:
                done.set_result(None)

        with self._delivery.lock:  # once it has ended, nobody runs a commit
            if self._is_over:
                raise Closed("the reader is closed")
            for (number, assignment), offset in offsets.items():
                partition = self._subscription.partitions.get(number)
                if partition is not None and assignment in (0, partition.assignment):
                    self._delivery.mark_processed_up_to(partition, offset - 1)
            self._requests.put(commit)
        return done

    def _commit_and_wait(self, offsets: _Offsets) -> None:
        """Commits the offsets of assigned partitions. Raises `CommitError`, also for partitions left out.

        A partition that is no longer assigned is left out: its new owner may have committed a higher offset.
        """
        topic = self._conf.topic
        present: dict[int, int] = {}
        earlier: dict[int, int] = {}
        revoked: set[int] = set()
        for (number, assignment), offset in sorted(offsets.items()):
            partition = self._subscription.partitions.get(number)
            if partition is None:
                revoked.add(number)
            elif assignment in (0, partition.assignment):  # 0: the caller made the message
                present[number] = offset
            else:
                earlier[number] = offset
        try:
            # Of an earlier assignment, another member may have committed more meanwhile.
            committed = self._fetch_committed(earlier) if earlier else {}
            higher = {
                number: offset for number, offset in earlier.items() if offset > committed.get(number, -1)
            }
            to_commit = [TopicPartition(topic, *each) for each in (higher | present).items()]
            results: Any = self._member.commit(offsets=to_commit, asynchronous=False) if to_commit else []
        except Exception as error:
            raise CommitError(f"{self.name} did not commit {topic}: {describe_error(error)}") from error
        for result in results:
            if result.error is not None:
                raise CommitError(
                    f"{self.name} did not commit {topic} partition {result.partition}: {result.error.str()}"
                )
        if revoked:
            raise CommitError(
                f"{self.name} did not commit {topic} partitions {sorted(revoked)}: other members have them "
                "now and read them again"
            )

    def _fetch_committed(self, numbers: Iterable[int]) -> dict[int, int]:
        """The committed offsets of those partitions that have one. Raises `KoffError`."""
        # Not by confluent-kafka: it reads past the end of metadata that another client has committed.
        conf = OffsetCoordinatorConf(self._conf.group_id, retry_err_limit=2)
        with GroupCoordinator(self._cluster.conf, conf) as coordinator:
            offsets = coordinator.offsets()
        keys = {number: cluster_conf.TopicPartition(self._conf.topic, number) for number in numbers}
        return {number: offsets[key][0] for number, key in keys.items() if offsets.get(key, (-1, ""))[0] >= 0}

    def _store_processed(self) -> None:
        """Stores the offsets after processed messages. librdkafka commits stored offsets."""
        processed = []
        with self._delivery.lock:
            for number, partition in self._subscription.partitions.items():
                if partition.to_commit is not None:
                    processed.append(TopicPartition(self._conf.topic, number, partition.to_commit))
                    partition.to_commit = None
        for each in processed:
            try:
                self._member.store_offsets(offsets=[each])
            except Exception:  # the assignment was lost: the next owner reads the messages again
                log.info(
                    "offset not committed: the partition was revoked after the message was read",
                    topic=each.topic,
                    partition=each.partition,
                )

    # --- Where partitions are read --------------------------------------------------------------------------

    def _find_starts(self, partitions: Sequence[SubscribedPartition]) -> Mapping[SubscribedPartition, int]:
        committed = self._fetch_committed([each.partition for each in partitions])
        return {each: committed.get(each.partition, self._conf.start_offset) for each in partitions}

    def _restart(self, partition: SubscribedPartition, error: TopicRecreated) -> int:
        """The group's offsets in the old log may have been committed again: the new one replaces them."""
        start = self._choose_offset(partition, error)
        to_commit = [TopicPartition(self._conf.topic, partition.partition, start)]
        with map_foreign_errors(f"{self.name} cannot commit", self._cluster.conf.brokers):
            self._member.commit(offsets=to_commit, asynchronous=False)
        self._note_skipped(partition, error, start, start - error.earliest)
        return start

    def _choose_offset(self, partition: SubscribedPartition, error: OffsetOutOfRange) -> int:
        """Where a group without a commit starts; the same again if the log has it."""
        if error.earliest <= error.offset <= error.latest and not isinstance(error, TopicRecreated):
            return error.offset
        return error.latest if self._conf.start_offset == LAST_OFFSET else error.earliest

    # --- The member -----------------------------------------------------------------------------------------

    def _step(self) -> None:
        while not self._requests.empty():
            self._requests.get()()
        self._store_processed()
        # While its queue is full, the member is not served: after `max.poll.interval.ms` the group goes on
        # without it.
        if self._subscription.waiting < self._conf.queue_capacity:
            self._serve_member()
        self._check_silence()

    def _serve_member(self) -> None:
        """Runs `_on_assign` and `_on_revoke`, and reports errors of the group."""
        with map_foreign_errors(f"{self.name} cannot be served", self._cluster.conf.brokers):
            events = self._member.consume(1, 0 if self.partitions else FETCH_S)
            if self._unpaused:
                self._member.pause(self._unpaused)
                self._unpaused = []
        for event in events:
            error = event.error()
            # Whether the cluster responds, the partitions show, or `_check_silence`.
            if error is not None and error.code() != KafkaError._ALL_BROKERS_DOWN:
                self._report_error(self._subscription, self._build_error(error))
        if self._silence.needs_new_client(self._member, self._conf.topic) and self._is_reachable():
            # Only when the cluster responds to another client. During an outage a new member would not help,
            # and the group might wait for the old member until the old member's session times out.
            close_consumer(self._member)
            self._join_group()

    def _check_silence(self) -> None:
        """Checks that the cluster responds while the member has no partition: no other request shows it."""
        now = time.monotonic()
        if self.partitions:
            self._responded_at = now
        elif now >= self._responded_at + self._conf.fail_after_s:
            self._responded_at = now
            if self._is_reachable():
                with self._delivery.lock:
                    self._subscription.clear_error()
            else:
                error = make_connect_error(self._cluster.conf.brokers, [])
                self._report_error(self._subscription, error)

    def _is_reachable(self) -> bool:
        try:
            at = cluster_conf.TopicPartition(self._conf.topic, 0)
            self._feed.fetch_offset(at, OffsetSpec.LATEST, self._isolation)
        except ConnectError:
            return False
        except KoffError:
            pass
        return True

    def _close_own(self) -> None:
        with self._delivery.lock:
            self._is_over = True
        try:
            self._requests.put(self._store_processed)
            while not self._requests.empty():
                self._requests.get()()
            self._member.close()
        except BaseException:  # nobody waits for this thread any more: the log has it
            log.exception("a reader did not end cleanly", cluster=self._cluster_name)

    def _on_assign(self, _member: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        with self._delivery.lock:
            for each in partitions:
                self._drop(each.partition)
                self.add(
                    self._subscription.make_partition(
                        each.partition, self._conf.start_offset, self._assignments
                    )
                )
            self._subscription.counts["rebalances"] += 1
            self._subscription.clear_error()
        self._unpaused += partitions
        self._call_back(self._conf.on_assigned, partitions)

    def _on_revoke(self, _member: Consumer, partitions: list[TopicPartition]) -> None:
        """Drops unread messages of revoked partitions: the next owner reads them, after the last commit."""
        while not self._requests.empty():  # while this member may still commit
            self._requests.get()()
        with self._delivery.lock:  # no message of these partitions may be handed out in between
            self._store_processed()
            for each in partitions:
                self._drop(each.partition)
        revoked = {each.partition for each in partitions}
        self._unpaused = [each for each in self._unpaused if each.partition not in revoked]
        self._call_back(self._conf.on_revoked, partitions)

    def _drop(self, number: int) -> None:
        former = self._subscription.partitions.pop(number, None)
        if former is not None:
            self._delivery.change_state(former, PartitionState.LOST)

    def _call_back(self, callback: PartitionsChanged | None, partitions: list[TopicPartition]) -> None:
        """Calls a function of the application. The member stays in its group whatever the function raises."""
        if callback is None or not partitions:
            return
        try:
            callback([cluster_conf.TopicPartition(each.topic, each.partition) for each in partitions])
        except BaseException:
            log.exception("a callback for assignments raised an error", topic=self._conf.topic)

    def _build_error(self, error: KafkaError) -> KoffError:
        if error.code() in FATAL_AT_START:
            return make_connect_error(self._cluster.conf.brokers, [error])
        reader = f"group {self._conf.group_id} cannot read {self._conf.topic} at {self._cluster_name}"
        return ReadError(f"{reader}: {error.str()}")


def _build_group_properties(cluster: ClusterConf, conf: ReaderConf) -> dict[str, Any]:
    own = cluster.librdkafka_properties(**{"reconnect.backoff.ms": 1000})
    return {
        **own,
        "group.id": conf.group_id,
        "enable.auto.offset.store": "false",  # commits stored offsets only
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": int(conf.commit_interval_s * 1000),
        "enable.partition.eof": "false",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": "false",
        "isolation.level": conf.isolation.value,
        "statistics.interval.ms": "0",
        "queued.max.messages.kbytes": 1024,
    }
