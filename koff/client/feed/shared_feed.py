"""`SharedFeed` reads partitions of many topics over one librdkafka client, for many consumers.

It has no thread of its own. A thread that waits for messages of one partition fetches for all partitions, and
appends the messages to the partitions' buffers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from koff.client.batch import BATCH_MESSAGES
from koff.client.calls import call_in_thread
from koff.client.cluster import Cluster
from koff.client.cluster_conf import Isolation, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.feed.offset_requests import OffsetRequests
from koff.client.feed.partition_buffer import PartitionBuffer, SharedPartition
from koff.client.feed.source import OFFSET_LOST_CODES, PARTITION_GONE_CODES, FeedConf, Source
from koff.client.foreign_errors import make_denied_error
from koff.client.topic_watch import TopicWatch, WatchedTopic
from koff.errors import Closed, ConnectError, KoffError, copy_error

_TURN_MESSAGES = 10_000
"""How many messages are fetched at once while buffers wait for a turn. Those after them are fetched again."""
_OFFSET_TIMEOUT_S = 2.0
"""How long a leader may take to return the start or end offset of its partition."""
_REFRESH_S = 1.0
"""How long the metadata of a topic in doubt is waited for. Nothing is fetched meanwhile."""
_FETCH_WAIT_S = 0.1
"""How long one fetch waits: a `close` by another thread has to wait for it."""


class SharedFeed(Source):
    """Reads partitions into `PartitionBuffer`s. Threads may share it.

    The client stops reading for a buffer that is full, until its consumer has taken all its messages.
    `on_idle` is called when the last buffer was closed. `make_callbacks` returns further callbacks of each
    new client, by librdkafka's names.
    """

    def __init__(
        self,
        cluster: Cluster,
        conf: FeedConf,
        on_idle: Callable[[SharedFeed], None] | None = None,
        make_callbacks: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        super().__init__(cluster.conf, conf, f"the connection to {cluster.conf.brokers}", make_callbacks)
        self._on_idle = on_idle
        self._cluster = cluster
        self.cluster_name = cluster.conf.cluster_name
        self._isolation = Isolation(conf.isolation)
        self._partitions: dict[tuple[str, int], SharedPartition] = {}
        self._topic_watch = TopicWatch(cluster.fetch_topic_ids)
        self._end_requests = OffsetRequests(self._fetch_ends)
        self._max_buffered_bytes = 2 * conf.fetch_bytes
        self._abandoned: deque[PartitionBuffer] = deque()
        self._changed = threading.Condition()  # its lock is reentrant; guards all below, and the buffers
        self._fetching = False
        self._stale: set[tuple[str, int]] = set()
        """Partitions that were unassigned since the present fetch began. It may still return messages of them
        from the previous position, so they cannot be assigned again before it has ended."""
        self._waiting: set[tuple[str, int]] = set()
        """Partitions that have buffers without a turn."""
        self._keys_read: set[tuple[str, int]] = set()
        """Partitions that were assigned at any time: messages of others cannot come."""
        self._doubted: set[str] = set()
        """Topics of which a leader has not responded."""
        self._users = 0  # threads that use the client without the lock
        self._closing = False

    def close(self) -> None:
        """Stops reading. Waits until no other thread uses the client."""
        with self._changed:
            self._closing = True
            for partition in self._partitions.values():
                for buffer in partition.buffers:
                    buffer.closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._users == 0)
            super().close()

    def watch_topic(self, topic: str) -> WatchedTopic:
        """The topic, whose id is known as long as somebody keeps this object."""
        return self._topic_watch.watch(topic)

    def open_buffer(
        self, topic: str, partition: int, offset: int, *, recreations: int | None = None
    ) -> PartitionBuffer:
        """A new buffer for the partition, to be read from `offset`.

        The client starts to read the partition at the first `wait_for_messages`. `recreations` are those of
        the topic when the offset was committed, if they are known.
        """
        watched = self.watch_topic(topic)
        known = watched.recreations if recreations is None else recreations
        buffer = PartitionBuffer(topic, partition, offset, watched=watched, recreations=known)
        with self._changed:
            self._get_consumer()  # raises `Closed` after `close`
            self._close_abandoned()
            self._partitions.setdefault(buffer.key, SharedPartition()).buffers.append(buffer)
        return buffer

    def close_buffer(self, buffer: PartitionBuffer) -> None:
        """Stops reading for the buffer."""
        with self._changed:
            buffer.closed = True
            if self._closing:
                return
            partition = self._partitions.get(buffer.key)
            if partition is not None and buffer in partition.buffers:
                self._unassign(buffer)
                partition.remove(buffer)
                if not partition.buffers:
                    del self._partitions[buffer.key]
            is_idle = self.is_idle
        if is_idle and self._on_idle is not None:
            call_in_thread(self._on_idle, self)  # not here: a caller may hold the lock

    @property
    def is_idle(self) -> bool:
        """Whether it reads for nobody."""
        return not self._partitions and not self._closing

    def abandon_buffer(self, buffer: PartitionBuffer) -> None:
        """Closes the buffer at a later call. Takes no lock: the garbage collector may call it anywhere."""
        buffer.closed = True
        self._abandoned.append(buffer)

    def take_messages(self, buffer: PartitionBuffer, max_messages: int) -> list[Message]:
        """The buffer's oldest messages; [] if there are none. Does not wait."""
        with self._changed:
            self._get_consumer()  # raises `Closed` after `close`
            self._topic_watch.check_if_due()
            is_old = buffer.is_recreated  # nobody can tell of which log the messages are
            return buffer.take_messages(max_messages) if buffer.chunks and not is_old else []

    def find_position(self, buffer: PartitionBuffer) -> int:
        """The offset of the buffer's oldest message; of the next fetch if there is none."""
        with self._changed:
            return buffer.position

    def clear_error(self, buffer: PartitionBuffer) -> None:
        """Removes the buffer's error. The next `wait_for_messages` tries again."""
        with self._changed:
            buffer.lost_reason, buffer.error = "", None
            if buffer.is_recreated:
                buffer.drop_old_messages()
                self._unassign(buffer)

    def wait_for_messages(
        self,
        buffers: Collection[PartitionBuffer],
        timeout_s: float,
        max_messages: int = BATCH_MESSAGES,
    ) -> None:
        """Reads about `max_messages` for the buffers. Returns when one is ready, or after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while True:
            with self._changed:
                self._get_consumer()  # raises `Closed` after `close`
                self._close_abandoned()
                self._topic_watch.check_if_due()
                left = until - time.monotonic()
                if left <= 0 or any(buffer.is_ready for buffer in buffers):
                    return
                self._assign(buffers)
                # One thread fetches for all partitions; the other threads wait for its `notify_all`.
                if self._fetching:
                    self._changed.wait(left)
                    continue
                self._fetching = True
                self._stale.clear()
                most = _TURN_MESSAGES if self._waiting else max(max_messages, BATCH_MESSAGES)
            try:
                with self._hold_consumer() as consumer:  # outside the lock: others may take messages
                    self._fetch(consumer, most, min(left, _FETCH_WAIT_S))
            finally:
                with self._changed:
                    self._fetching = False
                    self._changed.notify_all()

    def note_end(self, buffer: PartitionBuffer, offset: int) -> None:
        """Notes that the leader has no message for the buffer, if it still waits for the one at `offset`."""
        with self._changed:
            if buffer.next_offset == offset and not buffer.is_ready:
                buffer.note_end(offset)

    def request_end(self, buffer: PartitionBuffer) -> Future[int]:
        """The end offset of the buffer's partition, as `fetch_offset` would return it. Does not wait."""
        return self._end_requests.request_offset(TopicPartition(*buffer.key))

    def find_end(self, buffer: PartitionBuffer) -> int:
        """The end offset that the last fetch response of the partition had; -1 if it is unknown."""
        watermarks = None
        with suppress(KoffError), self._hold_consumer() as consumer, self._map_errors():
            watermarks = consumer.get_watermark_offsets(KafkaTopicPartition(*buffer.key), cached=True)
        return int(watermarks[1]) if watermarks else -1

    def fetch_offset(self, partition: TopicPartition, spec: OffsetSpec | int, isolation: Isolation) -> int:
        """The offset of the partition that `spec` names, as its leader returns it now.

        The end is the high watermark, or with READ_COMMITTED the last stable offset. Raises `ConnectError`,
        `UnknownTopic`, `Denied`. The request goes over the `Cluster`'s connection: on the feed's own
        connection the broker would process it only after the fetches that came before.
        """
        offset = self.fetch_offsets([partition], spec, isolation)[partition]
        if isinstance(offset, KoffError):
            raise copy_error(offset)
        return offset

    def _fetch_ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | KoffError]:
        # The end of the data is certain only if it is that of the same topic.
        self._topic_watch.check_now()
        return self.fetch_offsets(partitions, OffsetSpec.LATEST, self._isolation)

    def fetch_offsets(
        self, partitions: Collection[TopicPartition], spec: OffsetSpec | int, isolation: Isolation
    ) -> dict[TopicPartition, int | KoffError]:
        """The offset or the error of each partition. Raises `ConnectError` if no leader responds."""
        requested_at = time.monotonic()
        try:
            fetched = self._cluster.fetch_offsets(partitions, spec, isolation, timeout_s=_OFFSET_TIMEOUT_S)
        except ConnectError:
            self._doubted |= {partition.topic for partition in partitions}
            raise
        if any(isinstance(offset, int) for offset in fetched.values()):
            self.note_response(requested_at)
        results: dict[TopicPartition, int | KoffError] = {
            partition: offset if isinstance(offset, int) else self._make_offset_error(partition, offset)
            for partition, offset in fetched.items()
        }
        self._doubted |= {at.topic for at, each in results.items() if type(each) is ConnectError}
        return results

    def _make_offset_error(self, partition: TopicPartition, reason: str) -> KoffError:
        """The error for a partition without an offset. `reason` is the name of Kafka's error."""
        name = f"{partition.topic}/{partition.partition}"
        try:
            if self._cluster.lacks_partition(partition, reason):
                return UnknownTopic(f"{name} does not exist any more")
        except KoffError as error:
            return copy_error(error)
        if reason == "TOPIC_AUTHORIZATION_FAILED":
            return make_denied_error(partition.topic, self._brokers, "DESCRIBE")
        return ConnectError(f"the leader of {name} does not respond: {reason}; check that it runs")

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

    def _fetch(self, consumer: Consumer, max_messages: int, timeout_s: float) -> None:
        """Moves what the client has fetched to the buffers. One thread at a time."""
        self._refresh_leaders(consumer)
        messages, events = self._consume(consumer, max_messages, timeout_s)
        if not messages and not events:
            self._replace_lost_consumer(consumer)
            return
        with self._changed:
            for partition, partition_messages in self._group_by_partition(messages):
                for buffer in partition.assigned:
                    buffer.add_messages(partition_messages)
                    if buffer.buffered_bytes > self._max_buffered_bytes:
                        self._unassign(buffer)
            for event in events:
                self._handle_event(event)

    def _replace_lost_consumer(self, consumer: Consumer) -> None:
        """Replaces a client that knows no broker any more. The new client resumes all assigned partitions."""
        with self._changed:
            topic = next((topic for topic, _ in self._partitions), "")
        if topic and self._silence.needs_new_client(consumer, topic):
            with self._changed:
                # `_replace_consumer` closes the client: wait until only this thread uses it.
                self._changed.wait_for(lambda: self._users == 1)
                assigned = (buffer for each in self._partitions.values() for buffer in each.assigned[:1])
                positions = [KafkaTopicPartition(*buffer.key, buffer.next_offset) for buffer in assigned]
                self._replace_consumer(consumer, positions)

    def _group_by_partition(self, messages: list[Message]) -> Iterator[tuple[SharedPartition, list[Message]]]:
        """The messages by partition, without messages of partitions for which no buffer is left."""
        pieces: Iterable[tuple[tuple[str, int], list[Message]]]
        if messages and len(self._keys_read) == 1:  # looking at each message takes time, and shows nothing
            pieces = [(key, messages) for key in self._keys_read]
        else:
            topic_of: Any = Message.topic  # both are typed as optional
            partition_of: Any = Message.partition
            pieces = (
                ((topic, number), list(of_partition))
                for topic, of_topic in groupby(messages, topic_of)
                for number, of_partition in groupby(of_topic, partition_of)
            )
        for key, piece in pieces:
            partition = self._partitions.get(key)
            if partition is not None:
                yield partition, piece

    def _handle_event(self, event: Any) -> None:
        partition, error = self._partitions.get((event.topic(), event.partition())), event.error()
        code = error.code()
        for buffer in partition.assigned if partition else ():
            if code == KafkaError._PARTITION_EOF:
                buffer.note_end(event.offset())
                continue
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                buffer.error = make_denied_error(buffer.topic, self._brokers, "READ")
            elif code in OFFSET_LOST_CODES:
                buffer.lost_reason = error.str()
            elif code in PARTITION_GONE_CODES:
                reason = f"{buffer.topic}/{buffer.partition} does not exist: {error.str()}"
                buffer.error = UnknownTopic(reason)
            else:
                self._note_error(error)
                return
            self._unassign(buffer)

    def _assign(self, buffers: Iterable[PartitionBuffer]) -> None:
        """Makes the client read for these buffers, each when it is the turn of its offset."""
        for buffer in buffers:
            if not (buffer.is_assigned or buffer.is_ready or buffer.closed):
                self._partitions[buffer.key].request_turn(buffer)
                self._waiting.add(buffer.key)
        positions: dict[tuple[str, int], int] = {}
        # Also turns of other threads: the thread that fetches does not wait until they have looked.
        for key in list(self._waiting):
            partition = self._partitions.get(key)
            if partition is None or not partition.join_turn():
                self._waiting.discard(key)
                continue
            # The fetch that another thread is waiting for may return messages from the previous position.
            can_move = not self._fetching or not (partition.assigned or key in self._stale)
            if can_move and partition.is_turn_over():
                if partition.assigned:
                    with self._map_errors():
                        self._get_consumer().incremental_unassign([KafkaTopicPartition(*key)])
                positions[key] = partition.start_turn()
        if not positions:
            return
        try:
            with self._map_errors():
                self._get_consumer().incremental_assign(
                    [KafkaTopicPartition(*key, offset) for key, offset in positions.items()]
                )
        except Exception:
            # None of them is read. The next call tries again.
            for key in positions:
                self._partitions[key].end_turn()
            raise
        self._keys_read.update(positions)

    def _unassign(self, buffer: PartitionBuffer) -> None:
        if buffer.is_assigned:
            buffer.is_assigned = False
            if not self._partitions[buffer.key].assigned:
                self._stale.add(buffer.key)
                with self._map_errors():
                    self._get_consumer().incremental_unassign([KafkaTopicPartition(*buffer.key)])

    def _close_abandoned(self) -> None:
        while self._abandoned:
            self.close_buffer(self._abandoned.popleft())

    def _refresh_leaders(self, consumer: Consumer) -> None:
        """Makes librdkafka fetch the leaders of topics in doubt now, before its own timeouts.

        In the thread that fetches: beside a `consume`, this request may wait for ever (confluent-kafka 2.16).
        """
        topics, self._doubted = self._doubted, set()
        for topic in topics:
            try:
                consumer.list_topics(topic, timeout=_REFRESH_S)
            except Exception:
                return  # the error of the request before explains more
