"""Readers and writers of `koff.client.multicluster` on clusters in memory.

    clusters = MemoryClusters("east:9092", "west:9092", topics={"orders": 3})
    with clusters.writer({"east": ClusterConf("east:9092")}, WriterConf("orders")) as writer:
        writer.write_messages(Message(b"one"))
    clusters["east:9092"].go_down()

The clusters share one clock. `fail` and `delay` of a broker are for its "consume", "produce" and "commit".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster import ClusterConf, OffsetSpec, TopicPartition
from koff.client.message import Message
from koff.client.message_check import find_fault
from koff.client.multicluster.balancers import Balancer, payload_bytes
from koff.client.multicluster.conf import ReaderConf, RWMode, WriterConf
from koff.client.multicluster.errors import (
    CommitError,
    ReadError,
    ReadErrors,
    Unavailable,
    WriteError,
    WriteErrors,
)
from koff.client.multicluster.stats import ClusterWrites, ReaderStats, WriterStats
from koff.client.start_offset import StartOffset
from koff.errors import Closed, ConfigError, ConnectError, KoffError
from koff.kafkatest.memory_broker import MemoryBroker
from koff.kafkatest.virtual_clock import VirtualClock

_RETRY_S = 1.0


class MemoryClusters:
    """Brokers in memory, each with the same topics. `clusters[address]` is a `MemoryBroker`."""

    def __init__(self, *addresses: str, topics: Mapping[str, int] | None = None) -> None:
        self.clock = VirtualClock()
        self.brokers = {address: MemoryBroker(topics, clock=self.clock) for address in addresses}

    def __getitem__(self, address: str) -> MemoryBroker:
        """The broker of the address. Raises `ConnectError` for an address without one."""
        if address not in self.brokers:
            raise ConnectError(f"there is no cluster in memory at {address}: name it in MemoryClusters")
        return self.brokers[address]

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Creates the topic in each cluster, and returns its name."""
        for broker in self.brokers.values():
            broker.create_topic(name, partitions)
        return name

    def reader(self, configs: Sequence[ReaderConf]) -> MemoryReader:
        """A reader, as `Reader(configs)` makes it. A reader is the only member of its groups."""
        if not configs:
            raise ConfigError("a reader needs at least one configuration: pass one ReaderConf or more")
        return MemoryReader(self, configs)

    def writer(self, clusters: Mapping[str, ClusterConf], conf: WriterConf) -> MemoryWriter:
        """A writer, as `Writer(clusters, conf)` makes it."""
        if not clusters:
            raise ConfigError("a writer needs at least one cluster: pass a name and a ClusterConf")
        return MemoryWriter(self, clusters, conf)


@dataclass(eq=False)
class _Source:
    """One configuration of a reader: where it is in each partition that it reads."""

    conf: ReaderConf
    broker: MemoryBroker
    positions: dict[int, int]
    next_offset: int
    lag: int = -1
    failure: str = ""
    to_commit: dict[TopicPartition, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.conf.name or self.conf.brokers

    def count(self, **added: int) -> None:
        for name, number in added.items():
            self.counts[name] = self.counts.get(name, 0) + number


class MemoryReader(Closing):
    """A reader with the interface of `koff.client.multicluster.Reader`."""

    def __init__(self, clusters: MemoryClusters, configs: Sequence[ReaderConf]) -> None:
        self._clock = clusters.clock
        self._closed = False
        self._sources: deque[_Source] = deque()
        """In turn: the source that was read last is at the end."""
        self._by_index: list[_Source] = []
        for conf in configs:
            source = _Source(conf, clusters[conf.brokers], {}, -1 if conf.group_id else conf.start_offset)
            self._by_index.append(source)
            partitions = [conf.partition or 0]
            if conf.group_id:
                partitions = list(range(source.broker.count_partitions(conf.topic)))
            for partition in partitions:
                source.positions[partition] = self._find_start(source, partition)
            if conf.group_id and conf.on_assigned:
                conf.on_assigned([TopicPartition(conf.topic, partition) for partition in partitions])
        self._sources.extend(self._by_index)

    def read_message(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages of one cluster; [] after `timeout_s`. Their offsets are committed later."""
        messages = self.fetch_message(timeout_s)
        for message in messages:
            source = self._find_group(message)
            if source is not None:
                at = TopicPartition(message.topic, message.partition)
                source.to_commit[at] = message.offset + 1
        return messages

    def fetch_message(self, timeout_s: float | None = None) -> list[Message]:
        """As `read_message`, but a group's offsets are committed only by `commit_messages`."""
        found: list[Message] = []
        errors: list[KoffError] = []

        def look() -> bool:
            if self._closed:
                return True
            found.extend(self._take())
            if not found and all(source.failure for source in self._sources):
                errors.extend(ReadError(source.failure) for source in self._by_index)
            return bool(found or errors)

        with self._clock.changed:
            self._check_open()
            self._commit_stored()
            for source in self._sources:
                source.failure = ""
            fail_after_s = max(source.conf.fail_after_s for source in self._sources)
            limit_s = float("inf") if timeout_s is None else timeout_s
            if fail_after_s <= limit_s and not self._clock.wait_for(
                lambda: self._closed or self._is_any_up(), fail_after_s
            ):
                for source in self._sources:
                    self._note_failure(source, f"{source.name} does not respond")
            self._clock.wait_for(look, limit_s)
            self._check_open()
        if errors:
            raise ReadErrors(errors)
        return found

    def commit_messages(self, *messages: Message, timeout_s: float = 10.0) -> None:
        """Commits the offsets after these messages, for the groups that read them."""
        offsets: dict[_Source, dict[TopicPartition, int]] = {}
        for message in messages:
            source = self._find_group(message)
            if source is None:
                raise Unavailable(f"no group reads {message.topic} at {message.cluster}")
            at = TopicPartition(message.topic, message.partition)
            by_partition = offsets.setdefault(source, {})
            by_partition[at] = max(message.offset + 1, by_partition.get(at, 0))
        self._check_open()
        for source, by_partition in offsets.items():
            self._commit(source, by_partition)

    def lag(self, i: int) -> int:
        """How many offsets followed the last returned message when it was fetched; -1 if that is unknown."""
        return self._by_index[i].lag

    def offset(self, i: int) -> int:
        """The next offset to read; -1 with a group."""
        return self._by_index[i].next_offset

    def read_lag(self, i: int) -> int:
        """How many offsets there are now from `offset(i)` to the end of the partition."""
        source = self._get_partition_source(i)
        end = self._fetch_offset(source, OffsetSpec.LATEST)
        return max(end - source.next_offset, 0) if source.next_offset >= 0 else -1

    def set_offset(self, i: int, offset: int) -> None:
        """Continues at that offset, or at a `StartOffset`."""
        source = self._get_partition_source(i)
        if offset < StartOffset.OLDEST:
            raise ValueError(f"{offset} is no offset: use 0 or more, FIRST_OFFSET or LAST_OFFSET")
        with self._clock.changed:
            source.next_offset, source.lag = offset, -1
            (partition,) = source.positions
            source.positions[partition] = self._resolve(source, partition, offset)
            self._clock.changed.notify_all()

    def set_offset_at(self, i: int, at: datetime | float) -> None:
        """Continues at the first message at or after that time (a number is seconds since the epoch)."""
        source = self._get_partition_source(i)
        seconds = at.timestamp() if isinstance(at, datetime) else at
        offset = self._fetch_offset(source, int(seconds * 1000))
        self.set_offset(i, offset if offset >= 0 else self._fetch_offset(source, OffsetSpec.LATEST))

    def stats(self, i: int) -> ReaderStats:
        """The statistics of reader `i` since the last call, or since the reader was made."""
        with self._clock.changed:
            source = self._by_index[i]
            counts, source.counts = source.counts, {}
            return ReaderStats(
                cluster=source.name,
                topic=source.conf.topic,
                partition=-1 if source.conf.group_id else source.conf.partition or 0,
                offset=source.next_offset,
                lag=source.lag,
                queue_length=0,
                queue_capacity=source.conf.queue_capacity,
                failure=source.failure,
                **counts,
            )

    def close(self) -> None:
        """Commits what `read_message` returned, and makes every call raise `Closed`. Safe to call twice."""
        with self._clock.changed:
            if self._closed:
                return
            self._commit_stored()
            self._closed = True
            self._clock.changed.notify_all()
        for source in self._by_index:
            if source.conf.group_id and source.conf.on_revoked:
                source.conf.on_revoked([TopicPartition(source.conf.topic, each) for each in source.positions])

    def __iter__(self) -> Iterator[list[Message]]:
        """The lists that `read_message` returns, until the reader is closed."""
        try:
            while True:
                yield self.read_message()
        except Closed:
            return

    def _take(self) -> list[Message]:
        """The next messages of the source whose turn it is; notes its error."""
        for source in list(self._sources):
            script = source.broker.has_script("consume")
            for partition, position in source.positions.items():
                log = source.broker.find_log(source.conf.topic, partition)
                if source.broker.is_down or (position >= log.end and not script):
                    continue
                try:
                    with source.broker.begin_call("consume", topic=source.conf.topic, partition=partition):
                        start = max(position, log.start)
                        source.count(skipped=start - position)
                        messages = log.read(start, source.conf.queue_capacity)
                except KoffError as error:
                    self._note_failure(source, str(error))
                    return []
                if not messages:
                    continue
                source.positions[partition] = messages[-1].offset + 1
                if not source.conf.group_id:
                    source.next_offset = messages[-1].offset + 1
                    source.lag = log.end - source.next_offset
                source.failure = ""
                source.count(messages=len(messages), bytes=sum(map(payload_bytes, messages)))
                self._sources.remove(source)
                self._sources.append(source)
                return [replace(message, cluster=source.name) for message in messages]
        return []

    def _find_start(self, source: _Source, partition: int) -> int:
        if source.conf.group_id:
            key = (source.conf.group_id, source.conf.topic, partition)
            if key in source.broker.committed:
                return source.broker.committed[key][0]
        return self._resolve(source, partition, source.conf.start_offset)

    def _resolve(self, source: _Source, partition: int, offset: int) -> int:
        log = source.broker.find_log(source.conf.topic, partition)
        places: dict[int, int] = {StartOffset.OLDEST: log.start, StartOffset.NEWEST: log.end}
        return places.get(offset, offset)

    def _fetch_offset(self, source: _Source, spec: OffsetSpec | int) -> int:
        (partition,) = source.positions
        at = TopicPartition(source.conf.topic, partition)
        return source.broker.offsets([at], spec)[at]

    def _commit_stored(self) -> None:
        for source in self._sources:
            offsets, source.to_commit = source.to_commit, {}
            if offsets:
                self._commit(source, offsets)

    def _commit(self, source: _Source, offsets: Mapping[TopicPartition, int]) -> None:
        group = source.conf.group_id
        try:
            with source.broker.begin_call("commit", group=group, offsets=dict(offsets)):
                for (topic, partition), offset in offsets.items():
                    source.broker.committed[group, topic, partition] = (offset, "")
        except KoffError as error:
            raise CommitError(f"group {group} at {source.name} did not commit: {error}") from error

    def _find_group(self, message: Message) -> _Source | None:
        for source in self._by_index:
            if source.conf.group_id and (source.name, source.conf.topic) == (message.cluster, message.topic):
                return source
        return None

    def _get_partition_source(self, i: int) -> _Source:
        self._check_open()
        source = self._by_index[i]
        if source.conf.group_id:
            raise Unavailable(f"group {source.conf.group_id} keeps the offsets of reader {i}")
        return source

    def _note_failure(self, source: _Source, failure: str) -> None:
        source.failure = failure
        source.count(errors=1)

    def _is_any_up(self) -> bool:
        return not all(source.broker.is_down for source in self._sources)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the reader is closed")


class _Target:
    """A cluster of a writer, and what it acknowledged since the last call of `stats`."""

    def __init__(self, name: str, broker: MemoryBroker, make_balancer: Callable[[], Balancer]) -> None:
        self.name, self.broker, self.balancer = name, broker, make_balancer()
        self.failure = ""
        self.counts = {"messages": 0, "bytes": 0, "failures": 0}


class MemoryWriter(Closing):
    """A writer with the interface of `koff.client.multicluster.Writer`. A call is done when it returns."""

    def __init__(self, clusters: MemoryClusters, confs: Mapping[str, ClusterConf], conf: WriterConf) -> None:
        self._conf, self._clock = conf, clusters.clock
        self._targets = [
            _Target(name, clusters[cluster.brokers], conf.balancer) for name, cluster in confs.items()
        ]
        self._turn = 0
        self._closed = False
        self._counts: dict[str, Any] = {}

    def write_messages(self, *messages: Message) -> None:
        """Writes the messages. Sets `cluster`, partition and offset. Raises `WriteErrors` and `Closed`."""
        if not messages:
            return
        with self._clock.changed:
            if self._closed:
                raise Closed("the writer is closed")
            turn = 0 if self._conf.mode is RWMode.PRIMARY_BACKUP else self._turn
            self._turn += 1
            began_s = self._clock.now_s
            errors = [self._write(message, turn, began_s) for message in messages]
        failed = WriteErrors(errors) if any(errors) else None
        if self._conf.on_completion is not None:
            self._conf.on_completion(messages, failed)
        if failed is not None and not self._conf.asynchronous:
            raise failed

    def stats(self) -> WriterStats:
        """The statistics since the last call, or since the writer was made."""
        with self._clock.changed:
            counts, self._counts = self._counts, {}
            clusters = {}
            for target in self._targets:
                clusters[target.name] = ClusterWrites(
                    **target.counts, reachable=not target.failure, failure=target.failure
                )
                target.counts = dict.fromkeys(target.counts, 0)
            return WriterStats(**counts, clusters=clusters)

    def close(self) -> None:
        """Makes every call raise `Closed`. Safe to call twice."""
        self._closed = True

    def _write(self, message: Message, turn: int, began_s: float) -> WriteError | None:
        """Tries the clusters from the one whose turn it is, until one takes the message."""
        if fault := find_fault(message):
            self._count(errors=1)
            return WriteError(fault)
        attempts, reason = 0, ""
        count = len(self._targets)
        while True:
            for step in range(count):
                target = self._targets[(turn + step) % count]
                if target.broker.is_down:
                    target.failure = reason = f"{target.name} does not respond"
                    continue
                attempts += 1
                try:
                    self._append(target, message)
                except KoffError as error:
                    reason = f"{target.name}: {error}"
                    target.counts["failures"] += 1
                else:
                    waited_s = self._clock.now_s - began_s
                    self._count(messages=1, bytes=payload_bytes(message), seconds=waited_s)
                    self._count(retries=attempts - 1, failovers=int(step > 0))
                    return None
                if attempts >= self._conf.max_attempts:
                    break
            gave_up = self._clock.now_s - began_s >= self._conf.give_up_after_s
            if attempts >= self._conf.max_attempts or gave_up or self._closed:
                self._count(errors=1)
                return WriteError(f"{reason}; gave up after {attempts} attempts")
            self._clock.advance(_RETRY_S)

    def _append(self, target: _Target, message: Message) -> None:
        topic, broker = self._conf.topic, target.broker
        partition = target.balancer.balance(message, max(broker.count_partitions(topic), 1))
        with broker.begin_call("produce", topic=topic, partition=partition, messages=(message,)):
            message.offset = broker.append(topic, partition, [message])
        message.topic, message.partition, message.cluster = topic, partition, target.name
        target.failure = ""
        target.counts["messages"] += 1
        target.counts["bytes"] += payload_bytes(message)

    def _count(self, **added: float) -> None:
        for name, number in added.items():
            self._counts[name] = self._counts.get(name, 0) + number
