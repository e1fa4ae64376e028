"""The thread that reads a reader's partitions as a member of a consumer group."""

import queue
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

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
_COMMIT_POLL_S = 0.005
"""How often the result of a commit is looked for: a wait for events does not end with it."""


class _Commit(NamedTuple):
    """Offsets by partition, whose commit was requested, and partitions that were left out because revoked."""

    offsets: dict[int, int]
    revoked: Collection[int]
    done: Future[None]


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
        self._commits: list[_Commit] = []
        """Those whose result is not known yet."""
        self._assignments = 0
        self._unpaused: list[TopicPartition] = []
        """Partitions of which the member's client must not fetch anything."""
        self._responded_at = time.monotonic()
        self._join_group()

    def _join_group(self) -> None:
        properties = _build_group_properties(self._cluster.conf, self._conf)
        self._member: Consumer = new_client(Consumer, properties, on_commit=self._on_commit)
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
                self._begin_commit(*self._choose_commits(offsets), done)
            except BaseException as error:  # whatever it is, the caller waits for it
                done.set_exception(copy_error(error))

        with self._delivery.lock:  # once it has ended, nobody runs a commit
            if self._is_over:
                raise Closed("the reader is closed")
            for (number, assignment), offset in offsets.items():
                partition = self._subscription.partitions.get(number)
                if partition is not None and assignment in (0, partition.assignment):
                    self._delivery.mark_processed_up_to(partition, offset - 1)
            self._requests.put(commit)
        return done

    def _choose_commits(self, offsets: _Offsets) -> tuple[dict[int, int], set[int]]:
        """The offsets to commit by partition, and the partitions that are not assigned any more.

        Those are left out: their new owner may have committed a higher offset.
        """
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
        # Of an earlier assignment, another member may have committed more meanwhile.
        try:
            committed = self._fetch_committed(earlier) if earlier else {}
        except KoffError as error:
            raise self._make_commit_error(f": {error}") from error
        higher = {number: offset for number, offset in earlier.items() if offset > committed.get(number, -1)}
        return higher | present, revoked

    def _begin_commit(self, offsets: dict[int, int], revoked: Collection[int], done: Future[None]) -> None:
        """Requests the commit. `done` gets its result when the member is served: reading does not wait.

        Without a coordinator, librdkafka has no result for as long as the session timeout.
        """
        commit = _Commit(offsets, revoked, done)
        if not offsets:
            self._finish_commit(commit)
            return
        self._commits.append(commit)
        to_commit = [TopicPartition(self._conf.topic, *each) for each in offsets.items()]
        try:
            self._member.commit(offsets=to_commit, asynchronous=True)
        except Exception as error:
            self._finish_commit(commit, f": {describe_error(error)}")

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Notes the result of a commit, perhaps of one that librdkafka has made itself."""
        offsets = {each.partition: each.offset for each in partitions}
        refused = [f" partition {each.partition}: {each.error.str()}" for each in partitions if each.error]
        if error is not None:
            refused.insert(0, f": {error.str()}")
        for commit in self._commits:
            if commit.offsets == offsets:
                self._finish_commit(commit, *refused[:1])
                return

    def _finish_commit(self, commit: _Commit, refused: str = "") -> None:
        if commit in self._commits:
            self._commits.remove(commit)
        if not refused and commit.revoked:
            numbers = sorted(commit.revoked)
            refused = f" partitions {numbers}: other members have them now and read them again"
        if refused:
            commit.done.set_exception(self._make_commit_error(refused))
        else:
            commit.done.set_result(None)

    def _make_commit_error(self, refused: str) -> CommitError:
        return CommitError(f"{self.name} did not commit {self._conf.topic}{refused}")

    def _close_member(self) -> None:
        """Closes the member, which gives the results of commits. Those without a response have none."""
        close_consumer(self._member)
        for commit in list(self._commits):
            self._finish_commit(commit, ": its coordinator has not responded")

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
        committing, partition.committing = partition.committing, None
        if committing is None:
            committing = Future()
            self._begin_commit({partition.partition: start}, (), committing)
        if not committing.done():  # it is looked at again
            partition.committing = committing
            raise ConnectError(f"{self.name} has not committed where it starts in the new {error.topic} yet")
        if refused := committing.exception():
            raise ConnectError(str(refused))
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
        # While its queue is full and nobody commits, the member is not served: after `max.poll.interval.ms`
        # the group goes on without it.
        if self._commits or self._subscription.waiting < self._conf.queue_capacity:
            self._serve_member()
        self._check_silence()

    def _serve_member(self) -> None:
        """Runs `_on_assign`, `_on_revoke` and `_on_commit`, and reports errors of the group."""
        until = time.monotonic() + FETCH_S
        events = self._poll_member(0 if self.partitions else FETCH_S)
        while self._commits and time.monotonic() < until:
            events += self._poll_member(_COMMIT_POLL_S)
        for event in events:
            error = event.error()
            # Whether the cluster responds, the partitions show, or `_check_silence`.
            if error is not None and error.code() != KafkaError._ALL_BROKERS_DOWN:
                self._report_error(self._subscription, self._build_error(error))
        if self._silence.needs_new_client(self._member, self._conf.topic) and self._is_reachable():
            # Only when the cluster responds to another client. During an outage a new member would not help,
            # and the group might wait for the old member until the old member's session times out.
            self._close_member()
            self._join_group()

    def _poll_member(self, wait_s: float) -> list[Any]:
        """Errors of the group that come within that time. Runs the callbacks."""
        with map_foreign_errors(f"{self.name} cannot be served", self._cluster.conf.brokers):
            events: list[Any] = self._member.consume(1, wait_s)
            if self._unpaused:
                self._member.pause(self._unpaused)
                self._unpaused = []
            return events

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
            self._close_member()
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
