"""Many partitions of many topics over one librdkafka client, each read at its own reader's pace.

There is no thread here: whoever waits for a partition fetches for all, and hands out what is the others'.
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
from confluent_kafka import TopicPartition as Assigned

from koff.client.cluster import SPREAD_S, Cluster, Isolation, OffsetSpec, TopicPartition
from koff.client.errors import UnknownTopic
from koff.client.feed.feed import runs
from koff.client.feed.source import GONE, LOST, FeedConf, Source
from koff.client.foreign_errors import connect_error, denied, kafka_error
from koff.client.librdkafka import consume_waiting
from koff.errors import Closed, ConnectError, KoffError

_PERHAPS_ABSENT = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT"})
_AT_ONCE = 10_000
_ANSWER_S = 2.0
"""How long a leader may take to say where its partition begins or ends."""
_SLICE_S = 0.1
"""How long a fetch waits, so that a `close` from elsewhere need not wait long."""


class Lane:
    """One partition of a shared feed, what has come for it, and where it goes on (`next`).

    `end` is where its end was found, at `end_at`, None once something came after that. `lost` says that the
    offset is not there; `failure` that nothing can be read.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next = offset
        self.end: int | None = None
        self.served_at = time.monotonic()
        self.end_at = self.served_at
        self.lost = ""
        self.failure: KoffError | None = None
        self.reading = False
        self.chunks: deque[tuple[list[Message], int]] = deque()
        self.held_bytes = 0

    @property
    def ready(self) -> bool:
        """Whether there is something to take, or to say."""
        return bool(self.chunks or self.lost or self.failure)

    def put(self, messages: list[Message]) -> None:
        """Keeps what came, but for what had come before."""
        first: Any = messages[0].offset()
        if first < self.next:  # a batch is fetched whole when it is asked for from its middle
            messages = [each for each in messages if _offset(each) >= self.next]
            if not messages:
                return
        size = sum(map(len, messages)) if self.chunks else 0  # the first is taken soon: not worth the time
        self.chunks.append((messages, size))
        self.held_bytes += size
        self.next = _offset(messages[-1]) + 1
        self.end = None
        self.served_at = time.monotonic()

    def take(self, max_messages: int) -> list[Message]:
        """The next of what has come."""
        messages, size = self.chunks.popleft()
        if len(messages) > max_messages:
            self.chunks.appendleft((messages[max_messages:], size))
            return messages[:max_messages]
        self.held_bytes -= size
        return messages

    def ended(self, offset: int) -> None:
        """The partition ends there, unless what was put since says otherwise."""
        self.served_at = time.monotonic()
        if offset >= self.next:
            self.next = self.end = offset
            self.end_at = self.served_at


class SharedFeed(Source):
    """Reads lanes as they are opened; a lane that nobody takes from is not read on. Threads may share it."""

    def __init__(self, cluster: Cluster, conf: FeedConf) -> None:
        super().__init__(cluster.conf, conf, f"the connection to {cluster.conf.brokers}")
        self._cluster = cluster
        self._isolation = Isolation(conf.isolation)
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._most_held = 2 * conf.fetch_bytes
        self._changed = threading.Condition()
        self._fetching = False
        self._users = 0
        self._closing = False

    def close(self) -> None:
        """Stops reading, once those who are at it have noticed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._users == 0)
            super().close()

    def open(self, topic: str, partition: int, offset: int) -> Lane | None:
        """A lane that starts there; None when there is one of that partition."""
        with self._using(), self._changed:
            if (topic, partition) in self._lanes:
                return None
            lane = self._lanes[topic, partition] = Lane(topic, partition, offset)
            return lane

    def drop(self, lane: Lane) -> None:
        """Reads that lane no more."""
        with self._changed:
            if self._lanes.pop((lane.topic, lane.partition), None) and not self._closing:
                self._halt(lane)

    def take(self, lane: Lane, max_messages: int) -> list[Message]:
        """What has come for the lane; empty for nothing."""
        with self._changed:
            consumer = self._client()
            if lane.chunks:
                return lane.take(max_messages)
            if not lane.reading and not lane.ready:
                at = Assigned(lane.topic, lane.partition, lane.next)
                consumer.incremental_assign([at])
                lane.reading = True
                lane.served_at = time.monotonic()
        return []

    def forgive(self, lane: Lane) -> None:
        """Forgets why the lane cannot be read: the next `take` tries again."""
        with self._using(), self._changed:
            self._halt(lane)
            lane.lost, lane.failure = "", None

    def wait(self, lanes: Collection[Lane], timeout_s: float) -> None:
        """Returns when one of the lanes is ready, or after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while True:
            with self._changed:
                self._client()
                left = until - time.monotonic()
                if left <= 0 or any(lane.ready for lane in lanes):
                    return
                if self._fetching:
                    self._changed.wait(left)
                    continue
                self._fetching = True
            try:
                with self._using() as consumer:
                    self._fetch(consumer, min(left, _SLICE_S))
            finally:
                with self._changed:
                    self._fetching = False
                    self._changed.notify_all()

    def offset(self, lane: Lane, spec: OffsetSpec = OffsetSpec.LATEST) -> int:
        """Where the lane's partition begins or ends, as its leader says now.

        Raises `ConnectError`, `UnknownTopic`, `Denied`. Fetches wait in line at a broker, this does not.
        """
        asked_at, at = time.monotonic(), TopicPartition(lane.topic, lane.partition)
        try:
            answer = self._cluster.offsets([at], spec, self._isolation, timeout_s=_ANSWER_S)[at]
        except ConnectError:
            self._look_for_leader(lane.topic)
            raise
        if isinstance(answer, int):
            self.answered(asked_at)
            return answer
        if absent(self._cluster, at, answer):
            raise UnknownTopic(f"{lane.topic}/{lane.partition} is not there any more")
        if answer == "TOPIC_AUTHORIZATION_FAILED":
            raise denied(lane.topic, self._brokers, "DESCRIBE")
        self._look_for_leader(lane.topic)
        raise ConnectError(
            f"the leader of {lane.topic}/{lane.partition} does not answer: {answer}; check that it runs"
        )

    @contextmanager
    def _using(self) -> Iterator[Consumer]:
        """The client, which nobody closes meanwhile."""
        with self._changed:
            consumer = self._client()
            self._users += 1
        try:
            yield consumer
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _client(self) -> Consumer:
        if self._closing:
            raise Closed(f"{self._name} is closed")
        return super()._client()

    def _fetch(self, consumer: Consumer, timeout_s: float) -> None:
        try:
            got = consume_waiting(consumer, _AT_ONCE, timeout_s)
        except KafkaException as failure:
            error = kafka_error(failure)
            raise connect_error(self._brokers, [error] if error else [], was_up=True) from failure
        if not got:
            self._look_after(consumer)
            return
        self._silence.broken()
        events = [message for message in got if message.error()] if any(map(Message.error, got)) else []
        if events:
            got = [message for message in got if message.error() is None]
        with self._changed:
            for lane, messages in self._sorted(got):
                lane.put(messages)
                if lane.held_bytes > self._most_held:
                    self._halt(lane)
            for event in events:
                self._event(event)
            self.trouble = None if got else self.trouble

    def _look_after(self, consumer: Consumer) -> None:
        """Reads all lanes on with a new client, once this one is of no more use and nobody else's."""
        with self._changed:
            topic = next((topic for topic, _ in self._lanes), "")
        if topic and self._silence.cut_off(consumer, topic):
            with self._changed:
                self._changed.wait_for(lambda: self._users == 1)
                reading = (lane for lane in self._lanes.values() if lane.reading)
                self._revived(consumer, [Assigned(lane.topic, lane.partition, lane.next) for lane in reading])

    def _sorted(self, messages: list[Message]) -> Iterator[tuple[Lane, list[Message]]]:
        """The messages by lane; those of lanes that are dropped, or halted, are left out."""
        topics: set[Any] = set(map(Message.topic, messages))
        if len(topics) == 1:
            (topic,) = topics
            pieces = [((topic, run.partition), run.messages) for run in runs(messages)]
        else:
            pieces = [(at, list(of)) for at, of in groupby(messages, _place)]
        for at, piece in pieces:
            lane = self._lanes.get(at)
            if lane is not None and lane.reading:
                yield lane, piece

    def _event(self, event: Any) -> None:
        lane, error = self._lanes.get((event.topic(), event.partition())), event.error()
        code = error.code()
        if lane is None or not lane.reading:
            return
        if code == KafkaError._PARTITION_EOF:
            lane.ended(event.offset())
            self.trouble = None
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            lane.failure = denied(lane.topic, self._brokers, "READ")
        elif code in LOST:
            lane.lost = error.str()
        elif code in GONE:
            lane.failure = UnknownTopic(f"{lane.topic}/{lane.partition} is not there: {error.str()}")
        else:
            self._note(error)

    def _halt(self, lane: Lane) -> None:
        if lane.reading:
            lane.reading = False
            self._client().incremental_unassign([Assigned(lane.topic, lane.partition)])

    def _look_for_leader(self, topic: str) -> None:
        """librdkafka would find out by itself, but only after its own timeouts."""
        with self._using() as consumer:
            try:
                consumer.list_topics(topic, timeout=_ANSWER_S)
            except KafkaException:
                pass  # what failed before says more


def absent(cluster: Cluster, at: TopicPartition, reason: str) -> bool:
    """Whether there is no such partition, if that may be the `reason` for which an offset was not told."""
    if reason not in _PERHAPS_ABSENT:
        return False
    topic = cluster.fetch_topic(at.topic, patience_s=SPREAD_S)
    return topic is None or not 0 <= at.partition < topic.partitions


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset


def _place(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()
