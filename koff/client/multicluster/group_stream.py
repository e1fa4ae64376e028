"""The thread that fills a reader's inbox as a member of a consumer group."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from koff.client import cluster_conf
from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.foreign_errors import FATAL_AT_START, describe_error, make_connect_error
from koff.client.librdkafka import SilenceTimer, new_client
from koff.client.message import Message
from koff.client.multicluster.conf import LAST_OFFSET, PartitionsChanged, ReaderConf
from koff.client.multicluster.errors import CommitError, ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.reading_threads import FETCH_S, MessageStream, build_feed_conf
from koff.client.multicluster.stats import INTERVAL
from koff.client.multicluster.subscription import ReaderSubscription
from koff.errors import ConnectError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")

_Offsets = dict[tuple[int, int], int]
"""By partition and assignment: the offset after the last message, which is the offset to commit."""


class GroupStream(MessageStream):
    """A member of a consumer group.

    Stored offsets are committed every `commit_interval_s`, at rebalances, and when the stream is closed.
    """

    def __init__(self, subscription: ReaderSubscription, inbox: Inbox) -> None:
        super().__init__([subscription], inbox)
        self.name = f"group {self._conf.group_id} at {self._cluster_name}"
        self._subscription = subscription
        self._silence = SilenceTimer()
        self._commits: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._assignment_count = 0
        self._unchecked: set[int] = set()
        """Partitions that were assigned since the last `_check_commits`."""
        self._join_group()

    def _join_group(self) -> None:
        self._consumer: Consumer = new_client(
            Consumer,
            _build_group_properties(self._cluster_conf, self._conf),
            stats_cb=self.statistics.make_callback(),
        )
        self._consumer.subscribe([self._conf.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def commit_offsets(self, messages: Sequence[Message]) -> Future[None]:
        """A future that is done when the coordinator has committed the offsets after these messages.

        They, and all before them, count as acknowledged from now on. Raises `Closed` if the reader is closed,
        and `ReadError` if the thread has ended with an error.
        """
        done: Future[None] = Future()
        offsets = _find_next_offsets(messages)

        def commit() -> None:
            try:
                self._commit_and_wait(offsets)
            except BaseException as error:  # whatever it is, the caller waits for it
                done.set_exception(copy_error(error))
            else:
                done.set_result(None)

        with self._inbox.lock:  # once `ended` is set, nobody runs a commit
            if self.ended is not None:
                raise copy_error(self.ended)
            if self._subscription.acknowledgements is not None:
                for (number, assignment), offset in offsets.items():
                    partition = self._subscription.partitions.get(number)
                    if partition is not None and assignment in (0, partition.assignment):
                        self._subscription.acknowledgements.mark_processed_up_to(partition, offset - 1)
            self._commits.put(commit)
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
            # The offset of the present assignment replaces that of an earlier one.
            chosen = self._find_uncommitted(earlier) | present
            to_commit = [TopicPartition(topic, *each) for each in chosen.items()]
            results: Any = self._consumer.commit(offsets=to_commit, asynchronous=False) if to_commit else []
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

    def _find_uncommitted(self, offsets: dict[int, int]) -> dict[int, int]:
        """The offsets of an earlier assignment that are above the committed ones.

        Another member may have had the partition meanwhile, and may have committed more. Raises `KoffError`
        if the coordinator does not return the committed offsets.
        """
        if not offsets:
            return {}
        committed = self._fetch_committed(offsets)
        return {
            partition: offset
            for partition, offset in offsets.items()
            if offset > committed.get(partition, -1)
        }

    def _restart_partitions(self) -> None:
        """The group's offsets in the old log may have been committed again: the new ones replace them."""
        partitions = list(self._subscription.partitions.items())
        found = self._find_starts([number for number, _ in partitions])
        if len(found) < len(partitions):
            raise ConnectError(f"the offsets of {self._conf.topic} at {self._cluster_name} are unknown")
        offsets = [TopicPartition(self._conf.topic, number, to) for number, (_, to) in found.items()]
        if offsets:
            for each in offsets:
                self._consumer.seek(each)
            self._consumer.commit(offsets=offsets, asynchronous=False)
        with self._inbox.lock:
            for number, partition in partitions:
                log_start, to = found[number]
                self._subscription.start_partition(number, assignment=partition.assignment)
                self._subscription.counts["skipped"] += to - log_start
            self._inbox.drop_former_batches()

    def _check_commits(self) -> None:
        """Counts what librdkafka skips in new partitions because the group's commit is not in the log.

        Before the first message is handed out: so the commit is still that of earlier members. Without a
        response, only the warning is missing.
        """
        numbers = [number for number in self._unchecked if number in self._subscription.partitions]
        self._unchecked.clear()
        try:
            committed = self._fetch_committed(numbers) if numbers else {}
        except KoffError as error:
            log.debug("commits not checked", group=self._conf.group_id, reason=str(error))
            return
        for number, (log_start, to) in self._find_starts(list(committed)).items():
            if committed[number] < log_start:
                self._note_skipped(number, committed[number], log_start, to)

    def _note_skipped(self, number: int, committed: int, log_start: int, to: int) -> None:
        log.warning(
            "the group's commit is not in the log: reading continues elsewhere",
            group=self._conf.group_id,
            cluster=self._cluster_name,
            topic=self._conf.topic,
            partition=number,
            committed=committed,
            log_start=log_start,
            resumed_at=to,
            skipped=to - committed,
        )
        with self._inbox.lock:
            self._subscription.counts["skipped"] += to - committed

    def _fetch_committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """The committed offsets of those partitions that have one. Raises `KoffError`."""
        # Not by confluent-kafka: it reads past the end of metadata that another client has committed.
        conf = OffsetCoordinatorConf(self._conf.group_id, retry_err_limit=2)
        with GroupCoordinator(self._cluster_conf, conf) as coordinator:
            offsets = coordinator.offsets()
        keys = {number: cluster_conf.TopicPartition(self._conf.topic, number) for number in partitions}
        return {number: offsets[key][0] for number, key in keys.items() if offsets.get(key, (-1, ""))[0] >= 0}

    def _find_starts(self, partitions: list[int]) -> dict[int, tuple[int, int]]:
        """By partition, the log start offset, and the offset at which the group starts without a commit.

        Leaves out the partitions whose leader does not respond.
        """
        starts = self._fetch_offsets(partitions, OffsetSpec.EARLIEST)
        from_end = self._conf.start_offset == LAST_OFFSET
        chosen = self._fetch_offsets(partitions, OffsetSpec.LATEST) if from_end else starts
        found: dict[int, tuple[int, int]] = {}
        for number in partitions:
            start, to = starts[number], chosen[number]
            if isinstance(start, int) and isinstance(to, int):
                found[number] = start, to
        return found

    def _handle_requests(self) -> None:
        while not self._commits.empty():
            self._commits.get()()
        self._store_processed()

    def _store_processed(self) -> None:
        """Stores the offsets after processed messages. librdkafka commits stored offsets."""
        processed = []
        with self._inbox.lock:
            for number, partition in self._subscription.partitions.items():
                if partition.to_commit is not None:
                    processed.append(TopicPartition(self._conf.topic, number, partition.to_commit))
                    partition.to_commit = None
        for each in processed:
            try:
                self._consumer.store_offsets(offsets=[each])
            except Exception:  # the assignment was lost: the next owner reads the messages again
                log.info(
                    "offset not committed: the partition was revoked after the message was read",
                    topic=each.topic,
                    partition=each.partition,
                )

    def _fetch(self, max_messages: int) -> Iterable[tuple[int, list[Any]]]:
        by_partition: dict[int, list[Any]] = {}
        messages = self._consume(max_messages)
        if self._unchecked:
            self._check_commits()
        for message in messages:
            error = message.error()
            if error is not None:
                self._inbox.report_error(self._subscription, self._build_error(error))
            elif message.partition() in self._subscription.partitions:
                by_partition.setdefault(message.partition(), []).append(message)
        # Messages show that the cluster responds. Long silence may mean that the client knows no broker.
        if by_partition:
            self._silence.restart()
        elif self._silence.needs_new_client(self._consumer, self._conf.topic) and self._is_reachable():
            # Only when the cluster responds to another client. During an outage a new member would not help,
            # and the group might wait for the old member until the old member's session times out.
            self._consumer.close()
            self._join_group()
        return by_partition.items()

    def _consume(self, max_messages: int) -> list[Any]:
        """The first message that comes within `FETCH_S`, and the messages that are queued behind it.

        `_on_assign` and `_on_revoke` run within both calls of `consume`. librdkafka drops messages of a
        partition that is revoked within a call; those of the first call are dropped here.
        """
        first: list[Any] = self._consumer.consume(1, FETCH_S)
        if not first or max_messages == 1:
            return first
        before = dict(self._subscription.partitions)
        rest = self._consumer.consume(max_messages - 1, 0)
        now = self._subscription.partitions
        kept = [
            message
            for message in first
            if message.error() is not None or now.get(message.partition()) is before.get(message.partition())
        ]
        return kept + rest

    def _build_batch(self, partition: int, raws: list[Any]) -> InboxBatch:
        batch = super()._build_batch(partition, raws)
        for message in batch.messages:
            message.assignment = batch.partition.assignment
        return batch

    def _is_reachable(self) -> bool:
        return not isinstance(self._fetch_offsets([0], OffsetSpec.LATEST)[0], ConnectError)

    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        return self._consumer, set(self._subscription.partitions)

    def _close_client(self) -> None:
        self._handle_requests()
        self._consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment_count += 1
        with self._inbox.lock:
            for each in partitions:
                self._subscription.start_partition(each.partition, assignment=self._assignment_count)
            self._subscription.counts["rebalances"] += 1
        self._unchecked |= {each.partition for each in partitions}
        self._note_response(self.subscriptions)
        self._call_back(self._conf.on_assigned, partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drops unread messages of revoked partitions: the next owner reads them, after the last commit."""
        revoked = {each.partition for each in partitions}
        self._handle_requests()  # while this member may still commit
        with self._inbox.lock:  # no message of these partitions may be handed out in between
            self._store_processed()
            for partition in revoked:
                self._subscription.partitions.pop(partition, None)
            self._inbox.drop_former_batches()
        self._paused -= revoked
        self._call_back(self._conf.on_revoked, partitions)

    def _call_back(self, callback: PartitionsChanged | None, partitions: list[TopicPartition]) -> None:
        """Calls a function of the application. The member stays in its group whatever the function raises."""
        if callback is None or not partitions:
            return
        try:
            callback([cluster_conf.TopicPartition(each.topic, each.partition) for each in partitions])
        except BaseException:
            log.exception("a callback for assignments raised an error", topic=self._conf.topic)

    def _build_error(self, error: KafkaError) -> KoffError:
        if error.code() in FATAL_AT_START or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return make_connect_error(self._cluster_conf.brokers, [error])
        reader = f"group {self._conf.group_id} cannot read {self._conf.topic} at {self._cluster_name}"
        return ReadError(f"{reader}: {error.str()}")


def _find_next_offsets(messages: Sequence[Message]) -> _Offsets:
    offsets: _Offsets = {}
    for message in messages:
        key = message.partition, message.assignment
        offsets[key] = max(message.offset + 1, offsets.get(key, 0))
    return offsets


def _build_group_properties(cluster_conf: ClusterConf, conf: ReaderConf) -> dict[str, Any]:
    own = build_feed_conf(conf).librdkafka_properties(cluster_conf)
    return {
        **INTERVAL,
        **own,  # enable.auto.offset.store=false: commits stored offsets only
        "group.id": conf.group_id,
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": int(conf.commit_interval_s * 1000),
        "enable.partition.eof": "false",
        "auto.offset.reset": "latest" if conf.start_offset == LAST_OFFSET else "earliest",
    }
