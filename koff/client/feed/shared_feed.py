"""`SharedFeed` reads partitions of many topics over one librdkafka client, for many consumers.

It has no thread of its own. A thread that waits for messages of one partition fetches for all partitions, and
appends the messages to the partitions' buffers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from koff.client.cluster import TOPIC_PROPAGATION_S, Cluster, Isolation, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.feed.feed import split_into_runs
from koff.client.feed.source import OFFSET_LOST_CODES, PARTITION_GONE_CODES, FeedConf, Source
from koff.client.foreign_errors import extract_kafka_error, make_connect_error, make_denied_error
from koff.client.librdkafka import consume_waiting
from koff.errors import Closed, ConnectError, KoffError

_PERHAPS_ABSENT = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT"})
_MAX_MESSAGES = 10_000  # of one fetch
_OFFSET_TIMEOUT_S = 2.0
"""How long a leader may take to return the start or end offset of its partition."""
_FETCH_WAIT_S = 0.1
"""How long one fetch waits: a `close` by another thread has to wait for it."""


class PartitionBuffer:
    """The messages of one partition that a shared feed has fetched and its consumer has not taken yet.

    `next_offset` is the offset of the next fetch. `end_offset` is the end offset that was reached at
    `end_seen_at` (monotonic), and None once messages came after that. `last_response_at` (monotonic) is when
    messages or the end last came. `lost_reason` is set when `next_offset` is not in the log, `error` when the
    partition cannot be read at all. `is_assigned`: the client reads the partition.
    `closed`: the consumer or the feed is closed. Attributes change only under the feed's lock; the consumer
    also reads them without it.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = offset
        self.end_offset: int | None = None
        self.last_response_at = time.monotonic()
        self.end_seen_at = self.last_response_at
        self.lost_reason = ""
        self.error: KoffError | None = None
        self.is_assigned = False
        self.closed = False
        self.chunks: deque[tuple[list[Message], int]] = deque()  # messages, the bytes of their values
        self.buffered_bytes = 0

    @property
    def is_ready(self) -> bool:
        """Whether the consumer has something to take: messages or an error."""
        return bool(self.chunks or self.lost_reason or self.error)

    def add_messages(self, messages: list[Message]) -> None:
        """Appends fetched messages, except messages that the buffer has received before."""
        # A broker returns whole record batches: a fetch may begin before the offset that was requested.
        first: Any = messages[0].offset()
        if first < self.next_offset:
            messages = [message for message in messages if _offset(message) >= self.next_offset]
            if not messages:
                return
        # Summing the sizes takes time. The consumer takes the first chunk soon, so it counts as 0 bytes. The
        # `len` of a confluent-kafka message is the size of its value.
        size = sum(map(len, messages)) if self.chunks else 0
        self.chunks.append((messages, size))
        self.buffered_bytes += size
        self.next_offset = _offset(messages[-1]) + 1
        self.end_offset = None
        self.last_response_at = time.monotonic()

    def take_messages(self, max_messages: int) -> list[Message]:
        """Removes and returns the oldest messages. The buffer must not be empty."""
        messages, size = self.chunks.popleft()
        if len(messages) > max_messages:
            self.chunks.appendleft((messages[max_messages:], size))
            return messages[:max_messages]
        self.buffered_bytes -= size
        return messages

    def note_end(self, offset: int) -> None:
        """Notes that the partition ends at `offset`, unless newer messages have come since."""
        self.last_response_at = time.monotonic()
        if offset >= self.next_offset:
            self.next_offset = self.end_offset = offset
            self.end_seen_at = self.last_response_at


class SharedFeed(Source):
    """Reads partitions into `PartitionBuffer`s. Threads may share it.

    The client stops reading a partition whose buffer is full, until its consumer has taken all its messages.
    """

    def __init__(self, cluster: Cluster, conf: FeedConf) -> None:
        super().__init__(cluster.conf, conf, f"the connection to {cluster.conf.brokers}")
        self._cluster = cluster
        self._isolation = Isolation(conf.isolation)
        self._buffers: dict[tuple[str, int], PartitionBuffer] = {}
        self._max_buffered_bytes = 2 * conf.fetch_bytes
        self._changed = threading.Condition()  # its lock is reentrant; guards all below, and the buffers
        self._fetching = False
        self._users = 0  # threads that use the client without the lock
        self._closing = False

    def close(self) -> None:
        """Stops reading. Waits until no other thread uses the client."""
        with self._changed:
            self._closing = True
            for buffer in self._buffers.values():
                buffer.closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._users == 0)
            super().close()

    def open_buffer(self, topic: str, partition: int, offset: int) -> PartitionBuffer | None:
        """A new buffer for the partition, to be read from `offset`. None if the partition has one already.

        The client starts to read the partition at the first `take_messages`.
        """
        with self._hold_consumer(), self._changed:
            if (topic, partition) in self._buffers:
                return None
            buffer = self._buffers[topic, partition] = PartitionBuffer(topic, partition, offset)
            return buffer

    def close_buffer(self, buffer: PartitionBuffer) -> None:
        """Stops reading the buffer's partition."""
        with self._changed:
            buffer.closed = True
            if self._buffers.pop((buffer.topic, buffer.partition), None) and not self._closing:
                self._unassign(buffer)

    def take_messages(self, buffer: PartitionBuffer, max_messages: int) -> list[Message]:
        """The buffer's oldest messages. [] if there are none: then the client reads the partition."""
        with self._changed:
            consumer = self._get_consumer()
            if buffer.chunks:
                return buffer.take_messages(max_messages)
            if not buffer.is_assigned and not buffer.is_ready:
                position = KafkaTopicPartition(buffer.topic, buffer.partition, buffer.next_offset)
                consumer.incremental_assign([position])
                buffer.is_assigned = True
                buffer.last_response_at = time.monotonic()
        return []

    def clear_error(self, buffer: PartitionBuffer) -> None:
        """Removes the buffer's error. The next `take_messages` tries again."""
        with self._hold_consumer(), self._changed:
            self._unassign(buffer)
            buffer.lost_reason, buffer.error = "", None

    def wait_for_messages(self, buffers: Collection[PartitionBuffer], timeout_s: float) -> None:
        """Returns when one of the buffers is ready, or after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while True:
            with self._changed:
                self._get_consumer()  # raises `Closed` after `close`
                left = until - time.monotonic()
                if left <= 0 or any(buffer.is_ready for buffer in buffers):
                    return
                # One thread fetches for all partitions; the other threads wait for its `notify_all`.
                if self._fetching:
                    self._changed.wait(left)
                    continue
                self._fetching = True
            try:
                with self._hold_consumer() as consumer:  # outside the lock: others may take messages
                    self._fetch(consumer, min(left, _FETCH_WAIT_S))
            finally:
                with self._changed:
                    self._fetching = False
                    self._changed.notify_all()

    def fetch_offset(self, buffer: PartitionBuffer, spec: OffsetSpec = OffsetSpec.LATEST) -> int:
        """The start or end offset of the buffer's partition, as its leader returns it now.

        Raises `ConnectError`, `UnknownTopic`, `Denied`. The request goes over the `Cluster`'s connection:
        on the feed's own connection the broker would process it only after the fetches that came before.
        """
        requested_at, partition = time.monotonic(), TopicPartition(buffer.topic, buffer.partition)
        try:
            offset = self._cluster.fetch_offsets(
                [partition], spec, self._isolation, timeout_s=_OFFSET_TIMEOUT_S
            )[partition]
        except ConnectError:
            self._refresh_leader(buffer.topic)
            raise
        if isinstance(offset, int):
            self.note_response(requested_at)
            return offset

        # `offset` is the name of an error.
        if is_absent(self._cluster, partition, offset):
            raise UnknownTopic(f"{buffer.topic}/{buffer.partition} does not exist any more")
        if offset == "TOPIC_AUTHORIZATION_FAILED":
            raise make_denied_error(buffer.topic, self._brokers, "DESCRIBE")
        self._refresh_leader(buffer.topic)
        raise ConnectError(
            f"the leader of {buffer.topic}/{buffer.partition} does not respond: {offset}; check that it runs"
        )

    @contextmanager
    def _hold_consumer(self) -> Iterator[Consumer]:
        """The client. No other thread closes or replaces it within the `with` block."""
        with self._changed:
            consumer = self._get_consumer()
            self._users += 1
        try:
            yield consumer
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _get_consumer(self) -> Consumer:
        if self._closing:
            raise Closed(f"{self._name} is closed")
        return super()._get_consumer()

    def _fetch(self, consumer: Consumer, timeout_s: float) -> None:
        """Moves what the client has fetched to the buffers. One thread at a time."""
        try:
            messages = consume_waiting(consumer, _MAX_MESSAGES, timeout_s)
        except KafkaException as error:
            kafka_error = extract_kafka_error(error)
            errors = [kafka_error] if kafka_error else []
            raise make_connect_error(self._brokers, errors, was_up=True) from error
        if not messages:
            self._replace_lost_consumer(consumer)
            return
        self._silence.restart()

        # Most fetches have no event. The scan by `map` runs in C: cheaper than a Python call a message.
        events: list[Message] = []
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error()]
            messages = [message for message in messages if message.error() is None]

        with self._changed:
            for buffer, buffer_messages in self._group_by_buffer(messages):
                buffer.add_messages(buffer_messages)
                if buffer.buffered_bytes > self._max_buffered_bytes:
                    self._unassign(buffer)
            for event in events:
                self._handle_event(event)
            self.unreachable = None if messages else self.unreachable

    def _replace_lost_consumer(self, consumer: Consumer) -> None:
        """Replaces a client that knows no broker any more. The new client resumes all assigned partitions."""
        with self._changed:
            topic = next((topic for topic, _ in self._buffers), "")
        if topic and self._silence.needs_new_client(consumer, topic):
            with self._changed:
                # `_replace_consumer` closes the client: wait until only this thread uses it.
                self._changed.wait_for(lambda: self._users == 1)
                assigned = (buffer for buffer in self._buffers.values() if buffer.is_assigned)
                positions = [KafkaTopicPartition(b.topic, b.partition, b.next_offset) for b in assigned]
                self._replace_consumer(consumer, positions)

    def _group_by_buffer(self, messages: list[Message]) -> Iterator[tuple[PartitionBuffer, list[Message]]]:
        """The messages by buffer, without messages of partitions that are not assigned any more."""
        topics: set[Any] = set(map(Message.topic, messages))
        if len(topics) == 1:
            (topic,) = topics
            pieces = [((topic, run.partition), run.messages) for run in split_into_runs(messages)]
        else:
            pieces = [(key, list(group)) for key, group in groupby(messages, _topic_partition)]
        for key, piece in pieces:
            buffer = self._buffers.get(key)
            # After `incremental_unassign`, librdkafka may still return messages that it had fetched. These
            # are dropped here, and fetched again from `next_offset` on.
            if buffer is not None and buffer.is_assigned:
                yield buffer, piece

    def _handle_event(self, event: Any) -> None:
        buffer, error = self._buffers.get((event.topic(), event.partition())), event.error()
        code = error.code()
        if buffer is None or not buffer.is_assigned:
            return
        if code == KafkaError._PARTITION_EOF:
            buffer.note_end(event.offset())
            self.unreachable = None
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            buffer.error = make_denied_error(buffer.topic, self._brokers, "READ")
        elif code in OFFSET_LOST_CODES:
            buffer.lost_reason = error.str()
        elif code in PARTITION_GONE_CODES:
            buffer.error = UnknownTopic(f"{buffer.topic}/{buffer.partition} does not exist: {error.str()}")
        else:
            self._note_error(error)

    def _unassign(self, buffer: PartitionBuffer) -> None:
        if buffer.is_assigned:
            buffer.is_assigned = False
            self._get_consumer().incremental_unassign([KafkaTopicPartition(buffer.topic, buffer.partition)])

    def _refresh_leader(self, topic: str) -> None:
        """Makes librdkafka fetch the topic's leaders now, before its own timeouts."""
        with self._hold_consumer() as consumer:
            try:
                consumer.list_topics(topic, timeout=_OFFSET_TIMEOUT_S)
            except KafkaException:
                pass  # the caller raises the first error, which explains more


def is_absent(cluster: Cluster, partition: TopicPartition, reason: str) -> bool:
    """Whether the partition does not exist.

    `reason` is the name of the error that the request for its offset returned. Sends a request only if this
    error may mean that the partition does not exist.
    """
    if reason not in _PERHAPS_ABSENT:
        return False
    topic = cluster.fetch_topic(partition.topic, patience_s=TOPIC_PROPAGATION_S)
    return topic is None or not 0 <= partition.partition < topic.partitions


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset


def _topic_partition(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()
