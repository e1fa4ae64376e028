"""The thread that fills a reader's inbox without a group: one for each cluster and topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.feed.feed import Feed
from koff.client.librdkafka import new_client
from koff.client.log_reader import PartitionLost
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.reading_threads import FETCH_S, RETRY_S, MessageStream, build_feed_conf
from koff.client.multicluster.stats import INTERVAL, ClientStatistics
from koff.client.multicluster.subscription import ReaderSubscription
from koff.errors import ConnectError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")


class FeedStream(MessageStream):
    """Reads partitions of one topic in one cluster, without a group, with one librdkafka client.

    A partition that has neither a `start_at` nor a position is out of range: only `set_offset` can resume it.
    """

    def __init__(self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox) -> None:
        super().__init__(subscriptions, inbox)
        self._feed = _ReaderFeed(self._cluster_conf, self._conf, self.statistics)
        self._next_start_at = 0.0
        self._has_tried_to_start = threading.Event()
        self._lost: list[PartitionLost] = []
        for subscription in subscriptions:
            subscription.start_partition(subscription.partition, start_at=subscription.offset)

    def wait_for_start(self) -> None:
        """Waits until the end offsets are known at which partitions with LAST_OFFSET start.

        A cluster that does not respond is not waited for.
        """
        if any(each.conf.start_offset == LAST_OFFSET for each in self.subscriptions):
            self._has_tried_to_start.wait(self._conf.fail_after_s)

    def seek(self, subscription: ReaderSubscription, offset: int) -> None:
        """Continues the subscription at the offset. The caller holds the inbox's lock.

        Raises `Closed` if the reader is closed, and `ReadError` if the thread has ended with an error.
        """
        if self.ended is not None:
            raise copy_error(self.ended)
        subscription.start_partition(subscription.partition, start_at=offset)
        self._next_start_at = 0.0

    def _restart_partitions(self) -> None:
        with self._inbox.lock:
            for subscription in self.subscriptions:
                subscription.offset, subscription.lag = FIRST_OFFSET, -1
                self.seek(subscription, FIRST_OFFSET)
            self._inbox.drop_former_batches()

    def _handle_requests(self) -> None:
        if self._lost:  # perhaps because the topic was created again
            self._topic_watch.check_now()
            self._check_topic()
        while self._lost:
            self._handle_lost(self._lost.pop(0))
        if time.monotonic() >= self._next_start_at:
            self._start_partitions()
            self._has_tried_to_start.set()

    def _fetch(self, max_messages: int) -> list[tuple[int, list[Any]]]:
        fetched = self._feed.fetch(max_messages, FETCH_S)
        at_end = [self._by_partition[partition] for partition in fetched.ends]
        self._note_response(at_end)
        fresh = {run.partition for run in fetched.runs}
        for number, end in fetched.ends.items():
            subscription = self._by_partition[number]
            self._inbox.clear_error(subscription)
            partition = subscription.partitions[number]
            if partition.start_at is None:
                self._inbox.note_end(subscription, partition, end, has_more=number in fresh)
        self._lost += fetched.lost
        return [(run.partition, run.messages) for run in fetched.runs]

    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        return self._feed.get_client(), set(self._feed.positions)

    def _close_client(self) -> None:
        self._has_tried_to_start.set()
        self._feed.close()

    def _build_batch(self, partition: int, raws: list[Any]) -> InboxBatch:
        batch = super()._build_batch(partition, raws)
        batch.end_offset = self._feed.last_end_offset(partition)
        return batch

    def _expects_data(self, subscription: ReaderSubscription) -> bool:
        partition = subscription.partition
        is_read = partition in self._feed.positions or subscription.partitions[partition].start_at is not None
        return is_read and not subscription.is_paused(partition)

    def _start_partitions(self) -> None:
        """Starts to fetch the partitions that have a `start_at`. One without an offset is tried again later.

        `set_offset` may replace a partition meanwhile: then the next call starts the new one.
        """
        self._next_start_at = time.monotonic() + RETRY_S  # before the lock: then `seek` may set it to 0
        with self._inbox.lock:
            starting = {p: each.partitions[p] for p, each in self._by_partition.items()}
            starts = {p: each.start_at for p, each in starting.items() if each.start_at is not None}
        for partition in starts:
            self._stop_partition(partition)
        # Replace FIRST_OFFSET and LAST_OFFSET by real offsets.
        offsets: dict[int, int | KoffError] = {p: start for p, start in starts.items() if start >= 0}
        for constant, spec in ((FIRST_OFFSET, OffsetSpec.EARLIEST), (LAST_OFFSET, OffsetSpec.LATEST)):
            offsets |= self._fetch_offsets([p for p, start in starts.items() if start == constant], spec)
        # Start to fetch the partitions whose offset is known.
        for partition, offset in offsets.items():
            subscription = self._by_partition[partition]
            if isinstance(offset, ConnectError):  # if this lasts, `_check_silent` reports it
                if starts[partition] == LAST_OFFSET and not self._has_tried_to_start.is_set():
                    log.warning(
                        "the end offset is unknown: reading starts at the end when the cluster responds",
                        cluster=self._cluster_name,
                        topic=self._conf.topic,
                        partition=partition,
                        reason=str(offset),
                    )
                continue
            if isinstance(offset, KoffError):
                self._inbox.report_error(subscription, offset, starting[partition])
                continue
            self._feed.add({partition: offset})
            with self._inbox.lock:
                starting[partition].start_at = None
                if subscription.offset < 0 and subscription.is_read(starting[partition]):
                    subscription.offset = offset

    def _stop_partition(self, partition: int) -> None:
        if partition in self._feed.positions:
            self._feed.remove([partition])
            self._paused.discard(partition)

    def _handle_lost(self, lost: PartitionLost) -> None:
        """Resumes a lost partition, by default at the same position, after a pause."""
        subscription = self._by_partition[lost.partition]
        partition = subscription.partitions[lost.partition]
        position = self._feed.positions.get(lost.partition)
        if position is None or partition.start_at is not None:  # it is not read there any more
            return
        self._stop_partition(lost.partition)
        try:
            start_at, failure = self._choose_start(lost, position)
        except KoffError as error:  # the partition is reported lost again at the next try
            start_at, failure = position, copy_error(error)
        with self._inbox.lock:
            partition.start_at = start_at
            if not subscription.is_read(partition):  # `set_offset` has come meanwhile
                return
            if start_at != position:
                self._next_start_at = 0.0
        if failure is not None:
            self._inbox.report_error(subscription, failure, partition)

    def _choose_start(self, lost: PartitionLost, position: int) -> tuple[int | None, KoffError | None]:
        """Where to resume a lost partition, and its error if there is one.

        At the log start offset if the position is older than that. None if it is beyond the end of the log.
        Raises `KoffError` if the cluster does not return the offsets of the log.
        """
        subscription = self._by_partition[lost.partition]
        name = f"{subscription.conf.topic} partition {lost.partition} at {subscription.cluster}"
        if lost.gone:
            text = f"{name} does not exist: {lost.reason}; create it, or remove its ReaderConf"
            return position, ReadError(text)
        start = self.fetch_offset(lost.partition, OffsetSpec.EARLIEST)
        end = self.fetch_offset(lost.partition, OffsetSpec.LATEST)
        if position < start:
            log.warning(
                "retention deleted offsets before they were read: reading from the log start offset",
                partition=name,
                position=position,
                log_start_offset=start,
            )
            with self._inbox.lock:
                subscription.counts["skipped"] += start - position
            return start, None
        if position > end:
            text = (
                f"offset {position} of {name} is out of range, it has {start} to {end}; "
                "set_offset resumes the reader at another offset"
            )
            return None, ReadError(text)
        log.warning(
            "partition lost, perhaps its log was truncated: reading it again from the same offset",
            partition=name,
            offset=position,
            reason=lost.reason,
        )
        return position, None


class _ReaderFeed(Feed):
    """A feed with statistics and end offsets."""

    def __init__(self, cluster: ClusterConf, conf: ReaderConf, statistics: ClientStatistics) -> None:
        self._statistics = statistics
        super().__init__(cluster, conf.topic, build_feed_conf(conf))

    @property
    def positions(self) -> Mapping[int, int]:
        """The partitions that are read, each with the offset of the next fetch."""
        return self._positions

    def _new_consumer(self) -> Consumer:
        properties = self._feed_conf.librdkafka_properties(self._cluster_conf)
        callbacks = {"error_cb": self._note_error, "stats_cb": self._statistics.make_callback()}
        consumer: Consumer = new_client(Consumer, {**INTERVAL, **properties}, **callbacks)
        return consumer

    def get_client(self) -> Consumer:
        """The librdkafka client."""
        return self._get_consumer()

    def last_end_offset(self, partition: int) -> int:
        """The end offset in the last fetch response, -1 if unknown. Sends no request."""
        watermarks = self._get_consumer().get_watermark_offsets(
            TopicPartition(self.topic, partition), cached=True
        )
        return int(watermarks[1]) if watermarks else -1
