"""A thread that fills a reader's inbox. Its subclasses read with a group and without."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from koff.client.batch import Batch
from koff.client.closing import Closing
from koff.client.cluster import Cluster
from koff.client.cluster_conf import OffsetSpec
from koff.client.cluster_conf import TopicPartition as KoffTopicPartition
from koff.client.feed.source import FeedConf
from koff.client.foreign_errors import extract_kafka_error, make_connect_error, start_thread
from koff.client.message import Message
from koff.client.multicluster.client_statistics import ClientStatistics
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch, ReaderSubscription
from koff.errors import Closed, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")

FETCH_S = 0.1
"""How long one fetch waits for messages. A task of another thread may wait that long."""
RETRY_S = 1.0


class MessageStream(Closing, ABC):
    """A thread that fetches messages, checks that the cluster responds, and runs tasks of other threads.

    After `start`, only this thread calls its librdkafka consumer: while one thread polls a consumer, a call
    from another thread may block for many seconds.
    """

    def __init__(self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox) -> None:
        self.subscriptions = subscriptions
        self._inbox = inbox
        self._conf = subscriptions[0].conf
        self._cluster_name = subscriptions[0].cluster
        self.statistics = ClientStatistics()
        self._cluster_conf = subscriptions[0].cluster_conf
        self._cluster = Cluster(self._cluster_conf)
        self._request_lock = threading.Lock()  # one request of `_cluster` at a time
        self._tasks_lock = threading.Lock()  # guards `_ended`: after it is set, no task may be added
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._ended: KoffError | None = None
        self._response_at = dict.fromkeys(subscriptions, time.monotonic())
        self._error_reported_at: dict[ReaderSubscription, float] = {}
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

    def run_in_thread(self, task: Callable[[], None]) -> None:
        """Queues a task that the thread runs between two fetches.

        Raises `Closed` if the reader is closed, and `ReadError` if the thread has ended with an error.
        """
        with self._tasks_lock:
            if self._ended is not None:
                raise copy_error(self._ended)
            self._tasks.put(task)

    def _fetch_offsets(self, partitions: Iterable[int], spec: OffsetSpec | int) -> dict[int, int | KoffError]:
        """The offset of each partition, or its error. Raises `ConnectError` if no broker responds."""
        topic = self._conf.topic
        with self._request_lock:
            results = self._cluster.fetch_offsets(
                [KoffTopicPartition(topic, p) for p in partitions], spec, self._conf.isolation
            )
        return {
            p.partition: result
            if isinstance(result, int)
            else ReadError(f"{topic} partition {p.partition} at {self._cluster_name}: {result}")
            for p, result in results.items()
        }

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._run_tasks()
                    self._release_failed_messages()
                    self._apply_pauses()
                    self._fetch_once()
                    self._check_silent()
                except (KoffError, KafkaException) as error:  # reported; the next try may succeed
                    self._report_error(copy_error(self._map_error(error)))
                    self._stopping.wait(RETRY_S)
        except BaseException as error:  # without this report, callers of the reader would wait for ever
            self._report_end(error)
        finally:
            # No task can be added after `_ended` is set, so this last `_run_tasks` runs all of them.
            with self._tasks_lock:
                self._ended = self._ended or Closed("the reader is closed")
            self._end()

    def _report_end(self, error: BaseException) -> None:
        """Makes the error that ended the thread one of each caller."""
        end = ReadError(f"reading {self._cluster_name} ended: {error!r}; make a new reader")
        self._ended = end
        self._inbox.report_end(self.subscriptions, end)
        log.exception("reading thread ended with an error", cluster=self._cluster_name)

    def _end(self) -> None:
        """Runs the last tasks, and closes the client."""
        for step in (self._run_tasks, self._close_client):
            try:
                step()
            except BaseException:  # nobody waits for this thread any more: the log has it
                log.exception("a reader did not end cleanly", cluster=self._cluster_name)

    def _release_failed_messages(self) -> None:
        """Puts messages into the inbox that failed and are due again."""
        for subscription in self.subscriptions:
            if subscription.tracker is None or not subscription.tracker.delayed:
                continue
            with self._inbox.lock:  # `set_offset` may drop them
                due = subscription.tracker.pop_due()
                self._inbox.put_again(
                    subscription,
                    [
                        self._build_batch(subscription, partition, raws, again=True)
                        for partition, raws in due.items()
                    ],
                )

    def _map_error(self, error: KoffError | KafkaException) -> KoffError:
        if isinstance(error, KoffError):
            return error
        kafka_error = extract_kafka_error(error)
        return make_connect_error(self._cluster_conf.brokers, [kafka_error] if kafka_error else [])

    def _run_tasks(self) -> None:
        """Runs all tasks, also those behind a task that fails; then raises its error."""
        try:
            while not self._tasks.empty():
                self._tasks.get()()
        finally:
            if not self._tasks.empty():
                self._run_tasks()

    @abstractmethod
    def _fetch_once(self) -> None:
        """Fetches once, and puts the messages into the inbox."""

    @abstractmethod
    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        """The librdkafka client, and the partitions that it may fetch."""

    def _apply_pauses(self) -> None:
        """Has librdkafka fetch no messages of paused partitions. It keeps their positions."""
        if not self._paused and not any(each.paused or each.paused_partitions for each in self.subscriptions):
            return
        client, assigned = self._get_assignment()
        if client is not self._paused_client:
            self._paused, self._paused_client = set(), client
        self._paused &= assigned
        wanted = {p for p in assigned if self._is_paused(p)}
        try:
            client.pause([TopicPartition(self._conf.topic, p) for p in wanted - self._paused])
            client.resume([TopicPartition(self._conf.topic, p) for p in self._paused - wanted])
        except KafkaException as error:  # the next call tries again; the inbox holds the messages back
            log.debug("partitions not paused or resumed yet", reason=str(error))
        else:
            self._paused = wanted

    @abstractmethod
    def _is_paused(self, partition: int) -> bool:
        """Whether no messages of the partition may be handed out."""

    @abstractmethod
    def _close_client(self) -> None:
        """Closes the librdkafka client."""

    def _report_error(self, error: KoffError) -> None:
        for subscription in self.subscriptions:
            self._inbox.report_error(subscription, error)

    def _note_response(self, subscriptions: Iterable[ReaderSubscription]) -> None:
        self._response_at.update(dict.fromkeys(subscriptions, time.monotonic()))

    def _note_fetch(
        self, subscriptions: Iterable[ReaderSubscription], started_at: float, fetched_at: float
    ) -> None:
        """Adds the times of a fetch to the statistics of the subscriptions whose messages it returned."""
        wait_s, read_s = fetched_at - started_at, time.monotonic() - fetched_at
        with self._inbox.lock:
            for subscription in subscriptions:
                subscription.wait_s.add(wait_s)
                subscription.read_s.add(read_s)

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
            for subscription, response_at in self._response_at.items()
            if now - response_at >= fail_after_s and self._expects_data(subscription)
        }
        if not silent or now < self._next_check_at:
            return
        results: dict[int, int | KoffError]
        try:
            results = self._fetch_offsets(silent, OffsetSpec.LATEST)
        except KoffError as error:
            results = dict.fromkeys(silent, copy_error(error))
        self._next_check_at = time.monotonic() + RETRY_S
        for partition, subscription in silent.items():
            result = results[partition]
            if isinstance(result, int):
                self._error_reported_at.pop(subscription, None)
                self._note_response([subscription])
                self._inbox.clear_error(subscription)
            elif now - self._error_reported_at.get(
                subscription, 0.0
            ) >= fail_after_s and self._inbox.report_error(subscription, result):
                self._error_reported_at[subscription] = now

    def _build_batch(
        self,
        subscription: ReaderSubscription,
        partition: int,
        raws: list[Any],
        *,
        generation: int | None = None,
        end_offset: int = -1,
        again: bool = False,
    ) -> InboxBatch:
        return InboxBatch(
            subscription,
            subscription.generation if generation is None else generation,
            self._build_messages(partition, raws),
            end_offset,
            raws if subscription.tracker is not None else (),
            again,
        )

    def _build_messages(self, partition: int, raw: list[Any]) -> list[Message]:
        return list(Batch(self._conf.topic, partition, raw=raw, cluster=self._cluster_name))


def build_feed_conf(conf: ReaderConf) -> FeedConf:
    """How much a feed buffers, and how long it waits, as the reader's configuration says."""
    return FeedConf(
        fetch_bytes=conf.max_bytes,
        fetch_max_bytes=conf.max_bytes,
        fetch_min_bytes=conf.min_bytes,
        fetch_wait_ms=int(conf.max_wait_s * 1000),
        isolation=conf.isolation.value,
    )
