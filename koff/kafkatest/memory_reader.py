"""A reader of clusters in memory: koff's `Reader`, which fetches whenever somebody waits for messages."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from koff.client.cluster_conf import ClusterConf, OffsetSpec, TopicPartition
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.partition import PartitionState
from koff.client.message import Message
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import CommitError
from koff.client.multicluster.reader import Reader
from koff.client.multicluster.stats import ClientStatistics
from koff.client.multicluster.subscription import ReaderSubscription, SubscribedPartition
from koff.client.start_offset import StartOffset
from koff.errors import ConnectError, KoffError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.memory_delivery import Cursor, MemoryDelivery
from koff.kafkatest.virtual_clock import VirtualClock
from koff.logs import get_logger

_log = get_logger("kafkatest")
_RETRY_S = 1.0


class MemoryReader(Reader):
    """A `Reader` in the time of a clock. `find_broker` returns the broker in memory at an address."""

    def __init__(
        self,
        clusters: Mapping[str, ClusterConf],
        confs: ReaderConf | Sequence[ReaderConf],
        find_broker: Callable[[str], MemoryBroker],
        clock: VirtualClock,
    ) -> None:
        self._find_broker, self._clock = find_broker, clock
        super().__init__(clusters, confs)

    def _make_delivery(self, **callbacks: Any) -> Delivery[SubscribedPartition]:
        return MemoryDelivery(self._clock, self._fetch_all, **callbacks)

    def _make_intake(self, subscriptions: Sequence[ReaderSubscription]) -> Any:
        broker = self._find_broker(subscriptions[0].cluster_conf.brokers)
        return _MemoryIntake(subscriptions, self._delivery, broker)

    def _fetch_all(self) -> None:
        intakes: dict[Any, None] = dict.fromkeys(self._intakes.values())
        for intake in intakes:
            intake.fetch_once()


class _MemoryIntake:
    """Reads partitions of one topic; as the only member of a group, all its partitions."""

    def __init__(
        self,
        subscriptions: Sequence[ReaderSubscription],
        delivery: Delivery[SubscribedPartition],
        broker: MemoryBroker,
    ) -> None:
        self._subscriptions, self._delivery, self._broker = subscriptions, delivery, broker
        self._conf = subscriptions[0].conf
        self.statistics = ClientStatistics()
        self.name = f"group {self._conf.group_id} at {subscriptions[0].cluster}"
        self._cursors: dict[int, Cursor] = {}
        self._down_since_s: float | None = None

    def start(self) -> None:
        conf, committed = self._conf, self._broker.committed
        for subscription in self._subscriptions:
            all_partitions = range(self._broker.count_partitions(conf.topic))
            for partition in all_partitions if conf.group_id else [subscription.partition]:
                place = conf.group_id, conf.topic, partition
                start = subscription.conf.start_offset
                self._start_partition(subscription, partition, committed.get(place, (start,))[0])
        if conf.group_id and conf.on_assigned:
            conf.on_assigned(self._list_partitions())

    def wait_for_start(self) -> None:
        """The offsets are known already."""

    def seek(self, subscription: ReaderSubscription, offset: int) -> None:
        """Continues the subscription at the offset."""
        self._start_partition(subscription, subscription.partition, offset)
        self._broker.clock.changed.notify_all()

    def fetch_offset(self, partition: SubscribedPartition, spec: OffsetSpec | int) -> int:
        """The offset of the partition that `spec` names, now."""
        at = partition.topic_partition
        return self._broker.offsets([at], spec)[at]

    def fetch_once(self) -> None:
        """Puts into the delivery what there is room for. Commits what `read_message` returned before."""
        self._commit_processed()
        if self._broker.is_down:
            self._report_silence()
            return
        self._down_since_s = None
        for subscription in self._subscriptions:
            for partition in subscription.partitions:
                try:
                    self._fetch(subscription, partition)
                except KoffError as error:
                    subscription.report_error(error)
                    self._broker.clock.call_later(_RETRY_S, lambda: None)

    def commit_offsets(self, messages: Sequence[Message]) -> Future[None]:
        """A future that is done, with an error if the offsets after these messages were not committed."""
        offsets: dict[int, int] = {}
        for message in messages:
            offsets[message.partition] = max(message.offset + 1, offsets.get(message.partition, 0))
        done = Future[None]()
        try:
            self._commit(offsets)
            done.set_result(None)
        except KoffError as error:
            done.set_exception(CommitError(f"{self.name} did not commit: {error}"))
        return done

    def begin_close(self) -> None:
        """There is no thread that has to end."""

    def close(self, timeout_s: float) -> None:
        """Commits what `read_message` returned, and leaves the group."""
        self._commit_processed()
        if self._conf.group_id and self._conf.on_revoked:
            self._conf.on_revoked(self._list_partitions())

    def _list_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._conf.topic, partition) for partition in self._cursors]

    def _start_partition(self, subscription: ReaderSubscription, partition: int, offset: int) -> None:
        log = self._broker.find_log(self._conf.topic, partition)
        former = subscription.partitions.get(partition)
        if former is not None:
            self._delivery.change_state(former, PartitionState.LOST)
        self._cursors[partition] = Cursor(log, log.resolve(offset))
        subscription.make_partition(partition, self._cursors[partition].offset)

    def _fetch(self, subscription: ReaderSubscription, partition: int) -> None:
        broker, topic = self._broker, self._conf.topic
        room = self._conf.queue_capacity - subscription.waiting
        log = broker.find_log(topic, partition)
        if log is not self._cursors[partition].log:
            self._restart_partition(subscription, partition)
        cursor = self._cursors[partition]
        has_more = cursor.offset < log.end or broker.has_script("consume")
        if room <= 0 or subscription.is_paused(partition) or not has_more:
            return
        with broker.begin_call("consume", topic=topic, partition=partition):
            self._leave_gap(subscription, cursor)
            batch = cursor.read(topic, partition, room)
        read = subscription.partitions[partition]
        read.end_offset = log.end
        if len(batch):
            self._delivery.put(read, batch)
            subscription.clear_error()

    def _leave_gap(self, subscription: ReaderSubscription, cursor: Cursor) -> None:
        """Continues behind messages that were deleted."""
        conf, log, offset = subscription.conf, cursor.log, cursor.offset
        if offset < log.start:
            cursor.offset = log.resolve(conf.start_offset) if conf.group_id else log.start
            subscription.counts["skipped"] += cursor.offset - offset
            _log.warning(
                "the next offset is not in the log: reading continues elsewhere",
                offset=offset,
                resumed_at=cursor.offset,
            )

    def _restart_partition(self, subscription: ReaderSubscription, partition: int) -> None:
        """Reads the log of a topic that was created again."""
        conf = subscription.conf
        start = conf.start_offset if conf.group_id else StartOffset.OLDEST
        self._start_partition(subscription, partition, start)
        cursor = self._cursors[partition]
        subscription.counts["skipped"] += cursor.offset - cursor.log.start
        if conf.group_id:
            self._commit({partition: cursor.offset})

    def _report_silence(self) -> None:
        """Reports an error each time that the broker has been down for `fail_after_s`."""
        clock, fail_after_s = self._broker.clock, self._conf.fail_after_s
        if self._down_since_s is not None:
            if clock.now_s < self._down_since_s + fail_after_s:
                return
            for subscription in self._subscriptions:
                error = ConnectError(f"{subscription.cluster} does not respond")
                subscription.report_error(error)
        self._down_since_s = clock.now_s
        clock.call_later(fail_after_s, lambda: None)

    def _commit_processed(self) -> None:
        """Commits as a real member does: what fails is tried again."""
        partitions = self._subscriptions[0].partitions  # a group has one subscription
        processed = {number: each.to_commit for number, each in partitions.items()}
        offsets = {number: offset for number, offset in processed.items() if offset is not None}
        if offsets:
            with suppress(KoffError):
                self._commit(offsets)
                for each in partitions.values():
                    each.to_commit = None

    def _commit(self, offsets: Mapping[int, int]) -> None:
        topic = self._conf.topic
        named = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        self._broker.commit(self._conf.group_id, named)
