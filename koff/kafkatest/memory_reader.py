"""A reader of clusters in memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from koff.client.closing import Closing
from koff.client.cluster_conf import OffsetSpec, TopicPartition
from koff.client.message import Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.conf import ReaderConf
from koff.client.multicluster.errors import (
    CommitError,
    ReadError,
    ReadErrors,
    Unavailable,
)
from koff.client.multicluster.stats import ReaderStats
from koff.client.start_offset import StartOffset
from koff.errors import Closed, KoffError
from koff.kafkatest.memory_broker import MemoryBroker


@dataclass(eq=False)
class _Source:
    """One configuration of a reader: where it is in each partition that it reads."""

    name: str
    conf: ReaderConf
    broker: MemoryBroker
    positions: dict[int, int]
    next_offset: int
    lag: int = -1
    failure: str = ""
    to_commit: dict[TopicPartition, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    paused: set[int] = field(default_factory=set)
    is_paused: bool = False


class MemoryReader(Closing):
    """A reader with the interface of `koff.client.multicluster.Reader`."""

    def __init__(self, configs: Sequence[tuple[str, ReaderConf, MemoryBroker]]) -> None:
        self._clock = configs[0][2].clock
        self._closed = False
        self._sources: deque[_Source] = deque()
        """In turn: the source that was read last is at the end."""
        self._by_index: list[_Source] = []
        for name, conf, broker in configs:
            source = _Source(name, conf, broker, {}, -1 if conf.group_id else conf.start_offset)
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

    def pause(self, i: int | None = None, partitions: Collection[int] | None = None) -> None:
        """Returns no messages of reader `i` (None: of all), or of these partitions of it, until `resume`."""
        self._set_paused(i, partitions, paused=True)

    def resume(self, i: int | None = None, partitions: Collection[int] | None = None) -> None:
        """Ends a `pause`. Without partitions, those that were paused by number are resumed, too."""
        self._set_paused(i, partitions, paused=False)

    def _set_paused(self, i: int | None, partitions: Collection[int] | None, *, paused: bool) -> None:
        self._check_open()
        with self._clock.changed:
            for source in self._by_index if i is None else [self._by_index[i]]:
                if partitions is not None:
                    source.paused = source.paused | {*partitions} if paused else source.paused - {*partitions}
                    continue
                source.is_paused = paused
                if not paused:
                    source.paused.clear()
            self._clock.changed.notify_all()

    def errors(self) -> Iterator[KoffError]:
        """Ends when the reader is closed. There are no errors without redelivery."""
        self._clock.wait_for(lambda: self._closed)
        yield from ()

    def stats(self, i: int) -> ReaderStats:
        """The statistics of reader `i` since it was made."""
        with self._clock.changed:
            source = self._by_index[i]
            return ReaderStats(
                cluster=source.name,
                topic=source.conf.topic,
                partition=-1 if source.conf.group_id else source.conf.partition or 0,
                offset=source.next_offset,
                lag=source.lag,
                queue_length=0,
                queue_capacity=source.conf.queue_capacity,
                failure=source.failure,
                messages=source.counts["messages"],
                bytes=source.counts["bytes"],
                errors=source.counts["errors"],
                skipped=source.counts["skipped"],
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
                if source.is_paused or partition in source.paused:
                    continue
                log = source.broker.find_log(source.conf.topic, partition)
                if source.broker.is_down or (position >= log.end and not script):
                    continue
                try:
                    with source.broker.begin_call("consume", topic=source.conf.topic, partition=partition):
                        start = max(position, log.start)
                        source.counts["skipped"] += start - position
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
                source.counts.update(messages=len(messages), bytes=sum(map(payload_bytes, messages)))
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
        source.counts["errors"] += 1

    def _is_any_up(self) -> bool:
        return not all(source.broker.is_down for source in self._sources)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the reader is closed")
