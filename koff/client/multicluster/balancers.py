"""Which partition a message goes to. Each cluster written to has a balancer of its own."""

from __future__ import annotations

from typing import Protocol

from koff.client.message import Message


class Balancer(Protocol):
    """Chooses partitions; asked by one thread at a time."""

    def balance(self, message: Message, partitions: int) -> int:
        """A partition from 0 up to, but without, `partitions`."""


class RoundRobin:
    """One partition after the other, whatever the message."""

    def __init__(self) -> None:
        self._next = 0

    def balance(self, message: Message, partitions: int) -> int:
        """The partition after the last one."""
        chosen = self._next % partitions
        self._next = chosen + 1
        return chosen


class Hash:
    """The same partition for the same key (FNV-1a, 32 bits, signed as Go's clients do); else round robin."""

    def __init__(self) -> None:
        self._keyless = RoundRobin()

    def balance(self, message: Message, partitions: int) -> int:
        """The key's partition, among that many."""
        if message.key is None:
            return self._keyless.balance(message, partitions)
        return hash_partition(message.key, partitions)


class LeastBytes:
    """The partition that has been given the fewest bytes of keys and values."""

    def __init__(self) -> None:
        self._bytes: list[int] = []

    def balance(self, message: Message, partitions: int) -> int:
        """The first of those with the fewest bytes."""
        if len(self._bytes) != partitions:
            self._bytes = [0] * partitions
        chosen = self._bytes.index(min(self._bytes))
        self._bytes[chosen] += size(message)
        return chosen


def hash_partition(key: bytes, partitions: int) -> int:
    """The key's partition as sarama and kafka-go compute it: the remainder of a signed hash, without sign."""
    code = 0x811C9DC5
    for byte in key:
        code = (code ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return abs(signed) % partitions


def size(message: Message) -> int:
    """The bytes of key and value."""
    return len(message.key or b"") + len(message.value or b"")
