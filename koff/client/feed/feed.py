"""`Feed` reads many partitions of one topic, over one librdkafka client and without a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from koff.client.cluster_conf import ClusterConf
from koff.client.feed.source import OFFSET_LOST_CODES, PARTITION_GONE_CODES, FeedConf, Source
from koff.client.foreign_errors import make_denied_error
from koff.client.log_reader import PartitionLost
from koff.errors import Denied


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


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of one `Feed.fetch`.

    `ends` maps each partition whose end was reached to its end offset. `lost` has the partitions that cannot
    be read further.
    """

    runs: list[Run]
    ends: dict[int, int] = field(default_factory=dict)
    lost: list[PartitionLost] = field(default_factory=list)


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

    def fetch(self, max_records: int, timeout_s: float) -> Fetched:
        """The next records, in log order within a partition; empty if none comes within `timeout_s`.

        Returns as soon as a record is there, without waiting for more. Raises `ConnectError` when the
        client fails, and `Denied` when this user may not read the topic: after the fetch that returned the
        records before that error.
        """
        consumer = self._get_consumer()
        self._raise_denied()
        records, events = self._consume(consumer, max_records, timeout_s)
        fetched = Fetched(split_into_runs(records))
        for event in events:
            self._handle_event(event, fetched)
        self._note_positions(fetched)
        if not (fetched.runs or fetched.ends or fetched.lost):
            self._raise_denied()
        if self._silence.needs_new_client(consumer, self.topic):
            self._replace_consumer(consumer, self._to_assignment(self._positions))
        return fetched

    def _raise_denied(self) -> None:
        denied, self._denied = self._denied, None
        if denied is not None:
            raise denied

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

    def _handle_event(self, event: Any, fetched: Fetched) -> None:
        partition, error = event.partition(), event.error()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            fetched.ends[partition] = event.offset()
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # Not raised here: librdkafka has handed over the other records of this fetch.
            self._denied = make_denied_error(self.topic, self._brokers, "READ")
        elif code in OFFSET_LOST_CODES or code in PARTITION_GONE_CODES:
            fetched.lost.append(PartitionLost(partition, error.str(), gone=code in PARTITION_GONE_CODES))
        else:
            self._note_error(error)  # librdkafka retries by itself


def split_into_runs(messages: Iterable[Message]) -> list[Run]:
    """Cuts the messages where the partition changes. librdkafka hands over those of a response together."""
    partition_of: Any = Message.partition  # typed as optional
    return [Run(partition, list(run)) for partition, run in groupby(messages, partition_of)]
