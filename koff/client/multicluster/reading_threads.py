"""The threads that fill a reader's inbox without a group: one for each cluster and topic."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from koff.client.batch import FetchedBatch
from koff.client.closing import Closing
from koff.client.cluster import Cluster, OffsetSpec
from koff.client.cluster import TopicPartition as KoffTopicPartition
from koff.client.feed.feed import Feed, PartitionLost
from koff.client.feed.source import FeedConf
from koff.client.foreign_errors import extract_kafka_error, make_connect_error
from koff.client.librdkafka import new_client
from koff.client.message import Message
from koff.client.multicluster.client_statistics import INTERVAL, ClientStatistics
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch, ReaderSubscription
from koff.errors import Closed, ConnectError, KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")

FETCH_S = 0.1
"""How long one fetch waits for messages. A task of another thread may wait that long."""
_RETRY_S = 1.0


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
        self._cluster = Cluster(self._conf.cluster_conf())
        self._request_lock = threading.Lock()  # one request of `_cluster` at a time
        self._tasks_lock = threading.Lock()  # guards `_ended`: after it is set, no task may be added
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._ended: KoffError | None = None
        self._response_at = dict.fromkeys(subscriptions, time.monotonic())
        self._error_reported_at: dict[ReaderSubscription, float] = {}
        self._next_check_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"koff-read-{self._cluster_name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and closes its client. The caller has closed the inbox before."""
        self._stopping.set()
        self._thread.join()
        self._cluster.close()

    def fetch_offset(self, partition: int, spec: OffsetSpec | int) -> int:
        """The offset of one partition that `spec` names, now. Raises `ConnectError` or `ReadError`."""
        result = self._fetch_offsets([partition], spec)[partition]
        if isinstance(result, KoffError):
            raise result
        return result

    def run_in_thread(self, task: Callable[[], None]) -> None:
        """Queues a task that the thread runs between two fetches.

        Raises `Closed` if the reader is closed, and `ReadError` if the thread has ended with an error.
        """
        with self._tasks_lock:
            if self._ended is not None:
                raise self._ended
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
                    self._fetch_once()
                    self._check_silent()
                except (KoffError, KafkaException) as error:  # reported; the next try may succeed
                    self._report_error(self._map_error(error))
                    self._stopping.wait(_RETRY_S)
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

    def _map_error(self, error: KoffError | KafkaException) -> KoffError:
        if isinstance(error, KoffError):
            return error
        kafka_error = extract_kafka_error(error)
        return make_connect_error(self._conf.brokers, [kafka_error] if kafka_error else [], was_up=True)

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

        Reports an error for each subscription without an end offset, and again after every `fail_after_s`.
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
            results = dict.fromkeys(silent, error)
        self._next_check_at = time.monotonic() + _RETRY_S
        for partition, subscription in silent.items():
            result = results[partition]
            if isinstance(result, int):
                self._error_reported_at.pop(subscription, None)
                self._note_response([subscription])
                self._inbox.clear_error(subscription)
            elif now - self._error_reported_at.get(subscription, 0.0) >= fail_after_s:
                self._error_reported_at[subscription] = now
                self._inbox.report_error(subscription, result)

    def _build_messages(self, partition: int, raw: list[Any]) -> list[Message]:
        messages = list(FetchedBatch(self._conf.topic, partition, raw))
        for message in messages:
            message.cluster = self._cluster_name
        return messages


class FeedStream(MessageStream):
    """Reads partitions of one topic in one cluster, without a group, with one librdkafka client."""

    def __init__(self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox) -> None:
        super().__init__(subscriptions, inbox)
        self._by_partition = {subscription.partition: subscription for subscription in subscriptions}
        self._feed = _ReaderFeed(self._conf, self.statistics)
        self._generation: dict[int, int] = {}
        self._position: dict[int, int] = {}
        self._to_start = {
            subscription.partition: (subscription.offset, subscription.generation)
            for subscription in subscriptions
        }
        """Partitions that are not fetched yet: the offset to start at, and the subscription's generation."""
        self._next_start_at = 0.0
        self._out_of_range: set[int] = set()
        """Partitions whose position is beyond the end of the log: only `set_offset` can resume them."""

    def seek(self, subscription: ReaderSubscription, offset: int) -> None:
        """Continues the subscription at the offset. The caller has raised the subscription's generation."""
        start = (offset, subscription.generation)

        def restart_partition() -> None:
            self._stop_partition(subscription.partition)
            self._out_of_range.discard(subscription.partition)
            self._to_start[subscription.partition] = start
            self._next_start_at = 0.0

        self.run_in_thread(restart_partition)

    def _fetch_once(self) -> None:
        if self._to_start and time.monotonic() >= self._next_start_at:
            self._start_partitions()
        room = self._inbox.wait_for_room(self.subscriptions, FETCH_S)
        if not room:
            self._note_response(self.subscriptions)  # the caller is slow: this is no silence of the cluster
            return
        started_at = time.monotonic()
        fetched = self._feed.fetch(room, FETCH_S)
        fetched_at = time.monotonic()
        batches = [self._build_batch(run.partition, run.messages) for run in fetched.runs]
        at_end = [self._by_partition[partition] for partition in fetched.ends]
        self._note_response([*at_end, *(batch.subscription for batch in batches)])
        for subscription in at_end:
            self._inbox.clear_error(subscription)
        self._inbox.put_batches(batches)
        self._note_fetch({batch.subscription for batch in batches}, started_at, fetched_at)
        for lost in fetched.lost:
            self._handle_lost(lost)

    def _close_client(self) -> None:
        self._feed.close()

    def _build_batch(self, partition: int, raw: list[Any]) -> InboxBatch:
        messages = self._build_messages(partition, raw)
        self._position[partition] = messages[-1].offset + 1
        return InboxBatch(
            self._by_partition[partition],
            self._generation[partition],
            messages,
            self._feed.last_end_offset(partition),
        )

    def _expects_data(self, subscription: ReaderSubscription) -> bool:
        return subscription.partition not in self._out_of_range

    def _start_partitions(self) -> None:
        """Starts to fetch the partitions of `_to_start`. A partition without an offset stays there."""
        self._next_start_at = time.monotonic() + _RETRY_S
        # Replace FIRST_OFFSET and LAST_OFFSET by real offsets.
        offsets: dict[int, int | KoffError] = {
            p: offset for p, (offset, _) in self._to_start.items() if offset >= 0
        }
        for constant, spec in ((FIRST_OFFSET, OffsetSpec.EARLIEST), (LAST_OFFSET, OffsetSpec.LATEST)):
            partitions = [p for p, (offset, _) in self._to_start.items() if offset == constant]
            try:
                offsets.update(self._fetch_offsets(partitions, spec))
            except ConnectError:
                pass  # if this lasts, `_check_silent` reports it
        # Start to fetch the partitions whose offset is known.
        for partition, offset in offsets.items():
            subscription = self._by_partition[partition]
            if isinstance(offset, KoffError):
                self._inbox.report_error(subscription, offset)
                continue
            _, self._generation[partition] = self._to_start.pop(partition)
            self._position[partition] = offset
            self._feed.add({partition: offset})
            with self._inbox.lock:
                # `set_offset` may have changed the offset meanwhile: then its task moves the partition soon.
                if subscription.generation == self._generation[partition] and subscription.offset < 0:
                    subscription.offset = offset

    def _stop_partition(self, partition: int) -> None:
        if self._position.pop(partition, None) is not None:
            self._feed.remove([partition])

    def _handle_lost(self, lost: PartitionLost) -> None:
        """Resumes a lost partition: at its log start offset if the position is older than that.

        A position beyond the end of the log is an error; the user has to call `set_offset`.
        """
        partition, subscription = lost.partition, self._by_partition[lost.partition]
        position = self._position.get(partition, subscription.offset)  # of the thread, ahead of the user's
        generation = self._generation[partition]
        # By default, the next try starts at the same position, after a pause.
        self._stop_partition(partition)
        self._to_start[partition] = (position, generation)
        self._next_start_at = time.monotonic() + _RETRY_S
        name = f"{subscription.conf.topic} partition {partition} at {subscription.cluster}"
        if lost.gone:
            text = f"{name} does not exist: {lost.reason}; create it, or remove its ReaderConf"
            self._inbox.report_error(subscription, ReadError(text))
            return
        try:
            start = self.fetch_offset(partition, OffsetSpec.EARLIEST)
            end = self.fetch_offset(partition, OffsetSpec.LATEST)
        except KoffError as error:  # the partition is reported lost again at the next try
            self._inbox.report_error(subscription, error)
            return
        self._resume_lost(lost, name, start, end)

    def _resume_lost(self, lost: PartitionLost, name: str, start: int, end: int) -> None:
        """Chooses where to resume a partition whose log has the offsets from `start` to `end`.

        `name` is the partition's name in logs and errors.
        """
        partition, subscription = lost.partition, self._by_partition[lost.partition]
        position, generation = self._to_start[partition]
        # Before the log start offset: resume there. Beyond the end: an error. Otherwise: at the same
        # position.
        if position < start:
            log.warning(
                "retention deleted offsets before they were read: reading from the log start offset",
                partition=name,
                position=position,
                log_start_offset=start,
            )
            with self._inbox.lock:
                subscription.add_count("skipped", start - position)
            self._to_start[partition], self._next_start_at = (start, generation), 0.0
        elif position > end:
            del self._to_start[partition]
            self._out_of_range.add(partition)
            text = (
                f"offset {position} of {name} is out of range, it has {start} to {end}; "
                "set_offset resumes the reader at another offset"
            )
            self._inbox.report_error(subscription, ReadError(text))
        else:
            log.warning(
                "partition lost, perhaps its log was truncated: reading it again from the same offset",
                partition=name,
                offset=position,
                reason=lost.reason,
            )


class _ReaderFeed(Feed):
    """A feed with statistics and end offsets."""

    def __init__(self, conf: ReaderConf, statistics: ClientStatistics) -> None:
        self._statistics = statistics
        super().__init__(conf.cluster_conf(), conf.topic, build_feed_conf(conf))

    def _new_consumer(self) -> Consumer:
        properties = self._feed_conf.librdkafka_properties(self._cluster_conf)
        callbacks = {"error_cb": self._note_error, "stats_cb": self._statistics.make_callback()}
        consumer: Consumer = new_client(Consumer, {**INTERVAL, **properties}, **callbacks)
        return consumer

    def last_end_offset(self, partition: int) -> int:
        """The end offset in the last fetch response, -1 if unknown. Sends no request."""
        watermarks = self._get_consumer().get_watermark_offsets(
            TopicPartition(self.topic, partition), cached=True
        )
        return int(watermarks[1]) if watermarks else -1


def build_feed_conf(conf: ReaderConf) -> FeedConf:
    """How much a feed buffers, and how long it waits, as the reader's configuration says."""
    return FeedConf(
        fetch_bytes=conf.max_bytes,
        fetch_max_bytes=conf.max_bytes,
        fetch_min_bytes=conf.min_bytes,
        fetch_wait_ms=int(conf.max_wait_s * 1000),
        isolation=conf.isolation.value,
    )
