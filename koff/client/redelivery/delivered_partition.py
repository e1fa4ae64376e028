"""Which messages of a partition were handed out, and how far they were processed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _DeliveredMessage:
    raw: Any
    """confluent-kafka's message."""
    deliveries: int = 0
    in_progress: bool = False
    processed: bool = False


@dataclass(slots=True, eq=False)
class DeliveredPartition:
    """The messages of one partition that were handed out and are not processed, and how far all are.

    Not safe for threads.
    """

    topic: str
    partition: int
    last_delivered: int | None = field(default=None, kw_only=True)
    """The offset of the last message that was handed out for the first time."""
    processed_up_to: int | None = field(default=None, kw_only=True)
    """The offset up to which all delivered messages were processed; None before the first."""
    # By offset, in the order of their first delivery. Taking from the front of a plain dict is slow.
    _delivered: OrderedDict[int, _DeliveredMessage] = field(default_factory=OrderedDict, kw_only=True)

    def forget(self) -> None:
        """Forgets all messages: the topic was created again, and other messages have their offsets."""
        self._delivered.clear()
        self.last_delivered = self.processed_up_to = None

    @property
    def drained(self) -> bool:
        """Whether each handed-out message came back, acknowledged or not."""
        return not any(message.in_progress for message in self._delivered.values())

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

    def was_processed(self, offset: int) -> bool:
        """Whether the message was handed out and is processed."""
        if self.last_delivered is None or offset > self.last_delivered:
            return False
        message = self._delivered.get(offset)
        return message is None or message.processed

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

    def _advance(self) -> int | None:
        """Moves `processed_up_to` over the processed messages at the front; returns it if it moved."""
        # Only the processed messages at the front count: a gap keeps all later ones from being committed.
        before = self.processed_up_to
        while self._delivered and next(iter(self._delivered.values())).processed:
            self.processed_up_to, _ = self._delivered.popitem(last=False)
        return self.processed_up_to if self.processed_up_to != before else None
