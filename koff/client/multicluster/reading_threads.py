"""A thread that fills a reader's inbox. Its subclasses read with a group and without."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from koff.client.batch import Batch
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import OffsetSpec
from koff.client.cluster_conf import TopicPartition as KoffTopicPartition
from koff.client.feed.source import FeedConf
from koff.client.foreign_errors import convert_foreign_error, make_connect_error, start_thread
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.stats import ClientStatistics
from koff.client.multicluster.subscription import ReaderSubscription
from koff.client.topic_watch import TopicWatch
from koff.errors import Closed, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")

FETCH_S = 0.1
"""How long one fetch waits for messages. A call of another thread may wait that long."""
RETRY_S = 1.0


class MessageStream(Closing, ABC):
    """A thread that fetches messages, and checks that the cluster responds.

    After `start`, only this thread calls its librdkafka consumer: while one thread polls a consumer, a call
    from another thread may block for many seconds. `ended` is why the thread has ended; the inbox's lock
    guards it.
    """

    def __init__(self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox) -> None:
        self.subscriptions = subscriptions
        self.statistics = ClientStatistics()
        self.ended: KoffError | None = None
        self._by_partition = {each.partition: each for each in subscriptions}
        self._inbox = inbox
        self._conf = subscriptions[0].conf
        self._cluster_name = subscriptions[0].cluster
        self._cluster_conf = subscriptions[0].cluster_conf
        self._cluster = Cluster(self._cluster_conf)
        self._topic_watch = TopicWatch(self._cluster.fetch_topic_ids)
        self._watched = self._topic_watch.watch(self._conf.topic)
        self._recreations = 0
        self._stopping = threading.Event()
        self._next_check_at = 0.0
        self._paused: set[int] = set()
        """Partitions that `_paused_client` does not fetch now."""
        self._paused_client: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=f"koff-read-{self._cluster_name}", daemon=True)

    def start(self) -> None:
        try:
            start_thread(self._thread, f"{self._cluster_name} cannot be read")
        except BaseException:
            self._end()
            self._cluster.close()
            raise

    def wait_for_start(self) -> None:
        """Waits until it is certain from where messages are read, if it is the end of the log."""

    def close(self) -> None:
        """Ends the thread and closes its client. The caller has closed the inbox before."""
        self._stopping.set()
        self._thread.join()
        self._cluster.close()

    def fetch_offset(self, partition: int, spec: OffsetSpec | int) -> int:
        """The offset of one partition that `spec` names, now. Raises `ConnectError` or `ReadError`."""
        result = self._fetch_offsets([partition], spec)[partition]
        if isinstance(result, KoffError):
            raise copy_error(result)
        return result

    def _fetch_offsets(self, partitions: Iterable[int], spec: OffsetSpec | int) -> dict[int, int | KoffError]:
        """The offset of each partition, or its error: that of all if no broker responds."""
        topic = self._conf.topic
        wanted = [KoffTopicPartition(topic, partition) for partition in partitions]
        try:
            results = self._cluster.fetch_offsets(wanted, spec, self._conf.isolation)
        except KoffError as error:
            return {at.partition: copy_error(error) for at in wanted}
        return {
            at.partition: result
            if isinstance(result, int)
            else ReadError(f"{topic} partition {at.partition} at {self._cluster_name}: {result}")
            for at, result in results.items()
        }

    def _run(self) -> None:
        make_error = partial(make_connect_error, self._cluster_conf.brokers)
        try:
            while not self._stopping.is_set():
                try:
                    self._release_failed_messages()
                    self._check_topic()
                    self._apply_pauses()
                    self._fetch_once()
                    self._check_silent()
                except (KoffError, KafkaException) as error:  # reported; the next try may succeed
                    subject = f"{self._cluster_name} cannot be read"
                    self._report_error(convert_foreign_error(error, subject, make_error))
                    self._stopping.wait(RETRY_S)
        except BaseException as error:  # without this report, callers of the reader would wait for ever
            self._report_end(error)
        finally:
            with self._inbox.lock:
                self.ended = self.ended or Closed("the reader is closed")
            self._end()

    def _report_end(self, error: BaseException) -> None:
        """Makes the error that ended the thread one of each caller."""
        self.ended = ReadError(f"reading {self._cluster_name} ended: {error!r}; make a new reader")
        self._report_error(self.ended, ended=True)
        log.exception("reading thread ended with an error", cluster=self._cluster_name)

    def _report_error(self, error: KoffError, *, ended: bool = False) -> None:
        with self._inbox.lock:  # all of them have the error, or none
            for subscription in self.subscriptions:
                subscription.ended = ended
                self._inbox.report_error(subscription, copy_error(error))

    def _end(self) -> None:
        try:
            self._close_client()
        except BaseException:  # nobody waits for this thread any more: the log has it
            log.exception("a reader did not end cleanly", cluster=self._cluster_name)

    def _release_failed_messages(self) -> None:
        """Puts messages into the inbox that failed and are due again."""
        now = time.monotonic()
        with self._inbox.lock:  # `set_offset` may drop them
            for partition in chain.from_iterable(each.partitions.values() for each in self.subscriptions):
                if partition.delayed and (raws := partition.pop_due(now)):
                    batch = self._build_batch(partition.partition, raws)
                    batch.again = True
                    self._inbox.put_again(batch)

    def _check_topic(self) -> None:
        """Reads a topic that was deleted and created again from its start."""
        self._topic_watch.check_if_due()
        found = self._watched.recreations
        if found == self._recreations:
            return
        try:
            self._restart_partitions()
        except (KoffError, KafkaException) as error:  # no leader yet, or a partition that is just assigned
            log.debug("the new log is not read yet: trying again", reason=str(error))
            self._stopping.wait(RETRY_S / 10)
            return
        self._recreations = found
        log.warning(
            "the topic was deleted and created again: reading its new log",
            cluster=self._cluster_name,
            topic=self._conf.topic,
        )

    @abstractmethod
    def _restart_partitions(self) -> None:
        """Drops what was read ahead, and reads the new log of each partition. Raises `KoffError`."""

    def _apply_pauses(self) -> None:
        """Has librdkafka fetch no messages of paused partitions. It keeps their positions."""
        if not self._paused and not any(each.paused for each in self.subscriptions):
            return
        client, assigned = self._get_assignment()
        if client is not self._paused_client:
            self._paused, self._paused_client = set(), client
        self._paused &= assigned
        wanted = {p for p in assigned if self._find_subscription(p).is_paused(p)}
        try:
            client.pause([TopicPartition(self._conf.topic, p) for p in wanted - self._paused])
            client.resume([TopicPartition(self._conf.topic, p) for p in self._paused - wanted])
        except KafkaException as error:  # the next call tries again; the inbox holds the messages back
            log.debug("partitions not paused or resumed yet", reason=str(error))
        else:
            self._paused = wanted

    def _fetch_once(self) -> None:
        """Fetches once, and puts the messages into the inbox."""
        self._handle_requests()
        room = self._inbox.wait_for_room(self.subscriptions, FETCH_S)
        if not room:
            self._note_response(self.subscriptions)  # the caller is slow: this is no silence of the cluster
            return
        started_at = time.monotonic()
        fetched = self._fetch(room)
        fetched_at = time.monotonic()
        batches = [self._build_batch(partition, raws) for partition, raws in fetched]
        subscriptions = {batch.subscription for batch in batches}
        self._note_response(subscriptions)
        self._inbox.put_batches(batches)
        wait_s, read_s = fetched_at - started_at, time.monotonic() - fetched_at
        with self._inbox.lock:
            for subscription in subscriptions:
                subscription.wait_s = subscription.wait_s.with_value(wait_s)
                subscription.read_s = subscription.read_s.with_value(read_s)

    @abstractmethod
    def _handle_requests(self) -> None:
        """Does what other threads have requested since the last fetch."""

    @abstractmethod
    def _fetch(self, max_messages: int) -> Iterable[tuple[int, list[Any]]]:
        """Partitions with their next messages; empty if none comes within `FETCH_S`."""

    @abstractmethod
    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        """The librdkafka client, and the partitions that it may fetch."""

    @abstractmethod
    def _close_client(self) -> None:
        """Closes the librdkafka client."""

    def _find_subscription(self, partition: int) -> ReaderSubscription:
        return self._by_partition.get(partition, self.subscriptions[0])  # a group has only one

    def _build_batch(self, partition: int, raws: list[Any]) -> InboxBatch:
        messages = list(Batch(self._conf.topic, partition, raw=raws, cluster=self._cluster_name))
        subscription = self._find_subscription(partition)
        return InboxBatch(subscription, subscription.partitions[partition], messages, raws)

    def _note_response(self, subscriptions: Iterable[ReaderSubscription]) -> None:
        for subscription in subscriptions:
            subscription.response_at = time.monotonic()

    def _expects_data(self, subscription: ReaderSubscription) -> bool:
        """Whether silence of this subscription is a reason to check the cluster."""
        return True

    def _check_silent(self) -> None:
        """Requests end offsets for subscriptions without a response for `fail_after_s`.

        Reports each subscription without an end offset, and again after every `fail_after_s` once it failed.
        """
        now, fail_after_s = time.monotonic(), self._conf.fail_after_s
        silent = {
            # A group has partition -1: the request is for partition 0, because any partition will do.
            max(subscription.partition, 0): subscription
            for subscription in self.subscriptions
            if now - subscription.response_at >= fail_after_s and self._expects_data(subscription)
        }
        if not silent or now < self._next_check_at:
            return
        results = self._fetch_offsets(silent, OffsetSpec.LATEST)
        self._next_check_at = time.monotonic() + RETRY_S
        for partition, subscription in silent.items():
            result = results[partition]
            if isinstance(result, int):
                subscription.reported_at = 0.0
                self._note_response([subscription])
                self._inbox.clear_error(subscription)
            elif now - subscription.reported_at >= fail_after_s and self._inbox.report_error(
                subscription, result
            ):
                subscription.reported_at = now


def build_feed_conf(conf: ReaderConf) -> FeedConf:
    """How much a feed buffers, and how long it waits, as the reader's configuration says."""
    return FeedConf(
        fetch_bytes=conf.max_bytes,
        fetch_max_bytes=conf.max_bytes,
        fetch_min_bytes=conf.min_bytes,
        fetch_wait_ms=int(conf.max_wait_s * 1000),
        isolation=conf.isolation.value,
    )
