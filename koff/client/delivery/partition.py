"""A partition that is read: what waits of it, what was handed out, and how far that is processed."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum
from operator import methodcaller
from typing import Any

from koff.client.broker.consumer import PartitionConsumer
from koff.client.cluster_conf import TopicPartition
from koff.client.delivery.conf import FailureRule
from koff.client.errors import TopicRecreated
from koff.client.start_offset import StartOffset


class PartitionState(Enum):
    """How far a partition is from its end.

    READING: messages are handed out. DRAINING: no more messages are handed out; the reader waits until those
    that it handed out are processed. ENDING: the offsets are committed for the last time. LOST:
    acknowledgements are ignored.
    """

    READING = "reading"
    DRAINING = "draining"
    ENDING = "ending"
    LOST = "lost"


@dataclass(slots=True)
class _DeliveredMessage:
    raw: Any
    """confluent-kafka's message."""
    deliveries: int = 0
    in_progress: bool = False
    processed: bool = False


@dataclass(slots=True, eq=False)
class ReadPartition:
    """A partition of a cluster, from its start (or `set_offset`, assignment, claim) on until it is LOST.

    After that, nothing of it is handed out, acknowledged or committed any more, also if the same partition is
    read again. Not safe for threads: who uses it holds the lock of its `Delivery`, but for what belongs to
    the thread of its `Intake`. `assignment` is what its messages have as `assignment`. With a `rule`, the
    messages are tracked until they are acknowledged.
    """

    topic: str
    partition: int
    assignment: int = 0
    cluster: str = ""
    rule: FailureRule | None = None
    state: PartitionState = PartitionState.READING
    deadline: float = 0.0
    """Monotonic time at which draining ends, even if handed-out messages are not processed."""

    # What waits, and what was handed out.
    buffered: deque[Any] = field(default_factory=deque)
    """Fetched messages of confluent-kafka, in log order."""
    delayed: list[tuple[float, Any]] = field(default_factory=list)
    """Messages that failed, each with the time of its next delivery."""
    next_offset: int = StartOffset.OLDEST
    """The offset after the last message that was handed out. Before the first, a `StartOffset` or a start."""
    was_read: bool = False
    """Whether a message was handed out."""
    logs: int = 0
    """How many logs were forgotten: acknowledgements of their messages do not count."""
    to_commit: int | None = None
    """The offset that has yet to be committed."""
    last_delivered: int | None = None
    """The offset of the last tracked message that was handed out for the first time."""
    processed_up_to: int | None = None
    """The offset up to which all tracked messages were processed; None before the first."""
    # By offset, in the order of their first delivery. Taking from the front of a plain dict is slow.
    _delivered: OrderedDict[int, _DeliveredMessage] = field(default_factory=OrderedDict)

    # For the thread of the intake.
    consumer: PartitionConsumer | None = None
    """What reads it; None before the first offset is known, and while it is not read."""
    retry_at: float = 0.0
    """Monotonic time before which its next step is not tried again; 0 before the first error."""
    failing_since: float | None = None
    """Monotonic time since when its leader, or what else it needs, does not respond."""
    failed: bool = False
    """Whether an error has ended the reading."""
    recreated: TopicRecreated | None = None
    """Set when the topic was created again, until the new log is read."""
    recreated_at: float = 0.0
    """When that was noticed (monotonic)."""
    end_offset: int = -1
    """The end offset, as it was when the last messages were fetched."""
    read_to: int = StartOffset.OLDEST
    """The offset up to which it was read when its end was last reached. It may be after the last message:
    transactions end with control records."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_starting(self) -> bool:
        """Whether it is not certain yet from which offset it is read."""
        return self.consumer is None and self.state is PartitionState.READING and not self.failed

    @property
    def position(self) -> int:
        """The offset of the next message for the application; that of its start, or a constant, before."""
        return self.next_offset if self.buffered else max(self.next_offset, self.read_to)

    @property
    def lag(self) -> int:
        """How many offsets follow the last message that was handed out, as far as koff knows.

        -1 before the first message, and while the end is unknown.
        """
        is_known = self.was_read and self.end_offset >= 0
        return max(self.end_offset - self.position, 0) if is_known else -1

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self.buffered) + len(self.delayed)

    def has_due(self, now: float) -> bool:
        """Whether a message may be handed out."""
        return bool(self.buffered) or any(due_at <= now for due_at, _ in self.delayed)

    @property
    def drained(self) -> bool:
        """Whether each handed-out message came back, acknowledged or not."""
        return not any(message.in_progress for message in self._delivered.values())

    def drop_messages(self) -> None:
        """Hands out nothing that was fetched before."""
        self.buffered.clear()
        self.delayed.clear()

    def forget(self) -> None:
        """Forgets all messages: the topic was created again, and other messages have their offsets."""
        self.drop_messages()
        self._delivered.clear()
        self.logs += 1
        self.was_read = False
        self.last_delivered = self.processed_up_to = self.to_commit = None
        self.next_offset = self.read_to = StartOffset.OLDEST
        self.end_offset = -1

    def pop(self, most: int | None, now: float) -> list[Any]:
        """confluent-kafka's messages that are handed out next, in the order of their offsets."""
        due = [raw for due_at, raw in self.delayed if due_at <= now]
        if due:
            self.delayed = [each for each in self.delayed if each[0] > now]
            self.buffered = deque(sorted([*due, *self.buffered], key=methodcaller("offset")))
        if self.rule is None and most is None:
            taken, self.buffered = list(self.buffered), deque()
            return taken
        taken = []
        while self.buffered and (most is None or len(taken) < most):
            raw = self.buffered.popleft()
            if not self._was_processed(raw.offset()):  # perhaps up to a later message, since it failed
                taken.append(raw)
        return taken

    def deliver(self, offset: int, raw: Any) -> int:
        """Notes that the message is handed out; returns how often it was handed out, this time included."""
        message = self._delivered.get(offset)
        # Offsets have gaps (compaction, transaction markers), so the order of delivery is kept, not computed.
        # A redelivered message keeps its place in that order.
        if message is None:
            message = self._delivered[offset] = _DeliveredMessage(raw)
            self.last_delivered = offset
        message.deliveries += 1
        message.in_progress = True
        return message.deliveries

    def mark_processed(self, offset: int) -> int | None:
        """Notes that one message was processed; returns `processed_up_to` if it moved, else None."""
        message = self._delivered.get(offset)
        if message is not None:
            message.processed, message.in_progress = True, False
        return self._advance()

    def mark_processed_up_to(self, offset: int) -> int | None:
        """Notes that all messages up to `offset` were processed; returns `processed_up_to` if it moved."""
        for delivered, message in self._delivered.items():
            if delivered > offset:
                break
            message.processed, message.in_progress = True, False
        return self._advance()

    def mark_failed(self, offset: int) -> tuple[Any, int] | None:
        """Notes that the application could not process the message.

        Returns confluent-kafka's message and how often it was handed out; None if it was processed already.
        """
        message = self._delivered.get(offset)
        if message is None or message.processed:
            return None
        message.in_progress = False
        return message.raw, message.deliveries

    def mark_in_progress(self, offset: int) -> None:
        """Notes that a message that failed is not done with yet."""
        self._delivered[offset].in_progress = True

    def _was_processed(self, offset: int) -> bool:
        if self.last_delivered is None or offset > self.last_delivered:
            return False
        message = self._delivered.get(offset)
        return message is None or message.processed

    def _advance(self) -> int | None:
        """Moves `processed_up_to` over the processed messages at the front; returns it if it moved."""
        # Only the processed messages at the front count: a gap keeps all later ones from being committed.
        before = self.processed_up_to
        while self._delivered and next(iter(self._delivered.values())).processed:
            self.processed_up_to, _ = self._delivered.popitem(last=False)
        return self.processed_up_to if self.processed_up_to != before else None
