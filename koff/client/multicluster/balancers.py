"""Balancers: choose the partition of a message. A writer makes one balancer for each cluster."""

from __future__ import annotations

from typing import Protocol

from koff.client.message import Message


class Balancer(Protocol):
    """Chooses a partition for each message. The writer never calls it from two threads at the same time."""

    def balance(self, message: Message, partitions: int) -> int:
        """The partition for the message: from 0 to `partitions` - 1."""


class RoundRobin:
    """Uses the partitions in turn. Ignores the message."""

    def __init__(self) -> None:
        self._next = 0

    def balance(self, message: Message, partitions: int) -> int:
        """The partition after the one that was chosen last."""
        chosen = self._next % partitions  # the topic may have fewer partitions than at the last call
        self._next = chosen + 1
        return chosen


class Hash:
    """The same partition for the same key, as in Go's clients; round robin for messages without a key."""

    def __init__(self) -> None:
        self._keyless = RoundRobin()

    def balance(self, message: Message, partitions: int) -> int:
        """The partition of the message's key, see `hash_partition`."""
        if message.key is None:
            return self._keyless.balance(message, partitions)
        return hash_partition(message.key, partitions)


class LeastBytes:
    """The partition that has received the fewest bytes (of keys and values) from this balancer."""

    def __init__(self) -> None:
        self._bytes: list[int] = []

    def balance(self, message: Message, partitions: int) -> int:
        """The lowest partition among those with the fewest bytes."""
        if len(self._bytes) != partitions:  # first call, or the topic has grown: start again
            self._bytes = [0] * partitions
        chosen = self._bytes.index(min(self._bytes))
        self._bytes[chosen] += payload_bytes(message)
        return chosen


def hash_partition(key: bytes, partitions: int) -> int:
    """The partition of a key, as sarama and kafka-go compute it.

    The key's 32-bit FNV-1a hash is taken as a signed integer; the partition is the absolute value of its
    remainder.
    """
    code = 0x811C9DC5  # FNV offset basis
    for byte in key:
        code = (code ^ byte) * 0x01000193 & 0xFFFFFFFF  # FNV prime
    signed = code - (1 << 32) if code >> 31 else code
    # Go truncates towards zero, so the absolute remainder is the remainder of the absolute hash.
    return abs(signed) % partitions


def payload_bytes(message: Message) -> int:
    """How many bytes key and value have together."""
    return len(message.key or b"") + len(message.value or b"")
