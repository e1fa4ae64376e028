"""Many partitions of one topic in, batches out, over one librdkafka client and without a group."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from koff.client.cluster import ClusterConf
from koff.client.feed.source import GONE, LOST, FeedConf, Source
from koff.client.foreign_errors import connect_error, denied, kafka_error
from koff.client.librdkafka import consume_waiting


@dataclass(frozen=True, slots=True)
class PartitionLost:
    """Reading a partition cannot go on where it was. `gone` when the partition itself is no more."""

    partition: int
    reason: str
    gone: bool = False


class RawRecord(NamedTuple):
    """A record as it stood in its partition; `timestamp_ms` is since the epoch."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition, in log order, still in librdkafka's hands: taken out a column at a time."""

    partition: int
    messages: list[Message]

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def next_offset(self) -> int:
        """One past the last record's offset."""
        last: Any = self.messages[-1].offset()
        return int(last) + 1

    @property
    def leader_epoch(self) -> int:
        """The last record's, -1 where it is not known."""
        epoch: Any = self.messages[-1].leader_epoch()
        return -1 if epoch is None else int(epoch)

    def split(self, offset: int) -> tuple[Run, Run]:
        """The records before that offset, and the others."""
        at = bisect_left(self.messages, offset, key=_offset)
        return Run(self.partition, self.messages[:at]), Run(self.partition, self.messages[at:])

    def offsets(self) -> list[int]:
        """The records' offsets."""
        offsets: list[Any] = list(map(Message.offset, self.messages))
        return offsets

    def timestamps_ms(self) -> list[int]:
        """The records' timestamps, -1 for a record without one."""
        return [timestamp_ms for _, timestamp_ms in map(Message.timestamp, self.messages)]

    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return list(map(Message.key, self.messages))

    def values(self) -> list[bytes | None]:
        """The records' values."""
        return list(map(Message.value, self.messages))

    def __iter__(self) -> Iterator[RawRecord]:
        m: Any
        for m in self.messages:
            yield RawRecord(self.partition, m.offset(), m.timestamp()[1], m.key(), m.value())


@dataclass(slots=True)
class Fetched:
    """What one `Feed.fetch` brought: records, ends reached (partition to offset), partitions lost.

    `full` means that more was waiting.
    """

    runs: list[Run] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    lost: list[PartitionLost] = field(default_factory=list)
    full: bool = False


class Feed(Source):
    """Reads partitions of `topic` that it was told to, commits nothing, joins nothing.

    A context manager. Broker restarts and leader changes are survived; `trouble` says why no broker can be
    reached, while that is so.
    """

    def __init__(self, cluster: ClusterConf, topic: str, conf: FeedConf | None = None) -> None:
        self.topic = topic
        self._next: dict[int, tuple[int, int]] = {}
        super().__init__(cluster, conf or FeedConf(), f"the feed of {topic}")

    def add(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        """Reads these partitions too, each from its offset.

        Where the leader epoch of the record before it is given, a log that was truncated since is `lost`.
        """
        epochs = leader_epochs or {}
        begin = {p: (offset, epochs.get(p, -1)) for p, offset in offsets.items()}
        self._client().incremental_assign(self._at(begin))
        self._next.update(begin)

    def remove(self, partitions: Iterable[int]) -> None:
        """Reads these partitions no more."""
        gone = list(partitions)
        self._client().incremental_unassign([TopicPartition(self.topic, p) for p in gone])
        for partition in gone:
            self._next.pop(partition, None)

    def fetch(self, max_records: int, timeout_s: float) -> Fetched:
        """The next records, in log order within a partition; empty after `timeout_s` without any.

        Returns what is there as soon as the first is: a lone commit does not wait for company. Raises
        `ConnectError` when we may not read the topic.
        """
        consumer = self._client()
        try:
            got = consume_waiting(consumer, max_records, timeout_s)
        except KafkaException as failure:
            error = kafka_error(failure)
            raise connect_error(self._brokers, [error] if error else []) from failure
        fetched = Fetched(full=len(got) >= max_records)
        if any(map(Message.error, got)):
            got = [message for message in got if not self._event(message, fetched)]
        fetched.runs = runs(got)
        if got or fetched.ends:
            self.trouble = None
            self._silence.broken()
            self._note_places(fetched)
        elif timeout_s and self._silence.cut_off(consumer, self.topic):
            self._revived(consumer, self._at(self._next))
        return fetched

    def _note_places(self, fetched: Fetched) -> None:
        """Where each partition goes on, but for those that were removed meanwhile."""
        for run in fetched.runs:
            if run.partition in self._next:
                self._next[run.partition] = run.next_offset, run.leader_epoch
        for partition, end in fetched.ends.items():
            if partition in self._next:
                offset, epoch = self._next[partition]
                self._next[partition] = max(offset, end), epoch

    def _at(self, places: Mapping[int, tuple[int, int]]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, p, at, leader_epoch=epoch) for p, (at, epoch) in places.items()]

    def _event(self, message: Any, fetched: Fetched) -> bool:
        """Whether `message` is no record but an event, which is then written into `fetched`."""
        error = message.error()
        if error is None:
            return False
        partition, code = message.partition(), error.code()
        if code == KafkaError._PARTITION_EOF:
            fetched.ends[partition] = message.offset()
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise denied(self.topic, self._brokers, "READ")
        elif code in LOST or code in GONE:
            fetched.lost.append(PartitionLost(partition, error.str(), gone=code in GONE))
        else:
            self._note(error)
        return True


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset


def runs(messages: list[Message]) -> list[Run]:
    """Cuts messages where the partition changes; sorts them by partition first when they are much mixed."""
    if not messages:
        return []
    numbers = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    if len(cuts) > 200:
        order = np.argsort(numbers, kind="stable")
        numbers, messages = numbers[order], [messages[i] for i in order.tolist()]
        cuts = np.flatnonzero(np.diff(numbers)) + 1
    edges = [0, *cuts.tolist(), len(messages)]
    return [Run(int(numbers[a]), messages[a:b]) for a, b in pairwise(edges)]
