"""Balancers: choose the partition of a message. A writer makes one balancer for each cluster."""

from collections.abc import Callable
from typing import Protocol

from koff.client.key_hashes import crc32_partition, fnv1a_partition, murmur2_partition
from koff.client.message import Message
from koff.errors import ConfigError


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


class _KeyHash:
    """The same partition for the same key; round robin for messages without a key."""

    _find_partition: Callable[[bytes | None, int], int]

    def __init__(self) -> None:
        self._keyless = RoundRobin()

    def balance(self, message: Message, partitions: int) -> int:
        """The partition of the message's key."""
        if message.key is None:
            return self._keyless.balance(message, partitions)
        return self._find_partition(message.key, partitions)


class Hash(_KeyHash):
    """The same partition for the same key, as in Go's clients; round robin for messages without a key."""

    _find_partition = staticmethod(fnv1a_partition)


class CRC32(_KeyHash):
    """The same partition for the same key, as in librdkafka; round robin for messages without a key."""

    _find_partition = staticmethod(crc32_partition)


class Murmur2(_KeyHash):
    """The same partition for the same key, as in Java's client; round robin for messages without a key."""

    _find_partition = staticmethod(murmur2_partition)


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


def choose_partition(balancer: Balancer, message: Message, partitions: int) -> int:
    """The partition that the balancer chooses. Raises `ConfigError` if there is no such partition."""
    chosen = balancer.balance(message, partitions)
    if not isinstance(chosen, int) or not 0 <= chosen < partitions:
        name = type(balancer).__name__
        raise ConfigError(f"the balancer {name} chose partition {chosen!r}: use 0 to {partitions - 1}")
    return chosen


def payload_bytes(message: Message) -> int:
    """How many bytes key and value have together."""
    return len(message.key or b"") + len(message.value or b"")
