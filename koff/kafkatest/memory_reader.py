"""A reader of clusters in memory: koff's `Reader`, whose inbox fetches whenever somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from koff.client.cluster_conf import ClusterConf, OffsetSpec, TopicPartition
from koff.client.message import Message
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import CommitError
from koff.client.multicluster.inbox import Inbox, InboxBatch
from koff.client.multicluster.reader import Reader
from koff.client.multicluster.stats import ClientStatistics
from koff.client.multicluster.subscription import ReaderSubscription
from koff.client.start_offset import StartOffset
from koff.errors import ConnectError, KoffError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.memory_log import PartitionLog
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

    def _make_inbox(self) -> Inbox:
        return _MemoryInbox(self._subscriptions, self._clock, self._streams)

    def _make_stream(self, subscriptions: Sequence[ReaderSubscription]) -> Any:
        broker = self._find_broker(subscriptions[0].cluster_conf.brokers)
        return _MemoryStream(subscriptions, self._inbox, broker)


class _MemoryInbox(Inbox):
    """An inbox that has the streams fetch, since they have no threads."""

    def __init__(
        self,
        subscriptions: Sequence[ReaderSubscription],
        clock: VirtualClock,
        streams: Mapping[ReaderSubscription, Any],
    ) -> None:
        super().__init__(subscriptions)
        self.lock, self._changed, self._room_freed = clock.lock, clock.changed, clock.changed
        self._clock, self._streams = clock, streams

    def wait_for_messages(self, timeout_s: float | None) -> bool:
        """As of a real inbox, in the time of the clock."""

        def look() -> bool:
            for stream in () if self.closed else dict.fromkeys(self._streams.values()):
                stream.fetch_once()
            return self._is_ready()

        return self._clock.wait_for(look, float("inf") if timeout_s is None else timeout_s)


class _MemoryStream:
    """Reads partitions of one topic; as the only member of a group, all its partitions."""

    def __init__(
        self, subscriptions: Sequence[ReaderSubscription], inbox: Inbox, broker: MemoryBroker
    ) -> None:
        self._subscriptions, self._inbox, self._broker = subscriptions, inbox, broker
        self._conf = subscriptions[0].conf
        self.statistics = ClientStatistics()
        self.name = f"group {self._conf.group_id} at {subscriptions[0].cluster}"
        self._positions: dict[int, int] = {}
        self._logs: dict[int, PartitionLog] = {}
        """The log of each position: another one means that the topic was created again."""
        self._down_since_s: float | None = None

    def start(self) -> None:
        conf, committed = self._conf, self._broker.committed
        for subscription in self._subscriptions:
            all_partitions = range(self._broker.count_partitions(conf.topic))
            for partition in all_partitions if conf.group_id else [subscription.partition]:
                self._start_partition(subscription, partition, subscription.conf.start_offset)
                if conf.group_id and (place := (conf.group_id, conf.topic, partition)) in committed:
                    self._positions[partition] = committed[place][0]
        if conf.group_id and conf.on_assigned:
            conf.on_assigned(self._list_partitions())

    def wait_for_start(self) -> None:
        """The offsets are known already."""

    def seek(self, subscription: ReaderSubscription, offset: int) -> None:
        """Continues the subscription at the offset."""
        self._start_partition(subscription, subscription.partition, offset)
        self._broker.clock.changed.notify_all()

    def fetch_offset(self, partition: int, spec: OffsetSpec | int) -> int:
        """The offset of the partition that `spec` names, now."""
        at = TopicPartition(self._conf.topic, partition)
        return self._broker.offsets([at], spec)[at]

    def fetch_once(self) -> None:
        """Puts into the inbox what there is room for. Commits what `read_message` returned before."""
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
                    self._inbox.report_error(subscription, error)
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

    def close(self) -> None:
        """Commits what `read_message` returned, and leaves the group."""
        self._commit_processed()
        if self._conf.group_id and self._conf.on_revoked:
            self._conf.on_revoked(self._list_partitions())

    def _list_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._conf.topic, partition) for partition in self._positions]

    def _start_partition(self, subscription: ReaderSubscription, partition: int, offset: int) -> None:
        self._logs[partition] = log = self._broker.find_log(self._conf.topic, partition)
        self._positions[partition] = log.resolve(offset)
        subscription.start_partition(partition)

    def _fetch(self, subscription: ReaderSubscription, partition: int) -> None:
        broker, topic, room = self._broker, self._conf.topic, subscription.free_capacity
        log = broker.find_log(topic, partition)
        if log is not self._logs[partition]:
            self._restart_partition(subscription, partition)
        position = self._positions[partition]
        has_more = position < log.end or broker.has_script("consume")
        if room <= 0 or subscription.is_paused(partition) or not has_more:
            return
        with broker.begin_call("consume", topic=topic, partition=partition):
            start = self._find_start(subscription, position, log)
            read = [replace(each, cluster=subscription.cluster) for each in log.read(start, room)]
        self._positions[partition] = start + len(read)
        if read:
            batch = InboxBatch(subscription, subscription.partitions[partition], read, end_offset=log.end)
            self._inbox.put_batches([batch])

    def _find_start(self, subscription: ReaderSubscription, position: int, log: PartitionLog) -> int:
        """The position, or where reading continues behind messages that were deleted."""
        if position >= log.start:
            return position
        conf = subscription.conf
        start = log.resolve(conf.start_offset) if conf.group_id else log.start
        subscription.counts["skipped"] += start - position
        _log.warning("the offset is not in the log: reading continues elsewhere", offset=position, at=start)
        return start

    def _restart_partition(self, subscription: ReaderSubscription, partition: int) -> None:
        """Reads the log of a topic that was created again."""
        conf = subscription.conf
        start = conf.start_offset if conf.group_id else StartOffset.OLDEST
        self._start_partition(subscription, partition, start)
        subscription.counts["skipped"] += self._positions[partition] - self._logs[partition].start
        self._inbox.drop_former_batches()
        if conf.group_id:
            self._commit({partition: self._positions[partition]})

    def _report_silence(self) -> None:
        """Reports an error each time that the broker has been down for `fail_after_s`."""
        clock, fail_after_s = self._broker.clock, self._conf.fail_after_s
        if self._down_since_s is not None:
            if clock.now_s < self._down_since_s + fail_after_s:
                return
            for subscription in self._subscriptions:
                error = ConnectError(f"{subscription.cluster} does not respond")
                self._inbox.report_error(subscription, error)
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
