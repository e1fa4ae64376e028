"""The messages of a partition that a shared feed has fetched, and who reads the partition when."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from koff.client.topic_watch import WatchedTopic
from koff.errors import KoffError

_TURN_S = 1.0
"""After this time without a response, a turn is over."""


@dataclass(slots=True, eq=False)
class PartitionBuffer:
    """The messages of one partition that a shared feed has fetched and its consumer has not taken yet.

    `next_offset` is the offset of the next fetch. `end_offset` is the end offset that was reached at
    `end_seen_at` (monotonic), and None once messages came after that. `last_response_at` (monotonic) is when
    messages or the end last came. `lost_reason` is set when `next_offset` is not in the log, `error` when the
    partition cannot be read at all. `is_assigned`: the client reads the partition at `next_offset`.
    `closed`: the consumer or the feed is closed. Attributes change only under the feed's lock; the consumer
    also reads them without it. One exception: the finalizer of a consumer sets `closed` without the lock.
    """

    topic: str
    partition: int
    next_offset: int
    end_offset: int | None = None
    last_response_at: float = field(default_factory=time.monotonic)
    end_seen_at: float = field(default_factory=time.monotonic)
    lost_reason: str = ""
    error: KoffError | None = None
    is_assigned: bool = False
    closed: bool = False
    chunks: deque[tuple[list[Message], int]] = field(default_factory=deque)
    """The messages, and the bytes of their values."""
    buffered_bytes: int = 0
    watched: WatchedTopic = field(default_factory=lambda: WatchedTopic(""))
    recreations: int = 0
    """How often the topic was created again before the consumer chose `next_offset`."""

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def is_recreated(self) -> bool:
        """Whether the topic was created again since `next_offset` was chosen."""
        return self.recreations != self.watched.recreations

    @property
    def is_ready(self) -> bool:
        """Whether the consumer has something to take: messages or an error."""
        return bool(self.chunks or self.lost_reason or self.error or self.is_recreated)

    @property
    def position(self) -> int:
        """The offset of the oldest message; of the next fetch if there is none."""
        return _offset(self.chunks[0][0][0]) if self.chunks else self.next_offset

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

    def drop_old_messages(self) -> None:
        """Drops what was fetched before the topic was created again, and counts as one of the new topic."""
        self.recreations = self.watched.recreations
        self.next_offset, self.end_offset = self.position, None
        self.chunks.clear()
        self.buffered_bytes = 0

    def note_end(self, offset: int) -> None:
        """Notes that the partition ends at `offset`, unless newer messages have come since."""
        self.last_response_at = time.monotonic()
        if offset >= self.next_offset:
            self.next_offset = self.end_offset = offset
            self.end_seen_at = self.last_response_at

    def start_reading(self, other: PartitionBuffer | None = None) -> None:
        """Notes that the client reads for this buffer from now on, as it does for `other` already."""
        self.is_assigned = True
        self.last_response_at = time.monotonic()
        # librdkafka reports an end once: this buffer would not get an event that `other` has had.
        self.end_offset = other.end_offset if other else None
        self.end_seen_at = other.end_seen_at if other else self.last_response_at


class SharedPartition:
    """The buffers of one partition. A librdkafka client can read the partition at one position only.

    Buffers with the same next offset are assigned together, and get the same messages. Buffers with other
    offsets wait for their turn. A turn lasts until a response has come. Guarded by the feed's lock.
    """

    def __init__(self) -> None:
        self.buffers: list[PartitionBuffer] = []
        self._waiting: deque[PartitionBuffer] = deque()
        self._turn_began_at = 0.0

    @property
    def assigned(self) -> list[PartitionBuffer]:
        """The buffers for which the client reads. All have the same next offset."""
        return [buffer for buffer in self.buffers if buffer.is_assigned]

    def remove(self, buffer: PartitionBuffer) -> None:
        """Forgets a buffer that is not assigned."""
        self.buffers.remove(buffer)
        if buffer in self._waiting:
            self._waiting.remove(buffer)

    def request_turn(self, buffer: PartitionBuffer) -> None:
        """Puts the buffer behind the buffers that wait for their turn already."""
        if buffer not in self._waiting:
            self._waiting.append(buffer)

    def join_turn(self) -> bool:
        """Assigns the waiting buffers whose next offset the client reads. Whether others still wait."""
        for current in self.assigned[:1]:
            for buffer in [each for each in self._waiting if each.next_offset == current.next_offset]:
                self._waiting.remove(buffer)
                buffer.start_reading(current)
        return bool(self._waiting)

    def is_turn_over(self) -> bool:
        """Whether the client may read at another position. True if it does not read the partition."""
        assigned = self.assigned
        return time.monotonic() - self._turn_began_at >= _TURN_S or all(
            buffer.is_ready or buffer.last_response_at > self._turn_began_at for buffer in assigned
        )

    def end_turn(self) -> None:
        """Assigns no buffer any more."""
        for buffer in self.assigned:
            buffer.is_assigned = False

    def start_turn(self) -> int:
        """Assigns the buffer that has waited longest, in place of others. Returns its next offset."""
        self.end_turn()
        first = self._waiting.popleft()
        first.start_reading()
        self._turn_began_at = first.last_response_at
        self.join_turn()
        return first.next_offset


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset
