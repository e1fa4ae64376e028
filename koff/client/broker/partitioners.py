"""Producers that choose the partition themselves, out of the first `partitions` of a topic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from koff.client.broker.interfaces import Producer
from koff.client.errors import ProduceError
from koff.client.message import Message
from koff.errors import ConfigError, KoffError

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def fnv1a_32(data: bytes) -> int:
    """The FNV-1a hash of 32 bits, unsigned (Go's hash/fnv New32a)."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def hash_partition(key: bytes | None, partitions: int) -> int:
    """Where a key belongs: its FNV-1a hash as a signed number, without the sign, modulo `partitions`.

    That is what Go's producers do; they have no answer for the one hash, -2^31, whose negative is no int32.
    """
    value = fnv1a_32(key or b"")
    return (value if value < 1 << 31 else (1 << 32) - value) % partitions


class _Distributing:
    def __init__(self, producer: Producer, partitions: int) -> None:
        if partitions < 1:
            raise ConfigError(
                f"messages cannot be distributed over {partitions} partitions: name at least one"
            )
        self._producer = producer
        self._partitions = partitions


class HashProducer(_Distributing):
    """Messages with the same key go to the same partition; a `DistributingProducer`."""

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """The offset of the first message; each goes where its key belongs, in a call for each partition.

        When one call fails the others are made all the same; the `ProduceError` speaks of all messages.
        """
        calls: dict[int, list[int]] = {}
        for at, message in enumerate(messages):
            calls.setdefault(hash_partition(message.key, self._partitions), []).append(at)
        if len(calls) <= 1:
            partition = next(iter(calls), 0)
            return self._producer.produce(topic, partition, *messages)
        errors: dict[int, str] = {}
        unknown: list[int] = []
        offset, cause = None, None
        for partition, places in calls.items():
            try:
                first = self._producer.produce(topic, partition, *(messages[at] for at in places))
            except KoffError as failure:
                cause = cause or failure
                _add(failure, places, errors, unknown)
            else:
                offset = first if places[0] == 0 else offset
        if cause is not None:
            raise ProduceError(topic, len(messages), errors, unknown) from cause
        return offset


class RandomProducer(_Distributing):
    """All messages of a call go to one partition, any; a `DistributingProducer`."""

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """The offset of the first message."""
        return self._producer.produce(topic, random.randrange(self._partitions), *messages)  # noqa: S311


class RoundRobinProducer(_Distributing):
    """All messages of a call go to one partition, the next one; a `DistributingProducer`."""

    def __init__(self, producer: Producer, partitions: int) -> None:
        super().__init__(producer, partitions)
        self._turns = itertools.count()  # its next() is one step, which threads cannot share

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """The offset of the first message."""
        return self._producer.produce(topic, next(self._turns) % self._partitions, *messages)


def _add(failure: KoffError, places: Sequence[int], errors: dict[int, str], unknown: list[int]) -> None:
    if isinstance(failure, ProduceError):
        errors.update({places[at]: reason for at, reason in failure.errors.items()})
        unknown.extend(places[at] for at in failure.unknown)
    else:
        errors.update(dict.fromkeys(places, str(failure)))
