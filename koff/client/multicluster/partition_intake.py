"""The thread that reads a reader's partitions in one cluster, without a group."""

import time
from collections.abc import Mapping, Sequence

from koff.client.batch import Batch
from koff.client.cluster import Cluster
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.intake import Intake, find_room
from koff.client.delivery.partition import PartitionState
from koff.client.errors import OffsetOutOfRange, TopicRecreated
from koff.client.feed.source import FeedConf
from koff.client.multicluster.errors import ReadError
from koff.client.multicluster.stats import ClientStatistics
from koff.client.multicluster.subscription import ReaderSubscription, SubscribedPartition
from koff.client.start_offset import StartOffset
from koff.errors import KoffError
from koff.logs import get_logger

log = get_logger("client.multicluster")


class PartitionIntake(Intake[SubscribedPartition]):
    """Reads partitions of one topic in one cluster, with one librdkafka client."""

    def __init__(
        self, subscriptions: Sequence[ReaderSubscription], delivery: Delivery[SubscribedPartition]
    ) -> None:
        self.subscriptions, self.statistics = subscriptions, ClientStatistics()
        self._conf, self._cluster_name = subscriptions[0].conf, subscriptions[0].cluster
        self._idle_since = time.monotonic()
        super().__init__(
            Cluster(subscriptions[0].cluster_conf),
            FeedConf(
                fetch_bytes=self._conf.max_bytes,
                fetch_max_bytes=self._conf.max_bytes,
                fetch_min_bytes=self._conf.min_bytes,
                fetch_wait_ms=int(self._conf.max_wait_s * 1000),
                isolation=self._conf.isolation.value,
            ),
            delivery,
            patience_s=self._conf.fail_after_s,
            check_after_s=self._conf.fail_after_s,
            make_callbacks=lambda: {"stats_cb": self.statistics.make_callback()},
        )

    def start(self) -> None:
        """See `Intake`."""
        for each in self.subscriptions:
            if not each.conf.group_id:
                self.add(each.make_partition(each.partition, each.conf.start_offset))
        super().start()

    def close(self, timeout_s: float | None = None) -> None:
        """See `Intake`."""
        super().close(timeout_s)
        self._cluster.close()
        if self._thread.is_alive():
            log.warning(
                "a reader ends later than its `close`: its cluster does not respond, and the last offsets of "
                "its group may not be committed",
                cluster=self._cluster_name,
                topic=self._conf.topic,
            )

    def wait_for_start(self) -> None:
        """Waits until the end offsets are known at which partitions with LAST_OFFSET start.

        A cluster that does not respond is not waited for.
        """
        if self._conf.group_id:
            return
        self.wait_for_starts(self._conf.fail_after_s, retry=False)
        for each in self.partitions:
            if each.is_starting:
                log.warning(
                    "the end offset is unknown: reading starts at the end when the cluster responds",
                    cluster=self._cluster_name,
                    topic=each.topic,
                    partition=each.partition,
                )

    def seek(self, subscription: ReaderSubscription, offset: int) -> None:
        """Continues the subscription at the offset. The caller holds the delivery's lock."""
        for former in subscription.partitions.values():
            self._delivery.change_state(former, PartitionState.LOST)
        self.add(subscription.make_partition(subscription.partition, offset))

    def _find_starts(self, partitions: Sequence[SubscribedPartition]) -> Mapping[SubscribedPartition, int]:
        return {each: each.next_offset for each in partitions}

    def _restart(self, partition: SubscribedPartition, error: TopicRecreated) -> int:
        return StartOffset.OLDEST

    def _choose_offset(self, partition: SubscribedPartition, error: OffsetOutOfRange) -> int:
        """The log start offset if the position is older than that; the same again if the log has it."""
        if error.offset <= error.latest:
            return max(error.offset, error.earliest)
        partition.failed = True
        raise ReadError(
            f"offset {error.offset} of {self._conf.topic} partition {partition.partition} at "
            f"{self._cluster_name} is out of range, it has {error.earliest} to {error.latest}; set_offset "
            "resumes the reader at another offset"
        )

    def _find_room(self, partition: SubscribedPartition) -> int:
        subscription = partition.subscription
        if subscription.is_paused(partition.partition):
            return 0
        return find_room(subscription.conf.queue_capacity, subscription.waiting)

    def _put(self, partition: SubscribedPartition, batch: Batch) -> None:
        subscription, fetched_at = partition.subscription, time.monotonic()
        with self._delivery.lock:
            super()._put(partition, batch)
            subscription.clear_error()
            subscription.wait_s = subscription.wait_s.with_value(fetched_at - self._idle_since)
            self._idle_since = time.monotonic()
            subscription.read_s = subscription.read_s.with_value(self._idle_since - fetched_at)

    def _note_skipped(
        self, partition: SubscribedPartition, error: OffsetOutOfRange, resumed_at: int, skipped: int
    ) -> None:
        with self._delivery.lock:
            partition.subscription.counts["skipped"] += skipped

    def _note_error(self, partition: SubscribedPartition, error: Exception) -> None:
        if self._report_error(partition.subscription, error, partition):
            partition.failing_since = time.monotonic()  # it is reported again after the same time

    def _note_failure(self, error: Exception) -> None:
        for subscription in self.subscriptions:
            self._report_error(subscription, error)

    def _note_response(self, partition: SubscribedPartition) -> None:
        with self._delivery.lock:
            partition.subscription.clear_error()

    def _report_error(
        self,
        subscription: ReaderSubscription,
        error: Exception,
        partition: SubscribedPartition | None = None,
    ) -> bool:
        """Whether the subscription has failed now. Errors of a position before `set_offset` do not count."""
        if not isinstance(error, KoffError):
            log.error("reading continues after an error", cluster=self._cluster_name, exc_info=error)
            error = ReadError(f"reading {self._cluster_name} failed: {error!r}")
        with self._delivery.lock:
            is_read = partition is None or partition is subscription.partitions.get(partition.partition)
            failed = is_read and subscription.report_error(error)
            self._delivery.lock.notify_all()
            return failed
