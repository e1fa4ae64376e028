"""The thread that fills a reader's inbox as a member of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from koff.client import cluster_conf
from koff.client.broker.conf import OffsetCoordinatorConf
from koff.client.broker.group_offsets import GroupCoordinator
from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.foreign_errors import FATAL_AT_START, describe_error, extract_kafka_error, make_connect_error
from koff.client.librdkafka import SilenceTimer, new_client
from koff.client.message import Message
from koff.client.multicluster.client_statistics import INTERVAL
from koff.client.multicluster.conf import LAST_OFFSET, PartitionsChanged, ReaderConf
from koff.client.multicluster.errors import CommitError, ReadError
from koff.client.multicluster.inbox import Inbox, ReaderSubscription
from koff.client.multicluster.reading_threads import FETCH_S, MessageStream, build_feed_conf
from koff.errors import ConnectError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")


class GroupStream(MessageStream):
    """A member of a consumer group.

    Stored offsets are committed every `commit_interval_s`, at rebalances, and when the stream is closed.
    """

    def __init__(self, subscription: ReaderSubscription, inbox: Inbox) -> None:
        super().__init__([subscription], inbox)
        self._subscription = subscription
        self._silence = SilenceTimer()
        self._assignments: dict[int, int] = {}
        """The number of the present assignment of each assigned partition."""
        self._assignment_count = 0
        self._join_group()

    def _join_group(self) -> None:
        self._consumer: Consumer = new_client(
            Consumer,
            _build_group_properties(self._cluster_conf, self._conf),
            stats_cb=self.statistics.make_callback(),
        )
        self._consumer.subscribe([self._conf.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    @property
    def name(self) -> str:
        """The group and its cluster, for errors."""
        return f"group {self._conf.group_id} at {self._cluster_name}"

    def store_offsets(self, messages: Sequence[Message]) -> None:
        """Stores the offsets after these messages. librdkafka commits stored offsets.

        Offsets of a partition that was revoked meanwhile are left out: its new owner commits them.
        """
        offsets = _next_offsets(messages)

        def store() -> None:
            to_store, earlier, revoked = self._split_by_assignment(offsets)
            revoked += [offset.partition for offset in earlier]
            for offset in to_store:
                try:
                    self._consumer.store_offsets(offsets=[offset])
                except Exception:  # librdkafka refuses partitions that are not assigned
                    revoked.append(offset.partition)
            for partition in revoked:
                log.info(
                    "offset not committed: the partition was revoked after the message was read",
                    topic=self._conf.topic,
                    partition=partition,
                )

        self.run_in_thread(store)

    def commit_offsets(self, messages: Sequence[Message]) -> Future[None]:
        """A future that is done when the coordinator has committed the offsets after these messages."""
        done: Future[None] = Future()
        offsets = _next_offsets(messages)

        def commit() -> None:
            try:
                self._commit_and_wait(offsets)
            except BaseException as error:  # whatever it is, the caller waits for it
                done.set_exception(copy_error(error))
            else:
                done.set_result(None)

        self.run_in_thread(commit)
        return done

    def mark_processed(self, messages: Sequence[Message]) -> None:
        """Marks the messages, and all before them, as processed: an `ack` of them has no effect any more."""
        if self._subscription.tracker is None:
            return
        for (partition, assignment), offset in _next_offsets(messages).items():
            if assignment in (0, self._assignments.get(partition)):
                self._subscription.tracker.mark_processed_up_to(partition, offset - 1)

    def _split_by_assignment(
        self, offsets: Mapping[tuple[int, int], int]
    ) -> tuple[list[TopicPartition], list[TopicPartition], list[int]]:
        """The offsets of messages of the present assignment, those of an earlier one, and revoked partitions.

        A partition that was revoked and is assigned again may have had another owner meanwhile.
        """
        present: list[TopicPartition] = []
        earlier: list[TopicPartition] = []
        revoked: list[int] = []
        for (partition, assignment), offset in sorted(offsets.items()):
            now = self._assignments.get(partition)
            if now is None:
                revoked.append(partition)
                continue
            is_present = assignment in (0, now)  # 0: the caller made the message
            (present if is_present else earlier).append(TopicPartition(self._conf.topic, partition, offset))
        return present, earlier, revoked

    def _find_uncommitted(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets that are above the committed ones. Another member may have committed more meanwhile.

        Raises `KoffError` if the coordinator does not return the committed offsets.
        """
        if not offsets:
            return []
        # Not by confluent-kafka: it reads past the end of metadata that another client has committed.
        conf = OffsetCoordinatorConf(self._conf.group_id, retry_err_limit=2)
        with GroupCoordinator(self._cluster_conf, conf) as coordinator:
            committed = [coordinator.offset(each.topic, each.partition)[0] for each in offsets]
        return [each for each, now in zip(offsets, committed, strict=True) if each.offset > now]

    def _commit_and_wait(self, offsets: Mapping[tuple[int, int], int]) -> None:
        """Commits the offsets of assigned partitions. Raises `CommitError`, also for partitions left out.

        A partition that is no longer assigned is left out: its new owner may have committed a higher offset.
        """
        conf = self._conf
        subject = f"group {conf.group_id} at {self._cluster_name} did not commit {conf.topic}"
        present, earlier, revoked = self._split_by_assignment(offsets)
        try:
            # The offset of the present assignment comes last, and replaces that of an earlier one.
            by_partition = {each.partition: each for each in (*self._find_uncommitted(earlier), *present)}
            to_commit = list(by_partition.values())
            results: Any = self._consumer.commit(offsets=to_commit, asynchronous=False) if to_commit else []
        except Exception as error:
            kafka_error = extract_kafka_error(error)
            why = kafka_error.str() if kafka_error else describe_error(error)
            raise CommitError(f"{subject}: {why}") from error
        for result in results:
            if result.error is not None:
                raise CommitError(f"{subject} partition {result.partition}: {result.error.str()}")
        if revoked:
            raise CommitError(
                f"{subject} partitions {sorted(set(revoked))}: other members have them now and read them "
                "again"
            )

    def _store_processed(self) -> None:
        """Stores the offsets after the messages that the application has acknowledged."""
        if self._subscription.tracker is None:
            return
        for partition, offset in self._subscription.tracker.pop_processed().items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(self._conf.topic, partition, offset)])
            except Exception:  # the assignment was lost: the next owner reads the messages again
                log.info("acknowledged offset not committed", topic=self._conf.topic, partition=partition)

    def _fetch_once(self) -> None:
        self._store_processed()
        room = self._inbox.wait_for_room(self.subscriptions, FETCH_S)
        if not room:
            self._note_response(self.subscriptions)  # the caller is slow: this is no silence of the cluster
            return
        by_partition: dict[int, list[Any]] = {}
        started_at = time.monotonic()
        fetched = self._consume(room)
        fetched_at = time.monotonic()
        for message in fetched:
            error = message.error()
            if error is not None:
                self._inbox.report_error(self._subscription, self._build_error(error))
            else:
                by_partition.setdefault(message.partition() or 0, []).append(message)
        # Messages show that the cluster responds. Long silence may mean that the client knows no broker.
        if by_partition:
            self._note_response(self.subscriptions)
            self._silence.restart()
        elif self._silence.needs_new_client(self._consumer, self._conf.topic) and self._is_reachable():
            # Only when the cluster responds to another client. During an outage a new member would not help,
            # and the group might wait for the old member until the old member's session times out.
            self._consumer.close()
            self._join_group()
        subscription = self._subscription
        self._inbox.put_batches(
            self._build_batch(subscription, partition, raw) for partition, raw in by_partition.items()
        )
        if by_partition:
            self._note_fetch(self.subscriptions, started_at, fetched_at)

    def _consume(self, max_messages: int) -> list[Any]:
        """The first message that comes within `FETCH_S`, and the messages that are queued behind it.

        `_on_assign` and `_on_revoke` run within both calls of `consume`. librdkafka drops messages of a
        partition that is revoked within a call; those of the first call are dropped here.
        """
        first: list[Any] = self._consumer.consume(1, FETCH_S)
        if not first or max_messages == 1:
            return first
        assignments = dict(self._assignments)
        rest = self._consumer.consume(max_messages - 1, 0)
        kept = [
            message
            for message in first
            if message.error() is not None
            or self._assignments.get(message.partition()) == assignments.get(message.partition())
        ]
        return kept + rest

    def _build_messages(self, partition: int, raw: list[Any]) -> list[Message]:
        messages = super()._build_messages(partition, raw)
        for message in messages:
            message.assignment = self._assignments.get(partition, 0)
        return messages

    def _is_reachable(self) -> bool:
        try:
            self._fetch_offsets([0], OffsetSpec.LATEST)
        except ConnectError:
            return False
        return True

    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        return self._consumer, set(self._assignments)

    def _is_paused(self, partition: int) -> bool:
        return self._subscription.is_paused(partition)

    def _close_client(self) -> None:
        self._store_processed()
        self._consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment_count += 1
        self._assignments.update(
            dict.fromkeys((each.partition for each in partitions), self._assignment_count)
        )
        self._note_response(self.subscriptions)
        with self._inbox.lock:
            self._subscription.add_count("rebalances")
        self._call_back(self._conf.on_assigned, partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drops unread messages of revoked partitions: the next owner reads them, after the last commit."""
        # Store the offsets of returned messages while this member may still commit them.
        self._run_tasks()
        self._store_processed()
        revoked = {partition.partition for partition in partitions}
        for partition in revoked:
            self._assignments.pop(partition, None)
        self._paused -= revoked
        with self._inbox.lock:  # no message of these partitions may be handed out in between
            if self._subscription.tracker is not None:
                self._subscription.tracker.drop_partitions(revoked)
            self._inbox.drop_batches(
                lambda batch: (
                    batch.subscription is self._subscription and batch.messages[0].partition in revoked
                )
            )
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
        conf = self._conf
        if error.code() in FATAL_AT_START or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return make_connect_error(self._cluster_conf.brokers, [error])
        return ReadError(
            f"group {conf.group_id} cannot read {conf.topic} at {self._cluster_name}: {error.str()}"
        )


def _next_offsets(messages: Sequence[Message]) -> dict[tuple[int, int], int]:
    """By partition and assignment: the offset after the last message, which is the offset to commit."""
    offsets: dict[tuple[int, int], int] = {}
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
