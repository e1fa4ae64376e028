"""`Feed` reads many partitions of one topic, over one librdkafka client and without a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Message, TopicPartition

from koff.client.cluster_conf import ClusterConf
from koff.client.feed.source import OFFSET_LOST_CODES, PARTITION_GONE_CODES, FeedConf, Source
from koff.client.foreign_errors import make_denied_error
from koff.client.librdkafka import consume_waiting
from koff.client.log_ins import check_log_in
from koff.client.log_reader import PartitionLost
from koff.errors import Denied

_MAX_UNSORTED_RUNS = 200
"""If the messages of a fetch form more runs, they are sorted by partition."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition in log order, as confluent-kafka's message objects."""

    partition: int
    messages: list[Message]

    @property
    def next_offset(self) -> int:
        """The last record's offset plus one."""
        last: Any = self.messages[-1].offset()  # typed as optional
        return int(last) + 1


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
        self._positions: dict[int, int] = {}
        self._denied: Denied | None = None
        super().__init__(cluster, conf or FeedConf(), f"the feed of {topic}")

    def add(self, offsets: Mapping[int, int]) -> None:
        """Starts to read these partitions too, each from its offset."""
        with self._map_errors():
            self._get_consumer().incremental_assign(self._to_assignment(offsets))
        self._positions.update(offsets)

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
                self._positions[run.partition] = run.next_offset
        for partition, end in fetched.ends.items():
            if partition in self._positions:
                self._positions[partition] = max(self._positions[partition], end)

    def _to_assignment(self, positions: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition, offset) for partition, offset in positions.items()]

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
