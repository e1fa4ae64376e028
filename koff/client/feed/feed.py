"""`Feed` reads many partitions of one topic, over one librdkafka client and without a group."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message, TopicPartition

from koff.client.cluster_conf import ClusterConf
from koff.client.feed.source import OFFSET_LOST_CODES, PARTITION_GONE_CODES, FeedConf, Source
from koff.client.foreign_errors import make_denied_error
from koff.client.librdkafka import consume_waiting
from koff.client.log_ins import check_log_in
from koff.errors import Denied

_MAX_UNSORTED_RUNS = 200
"""If the messages of a fetch form more runs, they are sorted by partition."""


@dataclass(frozen=True, slots=True)
class PartitionLost:
    """A partition that cannot be read from its position. `gone`: the partition does not exist."""

    partition: int
    reason: str
    gone: bool = False


class RawRecord(NamedTuple):
    """A record of the log. `timestamp_ms` counts from the epoch; -1 if the record has no timestamp."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition in log order, as confluent-kafka's message objects.

    The methods return one column of all records. That is much faster than building the records.
    """

    partition: int
    messages: list[Message]

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def next_offset(self) -> int:
        """The last record's offset plus one."""
        last: Any = self.messages[-1].offset()  # typed as optional
        return int(last) + 1

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last record, -1 if it is unknown."""
        epoch: Any = self.messages[-1].leader_epoch()
        return -1 if epoch is None else int(epoch)

    def split(self, offset: int) -> tuple[Run, Run]:
        """The records before `offset`, and the records from `offset` on."""
        index = bisect_left(self.messages, offset, key=_offset)
        return Run(self.partition, self.messages[:index]), Run(self.partition, self.messages[index:])

    def offsets(self) -> Sequence[int]:
        """The records' offsets."""
        first: Any = self.messages[0].offset() if self.messages else 0
        if self.messages and self.next_offset - first == len(self):  # no gaps: a call a record is saved
            return range(first, self.next_offset)
        offsets: list[Any] = list(map(Message.offset, self.messages))
        return offsets

    def timestamps_ms(self) -> list[int]:
        """The records' timestamps; -1 for a record without a timestamp."""
        return [timestamp_ms for _, timestamp_ms in map(Message.timestamp, self.messages)]

    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return list(map(Message.key, self.messages))

    def values(self) -> list[bytes | None]:
        """The records' values."""
        return list(map(Message.value, self.messages))

    def __iter__(self) -> Iterator[RawRecord]:
        m: Any  # the stubs type all fields as optional
        for m in self.messages:
            yield RawRecord(self.partition, m.offset(), m.timestamp()[1], m.key(), m.value())


@dataclass(slots=True)
class Fetched:
    """The result of one `Feed.fetch`.

    `ends` maps each partition whose end was reached to its end offset. `lost` has the partitions that cannot
    be read further. `full` means that `max_records` records and events came: more may be waiting.
    """

    runs: list[Run] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    lost: list[PartitionLost] = field(default_factory=list)
    full: bool = False


class Feed(Source):
    """Reads the partitions of `topic` that were added. It commits no offsets and joins no group.

    A context manager. It continues after broker restarts and leader changes. `unreachable` is the error while
    no broker can be reached, and None otherwise.
    """

    def __init__(self, cluster: ClusterConf, topic: str, conf: FeedConf | None = None) -> None:
        self.topic = topic
        self._positions: dict[int, tuple[int, int]] = {}  # next offset, leader epoch of the record before it
        self._denied: Denied | None = None
        super().__init__(cluster, conf or FeedConf(), f"the feed of {topic}")

    def add(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        """Starts to read these partitions too, each from its offset.

        `leader_epochs` may give, by partition, the leader epoch of the record before that offset. With it,
        a partition whose log was truncated since then is reported in `Fetched.lost`.
        """
        epochs = leader_epochs or {}
        starts = {p: (offset, epochs.get(p, -1)) for p, offset in offsets.items()}
        with self._map_errors():
            self._get_consumer().incremental_assign(self._to_assignment(starts))
        self._positions.update(starts)

    def remove(self, partitions: Iterable[int]) -> None:
        """Stops reading these partitions."""
        removed = list(partitions)
        with self._map_errors():
            self._get_consumer().incremental_unassign([TopicPartition(self.topic, p) for p in removed])
        for partition in removed:
            self._positions.pop(partition, None)

    def reconnect(self) -> None:
        """Reads on with a new client, from the present positions."""
        self._replace_consumer(self._get_consumer(), self._to_assignment(self._positions))

    def fetch(self, max_records: int, timeout_s: float) -> Fetched:
        """The next records, in log order within a partition; empty if none comes within `timeout_s`.

        Returns as soon as a record is there, without waiting for more. Raises `ConnectError` when the
        client fails, `LogInRefused` when all brokers refuse the log-in (close the feed: it would go on
        trying), and `Denied` when this user may not read the topic: after the fetch that returned the
        records before that error.
        """
        consumer = self._get_consumer()
        if self._denied is not None:
            denied, self._denied = self._denied, None
            raise denied
        self._log_in.refresh(consumer)
        with self._map_errors():
            messages = consume_waiting(consumer, max_records, timeout_s)
        if self._was_refused:
            self._was_refused = False
            check_log_in(self._cluster_conf)

        # Most fetches have no event. The scan by `map` runs in C: cheaper than a Python call a message.
        fetched = Fetched(full=len(messages) >= max_records)
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not self._handle_event(message, fetched)]
        fetched.runs = split_into_runs(messages)

        if messages or fetched.ends:
            self.unreachable = None
            self._silence.restart()
            self._note_positions(fetched)
        if self._denied is not None and not messages and not fetched.ends and not fetched.lost:
            denied, self._denied = self._denied, None
            raise denied
        # A fetch with timeout 0 must not block, and the check sends a request.
        if timeout_s and self._silence.needs_new_client(consumer, self.topic):
            self._replace_consumer(consumer, self._to_assignment(self._positions))
        return fetched

    def _note_positions(self, fetched: Fetched) -> None:
        # librdkafka may still return records of a partition that was removed.
        for run in fetched.runs:
            if run.partition in self._positions:
                self._positions[run.partition] = run.next_offset, run.leader_epoch
        for partition, end in fetched.ends.items():
            if partition in self._positions:
                offset, epoch = self._positions[partition]
                self._positions[partition] = max(offset, end), epoch

    def _to_assignment(self, positions: Mapping[int, tuple[int, int]]) -> list[TopicPartition]:
        return [
            TopicPartition(self.topic, p, offset, leader_epoch=epoch)
            for p, (offset, epoch) in positions.items()
        ]

    def _handle_event(self, message: Any, fetched: Fetched) -> bool:
        """Whether `message` is an event, not a record. Adds an event to `fetched`, or to `self`."""
        error = message.error()
        if error is None:
            return False
        partition, code = message.partition(), error.code()
        if code == KafkaError._PARTITION_EOF:
            fetched.ends[partition] = message.offset()
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # Not raised here: librdkafka has handed over the other records of this fetch.
            self._denied = make_denied_error(self.topic, self._brokers, "READ")
        elif code in OFFSET_LOST_CODES or code in PARTITION_GONE_CODES:
            gone = code in PARTITION_GONE_CODES
            fetched.lost.append(PartitionLost(partition, error.str(), gone=gone))
        else:
            self._note_error(error)  # librdkafka retries by itself
        return True


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset


def split_into_runs(messages: list[Message]) -> list[Run]:
    """Cuts the messages where the partition changes.

    Sorts them by partition first if the partition changes more than `_MAX_UNSORTED_RUNS` times.
    """
    if not messages:
        return []
    numbers = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    # Each run costs the caller time. A stable sort keeps the log order within a partition.
    if len(cuts) > _MAX_UNSORTED_RUNS:
        order = np.argsort(numbers, kind="stable")
        numbers, messages = numbers[order], [messages[i] for i in order.tolist()]
        cuts = np.flatnonzero(np.diff(numbers)) + 1
    edges = [0, *cuts.tolist(), len(messages)]
    return [Run(int(numbers[a]), messages[a:b]) for a, b in pairwise(edges)]
