"""Producers that choose the partition, out of the first `partitions` partitions of a topic."""

import itertools
import random
from collections.abc import Callable, Sequence

from koff.client.broker.interfaces import Producer
from koff.client.errors import ProduceError
from koff.client.key_hashes import fnv1a_partition
from koff.client.message import Message
from koff.errors import ConfigError, KoffError


class _DistributingProducer:
    """The common part of the three producers: the producer that writes, and the number of partitions."""

    def __init__(self, producer: Producer, partitions: int) -> None:
        if partitions < 1:
            raise ConfigError(
                f"messages cannot be distributed over {partitions} partitions: `partitions` must be at least "
                "one"
            )
        self._producer = producer
        self._partitions = partitions


class HashProducer(_DistributingProducer):
    """Writes messages with the same key to the same partition. A `DistributingProducer`.

    `find_partition` computes a key's partition: `fnv1a_partition`, `crc32_partition`, `murmur2_partition`
    or a function of yours.
    """

    def __init__(
        self,
        producer: Producer,
        partitions: int,
        find_partition: Callable[[bytes | None, int], int] = fnv1a_partition,
    ) -> None:
        super().__init__(producer, partitions)
        self._find_partition = find_partition

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """Writes each message to the partition of its key. Returns the offset of the first message.

        Each partition is written by a call of its own. When one call fails, the other calls are made too.
        The `ProduceError` then covers all messages.
        """
        # The indices of the messages, by partition.
        by_partition: dict[int, list[int]] = {}
        for index, message in enumerate(messages):
            by_partition.setdefault(self._find_partition(message.key, self._partitions), []).append(index)
        if len(by_partition) <= 1:
            partition = next(iter(by_partition), 0)
            return self._producer.produce(topic, partition, *messages)

        # One call for each partition; errors are collected by the message's index in this call.
        errors: dict[int, str] = {}
        unknown: list[int] = []
        offset, cause = None, None
        for partition, indices in by_partition.items():
            try:
                first = self._producer.produce(topic, partition, *(messages[index] for index in indices))
            except KoffError as error:
                cause = cause or error
                _add_errors(error, indices, errors, unknown)
            else:
                offset = first if indices[0] == 0 else offset
        if cause is not None:
            raise ProduceError(topic, len(messages), errors, unknown) from cause
        return offset


class RandomProducer(_DistributingProducer):
    """Writes all messages of a call to one partition, chosen at random. A `DistributingProducer`."""

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """Writes the messages and returns the offset of the first."""
        partition = random.randrange(self._partitions)  # noqa: S311  # spreads load, no secret
        return self._producer.produce(topic, partition, *messages)


class RoundRobinProducer(_DistributingProducer):
    """Writes all messages of a call to one partition, a different one for each call, in turn.

    A `DistributingProducer`.
    """

    def __init__(self, producer: Producer, partitions: int) -> None:
        super().__init__(producer, partitions)
        self._turns = itertools.count()  # next() is atomic, so threads need no lock

    def distribute(self, topic: str, *messages: Message) -> int | None:
        """Writes the messages and returns the offset of the first."""
        return self._producer.produce(topic, next(self._turns) % self._partitions, *messages)


def _add_errors(error: KoffError, indices: Sequence[int], errors: dict[int, str], unknown: list[int]) -> None:
    """Adds the error of one call, with the messages at `indices`, to `errors` and `unknown`."""
    if isinstance(error, ProduceError):
        # A `ProduceError` counts the messages of its own call from 0.
        errors.update({indices[index]: reason for index, reason in error.errors.items()})
        unknown.extend(indices[index] for index in error.unknown)
    else:
        errors.update(dict.fromkeys(indices, str(error)))
