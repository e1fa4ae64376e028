"""The messages of one reader that were handed out, until the application has processed them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf
from koff.client.message import Message
from koff.client.multicluster.conf import ReaderConf
from koff.client.redelivery.acknowledgements import Acknowledgements
from koff.client.redelivery.conf import Redelivery, RedeliveryCounts
from koff.client.redelivery.dead_letters import DeadLetters
from koff.client.redelivery.delivered_partition import DeliveredPartition
from koff.client.redelivery.errors import PartitionError


@dataclass(slots=True, eq=False)
class _ReadPartition(DeliveredPartition):
    """A partition from its first message until it is dropped. Acknowledgements do not count after that."""

    dropped: bool = False


class MessageTracker(Closing):
    """Notes which messages of a reader are processed, and keeps those that failed until they are due.

    `lock` is the inbox's lock, which guards the tracker, too. Every method acquires it. `on_error` gets each
    message that is passed over.
    """

    def __init__(
        self,
        cluster: ClusterConf,
        conf: ReaderConf,
        redelivery: Redelivery,
        lock: threading.RLock,
        on_error: Callable[[PartitionError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic, self._lock, self._clock = conf.topic, lock, clock
        self._partitions: dict[int, _ReadPartition] = {}
        self._delayed: list[tuple[float, _ReadPartition, Any]] = []
        self._processed: dict[int, int] = {}
        self._dead_letters: DeadLetters | None = None
        if redelivery.dead_letter_topic:
            topic, group = redelivery.dead_letter_topic, conf.group_id
            self._dead_letters = DeadLetters(cluster, topic, group)
        self._acknowledgements: Acknowledgements[_ReadPartition] = Acknowledgements(
            lock,
            max_redeliveries=conf.max_redeliveries,
            redelivery=redelivery,
            is_lost=lambda partition: partition.dropped,
            delay=self._delay,
            on_processed=self._note_processed,
            on_error=on_error,
            write_dead_letter=None if self._dead_letters is None else self._dead_letters.write_message,
        )

    @property
    def counts(self) -> RedeliveryCounts:
        """What became of messages that failed."""
        return self._acknowledgements.counts

    @property
    def delayed(self) -> int:
        """How many messages failed and wait until they are due."""
        return len(self._delayed)

    def close(self) -> None:
        """Ignores acknowledgements from now on, and closes the producer of dead letters."""
        with self._lock:
            self.drop_partitions(list(self._partitions))
        if self._dead_letters is not None:
            self._dead_letters.close()

    def hand_out(self, messages: Sequence[Message], raws: Sequence[Any]) -> None:
        """Notes that messages of one partition, with confluent-kafka's, go to the application."""
        with self._lock:
            number = messages[0].partition
            partition = self._partitions.get(number)
            if partition is None:
                partition = self._partitions[number] = _ReadPartition(self._topic, number)
            for message, raw in zip(messages, raws, strict=True):
                self._acknowledgements.hand_out(partition, message, raw)

    def mark_processed_up_to(self, partition: int, offset: int) -> None:
        """Marks the partition's messages up to that offset as processed."""
        with self._lock:
            if (known := self._partitions.get(partition)) is not None:
                self._acknowledgements.mark_processed_up_to(known, offset)

    def pop_due(self) -> dict[int, list[Any]]:
        """confluent-kafka's messages that are due to be delivered again, by partition, in log order."""
        with self._lock:
            now = self._clock()
            due: dict[int, list[Any]] = {}
            for due_at, partition, raw in self._delayed:
                if due_at <= now and not partition.was_processed(raw.offset()):
                    due.setdefault(partition.partition, []).append(raw)
            self._delayed = [each for each in self._delayed if each[0] > now]
        return {partition: sorted(raws, key=_read_offset) for partition, raws in due.items()}

    def pop_processed(self) -> dict[int, int]:
        """The offset to commit of each partition where it has moved since the last call."""
        with self._lock:
            processed, self._processed = self._processed, {}
        return processed

    def drop_partitions(self, partitions: Iterable[int]) -> None:
        """Forgets these partitions: their messages are not delivered again, and cannot be acknowledged."""
        with self._lock:
            for number in partitions:
                if (partition := self._partitions.pop(number, None)) is not None:
                    partition.dropped = True
                self._processed.pop(number, None)
            self._delayed = [each for each in self._delayed if not each[1].dropped]

    def _delay(self, partition: _ReadPartition, raw: Any, delay_s: float) -> None:
        if not partition.dropped:
            self._delayed.append((self._clock() + delay_s, partition, raw))

    def _note_processed(self, partition: _ReadPartition, processed_up_to: int) -> None:
        self._processed[partition.partition] = processed_up_to + 1


def _read_offset(raw: Any) -> int:
    offset: int = raw.offset()
    return offset
