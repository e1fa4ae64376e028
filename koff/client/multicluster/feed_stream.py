"""The thread that fills a reader's inbox without a group: one for each cluster and topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.feed.feed import Feed
from koff.client.librdkafka import new_client
from koff.client.log_reader import PartitionLost
from koff.client.multicluster.client_statistics import INTERVAL, ClientStatistics
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.inbox import Inbox, InboxBatch, ReaderSubscription
from koff.client.multicluster.reading_threads import FETCH_S, RETRY_S, MessageStream, build_feed_conf
from koff.errors import ConnectError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")


class FeedStream(MessageStream):
    """Reads partitions of one topic in one cluster, without a group, with one librdkafka client."""

    def __init__(self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox) -> None:
        super().__init__(subscriptions, inbox)
        self._by_partition = {subscription.partition: subscription for subscription in subscriptions}
        self._feed = _ReaderFeed(self._cluster_conf, self._conf, self.statistics)
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
        batches = [self._build_fetched(run.partition, run.messages) for run in fetched.runs]
        at_end = [self._by_partition[partition] for partition in fetched.ends]
        self._note_response([*at_end, *(batch.subscription for batch in batches)])
        for subscription in at_end:
            self._inbox.clear_error(subscription)
        self._inbox.put_batches(batches)
        self._note_fetch({batch.subscription for batch in batches}, started_at, fetched_at)
        for lost in fetched.lost:
            self._handle_lost(lost)

    def _get_assignment(self) -> tuple[Consumer, set[int]]:
        return self._feed.get_client(), set(self._position)

    def _is_paused(self, partition: int) -> bool:
        return self._by_partition[partition].is_paused(partition)

    def _close_client(self) -> None:
        self._feed.close()

    def _build_fetched(self, partition: int, raws: list[Any]) -> InboxBatch:
        batch = self._build_batch(
            self._by_partition[partition],
            partition,
            raws,
            generation=self._generation[partition],
            end_offset=self._feed.last_end_offset(partition),
        )
        self._position[partition] = batch.messages[-1].offset + 1
        return batch

    def _expects_data(self, subscription: ReaderSubscription) -> bool:
        partition = subscription.partition
        return not (partition in self._out_of_range or subscription.is_paused(partition))

    def _start_partitions(self) -> None:
        """Starts to fetch the partitions of `_to_start`. A partition without an offset stays there."""
        self._next_start_at = time.monotonic() + RETRY_S
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
            self._paused.discard(partition)

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
        self._next_start_at = time.monotonic() + RETRY_S
        name = f"{subscription.conf.topic} partition {partition} at {subscription.cluster}"
        if lost.gone:
            text = f"{name} does not exist: {lost.reason}; create it, or remove its ReaderConf"
            self._inbox.report_error(subscription, ReadError(text))
            return
        try:
            start = self.fetch_offset(partition, OffsetSpec.EARLIEST)
            end = self.fetch_offset(partition, OffsetSpec.LATEST)
        except KoffError as error:  # the partition is reported lost again at the next try
            self._inbox.report_error(subscription, copy_error(error))
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

    def __init__(self, cluster: ClusterConf, conf: ReaderConf, statistics: ClientStatistics) -> None:
        self._statistics = statistics
        super().__init__(cluster, conf.topic, build_feed_conf(conf))

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
